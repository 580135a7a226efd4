//! The weights of a model: one file, or a folder with one or with indexed shards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use lrvd_core::error::quoted;
use serde::Deserialize;

use super::host_tensor::{HostDType, HostTensor};
use super::ordered_map::OrderedMap;
use super::tensor_file::TensorFile;
use crate::error::Error;

/// What a folder may hold, in the order of preference: unsharded weights, or the index of sharded
/// ones.
pub(super) const WEIGHTS: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// All tensors of a checkpoint under their names, wherever they lie.
#[derive(Debug)]
pub struct WeightStore {
    path: PathBuf,
    files: Vec<TensorFile>,
    tensors: BTreeMap<String, Place>,
}

/// Where a tensor is.
#[derive(Debug)]
struct Place {
    file: usize,
    /// Name in the file.
    name: String,
    /// Row of the file for every row of the tensor, where they are not in the same order.
    rows: Option<Vec<usize>>,
}

impl Place {
    /// A tensor under the name that it has in the file.
    fn of(file: usize, name: &str) -> (String, Self) {
        (name.to_owned(), Self { file, name: name.to_owned(), rows: None })
    }
}

impl WeightStore {
    /// Opens a safetensors, PyTorch or GGUF file, an index, or a folder that holds one under the name that
    /// the Hugging Face libraries give it; safetensors come first.
    ///
    /// An index and its shards must agree exactly: every shard there, every tensor where the index
    /// puts it, and no tensor that the index does not know.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Self::open_file(path.parent().unwrap_or(Path::new("")), path);
        }
        match WEIGHTS.into_iter().map(|name| path.join(name)).find(|file| file.is_file()) {
            Some(file) => Self::open_file(path, &file),
            None => Err(Error::file(
                path,
                "has no weights: expected `model.safetensors`, `pytorch_model.bin` or either's `.index.json`",
            )),
        }
    }

    fn open_file(dir: &Path, file: &Path) -> Result<Self, Error> {
        if file.extension().is_some_and(|ending| ending == "json") {
            return Self::open_index(dir, file);
        }
        let opened = TensorFile::open(file)?;
        let tensors = opened.names().map(|name| Place::of(0, name)).collect();
        Ok(Self { path: file.to_path_buf(), files: vec![opened], tensors })
    }

    fn open_index(dir: &Path, index: &Path) -> Result<Self, Error> {
        let broken = |what: String| Err(Error::file(index, what));
        let mut files = Vec::new();
        let mut tensors = BTreeMap::new();
        for (shard, listed) in read_index(index)? {
            let path = dir.join(&shard);
            if !path.is_file() {
                let (n, first) = (listed.len(), listed.first().map_or("", String::as_str));
                return broken(format!(
                    "names the shard `{shard}`, which is missing ({n} tensors, `{first}` first)"
                ));
            }
            let file = TensorFile::open(&path)?;
            let listed: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
            let present: BTreeSet<&str> = file.names().collect();
            if !listed.is_subset(&present) {
                let absent = quoted(listed.difference(&present));
                return broken(format!("puts {absent} into `{shard}`, which does not have them"));
            }
            if !present.is_subset(&listed) {
                let unknown = quoted(present.difference(&listed));
                return broken(format!("does not put {unknown} into `{shard}`, which has them"));
            }
            tensors.extend(listed.into_iter().map(|name| Place::of(files.len(), name)));
            files.push(file);
        }
        Ok(Self { path: dir.to_path_buf(), files, tensors })
    }

    /// The same store with every name replaced by `rename(name)`, for checkpoints of a bare encoder
    /// or of a model with another prefix.
    pub fn rename(self, rename: impl Fn(&str) -> String) -> Result<Self, Error> {
        let mut tensors = BTreeMap::new();
        for (name, place) in self.tensors {
            let name = rename(&name);
            if tensors.contains_key(&name) {
                return Err(Error::file(self.path, format!("has two tensors called `{name}`")));
            }
            tensors.insert(name, place);
        }
        Ok(Self { tensors, ..self })
    }

    /// The same store without a tensor, for those that are no weights.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.tensors.remove(name);
        self
    }

    /// The same store with the rows of some tensors in another order: row `i` of a tensor of this shape is row
    /// `order(name, shape)[i]` of the file.
    #[must_use]
    pub fn reorder_rows(mut self, order: impl Fn(&str, &[usize]) -> Option<Vec<usize>>) -> Self {
        for (name, place) in &mut self.tensors {
            let shape =
                self.files[place.file].info(&place.name).map_or(&[][..], |(_, shape)| shape);
            place.rows = order(name, shape);
        }
        self
    }

    /// The file or folder that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Paths of the files behind the store.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.files.iter().map(TensorFile::path)
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Shape of a tensor, or none.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.info(name).map(|(_, shape)| shape)
    }

    /// Element type of a tensor, or none.
    pub fn dtype(&self, name: &str) -> Option<HostDType> {
        self.info(name).map(|(dtype, _)| dtype)
    }

    fn info(&self, name: &str) -> Option<(HostDType, &[usize])> {
        let place = self.tensors.get(name)?;
        self.files[place.file].info(&place.name)
    }

    /// Reads one tensor.
    pub fn read(&self, name: &str) -> Result<HostTensor, Error> {
        let place = self.tensors.get(name).ok_or_else(|| Error::no_tensor(&self.path, name))?;
        let tensor = self.files[place.file].read(&place.name)?;
        let Some(rows) = &place.rows else { return Ok(tensor) };
        tensor.select_rows(rows).map_err(|source| {
            Error::io("reorder the rows of", &self.path, std::io::Error::other(source))
        })
    }
}

/// What is read of an index: the shard of every tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: OrderedMap<String>,
}

/// Tensor names by shard.
fn read_index(index: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    let bytes = std::fs::read(index).map_err(|source| Error::io("read", index, source))?;
    let Index { weight_map: OrderedMap(map) } =
        serde_json::from_slice(&bytes).map_err(|source| Error::json(index, source))?;
    let mut shards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, shard) in map {
        let mut parts = Path::new(&shard).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let what = format!("names the shard `{shard}`: expected a file name without a folder");
            return Err(Error::file(index, what));
        }
        shards.entry(shard).or_default().insert(name);
    }
    Ok(shards)
}
