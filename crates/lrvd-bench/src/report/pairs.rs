//! Claims about two methods or arms, each a comparison by [`super::significance`] with Holm's correction for all of a page.

use serde::Serialize;

use super::metric::{ABSENT, Better, Metric};
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

    /// The probability of what was found if the claim does not hold.
    fn probability(&self, difference: Difference) -> f64 {
        let Some(margin) = self.margin else { return difference.p() };
        let (not_above, not_below) = (difference.p_below(margin), difference.p_above(-margin));
        match self.metric.fact().better {
            Better::Lower => not_above,
            Better::Higher => not_below,
            Better::Neither => not_above.max(not_below),
        }
    }

    fn verdict(&self, difference: Difference, p: f64) -> String {
        match self.margin {
            Some(margin) if p < LEVEL => match self.metric.fact().better {
                Better::Neither => format!("within {margin}"),
                Better::Higher | Better::Lower => format!("not worse by {margin}"),
            },
            Some(_) => "not shown".to_owned(),
            None if p >= LEVEL => "no significant difference".to_owned(),
            None if difference.mean < 0.0 => "lower".to_owned(),
            None => "higher".to_owned(),
        }
    }
}

/// A claim on one task with what was measured of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
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
    decimals: usize,
}

/// Judges all `claims` on all tasks of a summary as one family.
pub(crate) fn judge(summary: &Summary<'_>, claims: &[Claim]) -> Vec<Verdict> {
    let tasks = |claim| summary.tasks.iter().map(move |task| (claim, *task));
    let found: Vec<(&Claim, &str, Option<Difference>)> = claims
        .iter()
        .flat_map(tasks)
        .map(|(claim, task)| {
            let pair = (claim.of.as_str(), claim.from.as_str());
            (claim, task, difference(summary, (claim.metric, task), pair))
        })
        .collect();
    let tested: Vec<f64> =
        found.iter().filter_map(|(claim, _, d)| Some(claim.probability((*d)?))).collect();
    let mut adjusted = holm(&tested).into_iter();
    let verdict = |(claim, task, found): (&Claim, &str, Option<Difference>)| {
        let Claim { of, from, metric, .. } = claim;
        let mean = |method| Some(summary.answer(*metric, method, task)?.1.mean);
        let tested = found.zip(found.and_then(|_| adjusted.next()));
        let not_tested = || "not tested".to_owned();
        Verdict {
            task: task_label(task),
            claim: format!("{}: {of} less {from}", metric.name()),
            mean: found.map(|d| d.mean).or_else(|| Some(mean(of)? - mean(from)?)),
            interval: found.map(Difference::interval),
            p: tested.map(|(_, p)| p),
            verdict: tested.map_or_else(not_tested, |(d, p)| claim.verdict(d, p)),
            decimals: if metric.is_count() { 0 } else { metric.fact().unit.decimals().0 + 1 },
        }
    };
    found.into_iter().map(verdict).collect()
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
    format!(
        "{}\nDifferences are paired by seed, and for accuracy, NLL and Brier score by evaluation row; 95 % intervals by \
         Student's distribution; p by Holm's method for all rows of the table, one-sided where a margin is claimed.\n",
        markdown(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample::{sample_results, set_accuracy};

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
            ("IVON", "LoRA", None),
        ]
        .map(|(of, from, margin)| Claim::new(of, from, "accuracy", margin).unwrap());
        let verdicts = judge(&summary, &claims);
        // scipy.stats.t of the paired differences, then Holm for the five that can be tested.
        let p: Vec<f64> = verdicts.iter().filter_map(|v| v.p).collect();
        let expected = [0.005014466, 0.005014466, 0.499042452, 0.006308827, 0.772165527];
        for (found, expected) in p.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-8, "{p:?}");
        }
        insta::assert_snapshot!(render_pairs(&verdicts));
        let unknown = Claim::new("a", "b", "acuracy", None).unwrap_err().to_string();
        assert!(unknown.contains("did you mean `accuracy`?"), "{unknown}");
    }
}
