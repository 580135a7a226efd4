//! One file of tensors, opened by its header and read tensor by tensor: safetensors, PyTorch's `torch.save`, or
//! llama.cpp's GGUF.
//!
//! A file is not mapped (that would need `unsafe`) and never held as a whole: memory use is that of the tensors that
//! the caller keeps. A file of `torch.save` is a pickle, and unpickling in Python runs code from the file; the reader
//! used here interprets the few opcodes that `torch.save` writes and fails on everything else.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pytorch_reader::{DType, PytorchReader, Tensor};
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Serialize, Serializer};
use tracing::debug;

use super::atomic::replace_with;
use super::gguf::{self, GgufType, GgufValue};
use super::host_tensor::{HostDType, HostTensor, element_size};
use crate::error::Error;

/// Longest header accepted, the limit of the reference implementation.
pub(super) const MAX_HEADER: u64 = 100_000_000;
/// Key of the free-form texts in a header.
pub(super) const METADATA_KEY: &str = "__metadata__";

/// An open file of tensors whose header has been checked.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: Mutex<File>,
    tensors: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

/// A tensor of a file.
#[derive(Debug)]
struct Entry {
    dtype: HostDType,
    shape: Vec<usize>,
    values: Values,
}

/// Where the values of a tensor are.
#[derive(Debug)]
enum Values {
    /// At a byte of the file, in a number of bytes, as they are on the host.
    Plain(u64, usize),
    /// The same, in blocks of a type.
    Blocks(u64, usize, GgufType),
    Pytorch(Tensor),
}

