//! Findings: a few sentences on the runs and their results, for the terminal, `table.md` and the page.
//!
//! [`super::significance`] compares methods; groups of modules are compared by [`groups_p`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use lrvd_core::metrics::groups_p;
use serde::Serialize;

use super::metric::{Metric, Spread, grouped};
use super::names::{ModuleName, standard_title, task_label};
use super::significance::{Column, LEVEL, Pair};
use super::summary::Summary;
use crate::record::{DataOrigin, RunRecord, SplitRecord};
use crate::settings::CheckpointChoice;
use crate::text::{decimals, listed};

/// Up to so many methods or pairs a sentence names.
const NAMED: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Findings {
    pub(crate) ran: String,
    /// Meaning of the numbers of tables, and of a significant difference.
    pub(crate) rule: String,
    /// The best method of every task, as far as tests show it.
    pub(crate) scores: Vec<String>,
    /// Ranks that layers kept, for each method that learns them.
    pub(crate) ranks: Vec<String>,
    /// Sources of the ranks of other methods; empty if all have those of the settings.
    pub(crate) budgets: Vec<String>,
}

impl Findings {
    pub(crate) fn new(summary: &Summary<'_>) -> Self {
        Self {
            ran: ran(summary),
            rule: rule(summary),
            scores: summary.tasks.iter().filter_map(|task| score(summary, task)).collect(),
            ranks: summary.methods.iter().filter_map(|method| ranks(summary, method)).collect(),
            budgets: budgets(summary),
        }
    }

    pub(crate) fn lead(&self) -> String {
        format!("{}\n\n{}", self.ran, self.rule)
    }

    pub(crate) fn verdict(&self) -> Vec<String> {
        [&self.budgets, &self.scores, &self.ranks].into_iter().flatten().cloned().collect()
    }
}

/// `520`, or `520 to 572`; 0 without a number.
fn range(numbers: impl Iterator<Item = u64>) -> String {
    let numbers: BTreeSet<u64> = numbers.collect();
    match (numbers.first(), numbers.last()) {
        (Some(low), Some(high)) if low < high => format!("{} to {}", grouped(*low), grouped(*high)),
        (only, _) => grouped(only.copied().unwrap_or(0)),
    }
}

/// Finished seeds of a method on a task.
fn finished(summary: &Summary<'_>, task: &str, method: &str) -> u64 {
    let own = |run: &&RunRecord| run.task == task && run.method == method;
    summary.results.finished().filter(own).count() as u64
}

/// Methods, model, steps, seeds and data, and the limits of generated data.
fn ran(summary: &Summary<'_>) -> String {
    let results = summary.results;
    if results.runs.is_empty() {
        return "No run has been recorded.".into();
    }
    let has_run = |method: &&str| results.runs.iter().any(|run| run.method == *method);
    let methods: Vec<&str> = summary.methods.iter().copied().filter(has_run).collect();
    let methods = match methods.len() {
        n if n > NAMED => format!("{n} methods"),
        _ => listed(&methods),
    };
    let steps = range(results.runs.iter().map(|run| run.steps));
    let cells = summary
        .tasks
        .iter()
        .flat_map(|task| summary.methods.iter().map(move |method| finished(summary, task, method)));
    // A cell without a number has no seeds; it is named below.
    let seeds = range(cells.filter(|n| *n > 0));
    let generated = |split: &SplitRecord| split.origin == DataOrigin::Generated;
    let data = || summary.tasks.iter().filter_map(|task| results.data.get(*task));
    let all = data().all(|data| generated(&data.train) && generated(&data.validation));
    let tasks: Vec<String> =
        summary.tasks.iter().map(|task| data_of(summary, task, !all)).collect();
    let mut text = format!(
        "{methods} fine-tuned {}, {} parameters, for {steps} steps with {seeds} {} on {}{}.",
        results.model.name,
        grouped(results.model.parameters),
        if seeds == "1" { "seed" } else { "seeds" },
        if all { "generated data: " } else { "" },
        listed(&tasks),
    );
    text.push_str(&protocols(summary));
    let planned = || {
        let tasks = results.planned.iter();
        tasks.flat_map(|(task, methods)| methods.iter().map(move |(m, n)| (task, m, *n)))
    };
    let done = results.finished().count() as u64;
    let all = planned().map(|(.., n)| n).sum();
    if done < all {
        let missing = planned().filter_map(|(task, method, n)| {
            let done = finished(summary, task, method);
            (done < n).then(|| format!("{method} on {} has {done} of {n} seeds", task_label(task)))
        });
        let missing: Vec<String> = missing.collect();
        let named =
            if missing.len() > NAMED { String::new() } else { format!(": {}", listed(&missing)) };
        let _ = write!(text, " Only {done} of {all} runs finished{named}.");
    }
    if data().any(|data| generated(&data.train)) {
        text.push_str(" Generated data show that methods run, not which is better on real text.");
    }
    text
}

