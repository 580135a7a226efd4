//! Between an adapter on the host and a model on a device.
//!
//! Both directions are strict: what the configuration targets and what the adapter holds must be the same. Every layer
//! that is targeted gets or gives its factors, every parameter of a module that is stored whole is placed or taken by
//! name, and nothing is left over.

use std::collections::{BTreeMap, BTreeSet};

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_core::error::quoted;

use super::adapter::{PeftAdapter, PeftModule, no_module};
use super::config::{PeftConfig, PeftMethod};
use super::rules::{Factor, factor_key, saved_key};
use crate::adapter::{AdaptedLinear, AdapterSlot, Extension, LowRankAdapter, adapter_dtype};
use crate::error::{Error, LoadReport};
use crate::files::HostTensor;
use crate::model::walk::{self, LayerRef};
use crate::model::{NamedModule, check_distinct};
use crate::parameters::{Group, NamedParameter, ParameterValue};

/// Puts `adapter` on `model`: factors on the layers at the module paths, and the parameters of
/// modules that are stored whole, and weights of the base that are in the file, in place of the model's own.
///
/// Of two weights that are tied and of which one is stored whole, PEFT leaves the other as it was: unless the file says
/// the same of both, that is an error, and the model must be untied first.
///
/// Dropout is off and there is no posterior. Factors and stored parameters become trainable if
/// `trainable` is set and frozen if not; every other parameter stays as it is. Factors are
/// held in single precision, or double where the layer's weight is, and on its device. A module of rank 0 leaves its slot only.
///
/// On an error, which lists what is missing, unknown or of another shape, the model is unchanged.
pub fn attach_peft(
    model: &mut impl NamedModule,
    adapter: &PeftAdapter,
    trainable: bool,
) -> Result<LoadReport, Error> {
    let PeftAdapter { config, modules, saved, base, ignored } = adapter;
    let rules = config.rules()?;
    // PEFT would leave a layer without its factors at its initial state, and say nothing.
    let mut report = LoadReport::new("adapter modules");
    let names = |path: &str| {
        let name = |&factor: &Factor| factor_key(&config.method, path, factor);
        Factor::of(&config.method).iter().map(name).collect::<Vec<_>>()
    };
    // The model is written last, so that an error leaves it whole.
    let layers = walk::layers(model);
    let paths: BTreeSet<String> = layers.iter().map(|layer| layer.path.clone()).collect();
    check_distinct(layers.iter().map(|layer| layer.path.as_str()))?;
    let mut adapted = BTreeMap::new();
    for LayerRef { path, mut layer, .. } in layers {
        let is_quantised = matches!(layer.weight.base().dtype(), DType::QFloat(_));
        if is_quantised && base.contains_key(&weight_of(&path)) {
            let expected = "not quantised: the adapter's file has a weight in its place";
            return Err(Error::module(&path, "weight", expected, "quantised"));
        }
        if !rules.targets(&path) {
            continue;
        }
        let names = names(&path);
        let Some(module) = modules.get(&path) else {
            report.missing.extend(names);
            continue;
        };
        let (rank, d_input, d_output) = (module.rank, layer.d_input(), layer.d_output());
        let fits = report.check_shape(&names[0], &[rank, d_input], module.a.shape())
            & report.check_shape(&names[1], &[d_output, rank], module.b.shape());
        report.applied.extend(names);
        if !fits {
            continue;
        }
        let PeftModule { initial_rank, scaling, .. } = *module;
        let factors = LayerSpec::new(&layer, trainable).low_rank(module);
        match factors.map_err(|source| unusable(&path, source))? {
            Some(factors) => layer.place(&path, factors, initial_rank),
            None => layer.attach_empty(&path, AdapterSlot { initial_rank, scaling, family: None }),
        }
        adapted.insert(path, layer);
    }
    let unexpected = modules.keys().filter(|path| !paths.contains(*path) || !rules.targets(path));
    report.unexpected.extend(unexpected.flat_map(|path| names(path)));
    let LoadReport { mut applied, .. } = report.into_result()?;

    let tied = tied_weights(model);
    let base = base_weights(adapter, &tied)?;
    let mut report = LoadReport::new("adapter modules stored whole");
    let (mut known, mut whole) = (BTreeSet::new(), Ok(BTreeMap::new()));
    model.visit_parameters(&mut |p| {
        let is_saved = config.saves(p.name);
        if is_adapter(p.group) || !(is_saved || base.contains_key(p.name)) {
            return;
        }
        known.insert(p.name.to_owned());
        let key = saved_key(p.name);
        // A head that was trained and not saved is the commonest way to lose a classifier.
        let Some(tensor) = saved.get(p.name).or(base.get(p.name).copied()) else {
            report.missing.push(key);
            return;
        };
        let mut shape = p.value.shape();
        if p.transposed {
            shape.reverse();
        }
        if report.check_shape(&key, &shape, tensor.shape()) {
            report.applied.push(key);
            // The copy of a weight that is the base's would take memory.
            if !is_saved && is_equal(&p, tensor) {
                return;
            }
            let in_memory = if p.transposed { tensor.transpose2() } else { Ok(tensor.clone()) };
            let values = in_memory.and_then(|tensor| tensor.to_f64());
            insert(&mut whole, p.name, values.map_err(|source| unusable(p.name, source)));
        }
    });
    let unexpected = saved.keys().chain(base.keys());
    let unexpected = unexpected.filter(|name| !known.contains(*name) && !tied.contains_key(*name));
    report.unexpected.extend(unexpected.map(|name| saved_key(name)));
    applied.extend(report.into_result()?.applied);

    let whole = whole?;
    *model = walk::write_layers(model, adapted);
    model.visit_parameters_mut(&mut |p| {
        let Some(values) = whole.get(p.name).filter(|_| !is_adapter(p.group)) else { return };
        p.value.set_data(TensorData::new(values.clone(), p.value.shape()));
        if saved.contains_key(p.name) {
            p.value.set_trainable(trainable);
        }
    });
    let ignored = ignored.clone();
    Ok(LoadReport { applied, ignored, ..LoadReport::new("adapter modules") })
}

