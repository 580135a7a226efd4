//! Where a model's weights come from: a checkpoint, a random initialisation, or both.
//!
//! A model is built by asking a [`WeightSource`] for each parameter by name. Problems are collected
//! rather than returned one by one, so that a bad checkpoint is reported whole; nothing is built
//! from it.

use std::collections::BTreeSet;

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::files::{HostDType, HostTensor, LoadReport, MisShaped, NonFinite, WeightStore};
use lrvd_burn::parameters::Layout;
use lrvd_core::noise::{NoiseKey, Stream, fill_normal, module_id};

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

/// Initialisation of a parameter that no file provides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// `N(0, std²)`.
    Normal(f64),
    /// Every value the same.
    Constant(f64),
}

/// What became of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// Tensors taken from the checkpoint.
    pub report: LoadReport,
    /// Parameters that the checkpoint does not have and that started fresh.
    pub fresh: Vec<String>,
}

/// Hands out parameters by checkpoint name.
pub struct WeightSource<'a> {
    store: Option<&'a WeightStore>,
    /// Names that may be absent from the store and start fresh.
    fresh_allowed: &'a dyn Fn(&str) -> bool,
    /// Names in the store that may stay unused.
    ignored: &'a dyn Fn(&str) -> bool,
    seed: NoiseKey,
    device: &'a Device,
    dtype: DType,
    asked: BTreeSet<String>,
    report: LoadReport,
    fresh: Vec<String>,
    failure: Option<Error>,
}

impl<'a> WeightSource<'a> {
    /// All parameters random: `seed` and a parameter's name decide its values.
    pub fn random(seed: NoiseKey, device: &'a Device, dtype: DType) -> Self {
        Self {
            store: None,
            fresh_allowed: &|_| true,
            ignored: &|_| false,
            seed,
            device,
            dtype,
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
        dtype: DType,
    ) -> Self {
        Self {
            store: Some(store),
            fresh_allowed,
            ignored,
            report: LoadReport::new(store.path().display()),
            ..Self::random(seed, device, dtype)
        }
    }

    /// The device that tensors are made on.
    pub fn device(&self) -> &Device {
        self.device
    }

    /// The float type of every tensor.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether the checkpoint has a tensor called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.store.as_ref().is_some_and(|s| s.contains(name))
    }

    /// The parameter `name` with `shape` in memory.
    pub fn tensor<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
        layout: Layout,
        init: Init,
    ) -> Tensor<D> {
        self.tensor_of(name, shape, layout, init, self.dtype)
    }

    /// As [`Self::tensor`], in another float type than the rest.
    pub fn tensor_of<const D: usize>(
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
            None => self.fresh(name, &shape, init),
        };
        Tensor::from_data(data, (self.device, dtype))
    }

    /// The frozen parameter `name` with `shape`, in memory as in the file.
    pub fn parameter<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
        init: Init,
    ) -> Param<Tensor<D>> {
        let value = self.tensor(name, shape, Layout::AsStored, init);
        Param::from_tensor(value).set_require_grad(false)
    }

    /// The linear layer at `path`, `[d_input] -> [d_output]`, with a bias if the model has one.
    pub fn linear(
        &mut self,
        path: &str,
        d_input: usize,
        d_output: usize,
        bias: bool,
        std: f64,
    ) -> AdaptedLinear {
        let weight = self.tensor(
            &format!("{path}.weight"),
            [d_input, d_output],
            Layout::Transposed,
            Init::Normal(std),
        );
        let bias = bias.then(|| {
            self.tensor(&format!("{path}.bias"), [d_output], Layout::AsStored, Init::Constant(0.0))
        });
        AdaptedLinear::new(weight, bias)
    }

    /// Ends the load; the error lists everything that was missing, left over, mis-shaped or not finite.
    pub fn finish(mut self) -> Result<Loaded> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if let Some(store) = &self.store {
            for name in store.names() {
                if !self.asked.contains(name) && !(self.ignored)(name) {
                    self.report.unexpected.push(name.to_owned());
                }
            }
        }
        Ok(Loaded { report: self.report.into_result()?, fresh: self.fresh })
    }

    /// Whether [`Self::finish`] will return an error.
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
        if !store.contains(name) {
            if (self.fresh_allowed)(name) {
                self.fresh.push(name.to_owned());
            } else {
                self.report.missing.push(name.to_owned());
            }
            return None;
        }
        let expected: Vec<usize> = match layout {
            Layout::AsStored => shape.to_vec(),
            Layout::Transposed => shape.iter().rev().copied().collect(),
        };
        // Before its values are read: a wrong shape may be larger than the memory.
        if let Some(found) = store.shape(name).filter(|found| *found != expected) {
            let (name, found) = (name.to_owned(), found.to_vec());
            self.report.mis_shaped.push(MisShaped { name, expected, found });
            return None;
        }
        let host = match store.read(name) {
            Ok(host) => host,
            Err(error) => {
                self.failure.get_or_insert(error.into());
                return None;
            }
        };
        // A value that the type cannot hold would become infinite.
        let largest = if dtype == DType::F16 { F16_MAX } else { f64::MAX };
        if let Some((index, value)) = host.first_beyond(largest) {
            self.report.non_finite.push(NonFinite { name: name.to_owned(), index, value });
            return None;
        }
        let data = match layout {
            Layout::AsStored => to_data(host, dtype),
            Layout::Transposed => host.transpose2().and_then(|t| {
                drop(host);
                to_data(t, dtype)
            }),
        };
        match data {
            Ok(data) => {
                self.report.applied.push(name.to_owned());
                Some(data)
            }
            Err(source) => {
                let expected = "a tensor of floats";
                self.failure.get_or_insert(Error::format(store.path(), name, expected, source));
                None
            }
        }
    }

    fn fresh(&self, name: &str, shape: &[usize], init: Init) -> TensorData {
        let n = shape.iter().product();
        let mut values = vec![0.0_f32; n];
        match init {
            Init::Constant(value) => values.fill(value as f32),
            Init::Normal(std) => {
                let key = self.seed.for_module(module_id(name)).on_stream(Stream::INIT);
                fill_normal(key, 0, &mut values);
                for v in &mut values {
                    *v *= std as f32;
                }
            }
        }
        TensorData::new(values, shape)
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