impl TensorFile {
    /// Opens the file and checks its header against the file's length. A name that ends in `.bin`, `.pt` or `.pth` is
    /// PyTorch's, `.gguf` is GGUF, everything else is safetensors.
    ///
    /// Whatever the header claims, nothing is allocated beyond the length of the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let ending = path.extension().and_then(|extension| extension.to_str());
        if ending == Some("gguf") {
            return Ok(Self::open_gguf(path)?.0);
        }
        let (mut file, length) = open(path)?;
        let (tensors, metadata) = match ending {
            Some("bin" | "pt" | "pth") => (pytorch_entries(path)?, BTreeMap::new()),
            _ => safetensors_entries(&mut file, path, length)?,
        };
        Ok(Self::new(path, file, tensors, metadata))
    }

    /// A GGUF file under any name, and its settings.
    pub(super) fn open_gguf(path: &Path) -> Result<(Self, BTreeMap<String, GgufValue>), Error> {
        let (file, length) = open(path)?;
        let header = gguf::read_header(BufReader::new(&file), path, length)?;
        let entries =
            header.tensors.into_iter().map(|(name, gguf::Entry { kind, shape, place })| {
                let values =
                    Values::Blocks(header.data_start.saturating_add(place.0), place.1, kind);
                (name, Entry { dtype: kind.host_dtype(), shape, values })
            });
        let tensors = entries.collect();
        Ok((Self::new(path, file, tensors, BTreeMap::new()), header.settings))
    }

    fn new(
        path: &Path,
        file: File,
        tensors: BTreeMap<String, Entry>,
        metadata: BTreeMap<String, String>,
    ) -> Self {
        debug!(file = %path.display(), tensors = tensors.len(), "opened");
        Self { path: path.to_path_buf(), file: Mutex::new(file), tensors, metadata }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Element type on the host and shape of a tensor, outermost axis first, or none.
    pub fn info(&self, name: &str) -> Option<(HostDType, &[usize])> {
        self.tensors.get(name).map(|entry| (entry.dtype, entry.shape.as_slice()))
    }

    /// Shape of a tensor, or none.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.info(name).map(|(_, shape)| shape)
    }

    /// Element type of a tensor on the host, or none.
    pub fn dtype(&self, name: &str) -> Option<HostDType> {
        self.info(name).map(|(dtype, _)| dtype)
    }

    /// The block type of a tensor of a GGUF file, or none.
    pub(super) fn stored_as(&self, name: &str) -> Option<GgufType> {
        match self.tensors.get(name)?.values {
            Values::Blocks(_, _, kind) => Some(kind),
            _ => None,
        }
    }

    /// The free-form texts of a safetensors header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Reads one tensor; a quantised one is widened to single precision.
    pub fn read(&self, name: &str) -> Result<HostTensor, Error> {
        let entry = self.tensors.get(name).ok_or_else(|| Error::no_tensor(&self.path, name))?;
        let failed = |source| Error::io("read", &self.path, source);
        let bytes = match &entry.values {
            Values::Plain(start, length) => self.read_bytes(*start, *length),
            Values::Blocks(start, length, kind) => {
                self.read_bytes(*start, *length).map(|bytes| kind.widen(bytes))
            }
            Values::Pytorch(tensor) => tensor.read().map(|mut bytes| {
                if cfg!(target_endian = "big") {
                    // The reader returns the machine's order; a host tensor is little-endian everywhere.
                    bytes.chunks_exact_mut(tensor.dtype().size()).for_each(<[u8]>::reverse);
                }
                bytes
            }),
        };
        HostTensor::new(entry.dtype, entry.shape.clone(), bytes.map_err(failed)?)
            .map_err(|source| failed(std::io::Error::other(source)))
    }

    /// Reads all tensors.
    pub fn read_all(&self) -> Result<BTreeMap<String, HostTensor>, Error> {
        self.names().map(|name| Ok((name.to_owned(), self.read(name)?))).collect()
    }

    fn read_bytes(&self, start: u64, length: usize) -> std::io::Result<Vec<u8>> {
        // A file without contents can be longer than the memory, so room is asked for first.
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| {
            let reason = format!("{length} bytes do not fit into memory");
            std::io::Error::new(ErrorKind::OutOfMemory, reason)
        })?;
        // Every read seeks first, so a panic while the lock was held cannot leave the handle in a bad state.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(start))?;
        match (&mut *file).take(length as u64).read_to_end(&mut bytes)? {
            found if found == length => Ok(bytes),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The file and its length.
fn open(path: &Path) -> Result<(File, u64), Error> {
    let open = || {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    };
    open().map_err(|source| Error::io("open", path, source))
}

type Entries = BTreeMap<String, Entry>;

/// The header of a safetensors file of `n_file` bytes: its tensors and its texts.
fn safetensors_entries(
    file: &mut File,
    path: &Path,
    n_file: u64,
) -> Result<(Entries, BTreeMap<String, String>), Error> {
    let io = |source| Error::io("read", path, source);
    let broken = |what: String| Error::file(path, what);
    let cut =
        |expected: u64| broken(format!("is cut short: {expected} bytes expected, {n_file} found"));
    if n_file < 8 {
        return Err(cut(8));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(io)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        let what = format!("has a header of {length} bytes, above the limit of {MAX_HEADER}");
        return Err(broken(what));
    }
    let start = 8 + length;
    if start > n_file {
        return Err(cut(start));
    }
    let mut json = vec![0; length as usize];
    file.read_exact(&mut json).map_err(io)?;
    // Offsets, sizes and their agreement with shape and type are checked by the reference implementation.
    let header: Metadata = serde_json::from_slice(&json)
        .map_err(|error| broken(format!("has a header that cannot be used: {error}")))?;
    let tensors = header.tensors();
    let n_data = tensors.values().map(|info| info.data_offsets.1).max().unwrap_or(0);
    // Saturating: a single tensor may claim a length near the end of the 64-bit range.
    let expected = start.saturating_add(n_data as u64);
    if n_file < expected {
        return Err(cut(expected));
    }
    if n_file > expected {
        return Err(broken(format!(
            "has bytes that belong to no tensor: {expected} bytes expected, {n_file} found"
        )));
    }
    let entry = |(name, info): (String, &TensorInfo)| {
        let (dtype, shape) = (info.dtype, info.shape.clone());
        if element_size(dtype).is_none() {
            let what = format!("has the unsupported element type `{dtype}` in tensor `{name}`");
            return Err(Error::Unsupported { path: path.to_path_buf(), what });
        }
        let (begin, end) = info.data_offsets;
        Ok((name, Entry { dtype, shape, values: Values::Plain(start + begin as u64, end - begin) }))
    };
    let tensors = tensors.into_iter().map(entry).collect::<Result<_, _>>()?;
    let metadata = header.metadata().iter().flatten();
    Ok((tensors, metadata.map(|(key, text)| (key.clone(), text.clone())).collect()))
}

fn pytorch_entries(path: &Path) -> Result<Entries, Error> {
    let unusable = |reason: &dyn std::fmt::Display| {
        Error::file(path, format!("is not a PyTorch file of tensors: {reason}"))
    };
    let tensors = PytorchReader::new(path).map_err(|error| unusable(&error))?.into_tensors();
    if tensors.is_empty() {
        return Err(unusable(&"it holds no tensor, or only what code in the file would make"));
    }
    let entry = |tensor: Tensor| {
        let (dtype, shape) = (host_dtype(tensor.dtype()), tensor.shape().to_vec());
        Entry { dtype, shape, values: Values::Pytorch(tensor) }
    };
    Ok(tensors.into_iter().map(|(name, tensor)| (name, entry(tensor))).collect())
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

/// Writes a safetensors file atomically and without a second copy of the data.
///
/// The bytes depend on the arguments alone: texts by key, tensors by falling element size and then
/// by name, which keeps every tensor aligned to its own element size, and a header padded to 8
/// bytes.
pub fn write_safetensors(
    path: impl AsRef<Path>,
    tensors: &BTreeMap<String, HostTensor>,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let path = path.as_ref();
    if tensors.contains_key(METADATA_KEY) {
        let what = format!("cannot hold a tensor called `{METADATA_KEY}`");
        return Err(Error::file(path, what));
    }
    let mut order: Vec<_> = tensors.iter().collect();
    // Stable: names stay sorted.
    order.sort_by_key(|(_, tensor)| Reverse(tensor.element_size()));
    let header = header_bytes(&order, metadata).map_err(|source| Error::json(path, source))?;
    replace_with(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        order.iter().try_for_each(|(_, tensor)| out.write_all(tensor.bytes()))
    })
}

/// The value of a key in a safetensors header.
#[derive(Serialize)]
#[serde(untagged)]
enum HeaderEntry<'a> {
    Texts(&'a BTreeMap<String, String>),
    Tensor(TensorInfo),
}

fn header_bytes(
    order: &[(&String, &HostTensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut end = 0;
    let texts = (!metadata.is_empty()).then_some((METADATA_KEY, HeaderEntry::Texts(metadata)));
    let tensors = order.iter().map(|(name, tensor)| {
        let begin = end;
        end += tensor.bytes().len();
        let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
        let info = TensorInfo { dtype, shape, data_offsets: (begin, end) };
        (name.as_str(), HeaderEntry::Tensor(info))
    });
    let mut bytes = Vec::new();
    serde_json::Serializer::new(&mut bytes).collect_map(texts.into_iter().chain(tensors))?;
    // Blanks at the end are part of the format: the data then start at a multiple of 8.
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    Ok(bytes)
}
