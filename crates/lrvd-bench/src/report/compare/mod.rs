//! Published numbers beside measured ones, as text and markdown.
//!
//! `alias` holds what a published method or metric is called here.

mod alias;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use crate::record::{Results, RunStatus, TaskData};
use crate::report::metric::Metric;
use crate::report::published::{Published, PublishedRow};
use crate::report::rows::{match_key, method_order, task_label, task_order};
use crate::report::significance::Spread;
use crate::report::summary::{CheckpointChoice, Summary};
use crate::report::table;
use alias::{Draws, Over};

const ABSENT: &str = "–";
/// Decimals of a parameter count in millions: as many as are published, and enough for the smallest backbones.
const MILLION_DECIMALS: usize = 3;

impl Comparison {
    /// Rows that a reader of text is shown: a long published table has tasks that did not run, which the caveats name.
    fn shown(&self) -> impl Iterator<Item = &ComparisonRow> {
        self.rows.iter().filter(|row| row.task_ran)
    }

    fn grid(&self) -> Vec<Vec<String>> {
        let with_draws = self.rows.iter().any(|row| row.metric.draws().is_some_and(|k| k > 0));
        let mut header = vec!["metric", "method"];
        header.extend(with_draws.then_some("k"));
        header.extend(["task", "measured", "published", "difference", "std. errors", ""]);
        let mut grid = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for row in self.shown() {
            let mut cells = vec![row.metric.base().into_owned(), row.method.clone()];
            if with_draws {
                cells.push(row.metric.draws().map(|k| k.to_string()).unwrap_or_default());
            }
            cells.extend([
                task_label(&row.task),
                row.measured_text(),
                row.published_text(),
                row.difference_text(),
                row.standard_errors_text(),
                if row.caveat.is_some() { "*".to_owned() } else { String::new() },
            ]);
            grid.push(cells);
        }
        grid
    }

    /// Aligned text for a terminal; a star marks tasks whose data are not the published ones.
    pub(crate) fn render_text(&self) -> String {
        let mut text = table::align(&self.grid());
        text.push('\n');
        for caveat in &self.caveats {
            let _ = writeln!(text, "* {caveat}");
        }
        text
    }

    /// Markdown, the caveats as a list below the table.
    pub(crate) fn render_markdown(&self) -> String {
        let mut text = table::markdown(&self.grid());
        text.push('\n');
        for caveat in &self.caveats {
            let _ = writeln!(text, "- {caveat}");
        }
        text
    }
}

impl ComparisonRow {
    fn value_text(&self, value: f64) -> String {
        if self.metric.is_count() && value.is_finite() {
            format!("{:.*} M", MILLION_DECIMALS, value / MILLION)
        } else {
            self.metric.format(value)
        }
    }

    /// The measured cell in print; counts in millions, as they are published.
    pub(crate) fn measured_text(&self) -> String {
        self.measured.as_ref().map_or_else(
            || ABSENT.to_owned(),
            |spread| {
                if self.metric.is_count() {
                    self.value_text(spread.mean)
                } else {
                    self.metric.format_spread(spread)
                }
            },
        )
    }

    pub(crate) fn published_text(&self) -> String {
        let mean = self.value_text(self.published);
        self.published_std
            .filter(|_| !self.metric.is_count())
            .map_or_else(|| mean.clone(), |std| format!("{mean} ±{}", self.metric.format_std(std)))
    }

    pub(crate) fn difference_text(&self) -> String {
        match self.difference {
            Some(x) if x.is_finite() && self.metric.is_count() => {
                format!("{:+.*} M", MILLION_DECIMALS, x / MILLION).replace('-', "−")
            }
            Some(x) if x.is_finite() => {
                format!("{x:+.*}", self.metric.decimals().0).replace('-', "−")
            }
            _ => ABSENT.to_owned(),
        }
    }

    /// The difference in standard errors in print, with its sign.
    pub(crate) fn standard_errors_text(&self) -> String {
        self.standard_errors.map_or_else(
            || ABSENT.to_owned(),
            |z| {
                let decimals = usize::from(z.abs() < 99.95);
                format!("{z:+.decimals$}").replace('-', "−")
            },
        )
    }
}

