//! Comparison of measured with published numbers, as text and markdown.
//!
//! Tasks match by letters and digits (`SST-2` is `sst2`), a published method `X_k10` is method `X` at ten draws, and
//! [`ALIASES`] are the names of the paper's tables. A number of a method that did not run here keeps its row, without a partner.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::metric::{ABSENT, Format, MILLION, Metric, Spread};
use super::names::{match_key, method_rank, task_label, task_order};
use super::published::{ASSUMED_SEEDS, Published, PublishedRow};
use super::summary::{Summary, key};
use super::table;
use crate::method::{MethodForm, MethodName};
use crate::record::TaskData;
use crate::settings::CheckpointChoice;
use crate::text::listed;

/// A published name that is not ours, the names under which the method may have run here, the nearest first (both are
/// letters and digits only), and `true` if the published table has the method's full answer only: then a name without a
/// number of draws is the largest of the run, otherwise the posterior mean.
type Alias = (&'static str, &'static [&'static str], bool);

/// A method that is called the same here needs an entry only if its published name leaves the draws open.
const ALIASES: [Alias; 6] = [
    ("mcd", &["mcd"], true),
    ("ens", &["ens10", "ens3", "enslogits"], true),
    ("bbb", &["bbb"], true),
    ("lap", &["lap"], true),
    ("bayeslorar8noprune", &["bayeslorafixed"], false),
    ("bayesloraexpanded", &["bayesloraexpanded"], false),
];

/// Members of the published ensemble: it has the parameters of ten.
const PUBLISHED_MEMBERS: usize = 10;

/// The method of a published row if it ran here, and its draws.
fn partner<'a>(row: &PublishedRow, summary: &Summary<'a>) -> (Option<&'a str>, u32) {
    let (name, draws) = row.method_and_draws();
    let key = match_key(name);
    let alias = ALIASES.iter().find(|(published, ..)| *published == key);
    let named = |key: &str| summary.methods.iter().find(|method| match_key(method) == key).copied();
    let method = match alias {
        Some((_, ours, _)) => ours.iter().find_map(|ours| named(ours)),
        None => named(&key),
    };
    let most = |method| {
        let runs = summary.results.finished().filter(|run| run.method == method);
        let checkpoints = runs.filter_map(|run| summary.choice.of(run));
        checkpoints.flat_map(|checkpoint| checkpoint.metrics.keys().copied()).max()
    };
    let full = method.filter(|_| alias.is_some_and(|(.., full)| *full)).and_then(most);
    (method, draws.or(full).unwrap_or(0))
}

/// Label of a published number over all tasks, and the function of their values.
type Over = (&'static str, fn(&[f64]) -> f64);

/// The mean, which is the value of each if they agree.
const MEAN: Over = ("all tasks", |values| values.iter().sum::<f64>() / values.len() as f64);
const LEAST: Over =
    ("all tasks, fewest", |values| values.iter().copied().fold(f64::INFINITY, f64::min));
const MOST: Over =
    ("all tasks, most", |values| values.iter().copied().fold(f64::NEG_INFINITY, f64::max));

/// The metric of a published row, one of its unit in ours (a million parameters are 1e6 parameters), and its function of all
/// tasks, if it is not of one; `None` if it is not measured here.
fn metric(row: &PublishedRow, draws: u32) -> Option<(Metric, f64, Option<Over>)> {
    let over = (match_key(&row.task) == "all").then_some(MEAN);
    match row.metric.as_str() {
        "params_m" => Some((Metric::PARAMETERS, MILLION, over)),
        "params_m_min" => Some((Metric::PARAMETERS, MILLION, Some(LEAST))),
        "params_m_max" => Some((Metric::PARAMETERS, MILLION, Some(MOST))),
        name => Some((Metric::parse(name, draws)?, 1.0, over)),
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) source: String,
    pub(crate) choice: CheckpointChoice,
    /// Every published number of a metric that is known here, in the order of the headline table.
    pub(crate) rows: Vec<ComparisonRow>,
    /// Notes on the backbone, units, data that are not the published ones, numbers without a partner.
    pub(crate) caveats: Vec<String>,
}

/// A number over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Value {
    mean: f64,
    std: Option<f64>,
}

/// One published number and, if there is one, its measured partner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ComparisonRow {
    #[serde(skip)]
    row: Metric,
    /// Heading in print.
    metric: String,
    format: Format,
    draws: u32,
    /// As it was published if it did not run here.
    method: String,
    /// As it was published if it did not run here, or `all tasks` with the function of their values.
    task: String,
    /// `None` if the method, the task or this number of draws did not run.
    measured: Option<Value>,
    published: Value,
    /// Measured less published.
    difference: Option<f64>,
    /// Standard error of the difference.
    standard_error: Option<f64>,
    /// `true` if the task ran here with any method, and for numbers over all tasks.
    #[serde(skip)]
    task_ran: bool,
    /// Difference of the data of this task from the published ones.
    caveat: Option<String>,
    /// Difference of the method from the published one: `3 members against 10`.
    method_caveat: Option<String>,
}

