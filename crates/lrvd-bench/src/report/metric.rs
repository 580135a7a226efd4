//! The numbers of tables, where they come from, and how they are printed.

use std::borrow::Cow;

use super::significance::Spread;
use crate::record::{CheckpointRecord, Metrics, OodRecord, Reliability, Results, RunRecord};
use crate::task::Task;
use crate::text;

const MINUTE: f64 = 60.0;
/// Minutes below which one more place is printed.
const SHORT: f64 = 10.0;
const MEBIBYTE: f64 = 1_048_576.0;
pub(crate) const FLOOR: &str =
    "ece: in brackets, the mean ECE of a perfectly calibrated model on as many rows";
pub(crate) const KEPT: &str =
    "parameters: trained, the head not counted; after a +, numbers kept for prediction beside them";

/// A row of a table. The number is the count of posterior draws; 0 is the posterior mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Validation accuracy, a fraction.
    Accuracy(u32),
    Standard(u32),
    /// Expected calibration error, a fraction.
    Ece(u32),
    /// Mean expected calibration error of a perfectly calibrated model with the same confidences.
    EceFloor(u32),
    /// Negative log-likelihood, nats per example.
    Nll(u32),
    /// Brier score in `[0, 2]`.
    Brier(u32),
    /// Mean over classes of the F1 score.
    MacroF1(u32),
    /// Area under the risk-coverage curve; 0 is perfect.
    SelectiveArea(u32),
    /// Area under the ROC curve by which predictive entropy tells the questions of another set from a run's own.
    EntropyAuroc(Task, u32),
    /// The same of the mutual information between prediction and weights.
    InformationAuroc(Task, u32),
    /// Accuracy on the questions of another set by its own labels.
    OtherAccuracy(Task, u32),
    /// Negative log-likelihood of those answers, nats per example.
    OtherNll(Task, u32),
    /// Expected calibration error of those answers.
    OtherEce(Task, u32),
    /// Trained parameters of adapters and posterior, the exact count; the head is not in it.
    Parameters,
    /// Numbers kept for prediction beside the trained parameters.
    StoredParameters,
    /// Parameters of pooler and classifier.
    HeadParameters,
    Rank,
    /// Average rank in per cent of the initial rank.
    RankPercent,
    /// Training time in minutes, evaluation not counted.
    TimeMin,
    /// Seconds to answer the validation split.
    PredictSeconds(u32),
    MemoryMib,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
    /// Neither: a fact about the run.
    Neither,
}

impl Metric {
    /// Name in files, heading in print, direction of improvement, decimals of the mean and of the standard deviation
    /// as the paper prints them. Sizes, time and memory are facts, not goals.
    fn facts(self) -> (&'static str, &'static str, Better, (usize, usize)) {
        use Better::{Higher, Lower, Neither};
        match self {
            Self::Accuracy(_) => ("accuracy", "accuracy", Higher, (3, 3)),
            Self::Standard(_) => ("standard", "standard metric", Higher, (3, 3)),
            Self::Nll(_) => ("nll", "NLL (nats)", Lower, (3, 3)),
            Self::Ece(_) => ("ece", "ECE", Lower, (3, 3)),
            Self::EceFloor(_) => ("ece_floor", "ECE of a calibrated model", Neither, (3, 3)),
            Self::Brier(_) => ("brier", "Brier score", Lower, (3, 3)),
            Self::MacroF1(_) => ("macro_f1", "macro F1", Higher, (3, 3)),
            Self::SelectiveArea(_) => ("aurc", "risk-coverage area", Lower, (3, 3)),
            Self::EntropyAuroc(..) => ("auroc_entropy", "AUROC of the entropy", Higher, (3, 3)),
            Self::InformationAuroc(..) => {
                ("auroc_information", "AUROC of the mutual information", Higher, (3, 3))
            }
            Self::OtherAccuracy(..) => {
                ("ood_accuracy", "accuracy by its own letters", Higher, (3, 3))
            }
            Self::OtherNll(..) => ("ood_nll", "NLL (nats) by its own letters", Lower, (3, 3)),
            Self::OtherEce(..) => ("ood_ece", "ECE by its own letters", Lower, (3, 3)),
            Self::Parameters => {
                ("parameters", "trained parameters, head not counted", Neither, (0, 0))
            }
            Self::StoredParameters => {
                ("stored_parameters", "numbers kept for prediction", Neither, (0, 0))
            }
            Self::HeadParameters => ("head_parameters", "parameters of the head", Neither, (0, 0)),
            Self::Rank => ("rank", "average rank", Neither, (2, 2)),
            Self::RankPercent => ("rank_percent", "rank (% of initial)", Neither, (2, 2)),
            Self::TimeMin => ("time_min", "training time (min)", Neither, (1, 2)),
            Self::PredictSeconds(_) => ("predict_s", "prediction time (s)", Neither, (2, 2)),
            Self::MemoryMib => ("memory_mib", "peak memory (MiB)", Neither, (0, 0)),
        }
    }

