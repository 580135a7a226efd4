//! One file of PyTorch's `torch.save`, as checkpoints without safetensors have it.
//!
//! The file is a pickle, and unpickling in Python runs code from the file. The reader used here
//! interprets the few opcodes that `torch.save` writes and refuses everything else, so that nothing
//! from the file is ever executed. Tensors are read one by one, as from safetensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pytorch_reader::{DType, PytorchReader, Tensor};

use super::error::FileError;
use super::host_dtype::HostDType;
use super::host_tensor::HostTensor;

/// An open file of tensors by name.
#[derive(Debug)]
pub(super) struct PytorchFile {
    path: PathBuf,
    tensors: BTreeMap<String, Tensor>,
}

impl PytorchFile {
    /// Opens the file and reads its directory of tensors.
    ///
    /// # Errors
    ///
    /// [`FileError::Pytorch`] if it is no such file, or holds what a file of weights does not.
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        let reader = PytorchReader::new(path).map_err(|error| FileError::Pytorch {
            file: path.to_path_buf(),
            reason: error.to_string(),
        })?;
        Ok(Self { path: path.to_path_buf(), tensors: reader.into_tensors().into_iter().collect() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(Tensor::shape)
    }

    pub(super) fn dtype(&self, name: &str) -> Option<HostDType> {
        self.tensors.get(name).map(|tensor| host_dtype(tensor.dtype()))
    }

    /// Reads one tensor.
    ///
    /// # Errors
    ///
    /// As [`TensorFile::read`](super::TensorFile::read).
    pub(super) fn read(&self, name: &str) -> Result<HostTensor, FileError> {
        let tensor = self.tensors.get(name).ok_or_else(|| FileError::NoTensor {
            file: self.path.clone(),
            tensor: name.to_owned(),
        })?;
        let failed = |source| FileError::io("read", &self.path, source);
        let mut bytes = tensor.read().map_err(failed)?;
        if cfg!(target_endian = "big") {
            // The reader returns the machine's order; a host tensor is little-endian everywhere.
            bytes.chunks_exact_mut(tensor.dtype().size()).for_each(<[u8]>::reverse);
        }
        HostTensor::new(host_dtype(tensor.dtype()), tensor.shape().to_vec(), bytes)
            .map_err(|source| failed(std::io::Error::other(source)))
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
        DType::Bool => HostDType::Bool,
    }
}
