//! Checkpoints: folders written atomically, from which a run continues bit for bit.
//!
//! A checkpoint holds what training changes: trainable parameters, moments, the best model so far,
//! the method's state, the position in the data and the journal. Frozen weights come from the
//! pretrained model. A list of SHA-256 beside the files reveals a flipped byte; `sha256sum -c SHA256SUMS`
//! checks it too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::debug;

use super::data::Model;
use super::method::{Method, MethodState};
use super::order::OrderState;
use super::state::{BestInfo, BestModel, CutModel, Journal, RankMasks, TrainState};
use crate::adapter::adapter_dtype;
use crate::error::Error;
use crate::files::{
    AtomicDir, FileLock, HostTensor, WeightStore, is_dir, write_atomic, write_hashed,
};
use crate::model::{NamedModule, ranks};
use crate::optimizer::{AdamW, Moments};
use crate::parameters::ParameterValue;

const FORMAT: u32 = 6;
const TENSORS: &str = "state.safetensors";
const VALUES: &str = "state.json";
/// Files whose hashes are listed.
const FILES: [&str; 2] = [TENSORS, VALUES];
const SUMS: &str = "SHA256SUMS";
const LOCK: &str = "lock";
const PREFIX: &str = "step-";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    format: u32,
    done: usize,
    position: Option<OrderState>,
    skip_next_update: bool,
    ranks: BTreeMap<String, usize>,
    moment_steps: BTreeMap<String, u64>,
    best: Option<BestInfo>,
    in_use: RankMasks,
    /// Held-out losses of the whole model, while the cut one is refined.
    whole: Option<Vec<f64>>,
    kl_weight: Option<f64>,
    journal: Journal,
    method: serde_json::Value,
}

/// The checkpoints of one run, in a folder that no other run can use meanwhile ([`FileLock`]).
#[derive(Debug)]
pub struct Checkpoints {
    pub(super) folder: PathBuf,
    lock: FileLock,
}

