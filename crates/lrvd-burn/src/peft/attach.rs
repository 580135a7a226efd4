//! Between an adapter on the host and a model on a device.
//!
//! Both directions are strict: every layer that the configuration targets gets or gives its
//! factors, every parameter of a module that is stored whole is placed or taken by name, and
//! nothing is left over.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use lrvd_core::error::quoted;

use super::adapter::{PeftAdapter, PeftModule};
use super::config::{PeftConfig, PeftMethod, TargetModules};
use super::convert::{check_shapes, exact_alpha};
use super::keys::saved_key;
use crate::adapter::{AdaptedLinear, AdapterSlot, Extension, LowRankAdapter, adapter_dtype};
use crate::error::Error;
use crate::files::{HostTensor, LoadReport};
use crate::host::stored;
use crate::model::{AdaptedModel, check_distinct};
use crate::parameters::{Layout, NamedParameter, Role, plain};

/// Puts `adapter` on `model`: factors on the layers at the module paths, and the parameters of
/// modules that are stored whole in place of the model's own.
///
/// Dropout is off and there is no posterior. Factors and stored parameters become trainable if
/// `trainable` is set and frozen if not; every other parameter stays as it is. Factors are
/// held in single precision, or double where the layer's weight is, and on its device. A module of rank 0 leaves its slot only.
///
/// On an error, which lists what is missing, unknown or of another shape, the model is unchanged.
pub fn attach_peft(
    model: &mut impl AdaptedModel,
    adapter: &PeftAdapter,
    trainable: bool,
) -> Result<LoadReport, Error> {
    let mut layers = Vec::new();
    model.visit_layers(&mut |path, layer| {
        layers.push((path.to_owned(), layer.d_input(), layer.d_output()));
    });
    check_distinct(layers.iter().map(|(path, ..)| path.as_str()))?;
    let mut report = adapter.check_against(&layers)?;
    let mut parameters = Vec::new();
    model.visit_parameters(&mut |p| {
        if !is_adapter(p.role) {
            parameters.push((p.name.to_owned(), stored_shape(&p)));
        }
    });
    let saved = adapter.check_saved(&parameters)?;
    report.applied.extend(saved.applied);
    report.ignored.clone_from(&adapter.ignored);

    // Everything is converted before anything is placed, so that an error leaves the model whole.
    let mut factors = BTreeMap::new();
    for (path, module) in &adapter.modules {
        factors.insert(path.as_str(), HostFactors::new(path, module)?);
    }
    let mut whole = BTreeMap::new();
    for (name, tensor) in &adapter.saved {
        let values = tensor.to_f64().map_err(|source| unusable(name, source))?;
        whole.insert(name.as_str(), values);
    }
    model.visit_layers_mut(&mut |path, layer| {
        if let (Some(host), Some(module)) = (factors.get(path), adapter.modules.get(path)) {
            host.attach(layer, path, module, trainable);
        }
    });
    model.visit_parameters_mut(&mut |p| {
        let Some(values) = whole.get(p.name).filter(|_| !is_adapter(p.role)) else { return };
        let shape = p.value.shape();
        let values = match (p.layout, shape.as_slice()) {
            (Layout::Transposed, &[rows, columns]) => transposed(values, columns, rows),
            _ => values.clone(),
        };
        p.value.set_data(TensorData::new(values, shape));
        p.value.set_trainable(trainable);
    });
    Ok(report)
}

/// Takes the adapters of `model`, and every trainable parameter outside them, onto the host.
///
/// `template` gives what a model does not know: base model, task, rank and scale at the start,
/// and `AdaLoRA`'s settings. Its targets, patterns and number filters are replaced by the paths
/// that carry an adapter, its `modules_to_save` gain the modules of trainable parameters, and the
/// parameters of every module that is then stored whole come along. A posterior stays behind: the
/// factors are its means. A layer whose ranks are all pruned gives factors of rank 0.
pub fn peft_from_model(
    model: &impl AdaptedModel,
    template: &PeftConfig,
) -> Result<PeftAdapter, Error> {
    let mut modules = BTreeMap::new();
    let mut outcome = Ok(());
    model.visit_layers(&mut |path, layer| {
        if outcome.is_ok() && layer.slot().is_none() && layer.adapter().is_some() {
            outcome = Err(Error::module(path, "extension", "a product of two factors", "none"));
            return;
        }
        if outcome.is_ok()
            && let Some(slot) = layer.slot()
        {
            match take_module(path, layer, slot, template) {
                Ok(module) => drop(modules.insert(path.to_owned(), module)),
                Err(error) => outcome = Err(error),
            }
        }
    });
    outcome?;
    if modules.is_empty() {
        return Err(no_module());
    }
    let mut config = template.clone();
    config.target_modules = TargetModules::Names(modules.keys().cloned().collect());
    config.exclude_modules = None;
    config.layers_to_transform = None;
    config.layers_pattern = Vec::new();
    config.rank_pattern = Vec::new();
    config.alpha_pattern = Vec::new();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() && !is_adapter(p.role) {
            let module = p.name.rsplit_once('.').map_or(p.name, |(path, _)| path);
            if !config.saves(p.name) {
                config.modules_to_save.push(module.to_owned());
            }
        }
    });
    if let Some(path) = modules.keys().find(|path| config.saves(&format!("{path}.weight"))) {
        let found = format!("adapted and covered by {}", quoted(config.saved_modules()));
        return Err(Error::module(path, "role", "either adapted or stored whole", found));
    }
    let mut saved = BTreeMap::new();
    let mut outcome = Ok(());
    model.visit_parameters(&mut |p| {
        if outcome.is_ok() && !is_adapter(p.role) && config.saves(p.name) {
            match take_parameter(&p) {
                Ok(tensor) => drop(saved.insert(p.name.to_owned(), tensor)),
                Err(source) => outcome = Err(unusable(p.name, source)),
            }
        }
    });
    outcome?;
    Ok(PeftAdapter { config, modules, saved, ignored: Vec::new() })
}

