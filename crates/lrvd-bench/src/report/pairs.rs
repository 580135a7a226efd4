//! Claims about two methods or arms, each a comparison by [`super::significance`] with Holm's correction for all of a page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::metric::{Better, Metric, grouped};
use super::rows::{RowScores, match_key, task_label};
use super::significance::{Difference, LEVEL, difference, holm};
use super::summary::Summary;
use super::table::markdown;
use super::verdict::NAMED;
use crate::record::{DataOrigin, Results, RunStatus, SplitRecord};
use crate::settings::{CheckpointChoice, MethodName};
use crate::text::{UnknownName, listed};

pub(crate) use crate::settings::Family;

/// One comparison: `metric` of `of` less that of `from`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    /// The method or arm whose number comes first.
    pub(crate) of: String,
    pub(crate) from: String,
    metric: Metric,
    margin: Option<f64>,
}

impl Claim {
    /// A comparison in the metric that CSV files call `metric`. With a `margin` the claim is that `of` is not worse by as
    /// much, or for a metric without a better direction that the two differ by less; without one, that they differ.
    pub(crate) fn new(
        of: &str,
        from: &str,
        metric: &str,
        margin: Option<f64>,
    ) -> Result<Self, UnknownName> {
        let known = || Metric::OWN.map(Metric::name);
        let metric =
            Metric::parse(metric, 0).ok_or_else(|| UnknownName::new("metric", metric, known()))?;
        Ok(Self { of: of.to_owned(), from: from.to_owned(), metric, margin })
    }
}

/// A claim on one task with what was measured of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    pub task: String,
    /// What was compared: `nll: auto less LoRA`.
    pub claim: String,
    /// The mean difference; null without a seed that both have.
    pub mean: Option<f64>,
    /// Its 95 % interval; null below two seeds and where seeds do not vary.
    pub interval: Option<(f64, f64)>,
    /// The probability by Holm's correction, one-sided for a margin; null where there is no interval.
    pub p: Option<f64>,
    /// `lower`, `higher`, `not worse by ...`, `no significant difference`.
    pub verdict: String,
    #[serde(skip)]
    metric: Option<Metric>,
}

/// Judges all `claims` on all tasks of `results` as one family.
pub(crate) fn judge(
    results: &Results,
    summary: &Summary,
    rows: &RowScores,
    claims: &[Claim],
) -> Vec<Judged> {
    let all: Vec<(&Claim, &String, Option<Difference>)> = claims
        .iter()
        .flat_map(|claim| summary.tasks.iter().map(move |task| (claim, task)))
        .map(|(claim, task)| {
            let pair = (claim.of.as_str(), claim.from.as_str());
            let found = difference(results, summary, rows, (claim.metric, task), pair);
            (claim, task, found)
        })
        .collect();
    let tested: Vec<f64> =
        all.iter().filter_map(|(claim, _, d)| Some(probability(claim, (*d)?))).collect();
    let mut adjusted = holm(&tested).into_iter();
    let judged = all.into_iter().map(|(claim, task, found)| {
        let p = found.and_then(|_| adjusted.next());
        let mean = |method: &str| {
            let values = summary.by_seed(results, claim.metric, method, task).1;
            (!values.is_empty()).then(|| values.values().sum::<f64>() / values.len() as f64)
        };
        let plain = || Some(mean(&claim.of)? - mean(&claim.from)?);
        Judged {
            task: task_label(task),
            claim: format!("{}: {} less {}", claim.metric.name(), claim.of, claim.from),
            mean: found.map(|d| d.mean).or_else(plain),
            interval: found.map(Difference::interval),
            p,
            verdict: verdict(claim, found, p),
            metric: Some(claim.metric),
        }
    });
    judged.collect()
}

/// The probability of what was found if the claim is not so.
fn probability(claim: &Claim, difference: Difference) -> f64 {
    let Some(margin) = claim.margin else { return difference.p() };
    let (not_above, not_below) = (difference.p_below(margin), difference.p_above(-margin));
    match claim.metric.better() {
        Better::Lower => not_above,
        Better::Higher => not_below,
        Better::Neither => not_above.max(not_below),
    }
}

