//! The header of a safetensors file, read strictly and written with bytes that depend on the contents alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::atomic::replace_with;
use super::host_tensor::{HostDType, HostTensor, element_size};
use crate::error::Error;

/// Longest header accepted, the limit of the reference implementation.
pub(super) const MAX_HEADER: u64 = 100_000_000;
/// Key of the free-form texts in a header.
pub(super) const METADATA_KEY: &str = "__metadata__";

type Texts = BTreeMap<String, String>;
/// Element type, shape, first byte and number of bytes.
type Entry = (HostDType, Vec<usize>, u64, usize);

/// The tensors and the texts of a file of `n_file` bytes.
pub(super) fn read_header(
    file: &mut File,
    path: &Path,
    n_file: u64,
) -> Result<(BTreeMap<String, Entry>, Texts), Error> {
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
        let dtype = info.dtype;
        if element_size(dtype).is_none() {
            let what = format!("has the unsupported element type `{dtype}` in tensor `{name}`");
            return Err(Error::Unsupported { path: path.to_path_buf(), what });
        }
        let (begin, end) = info.data_offsets;
        Ok((name, (dtype, info.shape.clone(), start + begin as u64, end - begin)))
    };
    let tensors = tensors.into_iter().map(entry).collect::<Result<_, _>>()?;
    let metadata = header.metadata().iter().flatten();
    Ok((tensors, metadata.map(|(key, text)| (key.clone(), text.clone())).collect()))
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
    write_with(path.as_ref(), tensors, metadata, |_| ())
}

/// Writes a safetensors file as [`write_safetensors`] does and returns its SHA-256.
pub(crate) fn write_hashed(
    path: &Path,
    tensors: &BTreeMap<String, HostTensor>,
) -> Result<Vec<u8>, Error> {
    let mut hash = Sha256::new();
    write_with(path, tensors, &BTreeMap::new(), |bytes| hash.update(bytes))?;
    Ok(hash.finalize().to_vec())
}

/// Writes a file whose bytes `read` gets as well, in order.
fn write_with(
    path: &Path,
    tensors: &BTreeMap<String, HostTensor>,
    metadata: &Texts,
    mut read: impl FnMut(&[u8]),
) -> Result<(), Error> {
    if tensors.contains_key(METADATA_KEY) {
        let what = format!("cannot hold a tensor called `{METADATA_KEY}`");
        return Err(Error::file(path, what));
    }
    let mut order: Vec<_> = tensors.iter().collect();
    // Stable: names stay sorted.
    order.sort_by_key(|(_, tensor)| Reverse(tensor.element_size()));
    let header = header_bytes(&order, metadata).map_err(|source| Error::json(path, source))?;
    let length = (header.len() as u64).to_le_bytes();
    let parts = [&length[..], &header];
    let parts = parts.into_iter().chain(order.iter().map(|(_, tensor)| tensor.bytes()));
    replace_with(path, |out| {
        parts.into_iter().try_for_each(|part| {
            read(part);
            out.write_all(part)
        })
    })
}

/// The value of a key in a header.
#[derive(Serialize)]
#[serde(untagged)]
enum HeaderEntry<'a> {
    Texts(&'a Texts),
    Tensor(TensorInfo),
}

fn header_bytes(
    order: &[(&String, &HostTensor)],
    metadata: &Texts,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut end = 0;
    let texts = (!metadata.is_empty()).then_some((METADATA_KEY, HeaderEntry::Texts(metadata)));
    let tensors = order.iter().map(|(name, tensor)| {
        let begin = end;
        end += tensor.bytes().len();
        let info = TensorInfo {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            data_offsets: (begin, end),
        };
        (name.as_str(), HeaderEntry::Tensor(info))
    });
    let mut bytes = Vec::new();
    serde_json::Serializer::new(&mut bytes).collect_map(texts.into_iter().chain(tensors))?;
    // Blanks at the end are part of the format: the data then start at a multiple of 8.
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    Ok(bytes)
}
