//! Settings and the list of tensors.
//!
//! ```text
//! "GGUF"  version u32  tensors u64  settings u64
//! setting: key, type u32, value           text: length u64, UTF-8           list: type u32, length u64, values
//! tensor: name, axes u32, lengths u64 (innermost first), type u32, offset u64 from the start of the data
//! data: behind the next multiple of `general.alignment`
//! ```

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Read};
use std::path::Path;

use super::blocks::GgufType;
use crate::error::Error;

/// The first four bytes.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// The alignment where none is stated.
pub(crate) const ALIGNMENT: u64 = 32;
/// Key of the alignment.
const ALIGNMENT_KEY: &str = "general.alignment";
/// Values of a list: no vocabulary has as many.
const MOST_VALUES: u64 = 1 << 24;
/// Bytes of a text.
const MOST_BYTES: u64 = 1 << 28;
/// Most axes of a tensor.
const MOST_AXES: u32 = 4;

/// A setting. Integers and floats keep only their kind, not their width.
#[derive(Debug)]
pub(crate) enum GgufValue {
    Integer(i128),
    /// One of single precision is the decimal number that it was written for: an epsilon of 1e-5 is read as 1e-5.
    Float(f64),
    Bool(bool),
    Text(String),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    Texts(Vec<String>),
    /// A list as no setting that is used here has one: its count, and what its values are.
    Skipped(u64, &'static str),
}

impl GgufValue {
    /// A few words for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Integer(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Bool(value) => value.to_string(),
            Self::Text(text) if text.chars().count() > 40 => {
                format!("`{}…`", text.chars().take(40).collect::<String>())
            }
            Self::Text(text) => format!("`{text}`"),
            Self::Integers(list) => format!("a list of {} whole numbers", list.len()),
            Self::Floats(list) => format!("a list of {} numbers", list.len()),
            Self::Texts(list) => format!("a list of {} texts", list.len()),
            Self::Skipped(count, what) => format!("a list of {count} {what}"),
        }
    }
}

type Settings = BTreeMap<String, GgufValue>;
/// Type, shape with the outermost axis first, first byte and number of bytes.
pub(crate) type Entry = (&'static GgufType, Vec<usize>, u64, usize);
type Tensors = BTreeMap<String, Entry>;

/// The settings and the tensors of a file of `length` bytes.
pub(crate) fn read_header(
    input: impl Read,
    path: &Path,
    length: u64,
) -> Result<(Settings, Tensors), Error> {
    Source { input, path, length, at: 0 }.header()
}

/// The error of the file at `path`.
pub(crate) fn unusable(path: &Path, what: impl Display) -> Error {
    Error::file(path, format!("is not a usable GGUF file: {what}"))
}

/// A file with its length and position.
struct Source<'a, R> {
    input: R,
    path: &'a Path,
    length: u64,
    at: u64,
}