pub(crate) fn compare(summary: &Summary<'_>, published: &Published) -> Comparison {
    let mut rows: Vec<ComparisonRow> = Vec::new();
    let mut unknown: Vec<&str> = Vec::new();
    for row in &published.rows {
        match pair(summary, row) {
            Some(pair) => rows.push(pair),
            None => unknown.push(&row.metric),
        }
    }
    rows.sort_by(|a, b| {
        let key = |row: &ComparisonRow| {
            let method = (method_rank(&row.method), row.method.clone());
            (row.row.at(0), method, row.row.draws)
        };
        key(a).cmp(&key(b)).then_with(|| task_order(&a.task, &b.task))
    });
    // A size that is published once for every number of draws is one number.
    rows.dedup();
    let caveats = caveats(summary, published, &rows, &unknown);
    Comparison { source: published.source.clone(), choice: summary.choice, rows, caveats }
}

fn pair(summary: &Summary<'_>, row: &PublishedRow) -> Option<ComparisonRow> {
    let (method, draws) = partner(row, summary);
    let (metric, factor, over) = metric(row, draws)?;
    let key = match_key(&row.task);
    let task = summary.tasks.iter().find(|task| match_key(task) == key).copied();
    let measured = method.and_then(|method| {
        let Some((_, over)) = over else { return summary.cell(metric, method, task?).cloned() };
        let cells = summary.tasks.iter().filter_map(|task| summary.cell(metric, method, task));
        let means: Vec<f64> = cells.map(|spread| spread.mean).collect();
        (!means.is_empty()).then(|| Spread::of(&[over(&means)]))?
    });
    let as_published = over.map_or(row.task.as_str(), |(label, _)| label);
    let published = Value { mean: row.mean * factor, std: row.std.map(|std| std * factor) };
    let difference = measured.as_ref().map(|spread| spread.mean - published.mean);
    let of_rows = method.zip(task).and_then(|of| row_variance(summary, metric, of));
    let seeds = row.seeds.unwrap_or(ASSUMED_SEEDS);
    let deviation = published.std.map(|std| (std, seeds));
    Some(ComparisonRow {
        row: metric,
        metric: metric.at(0).title(),
        format: metric.number_format().as_published(),
        draws: metric.draws.unwrap_or(0),
        method: method.unwrap_or_else(|| row.method_and_draws().0).to_owned(),
        task: task_label(task.unwrap_or(as_published)),
        standard_error: standard_error(metric, measured.as_ref(), of_rows, deviation),
        measured: measured.map(|Spread { mean, std, .. }| Value { mean, std }),
        published,
        difference: difference.filter(|x| x.is_finite()),
        task_ran: task.is_some() || over.is_some(),
        caveat: task.and_then(|task| summary.results.data.get(task)).and_then(TaskData::caveat),
        method_caveat: method
            .filter(|_| match_key(row.method_and_draws().0) == "ens")
            .and_then(members),
    })
}