/// Name of the weight of the layer at `path`.
fn weight_of(path: &str) -> String {
    format!("{path}.weight")
}

/// The weights of layers that are tied to an earlier parameter, and that one, by name.
fn tied_weights(model: &impl NamedModule) -> BTreeMap<String, String> {
    let (mut first, mut tied) = (BTreeMap::new(), BTreeMap::new());
    model.visit_parameters(&mut |p| drop(first.insert(p.value.id().val(), p.name.to_owned())));
    for LayerRef { path, layer, .. } in walk::layers(model) {
        let name = weight_of(&path);
        if let Some(first) = first.get(&layer.weight.id.val()).filter(|first| **first != name) {
            tied.insert(name, first.clone());
        }
    }
    tied
}

/// The weights of the base that the file of `adapter` replaces, by parameter; of `tied` ones by that of the first.
fn base_weights<'a>(
    PeftAdapter { saved, base, .. }: &'a PeftAdapter,
    tied: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, &'a HostTensor>, Error> {
    let mut weights: BTreeMap<_, _> =
        base.iter().map(|(name, tensor)| (name.clone(), tensor)).collect();
    for (name, first) in tied {
        // PEFT reads the later one last.
        let shared = weights.remove(name).or(weights.get(first).copied());
        let [own, other] = [first, name].map(|name| saved.get(name).or(shared));
        let is_same = match (own, other) {
            (Some(own), Some(other)) => own == other,
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            let path = name.strip_suffix(".weight").unwrap_or(name);
            let expected = format!("not tied to `{first}`: the adapter has different ones");
            return Err(Error::module(path, "weight", expected, "tied"));
        }
        weights.extend(shared.map(|shared| (first.clone(), shared)));
        weights.retain(|name, _| !saved.contains_key(name));
    }
    Ok(weights)
}

/// `true` if a parameter has the values of `tensor`, in its own type.
fn is_equal(p: &NamedParameter<'_>, tensor: &HostTensor) -> bool {
    take(p.value, p.transposed)
        .and_then(|own| Ok(own.to_f64()? == tensor.to_f64()?))
        .unwrap_or(false)
}

/// Takes the adapters of `model`, and every trainable parameter outside them, onto the host.
///
/// `template` gives what a model does not know: base model, task, rank and scale at the start,
/// and `AdaLoRA`'s settings. Its targets, patterns and number filters are replaced by the paths
/// that carry an adapter, its `modules_to_save` gain the modules of trainable parameters, and the
/// parameters of every module that is then stored whole come along. A posterior stays behind: the
/// factors are its means. A layer whose ranks are all pruned gives factors of rank 0.
pub fn peft_from_model(
    model: &impl NamedModule,
    template: &PeftConfig,
) -> Result<PeftAdapter, Error> {
    let mut modules = BTreeMap::new();
    for LayerRef { path, layer, .. } in walk::layers(model) {
        if let Some(slot) = layer.slot() {
            let module = take_module(&path, &layer, slot, template)?;
            modules.insert(path, module);
        } else if layer.low_rank().is_some() {
            return Err(Error::module(&path, "extension", "a product of two factors", "none"));
        }
    }
    if modules.is_empty() {
        return Err(no_module());
    }
    let mut config = template.of_modules(modules.keys().cloned().collect());
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() && !is_adapter(p.group) && !config.saves(p.name) {
            config.modules_to_save.push(p.module().to_owned());
        }
    });
    if let Some(path) = modules.keys().find(|path| config.saves(&weight_of(path))) {
        let found = format!("adapted and covered by {}", quoted(config.saved_modules()));
        return Err(Error::module(path, "role", "either adapted or stored whole", found));
    }
    let saved = take_parameters(model, |p| !is_adapter(p.group) && config.saves(p.name))?;
    // PEFT would leave a weight that is tied to one of them as it was.
    let follow = tied_weights(model).into_iter();
    let base = follow.filter_map(|(name, first)| Some((name, saved.get(&first)?.clone())));
    let base = base.collect();
    Ok(PeftAdapter { config, modules, saved, base, ignored: Vec::new() })
}

