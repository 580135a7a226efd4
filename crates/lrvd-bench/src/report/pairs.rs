//! Claims about two methods or arms, each a comparison by [`super::significance`] with Holm's correction for all of a page.

use serde::Serialize;

use super::metric::{ABSENT, Better, Metric, Spread};
use super::names::task_label;
use super::significance::{Difference, LEVEL, difference, holm};
use super::summary::Summary;
use super::table::markdown;
use crate::text::UnknownName;

/// One comparison: `metric` of `of` less that of `from`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    /// The method or arm whose number comes first.
    of: String,
    from: String,
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
        let own = || Metric::all().into_iter().filter(|m| m.set.is_none()).map(Metric::name);
        let metric =
            Metric::parse(metric, 0).ok_or_else(|| UnknownName::new("metric", metric, own()))?;
        Ok(Self { of: of.to_owned(), from: from.to_owned(), metric, margin })
    }

    /// The probabilities of what was found: if there is no difference; or with a margin if the claim does not hold, and if
    /// its opposite does not, a difference beyond the margin. At most one of the two can be small.
    fn probabilities(&self, difference: Difference) -> Vec<f64> {
        let Some(margin) = self.margin else { return vec![difference.p()] };
        let below = difference.p_below(margin);
        let above = difference.p_above(-margin);
        let beyond_high = difference.p_above(margin);
        let beyond_low = difference.p_below(-margin);
        match self.metric.fact().better {
            Better::Lower => vec![below, beyond_high],
            Better::Higher => vec![above, beyond_low],
            // Beyond it on either side: two tests in one.
            Better::Neither => {
                vec![below.max(above), (2.0 * beyond_high.min(beyond_low)).min(1.0)]
            }
        }
    }

    /// Words for a difference by the adjusted probabilities of its tests, and the probability behind them.
    fn verdict(&self, difference: Difference, p: &[f64]) -> (String, f64) {
        let own = p[0];
        let Some(margin) = self.margin else {
            let words = match difference.mean {
                _ if own >= LEVEL => "no significant difference",
                mean if mean < 0.0 => "lower",
                _ => "higher",
            };
            return (words.to_owned(), own);
        };
        let is_directed = self.metric.fact().better != Better::Neither;
        match p.get(1) {
            _ if own < LEVEL && is_directed => (format!("not worse by {margin}"), own),
            _ if own < LEVEL => (format!("within {margin}"), own),
            Some(&beyond) if beyond < LEVEL && is_directed => {
                (format!("worse by more than {margin}"), beyond)
            }
            Some(&beyond) if beyond < LEVEL => (format!("differs by more than {margin}"), beyond),
            _ => ("not shown".to_owned(), own),
        }
    }

    /// The mean difference on `task` over the seeds that both have.
    fn mean(&self, summary: &Summary<'_>, task: &str) -> Option<f64> {
        let values = |method: &str| Some(&summary.answer(self.metric, method, task)?.1.by_seed);
        let own = values(&self.of)?;
        let other = values(&self.from)?;
        let apart = own.iter().filter_map(|(seed, value)| Some(value - other.get(seed)?));
        Spread::of(&apart.collect::<Vec<_>>()).map(|spread| spread.mean)
    }
}

/// A claim on one task with what was measured of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Empty where models are compared.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// Metric and the two sides: `nll: auto less LoRA`.
    pub claim: String,
    /// The mean difference over the seeds that both have; null without one.
    pub mean: Option<f64>,
    /// Its 95 % interval; null below two seeds and where seeds do not vary.
    pub interval: Option<(f64, f64)>,
    /// The probability behind the verdict by Holm's correction, one-sided for a margin; null where there is no interval.
    pub p: Option<f64>,
    /// `lower`, `higher`, `no significant difference`; with a margin `not worse by ...`, `worse by more than ...`,
    /// `within ...`, `differs by more than ...`, `not shown`; `not tested`.
    pub verdict: String,
    #[serde(skip)]
    decimals: usize,
    #[serde(skip)]
    is_by_row: bool,
}

