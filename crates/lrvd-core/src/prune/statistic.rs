//! The noise of a rank component in one number.

use crate::error::{Error, check_range};
use crate::family::{EPS_MEAN, VariationalFamily, clamp_log_variance};
use crate::kl::{ArdPrior, ArdScales, kl_ard};
use crate::numeric::MedianKind;
use crate::posterior::{Factor, NoiseParameters, Posterior};

/// Fan-in at which the corrected statistic equals the plain one: the attention width of the model
/// the published threshold was chosen on.
pub const REFERENCE_FAN_IN: f64 = 768.0;

/// Which log-variance enters the statistic of the additive families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatisticLogVariance {
    /// The clamped one, as in the forward pass and the KL.
    #[default]
    Clamped,
    /// The stored parameter, as in the authors' code.
    Raw,
}

/// How the statistic aggregates the entries of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum StatisticAggregate {
    /// The median noise-to-signal ratio of an entry, as published; its threshold is 4.
    #[default]
    Median,
    /// Noise energy over mean energy of the whole rank, the relevance of the hierarchical prior
    /// ([`kl_ard`]); its natural threshold is 0. It is the same in every basis of the inputs and
    /// outputs.
    Energy,
}

/// How [`rank_statistic`] aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StatisticOptions {
    /// Medians of entries, or energies of ranks; the options below are for medians.
    pub aggregate: StatisticAggregate,
    /// Which median of an even count.
    pub median: MedianKind,
    /// Clamped or raw log-variances.
    pub log_variance: StatisticLogVariance,
    /// `Some(reference)` subtracts what the fan-in alone contributes to a fresh adapter, relative
    /// to one with `reference` inputs ([`REFERENCE_FAN_IN`]).
    pub fan_in_correction: Option<f64>,
}

/// The prune statistic: a robust log noise-to-signal ratio of every rank.
///
/// ```text
/// rank, element   ½·(med_i log_alpha_A[k,i] + med_o log_alpha_B[k,o]) − ½·ln(d_input/reference)
/// noise-to-signal log_alpha[k]
/// asym            med_i log_alpha_A[k,i] − ln(d_input/reference)
/// log_alpha = ℓ − ln(mean² + EPS_MEAN);     the last term only with fan_in_correction
/// energy          ln(Σ σ² / Σ mean²) over the random entries of the rank
/// ```
///
/// The correction follows the weight that the median of A has: a fresh `a_mean` is uniform in
/// `±1/√d_input`, so that median is `ℓ + ln(4·d_input)`.
///
/// Returns `[rank]`; empty for rank 0.
///
/// # Errors
///
/// The reference is not positive and finite, or a factor that enters has no columns.
///
/// # Invariants
///
/// Permuting ranks permutes the result; up to `EPS_MEAN`, `A → s·A, B → B/s` leaves the two-factor
/// statistic unchanged; a NaN in a row makes its statistic NaN, which no rule accepts.
///
/// Source: the authors' code; the paper names the statistic without defining it.
pub fn rank_statistic(
    posterior: &Posterior<'_>,
    options: StatisticOptions,
) -> Result<Vec<f64>, Error> {
    let log_fan_in = match options.fan_in_correction {
        Some(reference) => {
            check_range("fan_in_correction", reference, f64::MIN_POSITIVE, f64::MAX)?;
            (posterior.d_input() as f64 / reference).ln()
        }
        None => 0.0,
    };
    if posterior.rank() == 0 {
        return Ok(Vec::new());
    }
    if let NoiseParameters::NoiseToSignal(log_alpha) = posterior.parameters() {
        return Ok(log_alpha.to_vec());
    }
    if options.aggregate == StatisticAggregate::Energy {
        return Ok(kl_ard(posterior, ArdPrior::EmpiricalBayes, ArdScales::Shared)?.log_relevance);
    }
    let a = medians(posterior, Factor::A, options)?;
    if posterior.family() == VariationalFamily::AsymRankVariance {
        return Ok(a.iter().map(|a| a - log_fan_in).collect());
    }
    let b = medians(posterior, Factor::B, options)?;
    Ok(a.iter().zip(&b).map(|(a, b)| 0.5 * (a + b) - 0.5 * log_fan_in).collect())
}

