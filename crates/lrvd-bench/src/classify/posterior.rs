//! The posterior between a model on a device and its file beside the adapter.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::adapter::{
    AdapterSlot, ElementParameters, Posterior, RankParameters, adapter_dtype,
};
use lrvd_burn::files::{HostTensor, TensorError};
use lrvd_burn::host::values;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::peft::{
    PeftPosterior, PosteriorFamily, PosteriorHeader, PosteriorModule, PosteriorModuleHeader,
    PosteriorScheme,
};
use lrvd_core::family::{LOG_VARIANCE_MAX, LOG_VARIANCE_MIN, VariationalFamily};

use super::error::ClassifyError;
use crate::settings::{ExperimentConfig, TrainingScheme};

const CLAMP: [f64; 2] = [LOG_VARIANCE_MIN, LOG_VARIANCE_MAX];

/// The posterior of `model`; `None` if none of its layers ever had one.
///
/// # Errors
///
/// [`ClassifyError::Tensor`] if a parameter cannot be read back.
pub(super) fn posterior_from_model(
    model: &impl AdaptedModel,
    config: &ExperimentConfig,
    seed: u64,
) -> Result<Option<PeftPosterior>, ClassifyError> {
    let mut family = None;
    let mut headers = BTreeMap::new();
    let mut modules = BTreeMap::new();
    let mut outcome = Ok(());
    model.visit_layers(&mut |path, layer| {
        let Some(slot) = layer.slot() else { return };
        family = family.or(slot.family);
        let AdapterSlot { initial_rank, scaling, .. } = slot;
        let header = PosteriorModuleHeader { initial_rank, rank: layer.rank(), scaling };
        headers.insert(path.to_owned(), header);
        if let Some(posterior) = layer.adapter.as_ref().and_then(|a| a.posterior.as_ref()) {
            match host(posterior) {
                Ok(module) => drop(modules.insert(path.to_owned(), module)),
                Err(source) => {
                    outcome = Err(ClassifyError::Tensor { path: path.to_owned(), source });
                }
            }
        }
    });
    outcome?;
    let Some(family) = family else { return Ok(None) };
    let family = match family {
        VariationalFamily::RankVariance => PosteriorFamily::RankVariance,
        VariationalFamily::NoiseToSignal => PosteriorFamily::NoiseToSignal,
        VariationalFamily::ElementVariance => PosteriorFamily::ElementVariance,
        VariationalFamily::AsymRankVariance => PosteriorFamily::AOnly,
    };
    let header = PosteriorHeader {
        log_alpha_threshold: config.prune.log_alpha_threshold,
        log_variance_clamp: CLAMP,
        kl_weight: config.kl_weight,
        seed,
        modules: headers,
        ..PosteriorHeader::new(family, scheme(config.training_scheme))
    };
    Ok(Some(PeftPosterior { header, modules }))
}

fn scheme(scheme: TrainingScheme) -> PosteriorScheme {
    match scheme {
        TrainingScheme::Mean => PosteriorScheme::Mean,
        TrainingScheme::WeightPerSequence => PosteriorScheme::WeightPerSequence,
        TrainingScheme::WeightPerBatch => PosteriorScheme::WeightPerBatch,
        TrainingScheme::MomentMatched | TrainingScheme::MomentMatchedPaper => {
            PosteriorScheme::MomentMatched
        }
        TrainingScheme::Nested => PosteriorScheme::Nested,
    }
}

fn host(posterior: &Posterior) -> Result<PosteriorModule, TensorError> {
    let tensor = |shape: &[usize], values: Vec<f64>| {
        // Parameters are trained in single precision: nothing is lost.
        let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
        HostTensor::from_f32(shape, &values)
    };
    match posterior {
        Posterior::RankVariance(p)
        | Posterior::NoiseToSignal(p)
        | Posterior::AsymRankVariance(p) => {
            let values = values(p.value.val());
            Ok(PosteriorModule::PerRank(tensor(&[values.len()], values)?))
        }
        Posterior::ElementVariance(p) => {
            let ([d_input, rank], [_, d_output]) = (p.a.val().dims(), p.b.val().dims());
            Ok(PosteriorModule::PerEntry {
                a: tensor(&[rank, d_input], values(p.a.val().transpose()))?,
                b: tensor(&[d_output, rank], values(p.b.val().transpose()))?,
            })
        }
    }
}

