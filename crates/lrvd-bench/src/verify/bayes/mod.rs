//! The formulas of the posterior and of the metrics, always in double precision.
//!
//! | File | What is there |
//! |---|---|
//! | `factors` | two factors of an adapter in the core's layout |
//! | `forward` | variances, divergence, moments, passes, gradients, rank statistics |
//! | `divergence` | the fitted divergence on a grid |
//! | `gauge` | changes of basis, and what each leaves alone |
//! | `energy` | energy captured along an order of ranks |
//! | `monte_carlo` | moments of draws, recorded and our own |
//! | `calibration` | accuracy, likelihood, calibration error |

mod calibration;
mod divergence;
mod energy;
mod factors;
mod forward;
mod gauge;
mod monte_carlo;

use lrvd_burn::files::TensorFile;

use super::{Comparison, Entry, Folder, Limit, Precision, VerifyError, open};

pub(super) use calibration::verify as verify_calibration;
pub(super) use divergence::verify as verify_divergence;
pub(super) use energy::verify as verify_energy;
pub(super) use forward::verify as verify_forward;
pub(super) use gauge::verify as verify_gauge;
pub(super) use monte_carlo::verify as verify_monte_carlo;

/// Name of the file that every kind but the grid has.
const INPUTS: &str = "inputs.safetensors";
/// Relative difference allowed where a folder of this kind states no tolerance: the
/// double-precision rule of the kinds that state one.
const FORMULA: f64 = 1e-10;

/// Runs `check` on every entry of `items`, with the tensors beside them.
fn each_item(
    comparison: &mut Comparison<'_>,
    mut check: impl FnMut(&mut Comparison<'_>, &TensorFile, &Entry<'_>) -> Result<(), VerifyError>,
) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let file = open(&folder.dir, INPUTS)?;
    folder.get("items")?.list()?.iter().try_for_each(|item| check(comparison, &file, item))
}

/// The double-precision tolerance: these formulas are computed in f64 whatever was asked for.
fn tolerance(folder: &Folder, name: &str) -> Result<Limit, VerifyError> {
    folder.tolerance(name, Precision::F64)
}
