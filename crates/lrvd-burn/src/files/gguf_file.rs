//! An open GGUF file: its settings and its tensors; and writing one of single-precision tensors.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::atomic::replace_with;
use super::gguf::{ALIGNMENT, GgufValue, MAGIC, unusable};
use super::host_tensor::HostTensor;
use super::weight_store::WeightStore;
use crate::error::Error;

/// Version that is written.
const VERSION: u32 = 3;
/// Number of the element type.
const F32: u32 = 0;

/// An open GGUF file whose header has been checked.
#[derive(Debug)]
pub struct GgufFile {
    tensors: WeightStore,
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
        let (tensors, settings) = WeightStore::open_gguf(path.as_ref())?;
        Ok(Self { tensors, settings })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.tensors.path()
    }

    /// The tensors; a quantised one is dequantised to single precision.
    pub fn tensors(&self) -> &WeightStore {
        &self.tensors
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

/// A setting to write.
#[derive(Debug, Clone, PartialEq)]
pub enum GgufField {
    /// A text.
    Text(String),
    /// A whole number of 32 bits.
    Count(u32),
    /// A number of single precision.
    Float(f32),
}

/// Writes a GGUF file atomically; the bytes depend on the arguments alone. Tensors are written in single precision,
/// in the order of their names, settings in the order given.
pub fn write_gguf(
    path: impl AsRef<Path>,
    settings: &[(&str, GgufField)],
    tensors: &BTreeMap<String, HostTensor>,
) -> Result<(), Error> {
    let path = path.as_ref();
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((settings.len() as u64).to_le_bytes());
    for (key, field) in settings {
        push_text(&mut head, key);
        match field {
            GgufField::Text(text) => {
                head.extend(8_u32.to_le_bytes());
                push_text(&mut head, text);
            }
            GgufField::Count(value) => head.extend([4, *value].map(u32::to_le_bytes).concat()),
            GgufField::Float(value) => {
                head.extend([6, value.to_bits()].map(u32::to_le_bytes).concat());
            }
        }
    }
    let mut data = Vec::new();
    let mut offset = 0;
    for (name, tensor) in tensors {
        let floats = tensor
            .to_f32()
            .map_err(|error| Error::file(path, format!("cannot hold tensor `{name}`: {error}")))?;
        push_text(&mut head, name);
        head.extend((tensor.shape().len() as u32).to_le_bytes());
        tensor.shape().iter().rev().for_each(|&n| head.extend((n as u64).to_le_bytes()));
        head.extend(F32.to_le_bytes());
        head.extend((offset as u64).to_le_bytes());
        let mut bytes: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
        offset += bytes.len();
        data.push(bytes);
    }
    head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
    replace_with(path, |out| {
        out.write_all(&head)?;
        data.iter().try_for_each(|bytes| out.write_all(bytes))
    })
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}