    fn draws_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Accuracy(k)
            | Self::Standard(k)
            | Self::Nll(k)
            | Self::Ece(k)
            | Self::EceFloor(k)
            | Self::Brier(k)
            | Self::MacroF1(k)
            | Self::SelectiveArea(k)
            | Self::EntropyAuroc(_, k)
            | Self::InformationAuroc(_, k)
            | Self::OtherAccuracy(_, k)
            | Self::OtherNll(_, k)
            | Self::OtherEce(_, k)
            | Self::PredictSeconds(k) => Some(k),
            _ => None,
        }
    }

    /// The name without its number of draws: what `accuracy` and `accuracy_k10` share.
    pub(crate) fn base(self) -> Cow<'static, str> {
        let name = self.facts().0;
        self.other_set().map_or(Cow::Borrowed(name), |set| Cow::Owned(format!("{name}_{set}")))
    }

    /// The set whose questions are separated from a run's; none for a metric of the run's questions.
    pub(crate) fn other_set(self) -> Option<Task> {
        match self {
            Self::EntropyAuroc(set, _)
            | Self::InformationAuroc(set, _)
            | Self::OtherAccuracy(set, _)
            | Self::OtherNll(set, _)
            | Self::OtherEce(set, _) => Some(set),
            _ => None,
        }
    }

    /// The metric that is printed behind this one: after a `+`, or in brackets.
    pub(crate) fn beside(self) -> Option<Self> {
        match self {
            Self::Parameters => Some(Self::StoredParameters),
            Self::Ece(k) => Some(Self::EceFloor(k)),
            _ => None,
        }
    }

    /// All metrics of the questions of another set, without draws.
    pub(crate) fn of_other_set(set: Task) -> [Self; 5] {
        [
            Self::EntropyAuroc(set, 0),
            Self::InformationAuroc(set, 0),
            Self::OtherAccuracy(set, 0),
            Self::OtherNll(set, 0),
            Self::OtherEce(set, 0),
        ]
    }

    /// The number of draws; none for what does not depend on one.
    pub(crate) fn draws(mut self) -> Option<u32> {
        self.draws_mut().copied()
    }

    #[must_use]
    pub(crate) fn at_draws(mut self, draws: u32) -> Self {
        if let Some(k) = self.draws_mut() {
            *k = draws;
        }
        self
    }

    /// The name in CSV files: `accuracy`, `accuracy_k10`, `rank`, `time_min`, ...
    pub(crate) fn name(self) -> String {
        match self.draws() {
            Some(draws) if draws > 0 => format!("{}_k{draws}", self.base()),
            _ => self.base().into_owned(),
        }
    }

    /// All metrics of a run's own questions, without draws.
    pub(crate) const OWN: [Self; 16] = [
        Self::Accuracy(0),
        Self::Standard(0),
        Self::Nll(0),
        Self::Ece(0),
        Self::EceFloor(0),
        Self::Brier(0),
        Self::MacroF1(0),
        Self::SelectiveArea(0),
        Self::Parameters,
        Self::StoredParameters,
        Self::HeadParameters,
        Self::Rank,
        Self::RankPercent,
        Self::TimeMin,
        Self::PredictSeconds(0),
        Self::MemoryMib,
    ];

    /// The metric of a CSV name; none if the name is not known. `nll_k10` says its number of draws itself, for all
    /// others it is `draws`.
    pub(crate) fn parse(name: &str, draws: u32) -> Option<Self> {
        let ending = name.rsplit_once("_k");
        let (name, draws) =
            ending.and_then(|(name, k)| Some((name, k.parse().ok()?))).unwrap_or((name, draws));
        let ood = Task::reasoning().flat_map(Self::of_other_set);
        let found = Self::OWN.into_iter().chain(ood).find(|metric| metric.base() == name)?;
        Some(found.at_draws(draws))
    }

    pub(crate) fn title(self) -> String {
        let title = self.facts().1;
        let set = self.other_set().map(|set| format!(", {}", set.display_name()));
        let draws = self.draws().filter(|draws| *draws > 0).map(|draws| format!(", {draws} draws"));
        format!("{title}{}{}", set.unwrap_or_default(), draws.unwrap_or_default())
    }

    /// Whether the value counts things and prints as a whole number.
    pub(crate) fn is_count(self) -> bool {
        matches!(self, Self::Parameters | Self::StoredParameters | Self::HeadParameters)
    }

    pub(crate) fn better(self) -> Better {
        self.facts().2
    }

    /// Whether the metric is independent of the hardware, unlike time and memory.
    pub(crate) fn is_of_the_model(self) -> bool {
        !matches!(self, Self::TimeMin | Self::PredictSeconds(_) | Self::MemoryMib)
    }

    /// Decimals of the mean and of the standard deviation.
    pub(crate) fn decimals(self) -> (usize, usize) {
        self.facts().3
    }

    /// One value in print; `–` where it is not a finite number.
    pub(crate) fn format(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        if self.is_count() && value >= 0.0 {
            return grouped(value.round() as u64);
        }
        // Minutes of tiny runs would all be zero with the paper's one place.
        let more = usize::from(self == Self::TimeMin && value < SHORT);
        text::decimals(value, self.decimals().0 + more)
    }

    /// A cell in print: `0.882 ±.005`, or the mean alone for one seed and for counts, which most methods fix.
    pub(crate) fn format_spread(self, spread: &Spread) -> String {
        let mean = self.format(spread.mean);
        match spread.std {
            Some(std) if std.is_finite() && !self.is_count() => {
                format!("{mean} ±{}", self.format_std(std))
            }
            _ => mean,
        }
    }

    /// A standard deviation in print: no zero before the point, as in the paper.
    pub(crate) fn format_std(self, std: f64) -> String {
        if self.is_count() {
            return self.format(std);
        }
        let text = format!("{std:.*}", self.decimals().1);
        text.strip_prefix("0.").map(|rest| format!(".{rest}")).unwrap_or(text)
    }

    /// The value of this metric in one run at one of its checkpoints; none where the run does not have it.
    pub(crate) fn value(
        self,
        results: &Results,
        run: &RunRecord,
        checkpoint: &CheckpointRecord,
    ) -> Option<f64> {
        let at = |k: u32| checkpoint.metrics.get(&k);
        match self {
            Self::Accuracy(k) => at(k)?.accuracy,
            Self::Standard(k) => standard(results, run, at(k)?),
            Self::Nll(k) => at(k)?.nll,
            Self::Ece(k) => at(k)?.ece,
            Self::EceFloor(k) => checkpoint.reliability.get(&k).map(Reliability::floor),
            Self::Brier(k) => at(k)?.brier,
            Self::MacroF1(k) => at(k)?.macro_f1,
            Self::SelectiveArea(k) => checkpoint.selective.get(&k).map(|s| s.area),
            Self::EntropyAuroc(set, k) => {
                ood(run, checkpoint, set, k).map(|record| record.auroc_entropy)
            }
            Self::InformationAuroc(set, k) => {
                ood(run, checkpoint, set, k)?.auroc_mutual_information
            }
            Self::OtherAccuracy(set, k) => ood(run, checkpoint, set, k)?.accuracy,
            Self::OtherNll(set, k) => ood(run, checkpoint, set, k)?.nll,
            Self::OtherEce(set, k) => ood(run, checkpoint, set, k)?.ece,
            Self::Parameters => {
                of_counted(run, checkpoint).then(|| run.trainable_parameters.trained() as f64)
            }
            Self::StoredParameters => {
                of_counted(run, checkpoint).then_some(run.trainable_parameters.stored as f64)
            }
            Self::HeadParameters => Some(run.trainable_parameters.head as f64),
            Self::Rank => Some(checkpoint.average_rank),
            Self::RankPercent => Some(checkpoint.percent_rank),
            Self::TimeMin => Some(run.train_seconds / MINUTE),
            Self::PredictSeconds(k) => checkpoint.predict_seconds.get(&k).copied(),
            Self::MemoryMib => run.peak_memory_bytes.map(|bytes| bytes as f64 / MEBIBYTE),
        }
    }
}

