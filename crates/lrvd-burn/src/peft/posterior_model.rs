//! The posterior between a model on a device and its file.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_core::family::VariationalFamily;

use super::attach::{host_matrix, host_vector, unusable};
use super::error::PeftError;
use super::posterior::{
    Factors, PeftPosterior, PosteriorHeader, PosteriorModule, PosteriorModuleHeader, PosteriorRun,
};
use crate::adapter::{AdapterSlot, ElementParameters, Posterior, RankParameters, adapter_dtype};
use crate::files::{HostTensor, TensorError};
use crate::model::AdaptedModel;

/// The posterior of `model`; `None` if none of its layers ever had one.
///
/// The means are the factors of the adapters, which [`peft_from_model`](super::peft_from_model)
/// takes.
///
/// # Errors
///
/// [`PeftError::Module`] if two layers have posteriors of different families, [`PeftError::Tensor`]
/// if a parameter cannot be read back.
pub fn posterior_from_model(
    model: &impl AdaptedModel,
    run: PosteriorRun,
) -> Result<Option<PeftPosterior>, PeftError> {
    let mut layers = Vec::new();
    model.visit_layers(&mut |path, layer| {
        if let Some(slot) = layer.slot() {
            let posterior = layer.adapter.as_ref().and_then(|a| a.posterior.as_ref());
            layers.push((path.to_owned(), slot, layer.rank(), posterior.map(on_host)));
        }
    });
    let Some(family) = layers.iter().find_map(|(_, slot, ..)| slot.family) else {
        return Ok(None);
    };
    let mut header = PosteriorHeader::new(family, run);
    let mut modules = BTreeMap::new();
    for (path, slot, rank, posterior) in layers {
        let AdapterSlot { initial_rank, scaling, family: found } = slot;
        if let Some(found) = found.filter(|found| *found != family) {
            let (wanted, found) = (format!("{family}, as in other layers"), found.to_string());
            return Err(PeftError::Module { path, name: "family", wanted, found });
        }
        if let Some(posterior) = posterior {
            let posterior = posterior.map_err(|source| unusable(&path, source))?;
            modules.insert(path.clone(), posterior);
        }
        header.modules.insert(path, PosteriorModuleHeader { initial_rank, rank, scaling });
    }
    Ok(Some(PeftPosterior { header, modules }))
}

fn on_host(posterior: &Posterior) -> Result<PosteriorModule, TensorError> {
    match posterior {
        Posterior::RankVariance(p)
        | Posterior::NoiseToSignal(p)
        | Posterior::AsymRankVariance(p) => host_vector(&p.value).map(PosteriorModule::PerRank),
        Posterior::ElementVariance(p) => {
            Ok(PosteriorModule::PerEntry { a: host_matrix(&p.a)?, b: host_matrix(&p.b)? })
        }
    }
}

/// Puts `posterior` around the means that are already on `model`, frozen.
///
/// The draws of a layer depend on its path and the key only, so they are those of the model it was
/// taken from. A layer that the header knows and that has no rank left gets its slot.
///
/// # Errors
///
/// Those of [`PeftPosterior::check_against`], with the model's layers in the place of the
/// adapter's modules; [`PeftError::Posterior`] for another clamp than this build's;
/// [`PeftError::Tensor`] if an element type cannot be used. The model is unchanged then.
pub fn attach_posterior(
    model: &mut impl AdaptedModel,
    posterior: &PeftPosterior,
) -> Result<(), PeftError> {
    let header = &posterior.header;
    header.check_clamp()?;
    let mut layers = BTreeMap::new();
    model.visit_layers(&mut |path, layer| {
        let like = layer.weight.val();
        let place = (like.device(), adapter_dtype(like.dtype()));
        let factors = Factors {
            rank: layer.rank(),
            scaling: layer.slot().map_or(0.0, |slot| slot.scaling),
            d_input: layer.d_input(),
            d_output: layer.d_output(),
        };
        layers.insert(path.to_owned(), (factors, place));
    });
    posterior.check_modules(layers.iter().map(|(path, (factors, _))| (path.as_str(), *factors)))?;
    let mut placed = BTreeMap::new();
    for (path, module) in &posterior.modules {
        let Some((_, (device, dtype))) = layers.get(path) else { continue };
        let module = on_device(module, header.family, device, *dtype);
        placed.insert(path.as_str(), module.map_err(|source| unusable(path, source))?);
    }
    model.visit_layers_mut(&mut |path, layer| {
        let Some(module) = header.modules.get(path) else { return };
        let (initial_rank, scaling) = (module.initial_rank, module.scaling);
        match layer.detach() {
            Some(mut adapter) => {
                adapter.posterior = placed.remove(path);
                layer.attach(adapter, initial_rank);
            }
            // Pruned away: only what is left to know of it.
            None => {
                let family = Some(header.family);
                layer.attach_empty(AdapterSlot { initial_rank, scaling, family });
            }
        }
    });
    Ok(())
}

fn on_device(
    module: &PosteriorModule,
    family: VariationalFamily,
    device: &Device,
    dtype: DType,
) -> Result<Posterior, TensorError> {
    match module {
        PosteriorModule::PerRank(tensor) => {
            let value = frozen(tensor, [tensor.n_elements()], device, dtype)?;
            let parameters = RankParameters { value };
            Ok(match family {
                VariationalFamily::NoiseToSignal => Posterior::NoiseToSignal(parameters),
                VariationalFamily::AsymRankVariance => Posterior::AsymRankVariance(parameters),
                _ => Posterior::RankVariance(parameters),
            })
        }
        PosteriorModule::PerEntry { a, b } => {
            let turned = |tensor: &HostTensor| {
                let turned = tensor.transpose2()?;
                frozen(&turned, [turned.shape()[0], turned.shape()[1]], device, dtype)
            };
            Ok(Posterior::ElementVariance(ElementParameters { a: turned(a)?, b: turned(b)? }))
        }
    }
}

fn frozen<const D: usize>(
    tensor: &HostTensor,
    shape: [usize; D],
    device: &Device,
    dtype: DType,
) -> Result<Param<Tensor<D>>, TensorError> {
    let data = TensorData::new(tensor.to_f64()?, shape);
    let value = Tensor::from_data(data, (device, dtype));
    Ok(Param::from_tensor(value).set_require_grad(false))
}
