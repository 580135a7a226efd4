//! Rotation of adapters to the singular directions of their mean update.
//!
//! The product of two factors does not change under `A → R·A, B → B·R⁻¹`, and a posterior that starts
//! the same for every rank leaves all rotations open: training spreads one direction over several ranks,
//! and the noise of a single rank then says little. After the rotation each rank is one direction, and
//! the divergence shrinks directions that the data does not support.

use std::collections::BTreeMap;

use burn::tensor::TensorData;
use lrvd_core::linalg::transpose;
use lrvd_core::update::{SingularFactors, singular_factors};

use crate::error::Error;
use crate::model::{NamedModule, adapters};
use crate::parameters::ParameterValue;

/// Rotates every pair of factors to the singular directions of its product, the largest first, and returns
/// the singular values of each update `c·ΔW` by module path.
///
/// The update itself is unchanged. Parameters of noise stay as they are, in any family: they are to be set anew. The moments of
/// an optimizer belong to the old basis.
///
/// An adapter with separate singular values, or with noise that is not a posterior of the factors, is an error; no adapter is
/// rotated then.
pub fn rotate_to_singular_basis(
    model: &mut impl NamedModule,
) -> Result<BTreeMap<String, Vec<f64>>, Error> {
    let mut rotated = BTreeMap::new();
    for attached in adapters(model) {
        let Some(adapter) = &attached.adapter else { continue };
        if adapter.extension.is_some() && adapter.posterior().is_none() {
            let what = "cannot be rotated: expected two factors, with a posterior or without noise";
            return Err(Error::layer(&attached.path, what));
        }
        rotated.insert(attached.path.to_string(), singular_factors(&adapter.host_factors())?);
    }
    let mut spectra = BTreeMap::new();
    model.visit_layers_mut(&mut |path, layer| {
        let Some(SingularFactors { values, factors }) = rotated.remove(path) else { return };
        layer.edit(|adapter| {
            let [width, rank] = adapter.a.val().dims();
            let columns = transpose(&factors.a, rank, width);
            adapter.a.set_data(TensorData::new(columns, [width, rank]));
            adapter.b.set_data(TensorData::new(factors.b_by_rank(), adapter.b.val().dims()));
            let spectrum = values.iter().map(|value| adapter.scaling * value).collect();
            spectra.insert(path.to_owned(), spectrum);
        });
    });
    Ok(spectra)
}