impl Checkpoints {
    /// Opens `folder`, which is made if it is absent, and locks it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref().to_path_buf();
        fs::create_dir_all(&folder).map_err(|source| Error::io("create", &folder, source))?;
        let path = folder.join(LOCK);
        let lock = File::create(&path).map_err(|source| Error::io("create", &path, source))?;
        Ok(Self { lock: FileLock::take(lock, &path)?, folder })
    }

    /// Writes a checkpoint, then removes older ones; one of this step that is there already stays, unless a search has cut the
    /// model since.
    ///
    /// On an error the older checkpoint is still there.
    pub fn save<M: Model, T: Method<M> + ?Sized>(
        &self,
        state: &TrainState<M>,
        method: &T,
    ) -> Result<(), Error> {
        if !self.lock.is_held() {
            return Err(Error::in_use(&self.folder));
        }
        let target = self.folder.join(format!("{PREFIX}{:08}", state.done));
        let cut =
            |journal: &Journal| journal.choice.as_ref().map(|choice| choice.refined.is_some());
        // The cut takes no step: the state before it and the one after it have the same number.
        let is_there = target.exists()
            && read_values(&target.join(VALUES))
                .is_ok_and(|values| cut(&values.journal) == cut(&state.journal));
        if is_there {
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
        if let Some(cut) = &state.cut {
            collect("cut", &cut.model, &mut tensors)?;
        }
        let method_state = method.state();
        for (name, tensor) in method_state.tensors {
            tensors.insert(format!("method/{name}"), tensor);
        }
        let values = Values {
            format: FORMAT,
            done: state.done,
            position: state.position,
            skip_next_update: state.skip_next_update,
            ranks: ranks(&state.model).into_iter().collect(),
            moment_steps,
            best: state.best.as_ref().map(|best| best.info.clone()),
            in_use: state.in_use.clone(),
            whole: state.cut.as_ref().map(|cut| cut.whole.clone()),
            kl_weight: state.kl_weight,
            journal: state.journal.clone(),
            method: method_state.values,
        };
        // An output folder that was removed meanwhile is not made anew with a checkpoint alone in it.
        let around = self.folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = around {
            fs::metadata(parent).map_err(|source| Error::io("write into", parent, source))?;
        }
        let building = AtomicDir::create(&target)?;
        let (tensor_file, value_file) =
            (building.path().join(TENSORS), building.path().join(VALUES));
        let sum_of_tensors = write_hashed(&tensor_file, &tensors)?;
        let text =
            serde_json::to_vec(&values).map_err(|source| Error::json(&value_file, source))?;
        write_atomic(&value_file, &text)?;
        let sums = sums(&[&sum_of_tensors, &Sha256::digest(&text)]);
        write_atomic(building.path().join(SUMS), sums.as_bytes())?;
        building.commit_replacing()?;
        debug!(folder = %target.display(), tensors = tensors.len(), "wrote a checkpoint");
        for (done, path) in list(&self.folder)? {
            if done < state.done {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Ends the lock and removes the folder with everything in it.
    pub fn remove(self) -> Result<(), Error> {
        // Some systems do not remove what is open.
        drop(self.lock);
        remove(&self.folder)
    }
}

/// The newest whole checkpoint in `folder`, if there is one; for readers, which need no lock.
pub fn latest_checkpoint(folder: &Path) -> Result<Option<PathBuf>, Error> {
    Ok(list(folder)?.pop().map(|(_, path)| path))
}

/// Puts the checkpoint at `path` into `state`, whose model must be as freshly attached.
pub fn load_checkpoint<M: Model, T: Method<M> + ?Sized>(
    path: &Path,
    state: &mut TrainState<M>,
    method: &mut T,
) -> Result<(), Error> {
    check_sums(path)?;
    let values = read_values(&path.join(VALUES))?;
    let file = WeightStore::open(path.join(TENSORS))?;
    let fresh = state.model.clone();
    place("parameter", &values.ranks, &file, &mut state.model)?;
    restore_moments(&mut state.optimizer, &state.model, &values.moment_steps, &file)?;
    state.best = None;
    if let Some(info) = values.best {
        let mut model = fresh.clone();
        place("best", &info.ranks, &file, &mut model)?;
        state.best = Some(BestModel { model, info });
    }
    state.cut = None;
    if let Some(whole) = values.whole {
        let mut model = fresh;
        place("cut", &values.ranks, &file, &mut model)?;
        state.cut = Some(CutModel { model, whole });
    }
    (state.in_use, state.kl_weight) = (values.in_use, values.kl_weight);
    let mut tensors = BTreeMap::new();
    for name in file.names() {
        if let Some(short) = name.strip_prefix("method/") {
            tensors.insert(short.to_owned(), file.read(name)?);
        }
    }
    method.restore(&state.model, MethodState { tensors, values: values.method })?;
    state.done = values.done;
    state.position = values.position;
    state.skip_next_update = values.skip_next_update;
    state.journal = values.journal;
    debug!(folder = %path.display(), done = state.done, "resumed from a checkpoint");
    Ok(())
}

/// Gives `optimizer` the moments that are stored.
fn restore_moments<M: Model>(
    optimizer: &mut AdamW,
    model: &M,
    steps: &BTreeMap<String, u64>,
    file: &WeightStore,
) -> Result<(), Error> {
    let (device, dtype) = placement(model);
    let stored = steps.iter().map(|(name, &steps)| {
        let read =
            |kind: &str| device_tensor(&file.read(&format!("{kind}/{name}"))?, &device, dtype);
        Ok((name.clone(), Moments { first: read("moment1")?, second: read("moment2")?, steps }))
    });
    optimizer.restore(model, stored.collect::<Result<_, Error>>()?)
}

fn read_values(file: &Path) -> Result<Values, Error> {
    let json = |source| Error::json(file, source);
    let bytes = fs::read(file).map_err(|source| Error::io("read", file, source))?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(json)?;
    let found = value["format"].as_u64().unwrap_or(1);
    if found != u64::from(FORMAT) {
        return Err(Error::file(
            file,
            format!(
                "has format {found}, expected {FORMAT}: start again, or use the version that wrote it"
            ),
        ));
    }
    serde_json::from_value(value).map_err(json)
}

fn list(folder: &Path) -> Result<Vec<(usize, PathBuf)>, Error> {
    if !is_dir(folder)? {
        return Ok(Vec::new());
    }
    let failed = |source| Error::io("list", folder, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
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

fn remove(folder: &Path) -> Result<(), Error> {
    fs::remove_dir_all(folder).map_err(|source| Error::io("remove", folder, source))
}

/// The values of `tensor`, `[n]`, in their own precision.
fn host(tensor: Tensor<1>) -> Result<HostTensor, Error> {
    let n = tensor.dims()[0];
    HostTensor::from_flat(tensor, &[n])
}

fn device_tensor(host: &HostTensor, device: &Device, dtype: DType) -> Result<Tensor<1>, Error> {
    let n = host.n_elements();
    let data = match dtype {
        DType::F64 => TensorData::new(host.to_f64()?, [n]),
        _ => TensorData::new(host.to_f32()?, [n]),
    };
    Ok(Tensor::from_data(data, (device, dtype)))
}

/// Device of the adapters of `model`, and their precision.
fn placement(model: &impl NamedModule) -> (Device, DType) {
    let mut found = None;
    model.visit_layers(&mut |_, layer| {
        let weight = layer.weight.base();
        found.get_or_insert_with(|| (weight.device().inner(), adapter_dtype(weight.dtype())));
    });
    found.unwrap_or_else(|| (Device::default(), DType::F32))
}

/// Adds the trainable parameters of `model`, in memory layout, under `prefix/`.
fn collect(
    prefix: &str,
    model: &impl NamedModule,
    tensors: &mut BTreeMap<String, HostTensor>,
) -> Result<(), Error> {
    let mut found = Vec::new();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            found.push((format!("{prefix}/{}", p.name), p.value.flat()));
        }
    });
    for (name, tensor) in found {
        tensors.insert(name, host(tensor)?);
    }
    Ok(())
}

/// Gives `model` the shapes `ranks` and the parameters stored under `prefix/`.
fn place(
    prefix: &str,
    ranks: &BTreeMap<String, usize>,
    file: &WeightStore,
    model: &mut impl NamedModule,
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

fn fill(name: &str, file: &WeightStore, value: &mut dyn ParameterValue) -> Result<(), Error> {
    let host = file.read(name)?;
    if host.n_elements() != value.len() {
        return Err(Error::checkpoint_entry(name));
    }
    let old = value.flat();
    value.set_flat(device_tensor(&host, &old.device(), old.dtype())?);
    Ok(())
}

/// List of the hashes of `FILES`, in the form of `sha256sum`.
fn sums(hashes: &[&[u8]; 2]) -> String {
    FILES.iter().zip(hashes).fold(String::new(), |mut text, (name, hash)| {
        let _ = writeln!(text, "{}  {name}", hex(hash));
        text
    })
}

/// `bytes` in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Compares the files in `folder` with their listed hashes.
fn check_sums(folder: &Path) -> Result<(), Error> {
    let list = folder.join(SUMS);
    let text = fs::read_to_string(&list).map_err(|source| Error::io("read", &list, source))?;
    for name in FILES {
        let path = folder.join(name);
        let bytes = fs::read(&path).map_err(|source| Error::io("read", &path, source))?;
        let found = hex(&Sha256::digest(bytes));
        let listed = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix("  "));
        let expected = listed.unwrap_or("none");
        if found != expected {
            let what = format!(
                "has changed since it was written: its SHA-256 should be {expected}, found {found}"
            );
            return Err(Error::file(path, what));
        }
    }
    Ok(())
}