/// Methods grouped by their `words`, in the order of tables, without methods that have none.
fn grouped_by<'a>(
    summary: &Summary<'a>,
    words: impl Fn(&str) -> Option<String>,
) -> Vec<(String, Vec<&'a str>)> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for &method in &summary.methods {
        let Some(words) = words(method) else { continue };
        match found.iter_mut().find(|(other, _)| *other == words) {
            Some((_, methods)) => methods.push(method),
            None => found.push((words, vec![method])),
        }
    }
    found
}

/// Steps and rows of every method, where methods differ: ` BayesLoRA took 520 steps on 1 800 rows and 52 of refinement; ...`.
fn protocols(summary: &Summary<'_>) -> String {
    let found = grouped_by(summary, |method| {
        let own = || summary.results.finished().filter(|run| run.method == method);
        own().next()?;
        let cut = |run: &RunRecord| run.choice.as_ref().map_or(run.steps, |cut| cut.step as u64);
        let of_task = |task: &&str| Some(grouped(own().find(|run| run.task == *task)?.train_rows));
        let mut rows: Vec<String> = summary.tasks.iter().filter_map(of_task).collect();
        rows.dedup();
        let refined = match range(own().map(|run| run.steps.saturating_sub(cut(run)))).as_str() {
            "0" => String::new(),
            steps => format!(" and {steps} of refinement"),
        };
        Some(format!("{} steps on {} rows{refined}", range(own().map(cut)), listed(&rows)))
    });
    let clause = |(words, methods): &(String, Vec<&str>)| {
        let n = methods.len();
        let who = if n > NAMED { format!("{n} methods") } else { listed(methods) };
        format!("{who} took {words}")
    };
    let clauses: Vec<String> = found.iter().map(clause).collect();
    let differs = clauses.len() > 1 || summary.results.finished().any(|run| run.held_out_rows > 0);
    if differs { format!(" {}.", clauses.join("; ")) } else { String::new() }
}

/// `CoLA (2 000 training and 500 validation rows, official)`; `origins` includes their origin.
fn data_of(summary: &Summary<'_>, task: &str, origins: bool) -> String {
    let label = task_label(task);
    let Some(data) = summary.results.data.get(task) else { return label };
    let origin = |split: &SplitRecord| match split.origin {
        DataOrigin::Official => "official",
        DataOrigin::Subset => "a part of the official ones",
        DataOrigin::LocalDev => "split off here",
        DataOrigin::Generated => "generated",
    };
    let [train, validation] = [&data.train, &data.validation].map(origin);
    let [before, after] = [&data.train, &data.validation].map(|split| grouped(split.rows));
    if !origins {
        format!("{label} ({before} training and {after} validation rows)")
    } else if train == validation {
        format!("{label} ({before} training and {after} validation rows, {train})")
    } else {
        format!("{label} ({before} training rows, {train}; {after} validation rows, {validation})")
    }
}

/// Checkpoint, spread and test of the numbers of tables.
fn rule(summary: &Summary<'_>) -> String {
    let checkpoint = match summary.choice {
        CheckpointChoice::Last => "Last checkpoint",
        CheckpointChoice::Best => {
            "Best checkpoint, chosen on the data it is reported on, so optimistic (ensembles and methods that are \
             fitted after training have none: table-last.csv has their numbers)"
        }
    };
    let of_task = |task| summary.methods.iter().map(move |method| finished(summary, task, method));
    let seeds = range(summary.tasks.iter().copied().flat_map(of_task).filter(|n| *n > 0));
    match seeds.as_str() {
        "0" => return format!("{checkpoint}."),
        "1" => {
            return format!(
                "{checkpoint}. One seed: rows alone compare two models, not two methods, so nothing is tested and nothing \
                 is marked."
            );
        }
        _ => {}
    }
    format!(
        "{checkpoint}; mean ± sample standard deviation over {seeds} seeds. All pairs of methods are compared, paired by \
         seed and, where the answers are recorded, by validation row (otherwise: these rows only). A difference is \
         significant if p < .05 by Holm's correction for all pairs of a column; a 95 % interval is that of one difference, \
         not corrected."
    )
}