/// The numbers of members of an ensemble and of the published one, if they differ.
fn members(method: &str) -> Option<String> {
    let form = MethodName::from_name(method)?.entry().form;
    let MethodForm::Ensemble { members, .. } = form else { return None };
    (members != PUBLISHED_MEMBERS).then(|| format!("{members} members against {PUBLISHED_MEMBERS}"))
}

/// Variance that the choice of evaluation rows adds to a mean over seeds, which all answer the same rows: that of a row's score
/// over the number of rows. `None` if the scores of rows are not known.
fn row_variance(
    summary: &Summary<'_>,
    metric: Metric,
    (method, task): (&str, &str),
) -> Option<f64> {
    let cell = summary.cell(metric, method, task)?;
    if metric.at(0) == Metric::ACCURACY {
        let rows = summary.results.data.get(task)?.validation.rows;
        return Some(cell.mean * (1.0 - cell.mean) / rows as f64);
    }
    let of_seed =
        |&seed: &u64| summary.rows.0.get(&key(summary.choice, task, method, seed, metric));
    let scores: Vec<&Vec<f64>> = cell.by_seed.keys().map(of_seed).collect::<Option<_>>()?;
    let rows = scores.iter().map(|scores| scores.len()).min()?;
    let mean = |row: usize| scores.iter().map(|own| own[row]).sum::<f64>() / scores.len() as f64;
    let spread = Spread::of(&(0..rows).map(mean).collect::<Vec<_>>())?;
    Some(spread.standard_error()?.powi(2))
}

/// Standard error of measured less published, `sqrt(s1²/n1 + v + s2²/n2)` over seeds, with the variance `v` that its rows add to
/// the measured mean. `None` without both deviations, for a score of rows whose `v` is not known, if all vanish, and for
/// time and memory, which are those of two machines.
fn standard_error(
    metric: Metric,
    measured: Option<&Spread>,
    of_rows: Option<f64>,
    published: Option<(f64, u64)>,
) -> Option<f64> {
    let measured = measured.filter(|_| !metric.fact().unit.is_of_hardware())?;
    let (std, seeds) = published?;
    let own = measured.standard_error()?.powi(2) + of_rows.unwrap_or(0.0);
    let combined = (own + std.powi(2) / seeds as f64).sqrt();
    // A metric that depends on draws is a score of rows.
    let is_known = of_rows.is_some() || metric.draws.is_none();
    (is_known && combined > 0.0 && combined.is_finite()).then_some(combined)
}

