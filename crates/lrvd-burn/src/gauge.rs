//! Rotation of adapters to the singular directions of their mean update.
//!
//! The product of two factors does not change under `A → R·A, B → B·R⁻¹`, and a posterior that starts
//! the same for every rank leaves all rotations open: training spreads one direction over several ranks,
//! and the noise of a single rank then says little. After the rotation each rank is one direction, and
//! the divergence shrinks directions that the data does not support.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use lrvd_core::gauge::{SingularFactors, singular_factors};

use crate::adapter::{Extension, Posterior};
use crate::error::AdapterError;
use crate::host::HostAdapter;
use crate::model::AdaptedModel;
use crate::optimizer::AdamW;
use crate::parameters::ParameterValue;

/// Rotates every pair of factors to the singular directions of its product, the largest first, and returns
/// the singular values of each update `c·ΔW` by module path.
///
/// The update itself is unchanged, and so is the total variance of each module's update: the variances are carried
/// through the basis change by [`SingularFactors::log_variance`], which says when single entries keep their variance too.
/// The moments in `optimizer` belong to the old basis and are forgotten.
///
/// # Errors
///
/// [`AdapterError::Gauge`] for an adapter with separate singular values or whose noise is not one
/// variance per rank; no adapter is rotated then.
pub fn turn(
    model: &mut (impl AdaptedModel + ?Sized),
    optimizer: Option<&mut AdamW>,
) -> Result<BTreeMap<String, Vec<f64>>, AdapterError> {
    let mut turned = BTreeMap::new();
    let mut outcome = Ok(());
    model.visit_layers(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let can = matches!(
            adapter.extension,
            None | Some(Extension::Posterior(
                Posterior::RankVariance(_) | Posterior::AsymRankVariance(_)
            ))
        );
        if !can {
            outcome = Err(AdapterError::Gauge { path: path.to_owned() });
            return;
        }
        match rotated(&HostAdapter::read(adapter)) {
            Ok(rotated) => {
                turned.insert(path.to_owned(), rotated);
            }
            Err(error) => outcome = Err(error.into()),
        }
    });
    outcome?;
    let mut spectra = BTreeMap::new();
    model.visit_layers_mut(&mut |path, layer| {
        let Some((adapter, rotated)) = layer.low_rank_mut().zip(turned.remove(path)) else {
            return;
        };
        let (factors, log_variance) = rotated;
        let scaling = adapter.scaling;
        set_rows(&mut adapter.a, &factors.a);
        adapter.b.set_data(TensorData::new(factors.b, adapter.b.val().dims()));
        if let Some(Extension::Posterior(
            Posterior::RankVariance(noise) | Posterior::AsymRankVariance(noise),
        )) = &mut adapter.extension
        {
            let n = log_variance.len();
            noise.value.set_data(TensorData::new(log_variance, [n]));
        }
        let spectrum = factors.values.iter().map(|value| scaling * value).collect();
        spectra.insert(path.to_owned(), spectrum);
    });
    if let Some(optimizer) = optimizer {
        optimizer.forget(|name| {
            name.rsplit_once('.').is_some_and(|(path, _)| spectra.contains_key(path))
        });
    }
    Ok(spectra)
}

/// The singular factors of an adapter and its log-variances in their basis; none without a posterior.
fn rotated(host: &HostAdapter) -> Result<(SingularFactors, Vec<f64>), lrvd_core::Error> {
    let (a, b) = host.factors()?;
    let factors = singular_factors(a, b)?;
    let posterior = host.posterior()?;
    let carried = posterior.map(|posterior| factors.log_variance(&posterior)).transpose()?;
    Ok((factors, carried.unwrap_or_default()))
}

/// Replaces `[width, rank]` by rows that are rank-major.
fn set_rows(param: &mut Param<Tensor<2>>, rows: &[f64]) {
    let [width, rank] = param.val().dims();
    let columns = lrvd_core::numeric::dense::transpose(rows, rank, width);
    param.set_data(TensorData::new(columns, [width, rank]));
}
