//! Tensors of a checkpoint: of one file, or of a folder with one or with indexed shards. A file is safetensors, PyTorch's
//! `torch.save`, or llama.cpp's GGUF.
//!
//! A file is not mapped (that would need `unsafe`) and never held as a whole: memory use is that of the tensors that
//! the caller keeps. A file of `torch.save` is a pickle, and unpickling in Python runs code from the file; the reader
//! used here interprets the few opcodes that `torch.save` writes and fails on everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lrvd_core::error::quoted;
use pytorch_reader::{DType, PytorchReader, Tensor};
use serde::Deserialize;
use tracing::debug;

use super::gguf::{self, GgufType, GgufValue};
use super::host_tensor::{HostDType, HostTensor};
use super::limited::{VOCABULARY_LIMIT, first_file, is_dir, is_file, open_file, read_limited};
use super::ordered_map::OrderedMap;
use super::safetensors_file::read_header;
use crate::error::Error;

/// Names of weights in a folder, in the order of preference.
pub(super) const WEIGHTS: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// All tensors of a file or of a checkpoint under their names, read one by one.
#[derive(Debug)]
pub struct WeightStore {
    path: PathBuf,
    files: Vec<(PathBuf, Mutex<File>)>,
    tensors: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

/// A tensor of a file.
#[derive(Debug)]
struct Entry {
    /// Index of its file.
    file: usize,
    dtype: HostDType,
    shape: Vec<usize>,
    values: Values,
    /// Row of the file for every row of the tensor, where they are not in the same order.
    rows: Option<Vec<usize>>,
}

/// Location of the values of a tensor.
#[derive(Debug)]
enum Values {
    /// At a byte of the file, in a number of bytes: as they are on the host, or in blocks of a type.
    Bytes(u64, usize, Option<&'static GgufType>),
    Pytorch(Tensor),
}

impl Entry {
    fn new(dtype: HostDType, shape: Vec<usize>, values: Values) -> Self {
        Self { file: 0, dtype, shape, values, rows: None }
    }
}

impl WeightStore {
    /// Opens a file, an index, or a folder with one under the name of the Hugging Face libraries;
    /// safetensors come first. A name that ends in `.bin`, `.pt` or `.pth` is PyTorch's, `.gguf` is GGUF, `.json` is an
    /// index, everything else is safetensors.
    ///
    /// Headers are checked against the length of their file, and nothing is allocated beyond it. An index and its
    /// shards must agree exactly: every shard there, every tensor where the index puts it, and no tensor that the
    /// index does not list.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = if is_dir(path)? {
            let found = first_file(WEIGHTS.map(|name| path.join(name)))?;
            found.ok_or_else(|| {
                let expected = "`model.safetensors`, `pytorch_model.bin` or either's `.index.json`";
                Error::file(path, format!("has no weights: expected {expected}"))
            })?
        } else {
            path.to_path_buf()
        };
        if file.extension().is_some_and(|ending| ending == "json") {
            Self::open_index(file.parent().unwrap_or(Path::new("")), &file)
        } else {
            Self::open_file(&file)
        }
    }

    fn open_file(path: &Path) -> Result<Self, Error> {
        let ending = path.extension().and_then(|extension| extension.to_str());
        if ending == Some("gguf") {
            return Ok(Self::open_gguf(path)?.0);
        }
        let (mut file, length) = open(path)?;
        let (tensors, metadata) = match ending {
            Some("bin" | "pt" | "pth") => (pytorch_entries(path)?, BTreeMap::new()),
            _ => {
                let (tensors, metadata) = read_header(&mut file, path, length)?;
                let entry = |(name, (dtype, shape, start, bytes))| {
                    (name, Entry::new(dtype, shape, Values::Bytes(start, bytes, None)))
                };
                (tensors.into_iter().map(entry).collect(), metadata)
            }
        };
        Ok(Self::new(path, file, tensors, metadata))
    }