fn caveats(
    summary: &Summary<'_>,
    published: &Published,
    rows: &[ComparisonRow],
    unknown: &[&str],
) -> Vec<String> {
    let source = &published.source;
    let model = &summary.results.model;
    let mut caveats = vec![format!(
        "measured with {} ({:.1} M parameters) on {}; published numbers were measured with the model, data and \
         device of their source",
        model.name,
        model.parameters as f64 / MILLION,
        summary.results.device
    )];
    let mut seen: Vec<&str> = Vec::new();
    for row in rows {
        if let Some(caveat) = &row.caveat
            && !seen.contains(&row.task.as_str())
        {
            seen.push(&row.task);
            caveats.push(format!("{}: {caveat}; not comparable", row.task));
        }
    }
    let mut ensembles: Vec<String> = Vec::new();
    for row in rows {
        let words = row.method_caveat.as_ref().map(|caveat| format!("{}: {caveat}", row.method));
        ensembles.extend(words.filter(|words| !ensembles.contains(words)));
    }
    caveats.append(&mut ensembles);
    if !published.percent.is_empty() {
        let metrics: Vec<&str> = published.percent.iter().copied().collect();
        let metrics = listed(&metrics);
        let kept: BTreeSet<&str> =
            published.rows.iter().filter_map(PublishedRow::fraction).collect();
        let kept: Vec<&str> = kept.difference(&published.percent).copied().collect();
        let kept = if kept.is_empty() {
            String::new()
        } else {
            format!("; none above 1, and left as they are: {}", listed(&kept))
        };
        caveats.push(format!("per cent in {source}, and divided by 100: {metrics}{kept}"));
    }
    if rows.iter().any(|row| row.standard_error.is_some()) {
        caveats.push(
            "std. error: that of the difference, by the seeds of both sides and the evaluation rows of the measured mean; none \
             where the scores of rows are not known"
                .to_owned(),
        );
        if published.rows.iter().any(|row| row.std.is_some() && row.seeds.is_none()) {
            caveats.push(format!(
                "{source} does not state the seeds of its deviations: {ASSUMED_SEEDS} are assumed"
            ));
        }
    }
    let alone = unknown.len() + rows.iter().filter(|row| row.measured.is_none()).count();
    if alone > 0 {
        let all = published.rows.len();
        caveats.push(format!("{alone} of {all} published numbers have no measured partner"));
    }
    let elsewhere = rows.iter().filter(|row| !row.task_ran).map(|row| row.task.as_str());
    let tasks = counted(elsewhere);
    let names = counted(unknown.iter().copied());
    if !tasks.is_empty() {
        caveats.push(format!("published numbers of tasks that did not run here: {tasks}"));
    }
    if !names.is_empty() {
        caveats.push(format!("published metrics that are not measured here: {names}"));
    }
    caveats
}

/// Names in order, each with its number of published numbers: `foo (2), bar`.
fn counted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let word = |(name, n)| if n > 1 { format!("{name} ({n})") } else { String::from(name) };
    counts.into_iter().map(word).collect::<Vec<_>>().join(", ")
}

impl Comparison {
    /// The table without rows of tasks that did not run here, which the caveats name.
    fn grid(&self) -> Vec<Vec<String>> {
        let or_absent = |text: Option<String>| text.unwrap_or_else(|| ABSENT.to_owned());
        let with_draws = self.rows.iter().any(|row| row.draws > 0);
        let header = "metric,method,k,task,measured,published,difference,std. error,";
        let rows = self.rows.iter().filter(|row| row.task_ran).map(|row| {
            let format = row.format;
            let value = |value: Value| format.value(value.mean) + &format.deviation(value.std);
            vec![
                row.row.base().into_owned(),
                row.method.clone(),
                row.row.draws.map(|k| k.to_string()).unwrap_or_default(),
                row.task.clone(),
                or_absent(row.measured.map(value)),
                value(row.published),
                or_absent(row.difference.map(|x| format.difference(x))),
                or_absent(row.standard_error.map(|x| format.value(x))),
                row.caveat.as_ref().or(row.method_caveat.as_ref()).map_or("", |_| "*").to_owned(),
            ]
        });
        let all = std::iter::once(header.split(',').map(str::to_owned).collect()).chain(rows);
        all.map(|mut row: Vec<String>| {
            if !with_draws {
                row.remove(2);
            }
            row
        })
        .collect()
    }

    /// Aligned text for a terminal; a star marks tasks and methods that are not the published ones.
    pub(crate) fn render_text(&self) -> String {
        self.rendered(table::align, "* ")
    }

    pub(crate) fn render_markdown(&self) -> String {
        self.rendered(table::markdown, "- ")
    }