/// Adds what a visit found, or keeps the first error.
pub(super) fn insert<T>(
    found: &mut Result<BTreeMap<String, T>, Error>,
    name: &str,
    value: Result<T, Error>,
) {
    match (found.as_mut(), value) {
        (Ok(all), Ok(value)) => drop(all.insert(name.to_owned(), value)),
        (Ok(_), Err(error)) => *found = Err(error),
        (Err(_), _) => {}
    }
}

/// Device, precision and trainability of the adapter of a layer.
pub(super) struct LayerSpec {
    device: Device,
    dtype: DType,
    trainable: bool,
}

impl LayerSpec {
    pub(super) fn new(layer: &AdaptedLinear, trainable: bool) -> Self {
        let like = layer.weight.base().without_autodiff();
        Self { device: like.device(), dtype: adapter_dtype(like.dtype()), trainable }
    }

    /// A stored tensor as a parameter; matrices are transposed.
    pub(super) fn parameter<const D: usize>(
        &self,
        tensor: &HostTensor,
    ) -> Result<Param<Tensor<D>>, Error> {
        let tensor = if D == 2 { &tensor.transpose2()? } else { tensor };
        let data = TensorData::new(tensor.to_f64()?, tensor.shape());
        let value = Tensor::<D>::from_data(data, (&self.device, self.dtype));
        Ok(if self.trainable {
            Param::from_tensor(value.autodiff().require_grad())
        } else {
            Param::from_tensor(value).set_require_grad(false)
        })
    }

    /// The factors of a module, none at rank 0.
    fn low_rank(&self, module: &PeftModule) -> Result<Option<LowRankAdapter>, Error> {
        if module.rank == 0 {
            return Ok(None);
        }
        let (a, b) = (self.parameter(&module.a)?, self.parameter(&module.b)?);
        let e = module.e.as_ref().map(|e| self.parameter(e)).transpose()?;
        let extension = e.map(Extension::SingularValues);
        Ok(Some(LowRankAdapter { extension, ..LowRankAdapter::new(a, b, module.scaling) }))
    }
}

fn is_adapter(group: Group) -> bool {
    matches!(group, Group::AdapterMean | Group::LogVariance)
}

/// The parameters of `model` that are `wanted`, in the layout of files.
pub(super) fn take_parameters(
    model: &impl NamedModule,
    wanted: impl Fn(&NamedParameter<'_>) -> bool,
) -> Result<BTreeMap<String, HostTensor>, Error> {
    let mut tensors = Ok(BTreeMap::new());
    model.visit_parameters(&mut |p| {
        if tensors.is_ok() && wanted(&p) {
            let tensor = take(p.value, p.transposed);
            insert(&mut tensors, p.name, tensor.map_err(|source| unusable(p.name, source)));
        }
    });
    tensors
}

/// A parameter in the layout of files.
fn take(value: &dyn ParameterValue, transposed: bool) -> Result<HostTensor, Error> {
    let tensor = HostTensor::from_flat(value.flat(), &value.shape())?;
    if transposed { tensor.transpose2() } else { Ok(tensor) }
}

fn take_module(
    path: &str,
    layer: &AdaptedLinear,
    slot: AdapterSlot,
    template: &PeftConfig,
) -> Result<PeftModule, Error> {
    let adalora = matches!(template.method, PeftMethod::AdaLora(_));
    let wrong = |source| unusable(path, source);
    let (rank, a, b, e) = match layer.low_rank() {
        None => {
            let empty = |shape: &[usize]| HostTensor::from_f32(shape, &[]).map_err(wrong);
            let e = adalora.then(|| empty(&[0])).transpose()?;
            (0, empty(&[0, layer.d_input()])?, empty(&[layer.d_output(), 0])?, e)
        }
        Some(adapter) => {
            let matrix = |value| take(value, true).map_err(wrong);
            let e = adapter.singular_values().map(|e| take(e, false)).transpose();
            (adapter.rank(), matrix(&adapter.a)?, matrix(&adapter.b)?, e.map_err(wrong)?)
        }
    };
    if e.is_some() != adalora {
        let expected = format!("what `{}` has", template.method.name());
        let found = if e.is_some() { "one" } else { "none" };
        return Err(Error::module(path, "diagonal", expected, found));
    }
    let (initial_rank, scaling) = (slot.initial_rank, slot.scaling);
    Ok(PeftModule { rank, initial_rank, scaling, a, b, e })
}

pub(super) fn unusable(name: &str, error: Error) -> Error {
    Error::module(name, "tensors", "usable", error)
}
