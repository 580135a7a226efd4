//! Writing a GGUF file of single-precision tensors.

use std::collections::BTreeMap;
use std::io::{self, Write};
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
    let mut values = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let floats = tensor
            .to_f32()
            .map_err(|error| Error::file(path, format!("cannot hold tensor `{name}`: {error}")))?;
        values.push(floats);
    }
    replace_with(path, |out| {
        let mut out = Counted { out, at: 0 };
        out.write_all(&MAGIC)?;
        out.u32(VERSION)?;
        out.u64(tensors.len() as u64)?;
        out.u64(settings.len() as u64)?;
        for (key, field) in settings {
            out.text(key)?;
            match field {
                GgufField::Text(text) => {
                    out.u32(8)?;
                    out.text(text)?;
                }
                GgufField::Count(value) => {
                    out.u32(4)?;
                    out.u32(*value)?;
                }
                GgufField::Float(value) => {
                    out.u32(6)?;
                    out.write_all(&value.to_le_bytes())?;
                }
            }
        }
        let mut offset = 0;
        for ((name, tensor), floats) in tensors.iter().zip(&values) {
            out.text(name)?;
            out.u32(tensor.shape().len() as u32)?;
            tensor.shape().iter().rev().try_for_each(|&n| out.u64(n as u64))?;
            out.u32(F32)?;
            out.u64(offset)?;
            offset += (floats.len() as u64 * 4).next_multiple_of(ALIGNMENT);
        }
        out.align()?;
        for floats in &values {
            floats.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
            out.align()?;
        }
        Ok(())
    })
}

/// A writer that knows where it is.
struct Counted<W> {
    out: W,
    at: u64,
}

impl<W: Write> Counted<W> {
    fn u32(&mut self, value: u32) -> io::Result<()> {
        self.write_all(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> io::Result<()> {
        self.write_all(&value.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.u64(text.len() as u64)?;
        self.write_all(text.as_bytes())
    }

    fn align(&mut self) -> io::Result<()> {
        let missing = self.at.next_multiple_of(ALIGNMENT) - self.at;
        self.write_all(&[0; ALIGNMENT as usize][..missing as usize])
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
