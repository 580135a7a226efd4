//! A file of weights in any format: safetensors, PyTorch's `torch.save`, or llama.cpp's GGUF.
//!
//! A file of `torch.save` is a pickle, and unpickling in Python runs code from the file. The reader
//! used here interprets the few opcodes that `torch.save` writes and fails on everything else, so
//! that nothing from the file is ever executed. Tensors of all are read one by one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use pytorch_reader::{DType, PytorchReader, Tensor};
use tracing::debug;

use super::gguf::GgufFile;
use super::host_tensor::{HostDType, HostTensor};
use super::tensor_file::TensorFile;
use crate::error::Error;

/// An open file of weights.
#[derive(Debug)]
pub(super) enum WeightFile {
    /// Safetensors.
    Safetensors(TensorFile),
    /// `torch.save`.
    Pytorch {
        /// The file.
        path: PathBuf,
        /// Its tensors.
        tensors: BTreeMap<String, Tensor>,
    },
    /// GGUF.
    Gguf(Box<GgufFile>),
}

impl WeightFile {
    /// Opens `path`: `.bin`, `.pt` and `.pth` are PyTorch's, `.gguf` is GGUF, everything else is safetensors.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let ending = path.extension().and_then(|extension| extension.to_str());
        if ending == Some("gguf") {
            return Ok(Self::Gguf(Box::new(GgufFile::open(path)?)));
        }
        if !matches!(ending, Some("bin" | "pt" | "pth")) {
            return TensorFile::open(path).map(Self::Safetensors);
        }
        let unusable = |reason: &dyn std::fmt::Display| {
            Error::file(path, format!("is not a PyTorch file of tensors: {reason}"))
        };
        match PytorchReader::new(path) {
            Ok(reader) => {
                let tensors: BTreeMap<_, _> = reader.into_tensors().into_iter().collect();
                if tensors.is_empty() {
                    let reason = "it holds no tensor, or only what code in the file would make";
                    return Err(unusable(&reason));
                }
                debug!(file = %path.display(), tensors = tensors.len(), "opened");
                Ok(Self::Pytorch { path: path.to_path_buf(), tensors })
            }
            Err(error) => Err(unusable(&error)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Safetensors(file) => file.path(),
            Self::Gguf(file) => file.path(),
            Self::Pytorch { path, .. } => path,
        }
    }

    /// Names of all tensors, sorted.
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Self::Safetensors(file) => file.names().collect(),
            Self::Gguf(file) => file.names().collect(),
            Self::Pytorch { tensors, .. } => tensors.keys().map(String::as_str).collect(),
        }
    }

    /// Element type and shape of a tensor, or none.
    pub(super) fn info(&self, name: &str) -> Option<(HostDType, &[usize])> {
        match self {
            Self::Safetensors(file) => Some((file.dtype(name)?, file.shape(name)?)),
            Self::Gguf(file) => file.info(name),
            Self::Pytorch { tensors, .. } => {
                tensors.get(name).map(|tensor| (host_dtype(tensor.dtype()), tensor.shape()))
            }
        }
    }

    /// Reads one tensor.
    pub(super) fn read(&self, name: &str) -> Result<HostTensor, Error> {
        let (path, tensors) = match self {
            Self::Safetensors(file) => return file.read(name),
            Self::Gguf(file) => return file.read(name),
            Self::Pytorch { path, tensors } => (path, tensors),
        };
        let tensor = tensors.get(name).ok_or_else(|| Error::no_tensor(path, name))?;
        let failed = |source| Error::io("read", path, source);
        let mut bytes = tensor.read().map_err(failed)?;
        if cfg!(target_endian = "big") {
            // The reader returns the machine's order; a host tensor is little-endian everywhere.
            bytes.chunks_exact_mut(tensor.dtype().size()).for_each(<[u8]>::reverse);
        }
        HostTensor::new(host_dtype(tensor.dtype()), tensor.shape().to_vec(), bytes)
            .map_err(|source| failed(io::Error::other(source)))
    }
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
