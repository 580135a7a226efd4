//! The header of a safetensors file, checked so far that every later read is in bounds.
//!
//! Layout: 8 bytes of length `n` (little-endian), `n` bytes of JSON, data. Offsets count from the
//! start of the data.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::TensorInfo;
use serde_json::Value;

use super::error::FileError;
use super::host_tensor::element_size;
use super::pairs::Pairs;

/// Longest header accepted, the limit of the reference implementation.
pub(super) const MAX_HEADER: u64 = 100_000_000;
/// Key of the free-form texts in a header.
pub(super) const METADATA_KEY: &str = "__metadata__";

/// A checked header.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) tensors: BTreeMap<String, TensorInfo>,
    pub(super) metadata: BTreeMap<String, String>,
}

impl Header {
    /// Parses the JSON part and checks it against the number of data bytes behind it.
    pub(super) fn parse(file: &Path, json: &[u8], n_data: u64) -> Result<Self, FileError> {
        let Pairs(pairs) = serde_json::from_slice::<Pairs<Value>>(json)
            .map_err(|source| FileError::Json { file: file.to_path_buf(), source })?;
        let mut header = Self::default();
        for (name, value) in pairs {
            let broken = |source| entry_error(file, &name, &source);
            if name == METADATA_KEY {
                header.metadata = serde_json::from_value(value).map_err(broken)?;
                continue;
            }
            let info: TensorInfo = serde_json::from_value(value).map_err(broken)?;
            header.tensors.insert(name, info);
        }
        header.check_layout(file, json.len() as u64, n_data)?;
        Ok(header)
    }

    /// The tensors must fill the data one after the other, without overlap and without a hole.
    fn check_layout(&self, file: &Path, n_header: u64, n_data: u64) -> Result<(), FileError> {
        let mut order: Vec<_> = self.tensors.iter().collect();
        order.sort_by_key(|(name, info)| (info.data_offsets, name.as_str()));
        let mut previous_end = 0;
        for (name, info) in order {
            let wanted = n_bytes(file, name, info)?;
            let (begin, end) = info.data_offsets;
            let found = end
                .checked_sub(begin)
                .ok_or_else(|| entry_error(file, name, &"`data_offsets` end before they start"))?;
            let (file, tensor) = (file.to_path_buf(), name.clone());
            if found != wanted {
                let shape = info.shape.clone();
                return Err(FileError::ByteLength { file, tensor, shape, wanted, found });
            }
            if begin != previous_end {
                return Err(FileError::Offset { file, tensor, wanted: previous_end, found: begin });
            }
            previous_end = end;
        }
        // Saturating: a single tensor may claim a length near the end of the 64-bit range.
        let wanted = (previous_end as u64).saturating_add(8 + n_header);
        let found = n_data.saturating_add(8 + n_header);
        let file = file.to_path_buf();
        match wanted.cmp(&found) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(FileError::Truncated { file, wanted, found }),
            std::cmp::Ordering::Less => Err(FileError::TrailingBytes { file, wanted, found }),
        }
    }
}

/// Bytes of a tensor by its shape.
fn n_bytes(file: &Path, name: &str, info: &TensorInfo) -> Result<usize, FileError> {
    let (file, tensor) = (file.to_path_buf(), name.to_owned());
    let Some(size) = element_size(info.dtype) else {
        return Err(FileError::UnknownDType { file, tensor, dtype: info.dtype });
    };
    let bytes = info.shape.iter().try_fold(size, |product, &length| product.checked_mul(length));
    bytes.ok_or_else(|| FileError::SizeOverflow { file, tensor, shape: info.shape.clone() })
}

fn entry_error(file: &Path, entry: &str, reason: &dyn std::fmt::Display) -> FileError {
    let reason = reason.to_string();
    FileError::Entry { file: file.to_path_buf(), entry: entry.to_owned(), reason }
}
