//! A file of weights in either format.

use std::path::Path;

use super::error::FileError;
use super::host_dtype::HostDType;
use super::host_tensor::HostTensor;
use super::pytorch_file::PytorchFile;
use super::tensor_file::TensorFile;

/// An open file of weights.
#[derive(Debug)]
pub(super) enum WeightFile {
    /// Safetensors.
    Safetensors(TensorFile),
    /// `torch.save`.
    Pytorch(PytorchFile),
}

impl WeightFile {
    /// Opens `path`: `.bin`, `.pt` and `.pth` are PyTorch's, everything else is safetensors.
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("bin" | "pt" | "pth") => PytorchFile::open(path).map(Self::Pytorch),
            _ => TensorFile::open(path).map(Self::Safetensors),
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Safetensors(file) => file.path(),
            Self::Pytorch(file) => file.path(),
        }
    }

    /// Names of all tensors, sorted.
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Self::Safetensors(file) => file.names().collect(),
            Self::Pytorch(file) => file.names().collect(),
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }

    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        match self {
            Self::Safetensors(file) => file.shape(name),
            Self::Pytorch(file) => file.shape(name),
        }
    }

    pub(super) fn dtype(&self, name: &str) -> Option<HostDType> {
        match self {
            Self::Safetensors(file) => file.dtype(name),
            Self::Pytorch(file) => file.dtype(name),
        }
    }

    pub(super) fn read(&self, name: &str) -> Result<HostTensor, FileError> {
        match self {
            Self::Safetensors(file) => file.read(name),
            Self::Pytorch(file) => file.read(name),
        }
    }
}
