//! The noise-to-signal ratio of one weight.

use crate::family::{EPS_MEAN, clamp_log_variance};
use crate::posterior::{Entries, Entry, EntryKind, Factor, Posterior};

/// A floor under the ratio σ²/μ²: 0 for none, 1e-8 for the authors' numerics.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AlphaFloor(f64);

impl AlphaFloor {
    /// No floor: the default.
    pub const NONE: Self = Self(0.0);
    /// The floor that the authors' code adds to the ratio before its logarithm, 1e-8.
    pub const AUTHORS: Self = Self(1e-8);
}

/// Log noise-to-signal ratio of one weight with an additive variance.
///
/// ```text
/// log_alpha = ln(exp(ℓ) / (mean² + EPS_MEAN) + alpha_floor),   ℓ = clamp(log_variance, −20, 2)
/// ```
///
/// # Numerics
///
/// Without a floor this is `ℓ − ln(mean² + EPS_MEAN)`, exact for any size of the ratio. The
/// authors' floor of 1e-8 bends the curve below `log_alpha = −14` and stops it at −18.4; it is kept
/// as an option because their numbers were made with it.
///
/// Source: Molchanov et al. 2017, arXiv:1701.05369; Doyle et al., arXiv:2506.22809.
pub fn log_alpha(mean: f64, log_variance: f64, floor: AlphaFloor) -> f64 {
    let signal = mean * mean + EPS_MEAN;
    let plain = clamp_log_variance(log_variance) - signal.ln();
    if floor.0 == 0.0 {
        return plain;
    }
    let log_floor = floor.0.ln();
    let (high, low) = (plain.max(log_floor), plain.min(log_floor));
    high + (low - high).exp().ln_1p()
}

/// The ratio of one entry, whatever its family; `None` where the entry has no noise.
pub(crate) fn entry_log_alpha(entry: Entry, floor: AlphaFloor) -> Option<f64> {
    match entry.kind {
        EntryKind::Additive => Some(log_alpha(entry.mean, entry.parameter, floor)),
        EntryKind::Multiplicative => Some(entry.parameter),
        EntryKind::Fixed => None,
    }
}

/// Log noise-to-signal ratios of all entries.
///
/// Multiplicative entries have `log_alpha` as their parameter, without any constant. Entries
/// without noise (B of the A-only family) are `−inf`.
pub fn log_alpha_entries(posterior: &Posterior<'_>, floor: AlphaFloor) -> Entries {
    let of = |factor| {
        posterior
            .entries(factor)
            .map(|entry| entry_log_alpha(entry, floor).unwrap_or(f64::NEG_INFINITY))
            .collect()
    };
    Entries { a: of(Factor::A), b: of(Factor::B) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_bends_only_tiny_ratios() {
        // ln(exp(−20) / 1 + 1e-8) = ln(2.0611536e-9 + 1e-8).
        let floored = log_alpha(1.0, -20.0, AlphaFloor::AUTHORS);
        let signal = 1.0 + EPS_MEAN;
        assert!((floored - ((-20.0_f64).exp() / signal + 1e-8).ln()).abs() < 1e-13);
        assert!((log_alpha(1.0, -20.0, AlphaFloor::NONE) + 20.0 + 1e-8).abs() < 1e-13);
        let plain = log_alpha(0.02, -8.0, AlphaFloor::NONE);
        assert!((plain - log_alpha(0.02, -8.0, AlphaFloor::AUTHORS)).abs() < 2e-5);
    }

    #[test]
    fn a_zero_mean_has_a_finite_ratio() {
        let zero = log_alpha(0.0, -8.0, AlphaFloor::NONE);
        assert!((zero - (-8.0 - 1e-8_f64.ln())).abs() < 1e-14);
    }
}
