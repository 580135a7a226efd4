//! The fitted divergence from the log-uniform prior, and its slope, on a grid.

use lrvd_core::kl::{kl_fit, kl_fit_slope};

use super::super::{Comparison, Folder, Limit, Values, VerifyError};
use super::tolerance;

/// End of the name of a grid.
const GRID: &str = "log_alpha";

pub(in super::super) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    comparison.check_complete()?;
    comparison.require(GRID)?;
    for name in comparison.names() {
        let Some(prefix) = name.strip_suffix(GRID) else { continue };
        if !prefix.is_empty() && !prefix.ends_with('.') {
            continue;
        }
        let grid = comparison.recorded(&name)?;
        comparison.set_aside(&name, "it is the grid, an input");
        for (key, of) in [("kl", kl_fit as fn(f64) -> f64), ("dkl", kl_fit_slope)] {
            let name = format!("{prefix}{key}");
            let found = grid.values.iter().map(|&a| of(a)).collect();
            let limit = grid_tolerance(folder, &name, key)?;
            comparison.required(&name, &Values::new(grid.shape.clone(), found), limit)?;
        }
    }
    Ok(())
}

/// Its own tolerance, else that of the same quantity on the main grid.
fn grid_tolerance(folder: &Folder, name: &str, key: &str) -> Result<Limit, VerifyError> {
    tolerance(folder, name).or_else(|_| tolerance(folder, key))
}
