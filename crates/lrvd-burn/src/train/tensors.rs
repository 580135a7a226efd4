//! Trainable parameters and moments between a model and the tensors of a checkpoint.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::adapter::adapter_dtype;
use crate::error::Error;
use crate::files::{HostTensor, TensorFile};
use crate::host::stored;
use crate::model::AdaptedModel;
use crate::parameters::ParameterValue;

/// The values of `tensor`, `[n]`, in their own precision.
pub(super) fn host(tensor: Tensor<1>) -> Result<HostTensor, Error> {
    let n = tensor.dims()[0];
    stored(tensor, &[n])
}

fn device_tensor(host: &HostTensor, device: &Device, dtype: DType) -> Result<Tensor<1>, Error> {
    let n = host.n_elements();
    let data = match dtype {
        DType::F64 => TensorData::new(host.to_f64()?, [n]),
        _ => TensorData::new(host.to_f32()?, [n]),
    };
    Ok(Tensor::from_data(data, (device, dtype)))
}

/// The moment called `name` of `file`.
pub(super) fn moment(
    file: &TensorFile,
    name: &str,
    device: &Device,
    dtype: DType,
) -> Result<Tensor<1>, Error> {
    device_tensor(&file.read(name)?, device, dtype)
}

/// Where the adapters of `model` lie, and their precision.
pub(super) fn placement(model: &impl AdaptedModel) -> (Device, DType) {
    let mut found = None;
    model.visit_layers(&mut |_, layer| {
        let weight = layer.weight.base();
        found.get_or_insert_with(|| (weight.device().inner(), adapter_dtype(weight.dtype())));
    });
    found.unwrap_or_else(|| (Device::default(), DType::F32))
}

/// Adds the trainable parameters of `model`, in memory layout, under `prefix/`.
pub(super) fn collect(
    prefix: &str,
    model: &impl AdaptedModel,
    tensors: &mut BTreeMap<String, HostTensor>,
) -> Result<(), Error> {
    let mut outcome = Ok(());
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() && outcome.is_ok() {
            match host(p.value.flat()) {
                Ok(tensor) => drop(tensors.insert(format!("{prefix}/{}", p.name), tensor)),
                Err(error) => outcome = Err(error),
            }
        }
    });
    outcome
}

/// Gives `model` the shapes `ranks` and the parameters stored under `prefix/`.
pub(super) fn place(
    prefix: &str,
    ranks: &BTreeMap<String, usize>,
    file: &TensorFile,
    model: &mut impl AdaptedModel,
) -> Result<(), Error> {
    let mut outcome = Ok(());
    model.visit_layers_mut(&mut |path, layer| {
        if layer.slot().is_none() {
            return;
        }
        match ranks.get(path) {
            Some(&rank) if rank <= layer.rank() => {
                if rank < layer.rank() {
                    layer.select_ranks(&(0..rank).collect::<Vec<_>>());
                }
            }
            _ => outcome = Err(Error::checkpoint_entry(&format!("ranks.{path}"))),
        }
    });
    outcome?;
    let mut outcome = Ok(());
    model.visit_parameters_mut(&mut |p| {
        if p.value.is_trainable() && outcome.is_ok() {
            outcome = fill(&format!("{prefix}/{}", p.name), file, p.value);
        }
    });
    outcome
}

fn fill(name: &str, file: &TensorFile, value: &mut dyn ParameterValue) -> Result<(), Error> {
    let host = file.read(name)?;
    if host.n_elements() != value.len() {
        return Err(Error::checkpoint_entry(name));
    }
    let old = value.flat();
    value.set_flat(device_tensor(&host, &old.device(), old.dtype())?);
    Ok(())
}
