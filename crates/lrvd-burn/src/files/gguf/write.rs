//! Writing a GGUF file of single-precision tensors.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::header::{ALIGNMENT, MAGIC};
use crate::error::Error;
use crate::files::HostTensor;
use crate::files::atomic::replace_with;

/// Version that is written.
const VERSION: u32 = 3;
/// Number of the element type.
const F32: u32 = 0;

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