/// `RTE. Accuracy: LoRA is best at ...`: a task by its own metric, and results about uncertainty by calibration and
/// likelihood as well, each at the draws of the tables.
fn score(summary: &Summary<'_>, task: &str) -> Option<String> {
    let own = summary.results.standard_metric(task);
    let score = if own == "accuracy" { Metric::ACCURACY } else { Metric::STANDARD };
    let mut metrics = vec![(score, standard_title(own).to_owned())];
    if summary.uncertainty {
        metrics.extend([Metric::ECE, Metric::NLL].map(|metric| (metric, metric.title())));
    }
    let draws = summary.draws.filter(|_| summary.uncertainty).unwrap_or(0);
    let clause = |(metric, title): (Metric, String)| {
        let clause = clause(&Column::new(summary, metric.at(draws), task)?, metric);
        Some(format!("{}{}: {clause}", title[..1].to_uppercase(), &title[1..]))
    };
    let clauses: Vec<String> = metrics.into_iter().filter_map(clause).collect();
    (!clauses.is_empty()).then(|| format!("{}. {}.", task_label(task), clauses.join(". ")))
}

/// Result of comparing all pairs: `0.887 to 0.915; 1 of 3 pairs differs significantly: LoRA less AdaLoRA +0.0210 (95 %
/// interval 0.0072 to 0.0348, p .010)`, then the methods that were not tested.
fn clause(column: &Column<'_, '_>, metric: Metric) -> String {
    let ranked = &column.ranked;
    let pairs = &column.pairs;
    let p = |pair: &Pair<'_>| pair.tested.map_or(1.0, |(_, p)| p);
    let mut tested: Vec<Pair<'_>> = pairs.iter().filter(|p| p.tested.is_some()).copied().collect();
    // The clearest first: Holm's probabilities of several pairs may be equal.
    let clearness = |pair: &Pair<'_>| pair.tested.map_or(1.0, |(difference, _)| difference.p());
    tested.sort_by(|a, b| p(a).total_cmp(&p(b)).then(clearness(a).total_cmp(&clearness(b))));
    let differ: Vec<Pair<'_>> = tested.iter().filter(|pair| pair.differs()).copied().collect();
    let named = |pairs: &[Pair<'_>]| {
        let shown = pairs.iter().take(NAMED).map(|pair| pair_in_print(pair, metric));
        let rest = pairs.len().saturating_sub(NAMED);
        let rest = (rest > 0).then(|| format!("and {rest} more"));
        shown.chain(rest).collect::<Vec<_>>().join(", ")
    };
    let ends = [0, ranked.len() - 1].map(|place| ranked[place].1.mean);
    let range = |low: f64, high| format!("{} to {}", metric.format(low), metric.format(high));
    let range = range(ends[0].min(ends[1]), ends[0].max(ends[1]));
    let is_tested = |method: &str| tested.iter().any(|pair| pair.has(method));
    let n = ranked.iter().filter(|(method, _)| is_tested(method)).count();
    let mut words = if let Some(best) = column.best() {
        let own: Vec<Pair<'_>> = differ.iter().filter(|pair| pair.has(best)).copied().collect();
        let others = if own.len() == 1 { "the other method" } else { "every other method" };
        let mean = metric.format(ends[0]);
        format!("{best} is best at {mean} and differs significantly from {others}: {}", named(&own))
    } else if tested.is_empty() {
        format!("{range}; no pair could be tested")
    } else if differ.is_empty() {
        let none = match n {
            2 => "the two methods do not differ significantly".to_owned(),
            n => format!("no pair of the {n} methods differs significantly"),
        };
        let clearest = if tested.len() > 1 { ", the smallest p:" } else { ":" };
        format!("{range}; {none}{clearest} {}", named(&tested[..1]))
    } else {
        let verb = if differ.len() == 1 { "differs" } else { "differ" };
        let which = match tested.len() {
            1 => "the only tested pair".to_owned(),
            all => format!("{} of {all} pairs", differ.len()),
        };
        format!("{range}; {which} {verb} significantly: {}", named(&differ))
    };
    let most = ranked.iter().map(|(_, spread)| spread.n()).max().unwrap_or(0);
    let seeds = |n: usize| if n == 1 { "one seed".to_owned() } else { format!("{n} seeds") };
    let untested = ranked.iter().filter(|(method, _)| !tested.is_empty() && !is_tested(method));
    let untested = untested.map(|(method, spread)| format!("{method} ({})", seeds(spread.n())));
    let fewer = ranked.iter().filter(|(method, spread)| is_tested(method) && spread.n() < most);
    let fewer = fewer.map(|(method, spread)| format!("{method} ({} of {most})", spread.n()));
    let absent = column.absent.iter().map(|method| (*method).to_owned());
    for (what, methods) in [
        ("not tested", untested.collect::<Vec<_>>()),
        ("fewer seeds", fewer.collect()),
        ("no number", absent.collect()),
    ] {
        if !methods.is_empty() {
            let names = if methods.len() > NAMED {
                format!("{} methods", methods.len())
            } else {
                methods.join(", ")
            };
            let _ = write!(words, "; {what}: {names}");
        }
    }
    words
}