/// Whether the run's parameter count is valid for this checkpoint: it was taken at the last one, so of a checkpoint with
/// other ranks it is not known.
fn of_counted(run: &RunRecord, checkpoint: &CheckpointRecord) -> bool {
    run.checkpoints.last.as_ref().is_none_or(|last| last.ranks == checkpoint.ranks)
}

/// What a run's uncertainty says of another set, if this is the checkpoint that was asked: the last one, or one of its step.
fn ood<'a>(
    run: &'a RunRecord,
    checkpoint: &CheckpointRecord,
    set: Task,
    draws: u32,
) -> Option<&'a OodRecord> {
    let last = run.checkpoints.last.as_ref()?;
    (last.step == checkpoint.step).then_some(())?;
    run.ood.get(set.name())?.get(&draws)
}

pub(crate) fn grouped(n: u64) -> String {
    text::grouped(n, '\u{202f}')
}

fn standard(results: &Results, run: &RunRecord, metrics: &Metrics) -> Option<f64> {
    let name = results.data.get(&run.task).map_or("accuracy", |data| &data.standard_metric);
    match metrics.standard.get(name) {
        Some(value) => Some(*value),
        None if name == "accuracy" => metrics.accuracy,
        None => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::record::sample::{sample_reasoning, sample_results};

    #[test]
    fn cells_print_as_in_the_paper() {
        let spread = |values: &[f64]| Spread::of(values).unwrap();
        assert_eq!(
            Metric::Accuracy(0).format_spread(&spread(&[0.877, 0.882, 0.887])),
            "0.882 ±.005"
        );
        assert_eq!(Metric::Rank.format_spread(&spread(&[1.0, 2.0, 4.0])), "2.33 ±1.53");
        assert_eq!(Metric::Rank.format_spread(&spread(&[1.0, 2.0, 2.0])), "1.67 ±.58");
        assert_eq!(Metric::TimeMin.format_spread(&spread(&[12.3])), "12.3");
        assert_eq!(Metric::Accuracy(0).format_spread(&spread(&[f64::NAN, 0.5])), "–");
    }

    #[test]
    fn counts_print_exactly() {
        let spread = |values: &[f64]| Spread::of(values).unwrap();
        assert_eq!(
            Metric::Parameters.format_spread(&spread(&[4_483_592.0, 4_483_592.0])),
            "4\u{202f}483\u{202f}592"
        );
        assert_eq!(Metric::Parameters.format_spread(&spread(&[1000.0, 3000.0])), "2\u{202f}000");
        assert_eq!([0, 999, 3_400_000].map(grouped), ["0", "999", "3\u{202f}400\u{202f}000"]);
    }

    #[test]
    fn names_go_there_and_back() {
        let all = [
            Metric::Accuracy(0),
            Metric::Ece(10),
            Metric::MacroF1(5),
            Metric::SelectiveArea(10),
            Metric::EntropyAuroc(Task::ArcC, 0),
            Metric::InformationAuroc(Task::BoolQ, 10),
            Metric::OtherAccuracy(Task::ArcC, 0),
            Metric::OtherNll(Task::ArcE, 5),
            Metric::OtherEce(Task::ArcE, 10),
            Metric::Parameters,
            Metric::StoredParameters,
            Metric::HeadParameters,
            Metric::Rank,
            Metric::TimeMin,
            Metric::PredictSeconds(10),
        ];
        for metric in all {
            assert_eq!(Metric::parse(&metric.name(), 0), Some(metric));
        }
        assert_eq!(Metric::Nll(10).name(), "nll_k10");
        let ood = Metric::EntropyAuroc(Task::ArcE, 10);
        assert_eq!(ood.name(), "auroc_entropy_arc-e_k10");
        assert_eq!(ood.title(), "AUROC of the entropy, ARC-E, 10 draws");
        assert_eq!(Metric::parse("nll", 10), Some(Metric::Nll(10)));
        assert_eq!(Metric::parse("params_m", 0), None);
        assert_eq!(Metric::parse("nll_kind", 0), None);
    }

    #[test]
    fn other_sets_belong_to_the_last_checkpoint() {
        let results = sample_reasoning();
        let own = |task: &str, method: &str| {
            results.runs.iter().find(|run| run.task == task && run.method == method).unwrap()
        };
        let (run, metric) = (own("obqa", "BayesLoRA"), Metric::EntropyAuroc(Task::ArcC, 10));
        let last = run.checkpoints.last.as_ref().unwrap();
        let expected = run.ood["arc-c"][&10].auroc_entropy;
        assert_eq!(metric.value(&results, run, last), Some(expected));
        let best = run.checkpoints.best.as_ref().unwrap();
        assert_eq!(metric.value(&results, run, best), None);
        // One draw is one model, and models of another task were not asked.
        let one = Metric::InformationAuroc(Task::ArcC, 1);
        assert_eq!(one.value(&results, run, last), None);
        let other = own("arc-e", "BayesLoRA");
        let last = other.checkpoints.last.as_ref().unwrap();
        assert_eq!(metric.value(&results, other, last), None);
    }

    #[test]
    fn kept_numbers_are_counted_apart() {
        let results = sample_reasoning();
        let run = results.runs.iter().find(|run| run.method == "SWAG").unwrap();
        let last = run.checkpoints.last.as_ref().unwrap();
        let counts = [Metric::Parameters, Metric::StoredParameters];
        let found = counts.map(|metric| metric.value(&results, run, last));
        assert_eq!(found, [Some(13_568.0), Some(81_408.0)]);
    }

    #[test]
    fn a_count_belongs_to_the_ranks_it_was_taken_at() {
        let results = sample_results();
        let run = results.runs.iter().find(|run| run.method == "BayesLoRA").unwrap();
        let last = run.checkpoints.last.as_ref().unwrap();
        assert_eq!(Metric::Parameters.value(&results, run, last), Some(98_496.0));
        let mut other = last.clone();
        other.ranks.clear();
        assert_eq!(Metric::Parameters.value(&results, run, &other), None);
    }
}