const MILLION: f64 = 1e6;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Comparison {
    /// Where the published numbers come from.
    pub(crate) source: String,
    pub(crate) choice: CheckpointChoice,
    /// Every published number of a metric that is known here, in the order of the headline table.
    pub(crate) rows: Vec<ComparisonRow>,
    /// Published numbers without a measured partner: those of `rows` that have none, and those of unknown metrics.
    pub(crate) n_unmatched: usize,
    /// What to bear in mind: the backbone, units, data that are not the published ones.
    pub(crate) caveats: Vec<String>,
}

/// One published number and, if there is one, its measured partner.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ComparisonRow {
    pub(crate) metric: Metric,
    /// Method in print; as it was published if it did not run here.
    pub(crate) method: String,
    /// Task key, `all tasks` with what was taken of them, or the task as published if it did not run here.
    pub(crate) task: String,
    /// What was measured; none if the method, the task or this number of draws did not run.
    pub(crate) measured: Option<Spread>,
    pub(crate) published: f64,
    /// The published standard deviation; none where none was printed.
    pub(crate) published_std: Option<f64>,
    pub(crate) difference: Option<f64>,
    /// The difference in units of the combined standard error, `sqrt(s1²/n1 + s2²/n2)`; none without both deviations
    /// or where both vanish, and none for time and memory, which speak of two machines.
    pub(crate) standard_errors: Option<f64>,
    /// Whether the task ran here with any method; numbers over all tasks always have.
    pub(crate) task_ran: bool,
    /// Why the data of this task are not the published ones; none where they are.
    pub(crate) caveat: Option<String>,
}

/// Sets published numbers beside measured ones. Tasks match by letters and digits (`SST-2` is `sst2`), a published
/// method `X_k10` is method `X` at ten draws, and the names of the paper's tables (`ENS`, `LAP`,
/// `BayesLoRA_r8_noprune_k0`, ...) are known. What did not run here keeps its row, without a partner.
pub(crate) fn compare(
    results: &Results,
    published: &Published,
    choice: CheckpointChoice,
) -> Comparison {
    let names = Summary::new(results, choice, &[]);
    let mut rows: Vec<ComparisonRow> = Vec::new();
    let mut unknown: Vec<&str> = Vec::new();
    for row in &published.rows {
        match pair(results, row, choice, &names, published.n_seeds) {
            Some(pair) => rows.push(pair),
            None => unknown.push(&row.metric),
        }
    }
    rows.sort_by(|a, b| {
        let metric = metric_index(a.metric).cmp(&metric_index(b.metric));
        let draws = a.metric.draws().cmp(&b.metric.draws());
        let method = method_order(&a.method, &b.method);
        metric.then(method).then(draws).then(task_order(&a.task, &b.task))
    });
    // A size that is published once for every number of draws is one number.
    rows.dedup();
    let n_unmatched = unknown.len() + rows.iter().filter(|row| row.measured.is_none()).count();
    let mut comparison = Comparison {
        source: published.source.clone(),
        choice,
        rows,
        n_unmatched,
        caveats: Vec::new(),
    };
    comparison.caveats = caveats(results, published, &comparison, &unknown);
    comparison
}

/// A published number and its partner; none if the metric is not known.
fn pair(
    results: &Results,
    row: &PublishedRow,
    choice: CheckpointChoice,
    names: &Summary,
    n_seeds: usize,
) -> Option<ComparisonRow> {
    let partner = alias::partner(row, &names.methods);
    let draws = match partner.draws {
        Draws::Exactly(draws) => draws,
        Draws::Most => {
            partner.method.as_ref().map_or(0, |method| most_draws(results, method, choice))
        }
    };
    let found = alias::metric(row, draws)?;
    let metric = found.metric;
    let task = names.tasks.iter().find(|task| match_key(task) == match_key(&row.task));
    let summary = Summary::new(results, choice, &[metric]);
    let measured = partner.method.as_ref().and_then(|method| match found.over {
        Over::Task => summary.cell(metric, method, task?).cloned(),
        over => {
            let cells = summary.tasks.iter().filter_map(|task| summary.cell(metric, method, task));
            Spread::of(&[over.of(&cells.map(|spread| spread.mean).collect::<Vec<_>>())?])
        }
    });
    let (mean, std) = (row.mean * found.factor, row.std.map(|std| std * found.factor));
    let difference = measured.as_ref().map(|measured| measured.mean - mean);
    let standard_errors = match &measured {
        Some(measured) if metric.is_of_the_model() => standard_errors(measured, mean, std, n_seeds),
        _ => None,
    };
    let as_published = || match found.over {
        Over::Task => row.task.clone(),
        over => over.label().to_owned(),
    };
    let caveat = task.and_then(|task| results.data.get(task)).and_then(TaskData::caveat);
    Some(ComparisonRow {
        metric,
        method: partner.method.unwrap_or_else(|| row.method_and_draws().0.to_owned()),
        task: task.cloned().unwrap_or_else(as_published),
        measured,
        published: mean,
        published_std: std,
        difference,
        standard_errors,
        task_ran: task.is_some() || found.over != Over::Task,
        caveat,
    })
}