/// Puts `posterior` around the means that are already on `model`, frozen; the draws of a layer
/// depend on its path and the key only, so they are those of the model it was taken from.
///
/// # Errors
///
/// [`ClassifyError::Clamp`] for another clamp than this build's, [`ClassifyError::Tensor`] if an
/// element type cannot be used.
pub(super) fn attach_posterior(
    model: &mut impl AdaptedModel,
    posterior: &PeftPosterior,
) -> Result<(), ClassifyError> {
    let header = &posterior.header;
    if header.log_variance_clamp != CLAMP {
        return Err(ClassifyError::Clamp { wanted: CLAMP, found: header.log_variance_clamp });
    }
    let mut outcome = Ok(());
    model.visit_layers_mut(&mut |path, layer| {
        let Some(module) = header.modules.get(path) else { return };
        let Some(mut adapter) = layer.detach() else {
            // Pruned away: only what is left to know of it.
            layer.attach_empty(AdapterSlot {
                initial_rank: module.initial_rank,
                scaling: module.scaling,
                family: family(header.family),
            });
            return;
        };
        let like = adapter.a.val();
        let (device, dtype) = (like.device(), adapter_dtype(like.dtype()));
        match posterior.modules.get(path).map(|m| placed(m, header.family, &device, dtype)) {
            Some(Ok(placed)) => adapter.posterior = placed,
            Some(Err(source)) => {
                outcome = Err(ClassifyError::Tensor { path: path.to_owned(), source });
            }
            None => {}
        }
        layer.attach(adapter, module.initial_rank);
    });
    outcome
}

/// `None` for a family that a later version may know.
fn family(family: PosteriorFamily) -> Option<VariationalFamily> {
    match family {
        PosteriorFamily::RankVariance => Some(VariationalFamily::RankVariance),
        PosteriorFamily::NoiseToSignal => Some(VariationalFamily::NoiseToSignal),
        PosteriorFamily::ElementVariance => Some(VariationalFamily::ElementVariance),
        PosteriorFamily::AOnly => Some(VariationalFamily::AsymRankVariance),
        _ => None,
    }
}

fn placed(
    module: &PosteriorModule,
    family: PosteriorFamily,
    device: &Device,
    dtype: DType,
) -> Result<Option<Posterior>, TensorError> {
    let vector = |tensor: &HostTensor| -> Result<RankParameters, TensorError> {
        let data = TensorData::new(tensor.to_f64()?, [tensor.n_elements()]);
        let value = Tensor::<1>::from_data(data, (device, dtype));
        Ok(RankParameters { value: Param::from_tensor(value).set_require_grad(false) })
    };
    let matrix = |tensor: &HostTensor| -> Result<Param<Tensor<2>>, TensorError> {
        let turned = tensor.transpose2()?;
        let shape = [turned.shape()[0], turned.shape()[1]];
        let value =
            Tensor::<2>::from_data(TensorData::new(turned.to_f64()?, shape), (device, dtype));
        Ok(Param::from_tensor(value).set_require_grad(false))
    };
    Ok(match (family, module) {
        (PosteriorFamily::RankVariance, PosteriorModule::PerRank(t)) => {
            Some(Posterior::RankVariance(vector(t)?))
        }
        (PosteriorFamily::NoiseToSignal, PosteriorModule::PerRank(t)) => {
            Some(Posterior::NoiseToSignal(vector(t)?))
        }
        (PosteriorFamily::AOnly, PosteriorModule::PerRank(t)) => {
            Some(Posterior::AsymRankVariance(vector(t)?))
        }
        (PosteriorFamily::ElementVariance, PosteriorModule::PerEntry { a, b }) => {
            let (a, b) = (matrix(a)?, matrix(b)?);
            Some(Posterior::ElementVariance(ElementParameters { a, b }))
        }
        _ => None,
    })
}
