//! One safetensors file, opened by its header and read tensor by tensor.
//!
//! The file is not mapped (that would need `unsafe`) and never held as a whole: memory use is that
//! of the tensors that the caller keeps.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use safetensors::tensor::{Metadata, TensorInfo};
use tracing::debug;

use super::host_tensor::{HostDType, HostTensor, element_size};
use crate::error::Error;

/// Longest header accepted, the limit of the reference implementation.
const MAX_HEADER: u64 = 100_000_000;

/// An open safetensors file whose header has been checked.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: Mutex<File>,
    data_start: u64,
    tensors: BTreeMap<String, TensorInfo>,
    metadata: BTreeMap<String, String>,
}

impl TensorFile {
    /// Opens the file and checks its header against the file's length.
    ///
    /// Whatever the header claims, nothing is allocated beyond the length of the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let io = |action| move |source| Error::io(action, path, source);
        let mut file = File::open(path).map_err(io("open"))?;
        let n_file = file.metadata().map_err(io("open"))?.len();
        let cut = |expected: u64| {
            Error::file(path, format!("is cut short: {expected} bytes expected, {n_file} found"))
        };
        if n_file < 8 {
            return Err(cut(8));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(io("read"))?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER {
            return Err(Error::file(
                path,
                format!("has a header of {length} bytes, above the limit of {MAX_HEADER}"),
            ));
        }
        let data_start = 8 + length;
        if data_start > n_file {
            return Err(cut(data_start));
        }
        let mut json = vec![0; length as usize];
        file.read_exact(&mut json).map_err(io("read"))?;
        // Offsets, sizes and their agreement with shape and type are checked by the reference implementation.
        let header: Metadata = serde_json::from_slice(&json).map_err(|error| {
            Error::file(path, format!("has a header that cannot be used: {error}"))
        })?;
        let tensors: BTreeMap<String, TensorInfo> =
            header.tensors().into_iter().map(|(name, info)| (name, info.clone())).collect();
        let n_data = tensors.values().map(|info| info.data_offsets.1).max().unwrap_or(0);
        // Saturating: a single tensor may claim a length near the end of the 64-bit range.
        let expected = data_start.saturating_add(n_data as u64);
        if n_file < expected {
            return Err(cut(expected));
        }
        if n_file > expected {
            return Err(Error::file(
                path,
                format!(
                    "has bytes that belong to no tensor: {expected} bytes expected, {n_file} found"
                ),
            ));
        }
        if let Some((tensor, info)) = tensors.iter().find(|(_, i)| element_size(i.dtype).is_none())
        {
            let what =
                format!("has the unsupported element type `{}` in tensor `{tensor}`", info.dtype);
            return Err(Error::Unsupported { path: path.to_path_buf(), what });
        }
        let metadata = header.metadata().iter().flatten();
        let metadata = metadata.map(|(key, text)| (key.clone(), text.clone())).collect();
        debug!(file = %path.display(), bytes = n_file, tensors = tensors.len(), "opened");
        let (path, file) = (path.to_path_buf(), Mutex::new(file));
        Ok(Self { path, file, data_start, tensors, metadata })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
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
        self.tensors.get(name).map(|info| info.shape.as_slice())
    }

    /// Element type of a tensor, or none.
    pub fn dtype(&self, name: &str) -> Option<HostDType> {
        self.tensors.get(name).map(|info| info.dtype)
    }

    /// The free-form texts of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Reads one tensor.
    pub fn read(&self, name: &str) -> Result<HostTensor, Error> {
        let info = self.tensors.get(name).ok_or_else(|| Error::no_tensor(&self.path, name))?;
        let failed = |source| Error::io("read", &self.path, source);
        let bytes = self.read_bytes(info.data_offsets).map_err(failed)?;
        HostTensor::new(info.dtype, info.shape.clone(), bytes)
            .map_err(|source| failed(std::io::Error::other(source)))
    }

    /// Reads all tensors.
    pub fn read_all(&self) -> Result<BTreeMap<String, HostTensor>, Error> {
        self.names().map(|name| Ok((name.to_owned(), self.read(name)?))).collect()
    }

    fn read_bytes(&self, (begin, end): (usize, usize)) -> std::io::Result<Vec<u8>> {
        // A panic while the lock was held cannot leave the handle in a bad state: every read seeks
        // first.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.data_start + begin as u64))?;
        read_exactly(&mut file, end - begin)
    }
}