    fn rendered(&self, grid: fn(&[Vec<String>]) -> String, bullet: &str) -> String {
        let caveats = self.caveats.iter().flat_map(|caveat| [bullet, caveat, "\n"]);
        format!("{}\n{}", grid(&self.grid()), caveats.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Results;
    use crate::record::sample::{sample_reasoning, sample_results, set_accuracy};

    fn compared(results: &Results, rows: &str, source: &str) -> Comparison {
        let published = format!("metric,method,task,mean,std\n{rows}");
        let published = Published::parse(&published, source).unwrap();
        compare(&Summary::of_last(results), &published)
    }

    #[test]
    fn differences_and_standard_errors() {
        let mut results = sample_results();
        set_accuracy(&mut results, "cola", 0.0, [("LoRA", [0.25, 0.5, 0.75])]);
        set_accuracy(&mut results, "rte", 0.0, [("LoRA", [0.5; 3])]);
        let rows = "accuracy,LoRA,CoLA,0.625,0.25\naccuracy,LoRA,RTE,0.875,0.03\nrank,LoRA,CoLA,8,\n\
                    time_min,LoRA,CoLA,8,1\naccuracy,LoRA,WNLI,0.5,\nperplexity,LoRA,CoLA,1,\n";
        let comparison = compared(&results, rows, "glue.csv");
        // Both deviations 0.25 at three seeds, and half of 500 rows right: sqrt(2 · 0.25²/3 + 0.25/500).
        let measured = Spread::of(&[0.25, 0.5, 0.75]);
        let error = |measured, rows, std| {
            standard_error(Metric::ACCURACY, Some(measured), rows, Some((std, 3)))
        };
        let found = error(measured.as_ref().unwrap(), Some(0.25 / 500.0), 0.25).unwrap();
        assert!((found - 0.205_345_237_750_152_5).abs() < 1e-12, "{found}");
        let alike = Spread::of(&[0.5, 0.5]).unwrap();
        assert_eq!(error(&alike, None, 0.25), None, "the rows are not known");
        // sqrt(.775 · .225/200) and no deviation: MCD of the review, -.042 of which is -1.4 errors and not -73.1.
        let rows = error(&Spread::of(&[0.775, 0.775]).unwrap(), Some(0.775 * 0.225 / 200.0), 0.001);
        assert!((-0.042 / rows.unwrap() + 1.42).abs() < 0.01, "{rows:?}");
        insta::assert_snapshot!(comparison.render_text() + "\n" + &comparison.render_markdown());
    }

    /// The layout of the paper's tables, with made-up numbers: per cent, parameters in millions, names that are not ours,
    /// methods and tasks that did not run.
    #[test]
    fn the_papers_uncertainty_tables_find_their_partners() {
        let rows = "accuracy,LoRA,OBQA,80.5,0.25\naccuracy,MCD,OBQA,81.25,0.5\naccuracy,ENS,OBQA,82,\n\
                    accuracy,BayesLoRA_k10,OBQA,83,1\naccuracy,BayesLoRA_k0,OBQA,83,1\n\
                    accuracy,BayesLoRA_r8_noprune_k0,OBQA,81,1\naccuracy,BayesLoRA_r8_noprune_k10,OBQA,81,1\n\
                    accuracy,IVON_k10,OBQA,84,\naccuracy,LoRA,BoolQ,86,0.2\nece,BLoB_k10,OBQA,4.5,0.5\n\
                    nll,LAP,OBQA,0.5,\nparams_m,LoRA,all,4.48,\nparams_m,LoRA,OBQA,4.48,\n\
                    params_m_min,BayesLoRA_k0,all,2.40,\nparams_m_max,BayesLoRA_k10,all,3.87,\n";
        let comparison = compared(&sample_reasoning(), rows, "reasoning.csv");
        assert_eq!(comparison.rows.len(), rows.lines().count(), "nothing is dropped");
        insta::assert_snapshot!(comparison.render_text());
        let mut three = sample_reasoning();
        three.runs.retain(|run| run.method != "ENS-10");
        let comparison = compared(&three, "accuracy,ENS,OBQA,0.82,0.01\n", "reasoning.csv");
        let text = comparison.render_text();
        assert!(text.contains("\n* ENS-3: 3 members against 10\n"), "{text}");
        let taken = [MEAN, LEAST, MOST].map(|(_, over)| over(&[1.0, 4.0, 4.0]));
        assert_eq!(taken, [3.0, 1.0, 4.0]);
    }
}
