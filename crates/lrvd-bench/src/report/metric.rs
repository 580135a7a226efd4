//! Which numbers can stand in a table, where they come from, and how they are printed.

use super::checkpoint::{CheckpointRecord, Metrics};
use super::record::{Results, RunRecord};
use super::spread::Spread;

/// Seconds in a minute.
const MINUTE: f64 = 60.0;
/// Bytes in a mebibyte.
const MEBIBYTE: f64 = 1_048_576.0;

/// A row of a table. The number is the count of posterior draws; 0 is the posterior mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Validation accuracy, a fraction.
    Accuracy(u32),
    /// The task's standard metric.
    Standard(u32),
    /// Negative log-likelihood, nats per example.
    Nll(u32),
    /// Expected calibration error, a fraction.
    Ece(u32),
    /// Brier score in `[0, 2]`.
    Brier(u32),
    /// Average rank per module.
    Rank,
    /// Average rank in per cent of the initial rank.
    RankPercent,
    /// Training time in minutes, evaluation not counted.
    TimeMin,
    /// Peak memory in MiB.
    MemoryMib,
}

/// The direction in which a metric improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Larger is better.
    Higher,
    /// Smaller is better.
    Lower,
    /// Neither: a fact about the run.
    Neither,
}

impl Metric {
    /// The name in CSV files: `accuracy`, `accuracy_k10`, `rank`, `time_min`, ...
    pub fn name(self) -> String {
        let (base, draws) = match self {
            Self::Accuracy(k) => ("accuracy", k),
            Self::Standard(k) => ("standard", k),
            Self::Nll(k) => ("nll", k),
            Self::Ece(k) => ("ece", k),
            Self::Brier(k) => ("brier", k),
            Self::Rank => ("rank", 0),
            Self::RankPercent => ("rank_percent", 0),
            Self::TimeMin => ("time_min", 0),
            Self::MemoryMib => ("memory_mib", 0),
        };
        if draws == 0 { base.to_owned() } else { format!("{base}_k{draws}") }
    }

    /// The metric of a CSV name at a number of draws; none if the name is not known.
    pub fn parse(name: &str, draws: u32) -> Option<Self> {
        match name {
            "accuracy" => Some(Self::Accuracy(draws)),
            "standard" => Some(Self::Standard(draws)),
            "nll" => Some(Self::Nll(draws)),
            "ece" => Some(Self::Ece(draws)),
            "brier" => Some(Self::Brier(draws)),
            "rank" => Some(Self::Rank),
            "rank_percent" => Some(Self::RankPercent),
            "time_min" => Some(Self::TimeMin),
            "memory_mib" => Some(Self::MemoryMib),
            _ => None,
        }
    }

    /// The heading in print, with the unit.
    pub fn title(self) -> String {
        let (base, draws) = match self {
            Self::Accuracy(k) => ("accuracy", k),
            Self::Standard(k) => ("standard metric", k),
            Self::Nll(k) => ("NLL (nats)", k),
            Self::Ece(k) => ("ECE", k),
            Self::Brier(k) => ("Brier score", k),
            Self::Rank => ("average rank", 0),
            Self::RankPercent => ("rank (% of initial)", 0),
            Self::TimeMin => ("training time (min)", 0),
            Self::MemoryMib => ("peak memory (MiB)", 0),
        };
        if draws == 0 { base.to_owned() } else { format!("{base}, {draws} draws") }
    }

    /// The direction of improvement; ranks, time and memory are facts, not goals.
    pub fn better(self) -> Better {
        match self {
            Self::Accuracy(_) | Self::Standard(_) => Better::Higher,
            Self::Nll(_) | Self::Ece(_) | Self::Brier(_) => Better::Lower,
            Self::Rank | Self::RankPercent | Self::TimeMin | Self::MemoryMib => Better::Neither,
        }
    }

    /// Whether the metric speaks of the trained model; time and memory speak of the machine as well.
    pub fn is_of_the_model(self) -> bool {
        !matches!(self, Self::TimeMin | Self::MemoryMib)
    }

    /// Decimals of the mean and of the standard deviation, as the paper prints them.
    pub fn decimals(self) -> (usize, usize) {
        match self {
            Self::Accuracy(_)
            | Self::Standard(_)
            | Self::Nll(_)
            | Self::Ece(_)
            | Self::Brier(_) => (3, 3),
            Self::Rank | Self::RankPercent => (2, 2),
            Self::TimeMin => (1, 2),
            Self::MemoryMib => (0, 0),
        }
    }

    /// One value in print; `–` where it is not a finite number.
    pub fn format(self, value: f64) -> String {
        if value.is_finite() { format!("{value:.*}", self.decimals().0) } else { "–".to_owned() }
    }

    /// A cell in print: `0.882 ±.005`, or the mean alone for one seed.
    pub fn format_spread(self, spread: &Spread) -> String {
        let mean = self.format(spread.mean);
        match spread.std {
            Some(std) if std.is_finite() => format!("{mean} ±{}", self.format_std(std)),
            _ => mean,
        }
    }

    /// A standard deviation in print: no zero before the point, as in the paper.
    pub fn format_std(self, std: f64) -> String {
        let text = format!("{std:.*}", self.decimals().1);
        text.strip_prefix("0.").map(|rest| format!(".{rest}")).unwrap_or(text)
    }

    /// The value of this metric in one run at one of its checkpoints; none where the run does not have it.
    pub fn value(
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
            Self::Brier(k) => at(k)?.brier,
            Self::Rank => Some(checkpoint.average_rank),
            Self::RankPercent => Some(checkpoint.percent_rank),
            Self::TimeMin => Some(run.train_seconds / MINUTE),
            Self::MemoryMib => run.peak_memory_bytes.map(|bytes| bytes as f64 / MEBIBYTE),
        }
    }
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
    fn names_go_there_and_back() {
        for metric in [Metric::Accuracy(0), Metric::Ece(0), Metric::Rank, Metric::TimeMin] {
            assert_eq!(Metric::parse(&metric.name(), 0), Some(metric));
        }
        assert_eq!(Metric::Nll(10).name(), "nll_k10");
        assert_eq!(Metric::parse("params_m", 0), None);
    }
}