    /// A GGUF file under any name, and its settings.
    pub(super) fn open_gguf(path: &Path) -> Result<(Self, BTreeMap<String, GgufValue>), Error> {
        let (file, length) = open(path)?;
        let (settings, tensors) = gguf::read_header(BufReader::new(&file), path, length)?;
        let entry = |(name, (kind, shape, start, bytes)): (String, gguf::Entry)| {
            (name, Entry::new(kind.dtype, shape, Values::Bytes(start, bytes, Some(kind))))
        };
        let tensors = tensors.into_iter().map(entry).collect();
        Ok((Self::new(path, file, tensors, BTreeMap::new()), settings))
    }

    fn open_index(dir: &Path, index: &Path) -> Result<Self, Error> {
        let broken = |what: String| Err(Error::file(index, what));
        let mut store = Self {
            path: dir.to_path_buf(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
            metadata: BTreeMap::new(),
        };
        for (shard, listed) in read_index(index)? {
            let path = dir.join(&shard);
            if !is_file(&path)? {
                let n = listed.len();
                let first = listed.first().map_or("", String::as_str);
                return broken(format!(
                    "names the shard `{shard}`, which is missing ({n} tensors, `{first}` first)"
                ));
            }
            let mut file = Self::open_file(&path)?;
            let present: BTreeSet<String> = file.tensors.keys().cloned().collect();
            if !listed.is_subset(&present) {
                let absent = quoted(listed.difference(&present));
                return broken(format!("puts {absent} into `{shard}`, which does not have them"));
            }
            if !present.is_subset(&listed) {
                let unknown = quoted(present.difference(&listed));
                return broken(format!("does not put {unknown} into `{shard}`, which has them"));
            }
            file.tensors.values_mut().for_each(|entry| entry.file = store.files.len());
            store.tensors.append(&mut file.tensors);
            store.files.append(&mut file.files);
        }
        Ok(store)
    }

    fn new(
        path: &Path,
        file: File,
        tensors: BTreeMap<String, Entry>,
        metadata: BTreeMap<String, String>,
    ) -> Self {
        debug!(file = %path.display(), tensors = tensors.len(), "opened");
        let files = vec![(path.to_path_buf(), Mutex::new(file))];
        Self { path: path.to_path_buf(), files, tensors, metadata }
    }

    /// Renames tensors: `place` returns the new name of a tensor with this name and shape, and for a new order of rows the
    /// present number of each; `None` leaves a tensor out.
    pub fn map(
        self,
        place: impl Fn(&str, &[usize]) -> Option<(String, Option<Vec<usize>>)>,
    ) -> Result<Self, Error> {
        let mut tensors = BTreeMap::new();
        for (name, mut entry) in self.tensors {
            let Some((name, rows)) = place(&name, &entry.shape) else { continue };
            if tensors.contains_key(&name) {
                return Err(Error::file(self.path, format!("has two tensors called `{name}`")));
            }
            entry.rows = match (rows, entry.rows) {
                (Some(rows), Some(known)) => {
                    Some(rows.into_iter().filter_map(|row| known.get(row).copied()).collect())
                }
                (rows, known) => rows.or(known),
            };
            tensors.insert(name, entry);
        }
        Ok(Self { tensors, ..self })
    }

    /// The file or folder that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Paths of the files behind the store.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// `true` if there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// `true` if there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Shape of a tensor, outermost axis first, or none.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|entry| entry.shape.as_slice())
    }

    /// Element type of a tensor on the host, or none.
    pub fn dtype(&self, name: &str) -> Option<HostDType> {
        self.tensors.get(name).map(|entry| entry.dtype)
    }