impl<R: Read> Source<'_, R> {
    fn unusable<T>(&self, what: impl Display) -> Result<T, Error> {
        Err(unusable(self.path, what))
    }

    fn unsupported<T>(&self, what: String) -> Result<T, Error> {
        Err(Error::Unsupported { path: self.path.to_path_buf(), what })
    }

    fn header(&mut self) -> Result<(Settings, Tensors), Error> {
        let found = self.read(|bytes: [u8; 4]| bytes, &"the magic number")?;
        if found != MAGIC {
            return self.unusable(format_args!("it starts with {found:?}, expected `GGUF`"));
        }
        let version = self.read(u32::from_le_bytes, &"the version")?;
        if !(2..=3).contains(&version) {
            return self.unsupported(format!(
                "is a GGUF file of version {version}, supported: 2 and 3, little-endian"
            ));
        }
        let n_tensors = self.read(u64::from_le_bytes, &"the number of tensors")?;
        let n_settings = self.read(u64::from_le_bytes, &"the number of settings")?;
        // Each takes at least its length, its type and one byte.
        self.fits(n_settings, 13, &format_args!("a list of {n_settings} settings"))?;
        let mut settings = BTreeMap::new();
        for i in 0..n_settings {
            let key = self.text(&format_args!("the key of setting {i}"))?;
            let kind = self.read(u32::from_le_bytes, &format_args!("the type of `{key}`"))?;
            let value = self.value(&key, kind)?;
            if settings.insert(key.clone(), value).is_some() {
                return self.unusable(format_args!("`{key}` is there twice"));
            }
        }
        let alignment = match settings.get(ALIGNMENT_KEY) {
            None => ALIGNMENT,
            Some(GgufValue::Integer(value)) => u64::try_from(*value).unwrap_or(0),
            Some(other) => {
                let found = other.describe();
                return self.unusable(format_args!(
                    "`{ALIGNMENT_KEY}` should be a whole number, found {found}"
                ));
            }
        };
        if !alignment.is_power_of_two() {
            return self.unusable(format_args!(
                "`{ALIGNMENT_KEY}` is {alignment}, expected a power of two"
            ));
        }
        self.fits(n_tensors, 32, &format_args!("a list of {n_tensors} tensors"))?;
        let mut tensors = BTreeMap::new();
        for i in 0..n_tensors {
            let name = self.text(&format_args!("the name of tensor {i}"))?;
            let entry = self.entry(&name, alignment)?;
            if tensors.insert(name.clone(), entry).is_some() {
                return self.unusable(format_args!("tensor `{name}` is there twice"));
            }
        }
        let data_start = self.at.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        self.place(data_start, &mut tensors)?;
        Ok((settings, tensors))
    }

    fn entry(&mut self, name: &str, alignment: u64) -> Result<Entry, Error> {
        let what = format!("the description of tensor `{name}`");
        let axes = self.read(u32::from_le_bytes, &what)?;
        if !(1..=MOST_AXES).contains(&axes) {
            return self.unusable(format_args!(
                "tensor `{name}` has {axes} axes, expected 1 to {MOST_AXES}"
            ));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            shape
                .push(usize::try_from(self.read(u64::from_le_bytes, &what)?).unwrap_or(usize::MAX));
        }
        shape.reverse();
        let number = self.read(u32::from_le_bytes, &what)?;
        let offset = self.read(u64::from_le_bytes, &what)?;
        let Some(kind) = GgufType::from_number(number) else {
            return self.unsupported(format!(
                "has the element type {number} in tensor `{name}`, supported: {}",
                GgufType::names()
            ));
        };
        let (block, size) = kind.block;
        let row = shape.last().copied().unwrap_or(0);
        let elements = shape.iter().try_fold(1_usize, |product, &n| product.checked_mul(n));
        let whole = elements.filter(|_| row.is_multiple_of(block));
        let Some(bytes) = whole.and_then(|n| (n / block).checked_mul(size)) else {
            return self.unusable(format_args!(
                "tensor `{name}` of shape {shape:?} does not consist of whole blocks of {block} elements"
            ));
        };
        if !offset.is_multiple_of(alignment) {
            return self.unusable(format_args!(
                "tensor `{name}` starts at byte {offset} of the data: not a multiple of the alignment"
            ));
        }
        Ok((kind, shape, offset, bytes))
    }

    /// Puts the tensors behind `data_start`: every one is within the file, and no two share a byte.
    fn place(&self, data_start: u64, tensors: &mut Tensors) -> Result<(), Error> {
        let mut places: Vec<_> = tensors.iter_mut().collect();
        places.sort_by_key(|(_, entry)| entry.2);
        let mut free = 0_u64;
        for (name, (_, _, start, bytes)) in places {
            let (offset, expected) = (*start, *bytes as u64);
            *start = data_start.saturating_add(offset);
            let found = self.length.saturating_sub(*start);
            if expected > found {
                return self.short(&format_args!("tensor `{name}`"), *start, expected, found);
            }
            if offset < free {
                return self.unusable(format_args!(
                    "tensor `{name}` starts at byte {offset} of the data: within the tensor before it"
                ));
            }
            free = offset + expected;
        }
        Ok(())
    }

    fn value(&mut self, key: &str, kind: u32) -> Result<GgufValue, Error> {
        let what = format!("`{key}`");
        Ok(match kind {
            6 => GgufValue::Float(decimal(self.read(f32::from_le_bytes, &what)?)),
            12 => GgufValue::Float(self.read(f64::from_le_bytes, &what)?),
            7 => GgufValue::Bool(self.read(|byte| byte != [0_u8], &what)?),
            8 => GgufValue::Text(self.text(&what)?),
            9 => {
                let kind = self.read(u32::from_le_bytes, &what)?;
                let length = self.read(u64::from_le_bytes, &what)?;
                self.list(key, kind, length)?
            }
            _ => GgufValue::Integer(self.integer(key, kind, &what)?),
        })
    }

    fn list(&mut self, key: &str, kind: u32, length: u64) -> Result<GgufValue, Error> {
        let what = format!("`{key}`, a list of {length} values,");
        let (size, skipped) = match kind {
            0 | 1 => (1, Some("whole numbers of 8 or 16 bits")),
            2 | 3 => (2, Some("whole numbers of 8 or 16 bits")),
            7 => (1, Some("truth values")),
            4..=6 => (4, None),
            8 | 10..=12 => (8, None),
            _ => return self.value_type(key, kind),
        };
        self.fits(length, size, &what)?;
        if let Some(values) = skipped {
            let failed = |source| Error::io("read", self.path, source);
            let skipped = io::copy(&mut (&mut self.input).take(length * size), &mut io::sink());
            self.at += skipped.map_err(failed)?;
            return Ok(GgufValue::Skipped(length, values));
        }
        if length > MOST_VALUES {
            return self.unusable(format_args!(
                "the list `{key}` has a length of {length}, at most {MOST_VALUES} is read"
            ));
        }
        Ok(match kind {
            6 => GgufValue::Floats(many(length, |_| self.read(f32::from_le_bytes, &what))?),
            12 => GgufValue::Floats(many(length, |_| {
                Ok(self.read(f64::from_le_bytes, &what)? as f32)
            })?),
            8 => {
                GgufValue::Texts(many(length, |i| self.text(&format_args!("text {i} of `{key}`")))?)
            }
            // Beyond 63 bits nothing is counted or named.
            _ => GgufValue::Integers(many(length, |_| {
                Ok(i64::try_from(self.integer(key, kind, &what)?).unwrap_or(i64::MAX))
            })?),
        })
    }

    fn integer(&mut self, key: &str, kind: u32, what: &dyn Display) -> Result<i128, Error> {
        Ok(match kind {
            0 => self.read(u8::from_le_bytes, what)?.into(),
            1 => self.read(i8::from_le_bytes, what)?.into(),
            2 => self.read(u16::from_le_bytes, what)?.into(),
            3 => self.read(i16::from_le_bytes, what)?.into(),
            4 => self.read(u32::from_le_bytes, what)?.into(),
            5 => self.read(i32::from_le_bytes, what)?.into(),
            10 => self.read(u64::from_le_bytes, what)?.into(),
            11 => self.read(i64::from_le_bytes, what)?.into(),
            _ => return self.value_type(key, kind),
        })
    }

    fn text(&mut self, what: &dyn Display) -> Result<String, Error> {
        let length = self.read(u64::from_le_bytes, what)?;
        self.fits(length, 1, what)?;
        if length > MOST_BYTES {
            return self.unusable(format_args!(
                "{what} has a length of {length}, at most {MOST_BYTES} is read"
            ));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes)
            .or_else(|_| self.unusable(format_args!("{what} is not valid UTF-8")))
    }

    /// A value of `N` bytes.
    fn read<const N: usize, T>(
        &mut self,
        from_bytes: impl Fn([u8; N]) -> T,
        what: &dyn Display,
    ) -> Result<T, Error> {
        let mut bytes = [0; N];
        self.fits(N as u64, 1, what)?;
        self.fill(&mut bytes)?;
        Ok(from_bytes(bytes))
    }

    /// `count` things of at least `size` bytes are left in the file.
    fn fits(&self, count: u64, size: u64, what: &dyn Display) -> Result<(), Error> {
        let expected = count.saturating_mul(size);
        let found = self.length.saturating_sub(self.at);
        if expected <= found {
            return Ok(());
        }
        self.short(what, self.at, expected, found)
    }

    fn short<T>(&self, what: &dyn Display, at: u64, expected: u64, found: u64) -> Result<T, Error> {
        self.unusable(format_args!(
            "it is cut short: {what} needs {expected} bytes at byte {at}, {found} are left"
        ))
    }

    fn value_type<T>(&self, key: &str, found: u32) -> Result<T, Error> {
        self.unusable(format_args!(
            "`{key}` has the value type {found}, which is not one of 0 to 12 or is a list of lists"
        ))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.input.read_exact(bytes).map_err(|source| Error::io("read", self.path, source))?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn many<T>(length: u64, read: impl FnMut(u64) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    (0..length).map(read).collect()
}

/// The shortest decimal number that is `value` in single precision.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}
