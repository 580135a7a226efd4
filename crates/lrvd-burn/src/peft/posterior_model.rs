//! The posterior between a model on a device and its file.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::attach::{take_parameter, transposed, unusable};
use super::posterior::{
    Factors, PeftPosterior, PosteriorHeader, PosteriorModuleHeader, PosteriorRun,
};
use crate::adapter::{
    Adapter, AdapterSlot, ElementParameters, Extension, Posterior, RankParameters, adapter_dtype,
    posterior_schemas,
};
use crate::error::Error;
use crate::host::HostNoise;
use crate::model::AdaptedModel;

/// The posterior of `model`; `None` if none of its layers ever had one.
///
/// The means are the factors of the adapters, which [`peft_from_model`](super::peft_from_model)
/// takes.
pub fn posterior_from_model(
    model: &impl AdaptedModel,
    run: PosteriorRun,
) -> Result<Option<PeftPosterior>, Error> {
    let mut header: Option<PosteriorHeader> = None;
    let mut slots = BTreeMap::new();
    let mut outcome = Ok(());
    model.visit_layers(&mut |path, layer| {
        let Some(AdapterSlot { initial_rank, scaling, family }) = layer.slot() else { return };
        let module = PosteriorModuleHeader { initial_rank, rank: layer.rank(), scaling };
        slots.insert(path.to_owned(), module);
        let Some(found) = family else { return };
        let header = header.get_or_insert_with(|| PosteriorHeader::new(found, run));
        if header.family != found {
            let expected = format!("{}, as in other layers", header.family);
            outcome = Err(Error::module(path, "family", expected, found));
        }
    });
    outcome?;
    let Some(mut header) = header else { return Ok(None) };
    header.modules = slots;
    let (mut tensors, mut outcome) = (BTreeMap::new(), Ok(()));
    model.visit_parameters(&mut |p| {
        let name = p.name.rsplit('.').next();
        if posterior_schemas(header.family).iter().any(|schema| name == Some(schema.name)) {
            match take_parameter(&p) {
                Ok(tensor) => drop(tensors.insert(p.name.to_owned(), tensor)),
                Err(source) => outcome = Err(unusable(p.name, source)),
            }
        }
    });
    outcome?;
    Ok(Some(PeftPosterior { header, tensors }))
}

/// Puts `posterior` around the means that are already on `model`, frozen.
///
/// The draws of a layer depend on its path and the key only, so they are those of the model it was
/// taken from. A layer that the header knows and that has no rank left gets its slot.
///
/// The checks are those of [`PeftPosterior::check_against`], with the model's layers in the place of the adapter's
/// modules, and the clamp must be this build's. On an error the model is unchanged.
pub fn attach_posterior(
    model: &mut impl AdaptedModel,
    posterior: &PeftPosterior,
) -> Result<(), Error> {
    let header = &posterior.header;
    header.check_clamp()?;
    let mut layers = BTreeMap::new();
    model.visit_layers(&mut |path, layer| {
        let like = layer.weight.base();
        let place = (like.device(), adapter_dtype(like.dtype()));
        let factors = Factors {
            rank: layer.rank(),
            scaling: layer.slot().map_or(0.0, |slot| slot.scaling),
            d_input: layer.d_input(),
            d_output: layer.d_output(),
        };
        layers.insert(path.to_owned(), (factors, place));
    });
    posterior.check_factors(layers.iter().map(|(path, (factors, _))| (path.as_str(), *factors)))?;
    let mut placed = BTreeMap::new();
    for (path, (_, (device, dtype))) in &layers {
        let placed_here = on_device(posterior, path, device, *dtype);
        placed.insert(path.as_str(), placed_here.map_err(|source| unusable(path, source))?);
    }
    model.visit_layers_mut(&mut |path, layer| {
        let Some(module) = header.modules.get(path) else { return };
        let (initial_rank, scaling) = (module.initial_rank, module.scaling);
        match layer.detach() {
            Some(Adapter::LowRank(mut adapter)) => {
                adapter.extension = placed.remove(path).flatten().map(Extension::Posterior);
                layer.place(path, adapter, initial_rank);
            }
            // Pruned away: only what is left to know of it.
            Some(Adapter::Members(_)) | None => {
                let family = Some(header.family);
                layer.attach_empty(path, AdapterSlot { initial_rank, scaling, family });
            }
        }
    });
    Ok(())
}

/// The parameters of the module at `path` on a device, frozen; none of a module without a rank.
fn on_device(
    posterior: &PeftPosterior,
    path: &str,
    device: &Device,
    dtype: DType,
) -> Result<Option<Posterior>, Error> {
    let vector = |values: Vec<f64>| {
        let shape = [values.len()];
        RankParameters { value: frozen(TensorData::new(values, shape), device, dtype) }
    };
    let rank = posterior.header.modules.get(path).map_or(0, |module| module.rank);
    let matrix = |values: Vec<f64>, turned: bool| {
        let width = values.len() / rank.max(1);
        let data = if turned {
            TensorData::new(transposed(&values, rank, width), [width, rank])
        } else {
            TensorData::new(values, [rank, width])
        };
        frozen(data, device, dtype)
    };
    Ok(posterior.noise(path)?.map(|noise| match noise {
        HostNoise::RankVariance(v) => Posterior::RankVariance(vector(v)),
        HostNoise::NoiseToSignal(v) => Posterior::NoiseToSignal(vector(v)),
        HostNoise::AsymRankVariance(v) => Posterior::AsymRankVariance(vector(v)),
        HostNoise::ElementVariance { a, b } => Posterior::ElementVariance(ElementParameters {
            a: matrix(a, true),
            b: matrix(b, false),
        }),
    }))
}

fn frozen<const D: usize>(data: TensorData, device: &Device, dtype: DType) -> Param<Tensor<D>> {
    Param::from_tensor(Tensor::from_data(data, (device, dtype))).set_require_grad(false)
}