fn medians(
    posterior: &Posterior<'_>,
    factor: Factor,
    options: StatisticOptions,
) -> Result<Vec<f64>, Error> {
    let width = posterior.view(factor).width();
    let values: Vec<f64> = posterior
        .entries(factor)
        .map(|entry| {
            let log_variance = match options.log_variance {
                StatisticLogVariance::Clamped => clamp_log_variance(entry.parameter),
                StatisticLogVariance::Raw => entry.parameter,
            };
            log_variance - (entry.mean * entry.mean + EPS_MEAN).ln()
        })
        .collect();
    let name = match factor {
        Factor::A => "row of a_mean",
        Factor::B => "row of b_mean",
    };
    (0..posterior.rank())
        .map(|k| {
            let row = &values[k * width..(k + 1) * width];
            options.median.of(row).ok_or_else(|| Error::length(name, 0, "at least 1"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::factor::FactorView;

    fn statistic(parameters: NoiseParameters<'_>, options: StatisticOptions) -> Vec<f64> {
        let a = FactorView::new("a", &[1.0, -2.0, 4.0, 8.0], 1, 4).unwrap();
        let b = FactorView::new("b", &[0.5, 0.25], 1, 2).unwrap();
        rank_statistic(&Posterior::new(a, b, parameters).unwrap(), options).unwrap()
    }

    #[test]
    fn medians_by_kind() {
        let l = [-1.0];
        // Ratios of A: −1 − ln μ², so the lower median belongs to the larger mean, 4; B to 0.5.
        let lower = statistic(NoiseParameters::RankVariance(&l), StatisticOptions::default());
        let expected = -1.0 - (4.0_f64 * 0.5).ln();
        assert!((lower[0] - expected).abs() < 1e-7, "{lower:?}");
        let median = MedianKind::Midpoint;
        let options = StatisticOptions { median, ..Default::default() };
        let midpoint = statistic(NoiseParameters::RankVariance(&l), options);
        let expected = -1.0 - 0.5 * ((8.0_f64).ln() + (0.125_f64).ln());
        assert!((midpoint[0] - expected).abs() < 1e-7, "{midpoint:?}");
    }

    #[test]
    fn energies_of_a_rank() {
        let energy =
            StatisticOptions { aggregate: StatisticAggregate::Energy, ..Default::default() };
        let l = [-1.0];
        // Six entries of variance e^-1; squares of A 1 + 4 + 16 + 64, of B 1/4 + 1/16.
        let found = statistic(NoiseParameters::RankVariance(&l), energy)[0];
        assert!((found - ((6.0_f64 / 85.3125).ln() - 1.0)).abs() < 1e-14, "{found}");
        let found = statistic(NoiseParameters::AsymRankVariance(&l), energy)[0];
        assert!((found - ((4.0_f64 / 85.0).ln() - 1.0)).abs() < 1e-14, "{found}");
        assert_eq!(statistic(NoiseParameters::NoiseToSignal(&l), energy), l);
    }

    #[test]
    fn other_families_and_the_correction() {
        let l = [-1.0];
        let plain = StatisticOptions::default();
        assert_eq!(statistic(NoiseParameters::NoiseToSignal(&l), plain), l);
        let asym = statistic(NoiseParameters::AsymRankVariance(&l), plain)[0];
        assert!((asym - (-1.0 - 16.0_f64.ln())).abs() < 1e-7);
        let corrected = StatisticOptions { fan_in_correction: Some(2.0), ..plain };
        let shift = |p| statistic(p, plain)[0] - statistic(p, corrected)[0];
        assert!((shift(NoiseParameters::RankVariance(&l)) - 0.5 * 2.0_f64.ln()).abs() < 1e-14);
        assert!((shift(NoiseParameters::AsymRankVariance(&l)) - 2.0_f64.ln()).abs() < 1e-14);
        assert_eq!(shift(NoiseParameters::NoiseToSignal(&l)), 0.0);
    }

    #[test]
    fn raw_and_clamped_part_outside_the_range() {
        let l = [-25.0];
        let raw =
            StatisticOptions { log_variance: StatisticLogVariance::Raw, ..Default::default() };
        let clamped = statistic(NoiseParameters::RankVariance(&l), StatisticOptions::default())[0];
        let raw = statistic(NoiseParameters::RankVariance(&l), raw)[0];
        assert!((clamped - raw - 5.0).abs() < 1e-12);
    }

    #[test]
    fn rank_zero_and_empty_rows() {
        let empty = FactorView::new("a", &[], 0, 4).unwrap();
        let none = Posterior::new(empty, empty, NoiseParameters::RankVariance(&[])).unwrap();
        assert!(rank_statistic(&none, StatisticOptions::default()).unwrap().is_empty());
        let flat = FactorView::new("a", &[], 1, 0).unwrap();
        let q = Posterior::new(flat, flat, NoiseParameters::RankVariance(&[0.0])).unwrap();
        assert!(rank_statistic(&q, StatisticOptions::default()).is_err());
        let wrong = StatisticOptions { fan_in_correction: Some(0.0), ..Default::default() };
        assert!(rank_statistic(&none, wrong).is_err());
    }
}
