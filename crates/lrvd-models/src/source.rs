//! Loader of a model's weights from a checkpoint, a random initialisation, or both.
//!
//! A model is built by asking a [`WeightSource`] for each parameter by name. Problems are collected
//! rather than returned one by one, so that a bad checkpoint is reported whole; nothing is built
//! from it.

use std::collections::BTreeSet;
use std::path::Path;

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::adapter::{AdaptedLinear, BaseBits};
use lrvd_burn::error::LoadReport;
use lrvd_burn::files::{HostDType, HostTensor, WeightStore};
use lrvd_burn::model::Named;
use lrvd_burn::ops::standard_normal;
use lrvd_burn::parameters::Group;
use lrvd_core::noise::{NoiseKey, Stream, module_id};

use crate::error::{Error, Result};

/// Largest finite value in IEEE half precision.
const F16_MAX: f64 = 65_504.0;

/// Checks that a stack is not deeper than the file has tensors, which would be reported layer by layer.
pub(crate) fn check_depth(layers: usize, store: &WeightStore) -> Result<()> {
    if layers <= store.len() {
        return Ok(());
    }
    let path = store.path();
    let file = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
    let most = format!("at most {}, the number of tensors of the weights", store.len());
    Err(Error::format(&file, "num_hidden_layers", most, layers))
}

/// A parameter that gets no gradient.
pub(crate) fn frozen<const D: usize>(value: Tensor<D>) -> Param<Tensor<D>> {
    Param::from_tensor(value).set_require_grad(false)
}

/// Relation of the tensor in memory to the one in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Shape and order of the file.
    AsStored,
    /// A matrix held transposed: checkpoints store linear weights `[d_output, d_input]`.
    Transposed,
}

/// Number formats of a frozen base; from a `DType`: all of it in that type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// The float type of what is not quantised.
    pub dtype: DType,
    /// Bits of the weights of linear layers but heads, if they are quantised.
    pub bits: Option<BaseBits>,
}

impl From<DType> for Precision {
    fn from(dtype: DType) -> Self {
        Self { dtype, bits: None }
    }
}

/// Initialisation of a parameter that no file provides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Init {
    /// `N(0, std²)`.
    Normal(f64),
    /// Every value the same.
    Constant(f64),
}

/// Report on a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// Tensors taken from the checkpoint.
    pub report: LoadReport,
    /// Parameters that the checkpoint does not have and that started fresh.
    pub fresh: Vec<String>,
}

/// Source of parameters by checkpoint name.
pub struct WeightSource<'a> {
    store: Option<&'a WeightStore>,
    /// Names that may be absent from the store and start fresh.
    fresh_allowed: &'a dyn Fn(&str) -> bool,
    /// Names in the store that may stay unused.
    ignored: &'a dyn Fn(&str) -> bool,
    seed: NoiseKey,
    device: &'a Device,
    precision: Precision,
    asked: BTreeSet<String>,
    report: LoadReport,
    fresh: Vec<String>,
    failure: Option<Error>,
}

impl<'a> WeightSource<'a> {
    /// All parameters random: `seed` and a parameter's name decide its values.
    pub fn random(seed: NoiseKey, device: &'a Device, precision: impl Into<Precision>) -> Self {
        Self {
            store: None,
            fresh_allowed: &|_| true,
            ignored: &|_| false,
            seed,
            device,
            precision: precision.into(),
            asked: BTreeSet::new(),
            report: LoadReport::default(),
            fresh: Vec::new(),
            failure: None,
        }
    }

    /// Parameters from `store`. Those for which `fresh_allowed` holds may be missing and start from
    /// `seed`; stored tensors for which `ignored` holds may stay unused. Anything else that is
    /// missing or left over is an error.
    pub fn checkpoint(
        store: &'a WeightStore,
        fresh_allowed: &'a dyn Fn(&str) -> bool,
        ignored: &'a dyn Fn(&str) -> bool,
        seed: NoiseKey,
        device: &'a Device,
        precision: impl Into<Precision>,
    ) -> Self {
        Self {
            store: Some(store),
            fresh_allowed,
            ignored,
            report: LoadReport::new(store.path().display()),
            ..Self::random(seed, device, precision)
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.precision.dtype
    }

    /// The parameter `name` with `shape` in memory.
    pub(crate) fn tensor<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
        layout: Layout,
        init: Init,
        dtype: DType,
    ) -> Tensor<D> {
        self.asked.insert(name.to_owned());
        let data = match self.stored(name, &shape, layout, dtype) {
            Some(data) => data,
            // Nothing will be built from a load that failed, so its sizes, which may come from a
            // damaged configuration, must not be allocated.
            None if self.has_failed() => TensorData::new(vec![0.0_f32], [1; D]),
            None => return self.fresh(name, shape, init, dtype),
        };
        Tensor::from_data(data, (self.device, dtype))
    }

