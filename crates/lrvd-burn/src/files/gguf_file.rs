//! An open GGUF file: its settings and its tensors.

use std::collections::BTreeMap;
use std::path::Path;

use super::gguf::{GgufType, GgufValue, unusable};
use super::tensor_file::TensorFile;
use crate::error::Error;

/// An open GGUF file whose header has been checked.
#[derive(Debug)]
pub struct GgufFile {
    tensors: TensorFile,
    settings: BTreeMap<String, GgufValue>,
}

/// Readers of settings of one type: none for an absent key, an error for a value of another type.
macro_rules! readers {
    ($($doc:literal $name:ident -> $type:ty, $expected:literal: $pattern:pat => $value:expr;)*) => {$(
        #[doc = $doc]
        pub fn $name(&self, key: &str) -> Result<Option<$type>, Error> {
            let value = match self.settings.get(key) {
                None => return Ok(None),
                Some($pattern) => $value,
                Some(_) => None,
            };
            value.map(Some).ok_or_else(|| self.unexpected(key, $expected))
        }
    )*};
}

impl GgufFile {
    /// Opens the file and checks its header against the file's length.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (tensors, settings) = TensorFile::open_gguf(path.as_ref())?;
        Ok(Self { tensors, settings })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.tensors.path()
    }

    /// The tensors; a quantised one is widened to single precision.
    pub fn tensors(&self) -> &TensorFile {
        &self.tensors
    }

    /// How a tensor is stored, or none.
    pub fn stored_as(&self, name: &str) -> Option<GgufType> {
        self.tensors.stored_as(name)
    }

    /// The setting `key`, or none.
    pub fn setting(&self, key: &str) -> Option<&GgufValue> {
        self.settings.get(key)
    }

    readers! {
        "The text `key`." text -> &str,
            "a text": GgufValue::Text(text) => Some(text.as_str());
        "The whole number `key`, not negative." count -> u64,
            "a whole number, not negative": GgufValue::Integer(value) => u64::try_from(*value).ok();
        "The number `key`." float -> f64,
            "a number": GgufValue::Float(value) => Some(*value);
        "The truth value `key`." boolean -> bool,
            "true or false": GgufValue::Bool(value) => Some(*value);
        "The texts `key`." texts -> &[String],
            "a list of texts": GgufValue::Texts(list) => Some(list.as_slice());
        "The whole numbers `key`." integers -> &[i64],
            "a list of whole numbers": GgufValue::Integers(list) => Some(list.as_slice());
        "The numbers `key`." floats -> &[f32],
            "a list of numbers": GgufValue::Floats(list) => Some(list.as_slice());
    }

    /// The error of a setting that must be there.
    pub fn missing(&self, key: &str) -> Error {
        unusable(self.path(), format_args!("it has no `{key}`"))
    }

    /// The error of a setting that is not `expected`.
    pub fn unexpected(&self, key: &str, expected: &'static str) -> Error {
        let found =
            self.settings.get(key).map_or_else(|| "nothing".to_owned(), GgufValue::describe);
        unusable(self.path(), format_args!("`{key}` should be {expected}, found {found}"))
    }
}