/// `LoRA less AdaLoRA +0.0210 (95 % interval 0.0072 to 0.0348, p .010)`, with a decimal more than values; it states if seeds alone are compared.
fn pair_in_print(pair: &Pair<'_>, metric: Metric) -> String {
    let Pair { of, from, tested } = pair;
    let Some((difference, p)) = tested else { return format!("{of} less {from}") };
    let places = metric.number_format().digits + 1;
    let (low, high) = difference.interval();
    let [low, high] = [low, high].map(|end| decimals(end, places));
    let scope = if difference.has_rows() { "" } else { ", these rows only" };
    let mean = difference.mean;
    format!(
        "{of} less {from} {mean:+.places$} (95 % interval {low} to {high}{scope}, {})",
        p_in_print(*p)
    )
}

/// `p .010`, without the zero before the point.
fn p_in_print(p: f64) -> String {
    if p < 0.0005 {
        return "p < .001".to_owned();
    }
    let text = format!("{p:.3}");
    format!("p {}", text.strip_prefix('0').unwrap_or(&text))
}

/// `Evaluations that the best checkpoint is chosen from: 5 of LoRA and AdaLoRA, 1 of BayesLoRA.`
pub(super) fn candidates(summary: &Summary<'_>) -> Option<String> {
    let found = grouped_by(summary, |method| {
        let runs = summary.results.finished().filter(|run| run.method == method);
        Some(range(runs.map(|run| run.checkpoints.candidates))).filter(|n| n != "0")
    });
    let words = found.iter().map(|(n, methods)| format!("{n} of {}", listed(methods)));
    let words = words.collect::<Vec<_>>().join(", ");
    (!found.is_empty())
        .then(|| format!("Evaluations that the best checkpoint is chosen from: {words}."))
}

/// Sources of the ranks of methods that do not learn them, with the largest distance of sizes; candidates of the best checkpoint, if it
/// is reported.
fn budgets(summary: &Summary<'_>) -> Vec<String> {
    let notes = grouped_by(summary, |method| {
        let mut runs = summary.results.runs.iter().filter(|run| run.method == method);
        runs.find(|run| run.rank_budget.requested.is_some()).map(|run| run.rank_budget.note.clone())
    });
    let sentence = |(note, methods): (String, Vec<&str>)| {
        let names = listed(&methods);
        let how = match note.split_once(" matched to ") {
            Some(("parameters", other)) => format!(
                "Matched size: {names} got, with each seed, the whole rank whose size is nearest to that of \
                 {other} with this seed{}",
                apart(summary, &methods, other)
            ),
            Some(("rank", other)) => format!(
                "Matched rank: {names} got the rank that {other} ended with on the task, as a whole number and at least \
                 1: a budget that of its seed, a fixed rank the median over seeds{}",
                apart(summary, &methods, other)
            ),
            _ => return format!("Rank of {names}: {note}."),
        };
        format!("{how} The scaling stays that of the full rank.")
    };
    let best = candidates(summary).filter(|_| summary.choice == CheckpointChoice::Best);
    notes.into_iter().map(sentence).chain(best).collect()
}

/// Largest distance of the trained parameters of `methods` from those of `other`, by task and seed: `; their trained parameters ...`.
fn apart(summary: &Summary<'_>, methods: &[&str], other: &str) -> String {
    let size = |run: &RunRecord| run.trainable_parameters.trained();
    let pairs = summary.results.finished().filter(|run| methods.contains(&&*run.method));
    let pairs = pairs.filter_map(|run| {
        let is_pair =
            |o: &&RunRecord| (&*o.method, &o.task, o.seed) == (other, &run.task, run.seed);
        let theirs = size(summary.results.finished().find(is_pair)?);
        let apart = size(run).abs_diff(theirs);
        // Also of a model without any direction left.
        (apart > 0).then(|| (apart as f64 / theirs as f64, run, theirs))
    });
    let Some((share, run, theirs)) = pairs.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return ".".to_owned();
    };
    let within = if share.is_finite() {
        let share = (100.0 * share).ceil();
        format!("; their trained parameters are within {share:.0} % of {other}'s")
    } else {
        String::new()
    };
    format!(
        "{within}. The largest difference is that of {} on {}, seed {}: {} against {}.",
        run.method,
        task_label(&run.task),
        run.seed,
        grouped(size(run)),
        grouped(theirs)
    )
}

