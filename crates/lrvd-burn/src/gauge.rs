//! Rotation of adapters to the singular directions of their mean update.
//!
//! The product of two factors does not change under `A → R·A, B → B·R⁻¹`, and a posterior that starts
//! the same for every rank leaves all rotations open: training spreads one direction over several ranks,
//! and the noise of a single rank then says little. After the rotation each rank is one direction, and
//! the divergence shrinks directions that the data does not support.

use std::collections::BTreeMap;

use burn::tensor::TensorData;
use lrvd_core::gauge::singular_factors;

use crate::adapter::{Extension, Posterior};
use crate::error::Error;
use crate::host::HostAdapter;
use crate::model::{NamedModule, adapters};
use crate::optimizer::AdamW;
use crate::parameters::ParameterValue;

/// Rotates every pair of factors to the singular directions of its product, the largest first, and returns
/// the singular values of each update `c·ΔW` by module path.
///
/// The update itself is unchanged, and so is the total variance of each module's update: the variances are carried
/// through the basis change by [`log_variance`](lrvd_core::gauge::SingularFactors::log_variance), which says when
/// single entries keep their variance too. The moments in `optimizer` belong to the old basis and are forgotten.
///
/// An adapter with separate singular values, or whose noise is not one variance per rank, is an error; no adapter is
/// rotated then.
pub fn turn(
    model: &mut impl NamedModule,
    optimizer: Option<&mut AdamW>,
) -> Result<BTreeMap<String, Vec<f64>>, Error> {
    let spectra = rotate_factors(model, true)?;
    if let Some(optimizer) = optimizer {
        optimizer.forget(|name| {
            name.rsplit_once('.').is_some_and(|(path, _)| spectra.contains_key(path))
        });
    }
    Ok(spectra)
}

/// As [`turn`], for noise that will be set anew: its parameters stay as they are, in any family.
pub(crate) fn rotate(model: &mut impl NamedModule) -> Result<(), Error> {
    rotate_factors(model, false).map(drop)
}

fn rotate_factors(
    model: &mut impl NamedModule,
    carries_noise: bool,
) -> Result<BTreeMap<String, Vec<f64>>, Error> {
    let mut rotated = BTreeMap::new();
    for attached in adapters(model) {
        let Some(adapter) = attached.low_rank() else { continue };
        let can = match &adapter.extension {
            None => true,
            Some(Extension::Posterior(posterior)) => {
                posterior.tied_variance().is_some() || !carries_noise
            }
            Some(_) => false,
        };
        if !can {
            return Err(Error::Undefined(format!(
                "adapter `{}` cannot be rotated: expected two factors with at most one variance per rank",
                attached.path
            )));
        }
        let host = HostAdapter::read(adapter);
        let factors = singular_factors(&host.a, &host.b, host.rank)?;
        // The log-variances in the new basis, of a posterior that is carried along.
        let posterior = host.posterior()?.filter(|_| carries_noise);
        let carried = posterior.map(|posterior| factors.log_variance(&posterior)).transpose()?;
        rotated.insert(attached.path.to_string(), (factors, carried));
    }
    let mut spectra = BTreeMap::new();
    model.visit_layers_mut(&mut |path, layer| {
        let Some((factors, log_variance)) = rotated.remove(path) else { return };
        layer.edit(|adapter| {
            let [width, rank] = adapter.a.val().dims();
            let columns = lrvd_core::linalg::transpose(&factors.a, rank, width);
            adapter.a.set_data(TensorData::new(columns, [width, rank]));
            adapter.b.set_data(TensorData::new(factors.b, adapter.b.val().dims()));
            if let (
                Some(Extension::Posterior(
                    Posterior::RankVariance(noise) | Posterior::AsymRankVariance(noise),
                )),
                Some(log_variance),
            ) = (&mut adapter.extension, log_variance)
            {
                let n = log_variance.len();
                noise.value.set_data(TensorData::new(log_variance, [n]));
            }
            let spectrum = factors.values.iter().map(|value| adapter.scaling * value).collect();
            spectra.insert(path.to_owned(), spectrum);
        });
    });
    Ok(spectra)
}