/// The largest number of draws at which a method answered.
fn most_draws(results: &Results, method: &str, choice: CheckpointChoice) -> u32 {
    let runs =
        results.runs.iter().filter(|r| r.method == method && r.status == RunStatus::Finished);
    let draws = runs.filter_map(|run| choice.of(run)).flat_map(|c| c.metrics.keys().copied());
    draws.max().unwrap_or(0)
}

/// Quality first, then size, then time; the number of draws does not matter.
fn metric_index(metric: Metric) -> (u8, Metric) {
    let group = match metric {
        Metric::Accuracy(_) | Metric::Standard(_) | Metric::MacroF1(_) => 0,
        Metric::Ece(_)
        | Metric::EceFloor(_)
        | Metric::Nll(_)
        | Metric::Brier(_)
        | Metric::SelectiveArea(_)
        | Metric::EntropyAuroc(..)
        | Metric::InformationAuroc(..)
        | Metric::OtherAccuracy(..)
        | Metric::OtherNll(..)
        | Metric::OtherEce(..) => 1,
        Metric::Parameters
        | Metric::StoredParameters
        | Metric::HeadParameters
        | Metric::Rank
        | Metric::RankPercent => 2,
        Metric::TimeMin | Metric::PredictSeconds(_) | Metric::MemoryMib => 3,
    };
    (group, metric.at_draws(0))
}

fn standard_errors(measured: &Spread, mean: f64, std: Option<f64>, n: usize) -> Option<f64> {
    let published = std? / (n as f64).sqrt();
    let combined = measured.standard_error()?.hypot(published);
    (combined > 0.0 && combined.is_finite()).then(|| (measured.mean - mean) / combined)
}

fn caveats(
    results: &Results,
    published: &Published,
    comparison: &Comparison,
    unknown: &[&str],
) -> Vec<String> {
    let mut caveats = vec![format!(
        "measured with {} ({:.1} M parameters) on {}; published numbers speak of the model, data and device of their \
source",
        results.model.name,
        results.model.parameters as f64 / MILLION,
        results.device
    )];
    let mut seen: Vec<&str> = Vec::new();
    for row in &comparison.rows {
        if let Some(caveat) = &row.caveat
            && !seen.contains(&row.task.as_str())
        {
            seen.push(&row.task);
            caveats.push(format!("{}: {caveat}; not comparable", task_label(&row.task)));
        }
    }
    if published.was_percent {
        caveats.push(format!(
            "accuracy and ECE in {} are per cent and were divided by 100",
            published.source
        ));
    }
    if comparison.n_unmatched > 0 {
        caveats.push(format!(
            "{} of {} published numbers have no measured partner",
            comparison.n_unmatched,
            published.rows.len()
        ));
    }
    let elsewhere = comparison.rows.iter().filter(|row| !row.task_ran);
    let tasks = alias::counted(elsewhere.map(|row| row.task.as_str()));
    if !tasks.is_empty() {
        caveats.push(format!("published numbers of tasks that did not run here: {tasks}"));
    }
    if !unknown.is_empty() {
        let names = alias::counted(unknown.iter().copied());
        caveats.push(format!("published metrics that are not measured here: {names}"));
    }
    caveats
}