/// Judges all `claims` on all tasks of a summary as one family.
pub(crate) fn judge(summary: &Summary<'_>, claims: &[Claim]) -> Vec<Verdict> {
    let tasks = |claim| summary.tasks.iter().map(move |task| (claim, *task));
    // Each with the probabilities of its tests, which are empty without a difference to test.
    let found: Vec<(&Claim, &str, Option<Difference>, Vec<f64>)> = claims
        .iter()
        .flat_map(tasks)
        .map(|(claim, task)| {
            let pair = (claim.of.as_str(), claim.from.as_str());
            let found = difference(summary, (claim.metric, task), pair);
            let tests = found.map(|d| claim.probabilities(d)).unwrap_or_default();
            (claim, task, found, tests)
        })
        .collect();
    let tested: Vec<f64> = found.iter().flat_map(|(.., tests)| tests).copied().collect();
    let mut adjusted = holm(&tested).into_iter();
    let verdict = |(claim, task, found, tests): (&Claim, &str, Option<Difference>, Vec<f64>)| {
        let Claim { of, from, metric, .. } = claim;
        let own: Vec<f64> = adjusted.by_ref().take(tests.len()).collect();
        let tested = found.map(|d| claim.verdict(d, &own));
        Verdict {
            task: task_label(task),
            claim: format!("{}: {of} less {from}", metric.name()),
            mean: claim.mean(summary, task),
            interval: found.map(Difference::interval),
            p: tested.as_ref().map(|(_, p)| *p),
            verdict: tested.map_or_else(|| "not tested".to_owned(), |(words, _)| words),
            decimals: if metric.is_count() { 0 } else { metric.number_format().digits + 1 },
            is_by_row: found.is_some_and(Difference::has_rows),
        }
    };
    found.into_iter().map(verdict).collect()
}

/// A difference between two models on the same rows.
pub(crate) struct ModelPair {
    /// Metric and the two sides.
    pub(crate) claim: String,
    pub(crate) mean: f64,
    /// `None` where it cannot be tested.
    pub(crate) difference: Option<Difference>,
}

/// Places of a difference between models.
const MODEL_DECIMALS: usize = 4;

/// Judges all differences as one family.
pub(crate) fn judge_models(pairs: Vec<ModelPair>) -> Vec<Verdict> {
    let tested: Vec<f64> =
        pairs.iter().filter_map(|pair| pair.difference).map(Difference::p).collect();
    let mut adjusted = holm(&tested).into_iter();
    let verdict = |ModelPair { claim, mean, difference }: ModelPair| {
        let p = difference.and_then(|_| adjusted.next());
        let words = match p {
            None => "not tested",
            Some(p) if p >= LEVEL => "no significant difference",
            Some(_) if mean < 0.0 => "lower",
            Some(_) => "higher",
        };
        Verdict {
            task: String::new(),
            claim,
            mean: Some(mean),
            interval: difference.map(Difference::interval),
            p,
            verdict: words.to_owned(),
            decimals: MODEL_DECIMALS,
            is_by_row: difference.is_some(),
        }
    };
    pairs.into_iter().map(verdict).collect()
}