fn verdict(claim: &Claim, difference: Option<Difference>, p: Option<f64>) -> String {
    let (Some(difference), Some(p)) = (difference, p) else { return "not tested".to_owned() };
    match (claim.margin, claim.metric.better()) {
        (Some(margin), Better::Neither) if p < LEVEL => format!("within {margin}"),
        (Some(margin), _) if p < LEVEL => format!("not worse by {margin}"),
        (Some(_), _) => "not shown".to_owned(),
        (None, _) if p >= LEVEL => "no significant difference".to_owned(),
        (None, _) if difference.mean < 0.0 => "lower".to_owned(),
        (None, _) => "higher".to_owned(),
    }
}

impl Judged {
    /// Heading of [`cells`](Self::cells).
    pub const HEADING: [&'static str; 6] =
        ["difference", "task", "mean", "95 % interval", "p (Holm)", "verdict"];

    pub fn cells(&self) -> Vec<String> {
        let number = |x: f64| self.metric.map_or_else(|| x.to_string(), |metric| signed(metric, x));
        let absent = || "–".to_owned();
        let interval =
            self.interval.map(|(low, high)| format!("{} to {}", number(low), number(high)));
        vec![
            self.claim.clone(),
            self.task.clone(),
            self.mean.map_or_else(absent, number),
            interval.unwrap_or_else(absent),
            self.p.map_or_else(absent, |p| format!("{p:.3}")),
            self.verdict.clone(),
        ]
    }
}

/// A difference with its sign and one place more than values have.
fn signed(metric: Metric, x: f64) -> String {
    let places = if metric.is_count() { 0 } else { metric.decimals().0 + 1 };
    format!("{x:+.places$}")
}

/// All of `judged` as a table in markdown, with what it says.
pub(crate) fn render_pairs(judged: &[Judged]) -> String {
    let heading = Judged::HEADING.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> =
        std::iter::once(heading).chain(judged.iter().map(Judged::cells)).collect();
    format!(
        "{}\nDifferences are paired by seed, and for accuracy, NLL and Brier score by evaluation row; 95 % intervals by \
         Student's distribution; p by Holm's method for all rows of the table, one-sided where a margin is claimed.\n",
        markdown(&rows)
    )
}

/// What stands behind a name for temperature scaling on top of a method.
const TEMPERED: &str = "+ts";

/// Beginnings of names that published tables give to methods, letters and digits only, in the order in
/// which they are tried where the registry has no such name.
const BEGINNINGS: [(&str, Family); 12] = [
    ("bayeslora", Family::LowRank),
    ("ens", Family::Ensemble),
    ("deepens", Family::Ensemble),
    ("batchens", Family::Ensemble),
    ("bayesbybackprop", Family::Variance),
    ("blob", Family::Variance),
    ("lap", Family::PostHoc),
    ("llla", Family::PostHoc),
    ("lla", Family::PostHoc),
    ("swag", Family::PostHoc),
    ("temperature", Family::PostHoc),
    ("mle", Family::Point),
];

impl Family {
    /// The family of a method, by its name in print.
    pub(crate) fn of(method: &str) -> Self {
        if method.to_lowercase().ends_with(TEMPERED) {
            return Self::PostHoc;
        }
        if let Some(known) = MethodName::from_name(method) {
            return known.entry().family;
        }
        let key = match_key(method);
        BEGINNINGS
            .iter()
            .find(|(beginning, _)| key.starts_with(beginning))
            .map_or(Self::Other, |(_, family)| *family)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Point => "Point estimates",
            Self::Ensemble => "Ensembles and dropout",
            Self::Variance => "Learnt weight variances",
            Self::PostHoc => "Fitted around a trained adapter",
            Self::LowRank => "Low-rank variational dropout",
            Self::Other => "Others",
        }
    }

