//! Checkpoints: directories that are whole or absent, from which a run continues bit for bit.
//!
//! A checkpoint holds what training changes: trainable parameters, moments, the best model so far,
//! the method's state, the position in the data and the journal. Frozen weights come from the
//! pretrained model, whose hash the run's settings name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::adapter::adapter_dtype;
use lrvd_burn::files::{AtomicDir, HostTensor, TensorFile, write_safetensors};
use lrvd_burn::model::{AdaptedModel, ranks};
use lrvd_burn::optimizer::Moments;
use lrvd_burn::parameters::ParameterValue;
use serde::{Deserialize, Serialize};

use super::TrainError;
use super::state::{BestInfo, BestModel, Journal, TrainState};
use crate::data::batch::OrderState;
use crate::io::{IoError, JsonLayout, read_json, write_json};
use crate::method::{Method, MethodState};

const SCHEMA: u32 = 1;
const TENSORS: &str = "state.safetensors";
const VALUES: &str = "state.json";
const PREFIX: &str = "step-";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    schema_version: u32,
    done: usize,
    order: OrderState,
    ranks: BTreeMap<String, usize>,
    moment_steps: BTreeMap<String, u64>,
    best: Option<BestInfo>,
    journal: Journal,
    method: serde_json::Value,
}

/// Writes `folder/step-N`, then removes older checkpoints.
///
/// # Errors
///
/// [`TrainError`] if a file cannot be written; the older checkpoint is then still there.
pub fn save_checkpoint(
    folder: &Path,
    state: &TrainState,
    method: &Method,
) -> Result<(), TrainError> {
    let target = folder.join(format!("{PREFIX}{:08}", state.done));
    if target.exists() {
        return Ok(());
    }
    let mut tensors = BTreeMap::new();
    collect("parameter", &state.model, &mut tensors)?;
    let mut moment_steps = BTreeMap::new();
    for (name, moments) in state.optimizer.state() {
        tensors.insert(format!("moment1/{name}"), host(moments.first.clone())?);
        tensors.insert(format!("moment2/{name}"), host(moments.second.clone())?);
        moment_steps.insert(name.clone(), moments.steps);
    }
    if let Some(best) = &state.best {
        collect("best", &best.model, &mut tensors)?;
    }
    let method_state = method.state();
    for (name, tensor) in method_state.tensors {
        tensors.insert(format!("method/{name}"), tensor);
    }
    let values = Values {
        schema_version: SCHEMA,
        done: state.done,
        order: state.order,
        ranks: ranks(&state.model).into_iter().collect(),
        moment_steps,
        best: state.best.as_ref().map(|b| b.info.clone()),
        journal: state.journal.clone(),
        method: method_state.values,
    };
    let building = AtomicDir::create(&target)?;
    write_safetensors(building.path().join(TENSORS), &tensors, &BTreeMap::new())?;
    write_json(&building.path().join(VALUES), &values, JsonLayout::Compact)?;
    building.commit()?;
    for (done, path) in checkpoints(folder)? {
        if done < state.done {
            remove_checkpoints(&path)?;
        }
    }
    Ok(())
}

/// The newest whole checkpoint in `folder`, if there is one.
///
/// # Errors
///
/// [`TrainError::Io`] if the folder cannot be listed.
pub fn latest_checkpoint(folder: &Path) -> Result<Option<PathBuf>, TrainError> {
    Ok(checkpoints(folder)?.pop().map(|(_, path)| path))
}

/// Removes a checkpoint, or the folder that holds all of a run's; its absence is no error.
///
/// # Errors
///
/// [`TrainError::Io`] if the folder cannot be removed.
pub fn remove_checkpoints(folder: &Path) -> Result<(), TrainError> {
    if !folder.is_dir() {
        return Ok(());
    }
    Ok(std::fs::remove_dir_all(folder).map_err(IoError::at("remove", folder))?)
}

