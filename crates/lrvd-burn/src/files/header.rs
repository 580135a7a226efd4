//! The header of a safetensors file: parsed, then checked so far that every later read is in
//! bounds.
//!
//! Layout: 8 bytes of length `n` (little-endian), `n` bytes of JSON, data. Offsets count from the
//! start of the data.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::FileError;
use super::host_dtype::HostDType;
use super::json::Json;

/// Longest header accepted, the limit of the reference implementation.
pub(crate) const MAX_HEADER: u64 = 100_000_000;
/// Key of the free-form texts in a header.
pub(crate) const METADATA_KEY: &str = "__metadata__";

/// Where one tensor lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorEntry {
    pub(crate) dtype: HostDType,
    pub(crate) shape: Vec<usize>,
    /// First byte, counted from the start of the data.
    pub(crate) begin: u64,
    pub(crate) n_bytes: usize,
}

/// A checked header.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) tensors: BTreeMap<String, TensorEntry>,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl Header {
    /// Parses the JSON part and checks it against the number of data bytes behind it.
    pub(crate) fn parse(file: &Path, json: &[u8], n_data: u64) -> Result<Self, FileError> {
        let document = Json::parse(json)
            .map_err(|source| FileError::Json { file: file.to_path_buf(), source })?;
        let Json::Object(pairs) = document else {
            return Err(entry_error(file, "header", "an object"));
        };
        let mut tensors = BTreeMap::new();
        let mut metadata = BTreeMap::new();
        for (name, value) in pairs {
            if name == METADATA_KEY {
                metadata = parse_metadata(file, &value)?;
            } else {
                let entry = parse_entry(file, &name, &value)?;
                tensors.insert(name, entry);
            }
        }
        let header = Self { tensors, metadata };
        header.check_layout(file, json.len() as u64, n_data)?;
        Ok(header)
    }

    /// The tensors must fill the data one after the other, without overlap and without a hole.
    fn check_layout(&self, file: &Path, n_header: u64, n_data: u64) -> Result<(), FileError> {
        let mut order: Vec<_> = self.tensors.iter().collect();
        order.sort_by_key(|(name, entry)| (entry.begin, entry.n_bytes, name.as_str()));
        let mut end = 0;
        for (name, entry) in order {
            if entry.begin != end {
                return Err(FileError::Offset {
                    file: file.to_path_buf(),
                    tensor: name.clone(),
                    wanted: end,
                    found: entry.begin,
                });
            }
            end += entry.n_bytes as u64;
        }
        // Saturating: a single tensor may claim a length near the end of the 64-bit range.
        let wanted = end.saturating_add(8 + n_header);
        let found = n_data.saturating_add(8 + n_header);
        match wanted.cmp(&found) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => {
                Err(FileError::Truncated { file: file.to_path_buf(), wanted, found })
            }
            std::cmp::Ordering::Less => {
                Err(FileError::TrailingBytes { file: file.to_path_buf(), wanted, found })
            }
        }
    }
}

fn entry_error(file: &Path, entry: &str, wanted: &'static str) -> FileError {
    FileError::Entry { file: file.to_path_buf(), entry: entry.to_owned(), wanted }
}

fn parse_metadata(file: &Path, value: &Json) -> Result<BTreeMap<String, String>, FileError> {
    let wanted = || entry_error(file, METADATA_KEY, "an object of texts");
    let pairs = value.as_object().ok_or_else(wanted)?;
    pairs
        .iter()
        .map(|(key, value)| Ok((key.clone(), value.as_str().ok_or_else(wanted)?.to_owned())))
        .collect()
}

fn parse_entry(file: &Path, name: &str, value: &Json) -> Result<TensorEntry, FileError> {
    let wanted = || entry_error(file, name, "an object with `dtype`, `shape` and `data_offsets`");
    let field = |key| value.get(key).ok_or_else(wanted);
    let integers = |key| -> Result<Vec<u64>, FileError> {
        let items = field(key)?.as_array().ok_or_else(wanted)?;
        items.iter().map(|item| item.as_u64().ok_or_else(wanted)).collect()
    };
    let dtype = field("dtype")?.as_str().ok_or_else(wanted)?;
    let dtype = HostDType::from_name(dtype).ok_or_else(|| FileError::UnknownDType {
        file: file.to_path_buf(),
        tensor: name.to_owned(),
        dtype: dtype.to_owned(),
    })?;
    let sizes = integers("shape")?;
    let &[begin, end] = integers("data_offsets")?.as_slice() else {
        return Err(wanted());
    };
    let overflow = || FileError::SizeOverflow {
        file: file.to_path_buf(),
        tensor: name.to_owned(),
        shape: sizes.clone(),
    };
    let n_bytes = sizes
        .iter()
        .try_fold(dtype.size() as u64, |product, &length| product.checked_mul(length))
        .and_then(|n_bytes| usize::try_from(n_bytes).ok())
        .ok_or_else(overflow)?;
    let shape: Vec<usize> = sizes
        .iter()
        .map(|&length| usize::try_from(length).map_err(|_| overflow()))
        .collect::<Result<_, _>>()?;
    let found = end.checked_sub(begin).ok_or_else(|| {
        entry_error(file, name, "a tensor whose `data_offsets` end after they start")
    })?;
    if found != n_bytes as u64 {
        return Err(FileError::ByteLength {
            file: file.to_path_buf(),
            tensor: name.to_owned(),
            shape,
            wanted: n_bytes as u64,
            found,
        });
    }
    Ok(TensorEntry { dtype, shape, begin, n_bytes })
}