/// The next `length` bytes. A file without contents can be longer than the memory, so room is asked for first.
pub(super) fn read_exactly(file: &mut File, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| {
        let reason = format!("{length} bytes do not fit into memory");
        std::io::Error::new(ErrorKind::OutOfMemory, reason)
    })?;
    match file.take(length as u64).read_to_end(&mut bytes)? {
        found if found == length => Ok(bytes),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use safetensors::tensor::TensorView;

    use super::*;

    fn open(header: &str, data: &[u8]) -> Result<TensorFile, Error> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        open_bytes(&bytes)
    }

    fn open_bytes(bytes: &[u8]) -> Result<TensorFile, Error> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        std::fs::write(&path, bytes).unwrap();
        TensorFile::open(&path)
    }

    #[test]
    fn reads_what_the_reference_implementation_wrote() {
        let a: Vec<u8> =
            [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let b = [7_u8, 8, 9];
        let views = [
            ("b", TensorView::new(HostDType::U8, vec![3], &b).unwrap()),
            ("a", TensorView::new(HostDType::F32, vec![2, 3], &a).unwrap()),
            ("none", TensorView::new(HostDType::F32, vec![0, 3], &[]).unwrap()),
        ];
        let texts = [("k".to_owned(), "v".to_owned())].into_iter().collect();
        let bytes = safetensors::serialize(views, Some(texts)).unwrap();
        let file = open_bytes(&bytes).unwrap();
        assert_eq!(file.names().collect::<Vec<_>>(), ["a", "b", "none"]);
        assert_eq!(file.metadata()["k"], "v");
        assert_eq!((file.shape("a"), file.dtype("b")), (Some(&[2, 3][..]), Some(HostDType::U8)));
        assert_eq!(file.read("a").unwrap().to_f32().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(file.read("b").unwrap().bytes(), b);
        assert_eq!(file.read("none").unwrap().shape(), [0, 3]);
        assert!(file.read("c").unwrap_err().to_string().ends_with("has no tensor `c`"));
    }

    #[test]
    fn cut_and_padded_files() {
        let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        assert!(open(header, &[0; 8]).is_ok());
        for (opened, expected) in [
            (open(header, &[0; 7]), "is cut short"),
            (open(header, &[0; 9]), "belong to no tensor"),
            (open_bytes(&[1, 2]), "is cut short: 8 bytes expected, 2 found"),
            (open_bytes(&[100, 0, 0, 0, 0, 0, 0, 0, b'{']), "108 bytes expected, 9 found"),
        ] {
            let error = opened.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn header_length_at_the_limit() {
        let at = |length: u64| open_bytes(&length.to_le_bytes()).unwrap_err().to_string();
        assert!(at(MAX_HEADER).contains("is cut short"));
        for length in [MAX_HEADER + 1, u64::MAX] {
            assert!(at(length).contains(&format!("has a header of {length} bytes")));
        }
    }

    #[test]
    fn headers_that_contradict_themselves_are_errors() {
        let fails = |header: &str, data: &[u8], named: &str| {
            let error = open(header, data).unwrap_err().to_string();
            assert!(
                error.contains("a header that cannot be used") && error.contains(named),
                "{error}"
            );
        };
        let two = |second: &str| {
            format!(
                r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},
                     "b":{{"dtype":"U8","shape":[4],"data_offsets":{second}}}}}"#
            )
        };
        assert!(open(&two("[4,8]"), &[0; 8]).is_ok());
        for second in ["[3,7]", "[5,9]"] {
            fails(&two(second), &[0; 9], "`b`");
        }
        let one = |shape: &str, offsets: &str| {
            format!(r#"{{"t":{{"dtype":"F64","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        for (shape, offsets) in [
            ("[2]", "[0,8]"),
            ("[4294967296,4294967296]", "[0,8]"),
            ("[1]", "[8,0]"),
            ("[-1]", "[0,8]"),
            ("[1]", "[0,8,9]"),
        ] {
            fails(&one(shape, offsets), &[0; 8], "");
        }
        fails(r#"{"w":{"dtype":"F3","shape":[1],"data_offsets":[0,1]}}"#, &[0], "`F3`");
        for broken in ["{", "[]", r#"{"__metadata__":{"a":1}}"#] {
            fails(broken, &[], "");
        }
        // Deep nesting must not exhaust the stack.
        fails(&"[".repeat(100_000), &[], "");
    }

    #[test]
    fn narrow_types_name_the_tensor() {
        let error = open(r#"{"w":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}"#, &[0]);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("`w`") && text.contains("`F8_E4M3`"), "{text}");
    }
}
