//! Adapters turned to the singular directions of their mean update.
//!
//! The product of two factors does not change under `A → R·A, B → B·R⁻¹`, and a posterior that begins
//! the same for every rank leaves all rotations open: training spreads one direction over several ranks,
//! and a rank's own noise then says little. Once turned, each rank is one direction, and directions that
//! the data does not pay for fade away.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use lrvd_core::gauge::singular_factors;

use crate::adapter::{Extension, Posterior};
use crate::error::AdapterError;
use crate::host::{HostAdapter, values};
use crate::model::AdaptedModel;
use crate::optimizer::AdamW;
use crate::parameters::ParameterValue;

/// Turns every pair of factors to the singular directions of its product, the largest first, and returns
/// the singular values of each update `c·ΔW` by module path.
///
/// The update itself is unchanged. Every rank gets the mean of the variances, `ln (Σ_k e^ℓ_k / r)`: with
/// equal variances, where the posterior has no preferred basis, that is exact. The moments in `optimizer`
/// belong to the old basis and are forgotten.
///
/// # Errors
///
/// [`AdapterError::Gauge`] for an adapter with singular values of its own or whose noise is not one
/// variance per rank; no adapter is turned then.
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
        let host = HostAdapter::read(adapter);
        match host.factors().and_then(|(a, b)| singular_factors(a, b)) {
            Ok(factors) => {
                turned.insert(path.to_owned(), factors);
            }
            Err(error) => outcome = Err(lrvd_core::Error::from(error).into()),
        }
    });
    outcome?;
    let mut spectra = BTreeMap::new();
    model.visit_layers_mut(&mut |path, layer| {
        let Some((adapter, factors)) = layer.low_rank_mut().zip(turned.remove(path)) else {
            return;
        };
        let scaling = adapter.scaling;
        set_rows(&mut adapter.a, &factors.a);
        adapter.b.set_data(TensorData::new(factors.b, adapter.b.val().dims()));
        if let Some(Extension::Posterior(
            Posterior::RankVariance(noise) | Posterior::AsymRankVariance(noise),
        )) = &mut adapter.extension
        {
            let old = values(noise.value.val());
            let mean = old.iter().map(|l| l.exp()).sum::<f64>() / old.len().max(1) as f64;
            let n = old.len();
            noise.value.set_data(TensorData::new(vec![mean.ln(); n], [n]));
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

/// Replaces `[width, rank]` by rows that are rank-major.
fn set_rows(param: &mut Param<Tensor<2>>, rows: &[f64]) {
    let [width, rank] = param.val().dims();
    let columns = lrvd_core::numeric::dense::transpose(rows, rank, width);
    param.set_data(TensorData::new(columns, [width, rank]));
}
