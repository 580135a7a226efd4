//! An open GGUF file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::debug;

use super::blocks::GgufType;
use super::header::{self, Entry};
use super::value::GgufValue;
use crate::error::Error;
use crate::files::tensor_file::read_exactly;
use crate::files::{HostDType, HostTensor};

/// An open GGUF file whose header has been checked.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    file: Mutex<File>,
    data_start: u64,
    settings: BTreeMap<String, GgufValue>,
    tensors: BTreeMap<String, Entry>,
}

impl GgufFile {
    /// Opens the file and checks its header against the file's length.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let io = |action| move |source| Error::io(action, path, source);
        let file = File::open(path).map_err(io("open"))?;
        let length = file.metadata().map_err(io("open"))?.len();
        let header = header::read(BufReader::new(&file), path, length)?;
        debug!(file = %path.display(), bytes = length, tensors = header.tensors.len(), "opened");
        Ok(Self {
            path: path.to_path_buf(),
            file: Mutex::new(file),
            data_start: header.data_start,
            settings: header.settings,
            tensors: header.tensors,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The setting `key`, or none.
    pub fn setting(&self, key: &str) -> Option<&GgufValue> {
        self.settings.get(key)
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// How a tensor is stored, or none.
    pub fn stored_as(&self, name: &str) -> Option<GgufType> {
        self.tensors.get(name).map(|entry| entry.kind)
    }

    /// Element type on the host and shape of a tensor, outermost axis first, or none.
    pub fn info(&self, name: &str) -> Option<(HostDType, &[usize])> {
        self.tensors.get(name).map(|entry| (entry.kind.host_dtype(), entry.shape.as_slice()))
    }

    /// Reads one tensor; a quantised one is widened to single precision.
    pub fn read(&self, name: &str) -> Result<HostTensor, Error> {
        let entry = self.tensors.get(name).ok_or_else(|| Error::no_tensor(&self.path, name))?;
        let failed = |source| Error::io("read", &self.path, source);
        let (offset, length) = entry.place;
        let bytes = {
            // Every read seeks first, so a panic while the lock was held cannot leave it in a bad state.
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(self.data_start + offset)).map_err(failed)?;
            read_exactly(&mut file, length).map_err(failed)?
        };
        let bytes = entry.kind.widen(bytes);
        HostTensor::new(entry.kind.host_dtype(), entry.shape.clone(), bytes)
            .map_err(|source| failed(std::io::Error::other(source)))
    }

    /// The text `key`, if it is there.
    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        self.take(key, "a text", |value| match value {
            GgufValue::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The whole number `key`, not negative, if it is there.
    pub fn count(&self, key: &str) -> Result<Option<u64>, Error> {
        self.take(key, "a whole number, not negative", |value| match value {
            GgufValue::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        })
    }

    /// The number `key`, if it is there.
    pub fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        self.take(key, "a number", |value| match value {
            GgufValue::Float(value) => Some(*value),
            _ => None,
        })
    }

    /// The truth value `key`, if it is there.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, Error> {
        self.take(key, "true or false", |value| match value {
            GgufValue::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// The texts `key`, if they are there.
    pub fn texts(&self, key: &str) -> Result<Option<&[String]>, Error> {
        self.take(key, "a list of texts", |value| match value {
            GgufValue::Texts(list) => Some(list.as_slice()),
            _ => None,
        })
    }

    /// The whole numbers `key`, if they are there.
    pub fn integers(&self, key: &str) -> Result<Option<&[i64]>, Error> {
        self.take(key, "a list of whole numbers", |value| match value {
            GgufValue::Integers(list) => Some(list.as_slice()),
            _ => None,
        })
    }

    /// The numbers `key`, if they are there.
    pub fn floats(&self, key: &str) -> Result<Option<&[f32]>, Error> {
        self.take(key, "a list of numbers", |value| match value {
            GgufValue::Floats(list) => Some(list.as_slice()),
            _ => None,
        })
    }

    /// The error of a setting that must be there.
    pub fn missing(&self, key: &str) -> Error {
        header::unusable(&self.path, format_args!("it has no `{key}`"))
    }

    /// The error of a setting that is not `expected`.
    pub fn unexpected(&self, key: &str, expected: &'static str) -> Error {
        let found =
            self.settings.get(key).map_or_else(|| "nothing".to_owned(), GgufValue::describe);
        header::unusable(&self.path, format_args!("`{key}` should be {expected}, found {found}"))
    }

    fn take<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&'a GgufValue) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.settings.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.unexpected(key, expected))
    }
}