impl Verdict {
    pub const HEADING: [&'static str; 6] =
        ["difference", "task", "mean", "95 % interval", "p (Holm)", "verdict"];

    /// In print; a difference has its sign and one place more than values.
    pub fn cells(&self) -> Vec<String> {
        let signed = |x: f64| format!("{x:+.*}", self.decimals);
        let absent = || ABSENT.to_owned();
        let interval = |(low, high)| format!("{} to {}", signed(low), signed(high));
        vec![
            self.claim.clone(),
            self.task.clone(),
            self.mean.map_or_else(absent, signed),
            self.interval.map_or_else(absent, interval),
            self.p.map_or_else(absent, |p| format!("{p:.3}")),
            self.verdict.clone(),
        ]
    }
}

pub(crate) fn render_pairs(verdicts: &[Verdict]) -> String {
    let heading = Verdict::HEADING.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> =
        std::iter::once(heading).chain(verdicts.iter().map(Verdict::cells)).collect();
    let by_row = verdicts.iter().filter(|verdict| verdict.is_by_row).count();
    let row = match by_row {
        0 => String::new(),
        _ if by_row == verdicts.len() => " and evaluation row".to_owned(),
        n => format!(" (in {n} of {} rows of the table also by evaluation row)", verdicts.len()),
    };
    format!(
        "{}\nDifferences are paired by seed{row}, over the seeds that both have; 95 % intervals, each by itself; p by Holm's method over all tests of the table. A margin has two, one-sided: that the difference is \
         within it, and that it is beyond it.\n",
        markdown(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample::{sample_results, set_accuracy};
    use crate::record::{Results, RunRecord};

    #[test]
    fn claims_are_judged_as_one_family() {
        let mut results = sample_results();
        results.runs.retain(|run| run.task == "rte");
        let values = [
            ("LoRA", [0.80, 0.81, 0.79]),
            ("AdaLoRA", [0.805, 0.812, 0.790]),
            ("BayesLoRA", [0.90, 0.905, 0.896]),
        ];
        set_accuracy(&mut results, "rte", 0.5, values);
        let summary = Summary::of_last(&results);
        let claims = [
            ("BayesLoRA", "LoRA", None),
            ("LoRA", "BayesLoRA", None),
            ("AdaLoRA", "LoRA", None),
            ("AdaLoRA", "LoRA", Some(0.02)),
            ("LoRA", "AdaLoRA", Some(0.001)),
            ("LoRA", "BayesLoRA", Some(0.01)),
            ("IVON", "LoRA", None),
        ]
        .map(|(of, from, margin)| Claim::new(of, from, "accuracy", margin).unwrap());
        let verdicts = judge(&summary, &claims);
        // Two degrees of freedom: 1/2 + t / (2 √(2 + t²)) of the paired differences; then Holm for nine tests, two of a margin.
        let p: Vec<f64> = verdicts.iter().filter_map(|v| v.p).collect();
        let expected = [0.008023146, 0.008023146, 1.0, 0.012617654, 1.0, 0.005565562];
        for (found, expected) in p.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-8, "{p:?}");
        }
        insta::assert_snapshot!(render_pairs(&verdicts));
        let unsided = Claim::new("LoRA", "AdaLoRA", "rank", Some(1.0)).unwrap();
        let words = |mean: f64| {
            let d = Difference::from_seeds(&[mean - 0.1, mean, mean + 0.1]).unwrap();
            unsided.verdict(d, &unsided.probabilities(d)).0
        };
        let expected =
            ["differs by more than 1", "not shown", "within 1", "differs by more than 1"];
        assert_eq!([-2.0, -1.1, 0.0, 2.0].map(words), expected);
        let unknown = Claim::new("a", "b", "acuracy", None).unwrap_err().to_string();
        assert!(unknown.contains("did you mean `accuracy`?"), "{unknown}");
    }

    #[test]
    fn a_difference_is_over_the_seeds_that_both_have() {
        let mut results = sample_results();
        set_accuracy(
            &mut results,
            "rte",
            0.5,
            [("LoRA", [0.40, 0.60, 0.0]), ("AdaLoRA", [0.0, 0.50, 0.95])],
        );
        let lacks =
            |method, seed| move |run: &RunRecord| (&*run.method, run.seed) != (method, seed);
        results.runs.retain(lacks("LoRA", 3));
        results.runs.retain(lacks("AdaLoRA", 1));
        results.runs.retain(|run| run.task == "rte");
        let claim = [Claim::new("AdaLoRA", "LoRA", "accuracy", None).unwrap()];
        let cells =
            |results: &Results| judge(&Summary::of_last(results), &claim)[0].cells()[2..].join(" ");
        assert_eq!(cells(&results), "-0.1000 – – not tested");
        results.runs.retain(lacks("LoRA", 2));
        assert_eq!(cells(&results), "– – – not tested");
    }
}