fn checkpoints(folder: &Path) -> Result<Vec<(usize, PathBuf)>, TrainError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(IoError::at("list", folder))? {
        let path = entry.map_err(IoError::at("list", folder))?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_prefix(PREFIX)?.parse::<usize>().ok());
        if let Some(done) = number {
            found.push((done, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Puts the checkpoint at `path` into `state`, whose model must be as freshly attached.
///
/// # Errors
///
/// [`TrainError`] if the checkpoint does not belong to the model.
pub fn load_checkpoint(
    path: &Path,
    state: &mut TrainState,
    method: &mut Method,
) -> Result<(), TrainError> {
    let values: Values = read_json(&path.join(VALUES))?;
    let file = TensorFile::open(path.join(TENSORS))?;
    let fresh = state.model.clone();
    place("parameter", &values.ranks, &file, &mut state.model)?;
    let mut moments = BTreeMap::new();
    let (device, dtype) = placement(&state.model);
    for (name, &steps) in &values.moment_steps {
        let read = |kind: &str| -> Result<Tensor<1>, TrainError> {
            device_tensor(&file.read(&format!("{kind}/{name}"))?, &device, dtype)
        };
        let (first, second) = (read("moment1")?, read("moment2")?);
        moments.insert(name.clone(), Moments { first, second, steps });
    }
    state.optimizer.restore(&state.model, moments)?;
    state.best = match values.best {
        Some(info) => {
            let mut model = fresh;
            place("best", &info.ranks, &file, &mut model)?;
            Some(BestModel { model, info })
        }
        None => None,
    };
    let mut tensors = BTreeMap::new();
    for name in file.names() {
        if let Some(short) = name.strip_prefix("method/") {
            tensors.insert(short.to_owned(), file.read(name)?);
        }
    }
    method.restore(&state.model, MethodState { tensors, values: values.method })?;
    state.done = values.done;
    state.order = values.order;
    state.journal = values.journal;
    Ok(())
}

fn host(tensor: Tensor<1>) -> Result<HostTensor, TrainError> {
    let n = tensor.dims()[0];
    Ok(match tensor.dtype() {
        DType::F64 => {
            HostTensor::from_f64(&[n], &tensor.into_data().iter::<f64>().collect::<Vec<_>>())?
        }
        _ => HostTensor::from_f32(&[n], &tensor.into_data().iter::<f32>().collect::<Vec<_>>())?,
    })
}

fn device_tensor(
    host: &HostTensor,
    device: &Device,
    dtype: DType,
) -> Result<Tensor<1>, TrainError> {
    let n = host.n_elements();
    let data = match dtype {
        DType::F64 => TensorData::new(host.to_f64()?, [n]),
        _ => TensorData::new(host.to_f32()?, [n]),
    };
    Ok(Tensor::from_data(data, (device, dtype)))
}

fn placement(model: &impl AdaptedModel) -> (Device, DType) {
    let mut found = None;
    model.visit_layers(&mut |_, layer| {
        let weight = layer.weight.val();
        found.get_or_insert_with(|| (weight.device().inner(), adapter_dtype(weight.dtype())));
    });
    found.unwrap_or_else(|| (Device::default(), DType::F32))
}

/// Adds the trainable parameters of `model`, in memory layout, under `prefix/`.
fn collect(
    prefix: &str,
    model: &impl AdaptedModel,
    tensors: &mut BTreeMap<String, HostTensor>,
) -> Result<(), TrainError> {
    let mut outcome = Ok(());
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() && outcome.is_ok() {
            match host(p.value.flat()) {
                Ok(tensor) => {
                    tensors.insert(format!("{prefix}/{}", p.name), tensor);
                }
                Err(error) => outcome = Err(error),
            }
        }
    });
    outcome
}

/// Gives `model` the shapes `ranks` and the parameters stored under `prefix/`.
fn place(
    prefix: &str,
    ranks: &BTreeMap<String, usize>,
    file: &TensorFile,
    model: &mut impl AdaptedModel,
) -> Result<(), TrainError> {
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
            _ => outcome = Err(TrainError::CheckpointEntry { name: format!("ranks.{path}") }),
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

fn fill(name: &str, file: &TensorFile, value: &mut dyn ParameterValue) -> Result<(), TrainError> {
    let host = file.read(name)?;
    if host.n_elements() != value.len() {
        return Err(TrainError::CheckpointEntry { name: name.to_owned() });
    }
    let old = value.flat();
    value.set_flat(device_tensor(&host, &old.device(), old.dtype())?);
    Ok(())
}
