//! Two factors of an adapter with their posterior, read from a file into the core's layout.

use anyhow::{Context, Result};
use lrvd_burn::files::WeightStore;
use lrvd_burn::host::{HostAdapter, HostNoise};
use lrvd_core::posterior::Posterior;

use crate::case::Values;

/// The posteriors that a fixture states, by the start of its names.
pub(crate) const FAMILIES: [&str; 2] = ["multiplicative", "additive"];
/// Relative difference of formulas for which a folder states no tolerance: the double-precision rule of those that
/// do.
pub(crate) const FORMULA: f64 = 1e-10;

/// `A` `[rank, d_in]` and `B` `[d_out, rank]` of a file, both rank-major here.
pub(crate) fn read(file: &WeightStore, a: &str, b: &str) -> Result<HostAdapter> {
    let (a, b) = (Values::read(file, a)?, Values::read(file, b)?);
    let (rank, d_input, d_output) = (a.shape[0], a.shape[1], b.shape[0]);
    let (a, b) = (a.values, b.transposed().values);
    Ok(HostAdapter { rank, d_input, d_output, a, b, e: None, noise: None, scaling: 1.0 })
}

/// The same factors with the noise of one family.
pub(crate) fn with_noise(factors: &HostAdapter, family: &str, parameters: &[f64]) -> HostAdapter {
    let parameters = parameters.to_vec();
    let noise = match family {
        "additive" => HostNoise::RankVariance(parameters),
        _ => HostNoise::NoiseToSignal(parameters),
    };
    HostAdapter { noise: Some(noise), ..factors.clone() }
}

pub(crate) fn posterior(adapter: &HostAdapter) -> Result<Posterior<'_>> {
    adapter.posterior()?.context("an adapter without a posterior")
}