    pub(crate) fn colour(self) -> usize {
        match self {
            Self::Point => 0,
            Self::Ensemble => 3,
            Self::Variance => 1,
            Self::PostHoc => 4,
            Self::LowRank => 2,
            Self::Other => 5,
        }
    }
}

fn seeds(results: &Results) -> usize {
    let finished = results.runs.iter().filter(|run| run.status == RunStatus::Finished);
    finished.map(|run| run.seed).collect::<BTreeSet<_>>().len()
}

/// Methods, model, steps, seeds and data, and what generated data cannot say.
pub(super) fn ran(results: &Results, summary: &Summary) -> String {
    if results.runs.is_empty() {
        return "No run has been recorded.".into();
    }
    let methods = match summary.methods.len() {
        n if n > NAMED => format!("{n} methods"),
        _ => listed(&summary.methods),
    };
    let steps: BTreeSet<u64> = results.runs.iter().map(|run| run.steps).collect();
    let steps = match (steps.first(), steps.last()) {
        (Some(low), Some(high)) if low < high => format!("{} to {}", grouped(*low), grouped(*high)),
        (only, _) => grouped(only.copied().unwrap_or(0)),
    };
    let (n, planned) = (seeds(results), results.runs.len());
    let generated = |split: &SplitRecord| split.origin == DataOrigin::Generated;
    let data = || summary.tasks.iter().filter_map(|task| results.data.get(task));
    let all = data().all(|data| generated(&data.train) && generated(&data.validation));
    let kind = if all { "generated data: " } else { "" };
    let tasks: Vec<String> =
        summary.tasks.iter().map(|task| data_of(results, task, !all)).collect();
    let mut text = format!(
        "{methods} fine-tuned {}, {} parameters, for {steps} steps with {n} {} on {kind}{}.",
        results.model.name,
        grouped(results.model.parameters),
        if n == 1 { "seed" } else { "seeds" },
        listed(&tasks),
    );
    let finished = results.runs.iter().filter(|run| run.status == RunStatus::Finished).count();
    if finished < planned {
        let _ = write!(text, " Only {finished} of {planned} runs finished.");
    }
    if data().any(|data| generated(&data.train)) {
        text.push_str(" Generated data show that methods run, not which is better on real text.");
    }
    text
}

/// `CoLA (2 000 training and 500 validation rows, official)`; `origins` says whether their origin is included.
fn data_of(results: &Results, task: &str, origins: bool) -> String {
    let label = task_label(task);
    let Some(data) = results.data.get(task) else { return label };
    let origin = |origin: DataOrigin| match origin {
        DataOrigin::Official => "official",
        DataOrigin::Subset => "a part of the official ones",
        DataOrigin::LocalDev => "split off here",
        DataOrigin::Generated => "generated",
    };
    let (train, validation) = (origin(data.train.origin), origin(data.validation.origin));
    let rows = [grouped(data.train.rows), grouped(data.validation.rows)];
    let [before, after] = rows;
    if !origins {
        format!("{label} ({before} training and {after} validation rows)")
    } else if train == validation {
        format!("{label} ({before} training and {after} validation rows, {train})")
    } else {
        format!("{label} ({before} training rows, {train}; {after} validation rows, {validation})")
    }
}