    /// The frozen parameter `name` with `shape`, in memory as in the file.
    pub(crate) fn parameter<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
        init: Init,
    ) -> Named<Param<Tensor<D>>> {
        let value = self.tensor(name, shape, Layout::AsStored, init, self.precision.dtype);
        Named::new(name, Group::Backbone, frozen(value))
    }

    /// The linear layer at `path`, of `[d_input, d_output]`, with a bias if the model has one; quantised if the
    /// [precision](Precision) says so.
    pub(crate) fn linear(
        &mut self,
        path: &str,
        shape: [usize; 2],
        bias: bool,
        std: f64,
    ) -> Named<AdaptedLinear> {
        let mut layer = self.head(path, Group::Backbone, shape, bias, std);
        let Some(bits) = self.precision.bits.filter(|_| !self.has_failed()) else { return layer };
        match AdaptedLinear::clone(&layer).quantized(bits) {
            Ok(quantized) => *layer = quantized,
            Err(source) => {
                let store = self.store.map_or(Path::new(path), WeightStore::path);
                let expected = "a number of inputs that is a multiple of 32, for a quantised base";
                self.failure.get_or_insert(Error::format(store, path, expected, source));
            }
        }
        layer
    }

    /// As [`Self::linear`], never quantised.
    pub(crate) fn head(
        &mut self,
        path: &str,
        group: Group,
        shape: [usize; 2],
        bias: bool,
        std: f64,
    ) -> Named<AdaptedLinear> {
        let name = format!("{path}.weight");
        let dtype = self.precision.dtype;
        let weight = self.tensor(&name, shape, Layout::Transposed, Init::Normal(std), dtype);
        let name = format!("{path}.bias");
        let zero = Init::Constant(0.0);
        let bias = bias.then(|| self.tensor(&name, [shape[1]], Layout::AsStored, zero, dtype));
        Named::new(path, group, AdaptedLinear::new(weight, bias))
    }

    /// Ends the load; the error lists everything that was missing, left over, mis-shaped or not finite.
    pub fn finish(mut self) -> Result<Loaded> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let stored = self.store.into_iter().flat_map(WeightStore::names);
        let unexpected = stored.filter(|name| !self.asked.contains(*name) && !(self.ignored)(name));
        self.report.unexpected.extend(unexpected.map(str::to_owned));
        Ok(Loaded { report: self.report.into_result()?, fresh: self.fresh })
    }

    /// `true` if [`Self::finish`] will return an error.
    fn has_failed(&self) -> bool {
        self.failure.is_some() || !self.report.is_clean()
    }

    fn stored(
        &mut self,
        name: &str,
        shape: &[usize],
        layout: Layout,
        dtype: DType,
    ) -> Option<TensorData> {
        let store = self.store?;
        let Some(found) = store.shape(name) else {
            let allowed = (self.fresh_allowed)(name);
            let list = if allowed { &mut self.fresh } else { &mut self.report.missing };
            list.push(name.to_owned());
            return None;
        };
        let expected: Vec<usize> = match layout {
            Layout::AsStored => shape.to_vec(),
            Layout::Transposed => shape.iter().rev().copied().collect(),
        };
        // Before its values are read: a wrong shape may be larger than the memory.
        if !self.report.check_shape(name, &expected, found) {
            return None;
        }
        let host = store.read(name).map_err(|error| {
            self.failure.get_or_insert(error.into());
        });
        let host = host.ok()?;
        // A value that the type cannot hold would become infinite.
        let largest = if dtype == DType::F16 { F16_MAX } else { f64::MAX };
        if !self.report.check_finite(name, host.first_beyond(largest)) {
            return None;
        }
        let in_memory = match layout {
            Layout::AsStored => Ok(host),
            Layout::Transposed => {
                let transposed = host.transpose2();
                // Not beside the values that it becomes: a weight can be a large part of the memory.
                drop(host);
                transposed
            }
        };
        let data = in_memory.and_then(|host| to_data(host, dtype)).map_err(|source| {
            let expected = "a tensor of floats";
            self.failure.get_or_insert(Error::format(store.path(), name, expected, source));
        });
        self.report.applied.extend(data.is_ok().then(|| name.to_owned()));
        data.ok()
    }

    /// Made on the device: the weights of a large model are no traffic.
    fn fresh<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        init: Init,
        dtype: DType,
    ) -> Tensor<D> {
        let place = (self.device, DType::F32);
        let values = match init {
            Init::Constant(value) => Tensor::full(shape, value, place),
            Init::Normal(std) => {
                let key = self.seed.for_module(module_id(name)).on_stream(Stream::INIT);
                standard_normal(&Tensor::<1>::zeros([1], place), shape, key).mul_scalar(std)
            }
        };
        values.cast(dtype)
    }
}

/// Host values as tensor data of a width that loses nothing on the way to `dtype`; the bytes themselves where the
/// file has that type, so that a large model is not widened on the way.
fn to_data(host: HostTensor, dtype: DType) -> Result<TensorData, lrvd_burn::Error> {
    let same = matches!(
        (host.dtype(), dtype),
        (HostDType::F16, DType::F16) | (HostDType::BF16, DType::BF16)
    );
    if same && cfg!(target_endian = "little") {
        let shape = host.shape().to_vec();
        return Ok(TensorData::from_bytes_vec(host.into_bytes(), shape, dtype));
    }
    Ok(match dtype {
        DType::F64 => TensorData::new(host.to_f64()?, host.shape()),
        _ => TensorData::new(host.to_f32()?, host.shape()),
    })
}