/// Factors in the model's layout, in double precision.
struct HostFactors {
    /// `[d_input, rank]`.
    a: Vec<f64>,
    /// `[rank, d_output]`.
    b: Vec<f64>,
    /// `[rank]`.
    e: Option<Vec<f64>>,
}

impl HostFactors {
    fn new(path: &str, module: &PeftModule) -> Result<Self, Error> {
        check_shapes(path, module)?;
        let values = |t: &HostTensor| t.to_f64().map_err(|source| unusable(path, source));
        Ok(Self {
            a: transposed(&values(&module.a)?, module.rank, module.d_input()),
            b: transposed(&values(&module.b)?, module.d_output(), module.rank),
            e: module.e.as_ref().map(values).transpose()?,
        })
    }

    fn attach(&self, layer: &mut AdaptedLinear, path: &str, module: &PeftModule, trainable: bool) {
        let (rank, initial) = (module.rank, module.initial_rank);
        if rank == 0 {
            let scaling = module.scaling;
            let slot = AdapterSlot { initial_rank: initial, scaling, family: None };
            layer.attach_empty(path, slot);
            return;
        }
        let like = plain(layer.weight.base());
        let (device, dtype) = (like.device(), adapter_dtype(like.dtype()));
        let matrix = |values: &[f64], shape: [usize; 2]| {
            let data = TensorData::new(values.to_vec(), shape);
            parameter(Tensor::<2>::from_data(data, (&device, dtype)), trainable)
        };
        let mut adapter = LowRankAdapter::new(
            matrix(&self.a, [module.d_input(), rank]),
            matrix(&self.b, [rank, module.d_output()]),
            module.scaling,
        );
        adapter.extension = self.e.as_ref().map(|e| {
            let data = TensorData::new(e.clone(), [rank]);
            let e = Tensor::<1>::from_data(data, (&device, dtype));
            Extension::SingularValues(parameter(e, trainable))
        });
        layer.place(path, adapter, initial);
    }
}

fn parameter<const D: usize>(value: Tensor<D>, trainable: bool) -> Param<Tensor<D>> {
    if trainable {
        Param::from_tensor(value.autodiff().require_grad())
    } else {
        Param::from_tensor(value).set_require_grad(false)
    }
}

fn is_adapter(role: Role) -> bool {
    matches!(role, Role::AdapterMean | Role::LogVariance)
}

/// Shape in a file.
fn stored_shape(p: &NamedParameter<'_>) -> Vec<usize> {
    let mut shape = p.value.shape();
    if p.layout == Layout::Transposed {
        shape.reverse();
    }
    shape
}

pub(super) fn take_parameter(p: &NamedParameter<'_>) -> Result<HostTensor, Error> {
    let flat = p.value.flat();
    let tensor = stored(flat, &p.value.shape())?;
    if p.layout == Layout::Transposed { tensor.transpose2() } else { Ok(tensor) }
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
            let e = if adalora { Some(empty(&[0])?) } else { None };
            (0, empty(&[0, layer.d_input()])?, empty(&[layer.d_output(), 0])?, e)
        }
        Some(adapter) => {
            let e = adapter.singular_values().map(host_vector).transpose().map_err(wrong)?;
            let a = host_matrix(&adapter.a).map_err(wrong)?;
            (adapter.rank(), a, host_matrix(&adapter.b).map_err(wrong)?, e)
        }
    };
    if e.is_some() != adalora {
        let expected = format!("what `{}` has", template.method.name());
        let found = if e.is_some() { "one" } else { "none" };
        return Err(Error::module(path, "diagonal", expected, found));
    }
    let lora_alpha = if adalora { template.lora_alpha } else { exact_alpha(slot.scaling, rank) };
    let (initial_rank, scaling) = (slot.initial_rank, slot.scaling);
    Ok(PeftModule { rank, initial_rank, scaling, lora_alpha, a, b, e })
}

/// A matrix in the layout of files: transposed.
fn host_matrix(p: &Param<Tensor<2>>) -> Result<HostTensor, Error> {
    let value = plain(p.val());
    let shape = value.dims();
    stored(value.reshape([shape[0] * shape[1]]), &shape)?.transpose2()
}

/// A vector, as it is.
fn host_vector(p: &Param<Tensor<1>>) -> Result<HostTensor, Error> {
    let value = plain(p.val());
    let shape = value.dims();
    stored(value, &shape)
}

/// A row-major `[rows, columns]` matrix as `[columns, rows]`.
pub(super) fn transposed(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(values.len());
    for column in 0..columns {
        out.extend((0..rows).map(|row| values[row * columns + column]));
    }
    out
}

pub(super) fn unusable(name: &str, error: Error) -> Error {
    Error::Shape(format!("tensor `{}` of the adapter cannot be used: {error}", saved_key(name)))
}

pub(super) fn no_module() -> Error {
    let what = "the adapter has no module, so there is nothing that PEFT could load";
    Error::Argument(what.to_owned())
}