/// What a number of the tables is, and when a difference counts.
pub(super) fn rule(results: &Results, summary: &Summary) -> String {
    let checkpoint = match summary.choice {
        CheckpointChoice::Last => "Last checkpoint",
        CheckpointChoice::Best => {
            "Best checkpoint, chosen on the data it is reported on, so optimistic (ensembles and methods that are \
             fitted after training have none: table-last.csv has their numbers)"
        }
    };
    match seeds(results) {
        0 => format!("{checkpoint}."),
        1 => format!(
            "{checkpoint}. One seed: no difference between methods can be tested, and nothing is marked."
        ),
        n => format!(
            "{checkpoint}; mean ± sample standard deviation over {n} seeds. Differences are paired by seed, and for \
             accuracy, NLL and Brier score by validation row; one is significant if its 95 % interval by Student's \
             distribution leaves out 0, by Holm's method for all rivals of the best."
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::summary::CheckpointChoice;
    use super::super::verdict::tests::{said, two};
    use super::*;
    use crate::record::sample::{sample_results, set_accuracy};

    #[test]
    fn claims_are_judged_as_one_family() {
        let mut results = sample_results();
        results.runs.retain(|run| run.task == "rte");
        for (method, values) in [
            ("LoRA", [0.80, 0.81, 0.79]),
            ("AdaLoRA", [0.805, 0.812, 0.790]),
            ("BayesLoRA", [0.90, 0.905, 0.896]),
        ] {
            set_accuracy(&mut results, "rte", method, &values.map(|v| (v, 0.5)));
        }
        let summary = Summary::new(&results, CheckpointChoice::Last, &[Metric::Accuracy(0)]);
        let claim = |of, from, margin| Claim::new(of, from, "accuracy", margin).unwrap();
        let claims = [
            claim("BayesLoRA", "LoRA", None),
            claim("LoRA", "BayesLoRA", None),
            claim("AdaLoRA", "LoRA", None),
            claim("AdaLoRA", "LoRA", Some(0.02)),
            claim("LoRA", "AdaLoRA", Some(0.001)),
            claim("IVON", "LoRA", None),
        ];
        let judged = judge(&results, &summary, &RowScores::default(), &claims);
        let verdicts: Vec<&str> = judged.iter().map(|j| j.verdict.as_str()).collect();
        let expected = [
            "higher",
            "lower",
            "no significant difference",
            "not worse by 0.02",
            "not shown",
            "not tested",
        ];
        assert_eq!(verdicts, expected);
        // scipy.stats.t of the paired differences, then Holm for the five that can be tested.
        let p: Vec<f64> = judged.iter().filter_map(|j| j.p).collect();
        let expected = [0.005014466, 0.005014466, 0.499042452, 0.006308827, 0.772165527];
        for (found, expected) in p.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-8, "{p:?}");
        }
        assert_eq!(judged[5].mean, None);
        let text = render_pairs(&judged);
        assert!(text.contains("| accuracy: BayesLoRA less LoRA | RTE | +0.1003 | "), "{text}");
        let unknown = Claim::new("a", "b", "acuracy", None).unwrap_err().to_string();
        assert!(unknown.contains("did you mean `accuracy`?"), "{unknown}");
    }

    #[test]
    fn names_find_their_family() {
        let cases = [
            ("LoRA", Family::Point),
            ("LoRA+TS", Family::PostHoc),
            ("LoRA-Ensemble", Family::Ensemble),
            ("ENS-10", Family::Ensemble),
            ("C-LoRA", Family::Variance),
            ("SWAG-LoRA", Family::PostHoc),
            ("BayesLoRA expanded", Family::LowRank),
            ("<b>", Family::Other),
            ("", Family::Other),
        ];
        for (name, family) in cases {
            assert_eq!(Family::of(name), family, "{name}");
        }
    }

    #[test]
    fn the_first_sentence_says_what_was_run() {
        let mut results = two(&[(0.5, 0.5); 3], &[(0.9, 0.5); 3]);
        let text = said(&results).ran;
        let expected = "LoRA and BayesLoRA fine-tuned nano, 3\u{202f}400\u{202f}000 parameters, for 800 steps with 3 seeds on \
                      RTE (";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains(" training rows, generated; 400 validation rows, split off here)"),
            "{text}"
        );
        assert!(text.ends_with("not which is better on real text."), "{text}");
        results.data.get_mut("rte").unwrap().validation.origin = DataOrigin::Generated;
        let text = said(&results).ran;
        assert!(
            text.contains(" on generated data: RTE (") && text.contains("400 validation rows).")
        );
        results.runs.retain(|run| run.seed == 1);
        let one = said(&results);
        assert!(one.ran.contains("with 1 seed ") && one.rule.contains("tested"), "{one:?}");
        assert!(one.scores.is_empty(), "{one:?}");
        results.runs.clear();
        assert_eq!(said(&results).ran, "No run has been recorded.");
    }
}