/// Ranks that a method kept, and the layers that have most and least; `None` for a method that learns no ranks.
fn ranks(summary: &Summary<'_>, method: &str) -> Option<String> {
    let mut tasks: Vec<(String, String)> = Vec::new();
    let mut full = BTreeSet::new();
    for task in &summary.tasks {
        let own = |run: &&RunRecord| run.task == *task && run.method == method;
        let runs: Vec<&RunRecord> = summary.results.finished().filter(own).collect();
        let learnt =
            |run: &&RunRecord| run.rank_budget.requested.is_none() && run.rank_events.len() > 1;
        let Some(kept) = summary.cell(Metric::RANK, method, task) else { continue };
        if runs.iter().any(learnt) {
            full.extend(summary.full_rank(method, task));
            let kept = match kept.mean {
                0.0 => "none".to_owned(),
                mean => format!("{mean:.2}"),
            };
            let kept = format!("{kept} on {}", task_label(task));
            tasks.push((kept, most_and_least(&runs, summary.choice)));
        }
    }
    let (_, first) = tasks.first()?;
    // What is alike for all tasks is written once.
    let alike = tasks.iter().all(|(_, place)| place == first);
    let kept = |(kept, place): &(String, String)| {
        if alike || place.is_empty() { kept.clone() } else { format!("{kept} ({place})") }
    };
    let kept: Vec<String> = tasks.iter().map(kept).collect();
    let place = if alike && !first.is_empty() { format!(": {first}") } else { String::new() };
    let full = full.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ");
    Some(format!("Of {full} ranks a module {method} kept {}{place}.", listed(&kept)))
}

/// Distribution of ranks: `layers differ, p .004: most in layer 3, 3.33, least in layer 0, 0.33; kinds of module do not differ
/// significantly, p .210`; empty if all modules have one rank.
fn most_and_least(runs: &[&RunRecord], choice: CheckpointChoice) -> String {
    let layer = |name: ModuleName| name.layer.map(|layer| format!("layer {layer}"));
    let by = [
        extremes(runs, choice, "layers", layer),
        extremes(runs, choice, "kinds of module", |name| Some(name.kind)),
    ];
    by.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

const ALIKE: f64 = 0.005;

/// The groups of modules with the most and the fewest ranks, and the test that all `groups` have equal ones; `None` if they have.
fn extremes(
    runs: &[&RunRecord],
    choice: CheckpointChoice,
    groups: &str,
    group: impl Fn(ModuleName) -> Option<String>,
) -> Option<String> {
    // A mean for every run, by group.
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut seeds = 0;
    for checkpoint in runs.iter().filter_map(|run| choice.of(run)) {
        seeds += 1;
        let mut own: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (path, rank) in &checkpoint.ranks {
            if let Some(name) = group(ModuleName::parse(path)) {
                own.entry(name).or_default().push(f64::from(*rank));
            }
        }
        for (name, ranks) in own {
            let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
            found.entry(name).or_default().push(mean);
        }
    }
    let values: Vec<Vec<f64>> = found.values().cloned().collect();
    let is_whole = values.iter().all(|own| own.len() == seeds);
    let mut means: Vec<(&String, f64)> =
        found.iter().filter_map(|(name, ranks)| Some((name, Spread::of(ranks)?.mean))).collect();
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (most, high) = *means.first()?;
    let (least, low) = *means.last()?;
    if high - low < ALIKE {
        return None;
    }
    let place = format!("most in {most}, {high:.2}, least in {least}, {low:.2}");
    Some(match groups_p(&values) {
        Some(p) if p < LEVEL => format!("{groups} differ, {}: {place}", p_in_print(p)),
        Some(p) => format!("{groups} do not differ significantly, {}", p_in_print(p)),
        None if seeds > 1 && is_whole => {
            format!("{groups}: {place}, alike in all {seeds} seeds, not tested")
        }
        None if seeds > 1 => format!("{groups}: {place}, not tested"),
        None => format!("{groups}: {place}, one seed, not tested"),
    })
}