    /// The free-form texts of the header of a safetensors file.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Reads one tensor; a quantised one is dequantised to single precision.
    pub fn read(&self, name: &str) -> Result<HostTensor, Error> {
        let entry = self.tensors.get(name).ok_or_else(|| Error::no_tensor(&self.path, name))?;
        let (path, file) = &self.files[entry.file];
        let failed = |action, source| Error::io(action, path, source);
        let bytes = match &entry.values {
            Values::Bytes(start, length, kind) => {
                let bytes = read_bytes(file, *start, *length);
                if let Some(kind) = kind {
                    bytes.map(|bytes| kind.dequantize(bytes))
                } else {
                    bytes
                }
            }
            Values::Pytorch(tensor) => tensor.read().map(|mut bytes| {
                if cfg!(target_endian = "big") {
                    // The reader returns the machine's order; a host tensor is little-endian everywhere.
                    bytes.chunks_exact_mut(tensor.dtype().size()).for_each(<[u8]>::reverse);
                }
                bytes
            }),
        };
        let bytes = bytes.map_err(|source| failed("read", source))?;
        let tensor = HostTensor::new(entry.dtype, entry.shape.clone(), bytes)
            .map_err(|source| failed("read", std::io::Error::other(source)))?;
        let Some(rows) = &entry.rows else { return Ok(tensor) };
        let reordered = tensor.select_rows(rows);
        reordered.map_err(|source| failed("reorder the rows of", std::io::Error::other(source)))
    }

    /// Reads all tensors.
    pub fn read_all(&self) -> Result<BTreeMap<String, HostTensor>, Error> {
        self.names().map(|name| Ok((name.to_owned(), self.read(name)?))).collect()
    }
}

fn read_bytes(file: &Mutex<File>, start: u64, length: usize) -> std::io::Result<Vec<u8>> {
    // A file without contents can be longer than the memory, so room is asked for first.
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| {
        let reason = format!("{length} bytes do not fit into memory");
        std::io::Error::new(ErrorKind::OutOfMemory, reason)
    })?;
    // Every read seeks first, so a panic while the lock was held cannot leave the handle in a bad state.
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(start))?;
    match (&mut *file).take(length as u64).read_to_end(&mut bytes)? {
        found if found == length => Ok(bytes),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// The file and its length.
fn open(path: &Path) -> Result<(File, u64), Error> {
    let open = || {
        let file = open_file(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    };
    open().map_err(|source| Error::io("open", path, source))
}

fn pytorch_entries(path: &Path) -> Result<BTreeMap<String, Entry>, Error> {
    let unusable = |reason: &dyn std::fmt::Display| {
        Error::file(path, format!("is not a PyTorch file of tensors: {reason}"))
    };
    let tensors = PytorchReader::new(path).map_err(|error| unusable(&error))?.into_tensors();
    if tensors.is_empty() {
        return Err(unusable(&"it holds no tensor, or only what code in the file would make"));
    }
    let entry = |(name, tensor): (String, Tensor)| {
        let shape = tensor.shape().to_vec();
        (name, Entry::new(host_dtype(tensor.dtype()), shape, Values::Pytorch(tensor)))
    };
    Ok(tensors.into_iter().map(entry).collect())
}

fn host_dtype(dtype: DType) -> HostDType {
    match dtype {
        DType::F64 => HostDType::F64,
        DType::F32 => HostDType::F32,
        DType::F16 => HostDType::F16,
        DType::BF16 => HostDType::BF16,
        DType::I64 => HostDType::I64,
        DType::I32 => HostDType::I32,
        DType::I16 => HostDType::I16,
        DType::I8 => HostDType::I8,
        DType::U64 => HostDType::U64,
        DType::U32 => HostDType::U32,
        DType::U16 => HostDType::U16,
        DType::U8 => HostDType::U8,
        DType::Bool => HostDType::BOOL,
    }
}

/// Index of a checkpoint: the shard of every tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: OrderedMap<String>,
}

/// Tensor names by shard.
fn read_index(index: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    let bytes =
        read_limited(index, VOCABULARY_LIMIT).map_err(|source| Error::io("read", index, source))?;
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
