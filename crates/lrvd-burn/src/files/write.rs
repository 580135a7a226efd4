//! Files written atomically: beside their place, flushed to the disk, then renamed into it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use safetensors::tensor::TensorInfo;
use serde::{Serialize, Serializer};

use super::NO_NAME;
use super::host_tensor::HostTensor;
use crate::error::Error;

/// Key of the free-form texts in a header.
const METADATA_KEY: &str = "__metadata__";

/// Writes the bytes so that a reader sees either the old file or the new one, also after a crash.
///
/// On an error the place is as it was before.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    replace_with(path.as_ref(), |out| out.write_all(bytes))
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

/// What a header says of a key.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Texts(&'a BTreeMap<String, String>),
    Tensor(TensorInfo),
}

fn header_bytes(
    order: &[(&String, &HostTensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut end = 0;
    let texts = (!metadata.is_empty()).then_some((METADATA_KEY, Entry::Texts(metadata)));
    let tensors = order.iter().map(|(name, tensor)| {
        let begin = end;
        end += tensor.bytes().len();
        let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
        (name.as_str(), Entry::Tensor(TensorInfo { dtype, shape, data_offsets: (begin, end) }))
    });
    let mut bytes = Vec::new();
    serde_json::Serializer::new(&mut bytes).collect_map(texts.into_iter().chain(tensors))?;
    // Blanks at the end are part of the format: the data then start at a multiple of 8.
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    Ok(bytes)
}

/// Runs `fill` on a new sibling file and puts it in the place of `path`. A link at `path` is replaced, not followed.
pub fn replace_with(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<(), Error> {
    let name = path.file_name().ok_or_else(|| Error::file(path, NO_NAME))?;
    let failed = |action| move |source| Error::io(action, path, source);
    let mut prefix = OsString::from(".");
    prefix.push(name);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part");
    // Those of an ordinary file: what is written is for others to read, too.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // Removed again unless it comes to the last step.
    let sibling = builder.tempfile_in(parent_of(path)).map_err(failed("create"))?;
    let mut out = BufWriter::new(sibling.as_file());
    fill(&mut out)
        .and_then(|()| out.flush())
        .and_then(|()| out.get_ref().sync_all())
        .map_err(failed("write"))?;
    drop(out);
    sibling.persist(path).map_err(|error| failed("write")(error.error))?;
    sync_parent(path)
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Flushes the folder that holds `path`, so that a rename in it survives a crash.
pub(crate) fn sync_parent(path: &Path) -> Result<(), Error> {
    sync_dir(parent_of(path))
}

/// Flushes a folder's list of names.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    // Only Unix lets a folder be opened and flushed; elsewhere the rename itself is all there is.
    if cfg!(unix) {
        File::open(dir)
            .and_then(|handle| handle.sync_all())
            .map_err(|source| Error::io("flush", dir, source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;
    use crate::files::{HostDType, TensorFile};

    fn sample() -> (BTreeMap<String, HostTensor>, BTreeMap<String, String>) {
        let tensors = [
            ("z".to_owned(), HostTensor::from_f64(&[2], &[0.1, -2.5]).unwrap()),
            ("b".to_owned(), HostTensor::from_u8(&[3], &[1, 2, 3]).unwrap()),
            ("a".to_owned(), HostTensor::from_f32(&[2, 1], &[1.0, f32::MIN_POSITIVE]).unwrap()),
            ("none".to_owned(), HostTensor::from_f32(&[0, 4], &[]).unwrap()),
            ("h".to_owned(), HostTensor::new(HostDType::BF16, vec![1], vec![1, 2]).unwrap()),
        ];
        let texts = ["q", "format", "x"].map(|key| (key.to_owned(), format!("\"{key}\"\n")));
        (tensors.into_iter().collect(), texts.into_iter().collect())
    }

    #[test]
    fn round_trip_and_the_reference_implementation_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.safetensors");
        let (tensors, metadata) = sample();
        write_safetensors(&path, &tensors, &metadata).unwrap();
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.metadata(), &metadata);
        for (name, tensor) in &tensors {
            assert_eq!(&file.read(name).unwrap(), tensor, "{name}");
        }
        let bytes = fs::read(&path).unwrap();
        let other = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(other.len(), tensors.len());
        for (name, tensor) in &tensors {
            let view = other.tensor(name).unwrap();
            assert_eq!((view.shape(), view.data()), (tensor.shape(), tensor.bytes()), "{name}");
        }
        // Data start aligned, and so does the f64 tensor, which comes first.
        let n_header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(n_header % 8, 0);
        assert_eq!(&bytes[8 + n_header as usize..][..8], &0.1_f64.to_le_bytes());
    }

    #[test]
    fn bytes_are_the_same_each_time_and_nothing_stays_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (tensors, metadata) = sample();
        let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
        write_safetensors(&one, &tensors, &metadata).unwrap();
        write_safetensors(&two, &tensors, &metadata).unwrap();
        write_safetensors(&two, &tensors, &metadata).unwrap();
        assert_eq!(fs::read(one).unwrap(), fs::read(two).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn failing_half_way_keeps_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        write_atomic(&path, b"old").unwrap();
        let failed = replace_with(&path, |out| {
            out.write_all(b"ne")?;
            Err(io::Error::other("disk full"))
        });
        assert!(matches!(failed, Err(Error::Io { action: "write", .. })));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        write_atomic(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn names_that_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let tensors = [(METADATA_KEY.to_owned(), HostTensor::from_u8(&[0], &[]).unwrap())].into();
        let error = write_safetensors(dir.path().join("t"), &tensors, &BTreeMap::new());
        assert!(error.unwrap_err().to_string().contains("called `__metadata__`"));
        assert!(write_atomic("/", b"").unwrap_err().to_string().ends_with(NO_NAME));
        assert!(matches!(write_atomic(dir.path().join("no/x"), b""), Err(Error::Io { .. })));
    }
}
