//! Whole text and JSON files, strict JSON, and hashes, with errors that name the file.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::rc::Rc;

use anyhow::{anyhow, ensure};
use lrvd_burn::files::{
    VOCABULARY_LIMIT, check_link, read_text_limited, replace_with, write_atomic,
};
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tracing::{debug, trace};

use crate::error::{Error, Result};

/// Names what failed with the operating system's error: `read`, `write`, `create`, `rename` of `path`.
pub(crate) fn cannot<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::new(source).context(format!("cannot {action} `{}`", path.display()))
}

/// Doubles from here on do not tell neighbouring integers apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A number that is not a whole number of 64 bits.
fn double(value: &Value) -> Option<f64> {
    value.as_f64().filter(|_| value.is_f64())
}

/// Kind of a JSON value, in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) if double(value).is_some_and(|number| number.abs() >= EXACT) => {
            "a number with more digits than a double holds (write it as a string)"
        }
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Text, number or truth value as a text file has it; a float that is whole is written as an integer.
///
/// `None` from 2^53 on, where different integers are the same double.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match (value, double(value)) {
        (Value::String(text), _) => Some(text.clone()),
        (Value::Null | Value::Array(_) | Value::Object(_), _) => None,
        (_, Some(number)) if number.abs() >= EXACT => None,
        // What was stored with 32 bits has the digits of 32 bits.
        (_, Some(number)) if f64::from(number as f32) == number => {
            Some((number as f32).to_string())
        }
        (_, Some(number)) => Some(number.to_string()),
        (value, None) => Some(value.to_string()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonLayout {
    Compact,
    Pretty,
}

/// The value in a file of at most 256 MiB.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = read_text_limited(path, VOCABULARY_LIMIT).map_err(cannot("read", path))?;
    parse_json(path, &text)
}

pub(crate) fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(cannot("read", path))
}

pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|source| anyhow!("`{}`: {source}", path.display()))
}

/// A JSON value in which no object has a key twice: of two values under one key none is dropped.
pub struct Unique(pub Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        macro_rules! plain {
            ($($visit:ident: $of:ty),*) => {
                $(fn $visit<E>(self, value: $of) -> Result<Unique, E> {
                    Ok(Unique(value.into()))
                })*
            };
        }

        impl<'de> Visitor<'de> for Any {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            plain!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
            plain!(visit_str: &str, visit_string: String);

            fn visit_unit<E>(self) -> Result<Unique, E> {
                Ok(Unique(Value::Null))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
                let mut all = Vec::new();
                while let Some(Unique(item)) = items.next_element()? {
                    all.push(item);
                }
                Ok(Unique(all.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Unique, A::Error> {
                let mut all = Map::new();
                while let Some(key) = fields.next_key::<String>()? {
                    if all.contains_key(&key) {
                        return Err(A::Error::custom(format!("the key `{key}` is there twice")));
                    }
                    let Unique(value) = fields.next_value()?;
                    all.insert(key, value);
                }
                Ok(Unique(all.into()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// Fault of a JSON document, with the keys that lead to it.
type JsonError = serde_path_to_error::Error<serde_json::Error>;

/// Reads a JSON document to its end.
pub fn whole_json<'de, T: Deserialize<'de>>(
    mut json: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
) -> Result<T, JsonError> {
    let value = serde_path_to_error::deserialize(&mut json)?;
    let nowhere = || serde_path_to_error::Track::new().path();
    json.end().map_err(|error| JsonError::new(nowhere(), error)).map(|()| value)
}

/// The error of a JSON document at `place`.
pub(crate) fn not_json(place: impl fmt::Display, error: &JsonError) -> Error {
    let path = error.path();
    let source = error.inner();
    // The line of a document of one line is that of the place.
    let reason = source.to_string().replace(" at line 1 column ", " at column ");
    match path.iter().next() {
        _ if !source.is_data() => anyhow!("{place}: not JSON: {reason}"),
        Some(_) => anyhow!("{place}, key `{path}`: {reason}"),
        None => anyhow!("{place}: {reason}"),
    }
}

/// Reads a JSON file in which no object has a key twice.
pub fn read_unique(path: &Path) -> Result<Value> {
    let text = read_text(path)?;
    let read = whole_json(serde_json::Deserializer::from_str(&text));
    read.map(|Unique(value)| value)
        .map_err(|error| not_json(format!("`{}`", path.display()), &error))
}

/// Reads a JSON file whose `schema_version` must be `expected`.
pub(crate) fn read_versioned<T: DeserializeOwned>(path: &Path, expected: u32) -> Result<T> {
    parse_versioned(path, &read_text(path)?, expected)
}

/// Parses JSON in the file `path`, whose `schema_version` must be `expected`: the version is looked at first, because of
/// another version nothing else can be relied on.
pub(crate) fn parse_versioned<T: DeserializeOwned>(
    path: &Path,
    text: &str,
    expected: u32,
) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let Version { schema_version: found } = parse_json(path, text)?;
    ensure!(
        found == expected,
        "`{}` has schema version {found}, expected {expected}",
        path.display()
    );
    parse_json(path, text)
}

pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    read_text(path)?.lines().map(|line| parse_json(path, line)).collect()
}

/// Writes `value` to `path`, whole or not at all.
pub(crate) fn write_json(path: &Path, value: &impl Serialize, layout: JsonLayout) -> Result<()> {
    let text = match layout {
        JsonLayout::Compact => serde_json::to_string(value),
        JsonLayout::Pretty => serde_json::to_string_pretty(value),
    };
    let text = text.map_err(|source| anyhow!("`{}`: {source}", path.display()))?;
    write_text(path, &text)
}

/// Writes a text file atomically. A link at `path` is replaced, never followed.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<()> {
    write_atomic(path, text.as_bytes())?;
    trace!(file = %path.display(), bytes = text.len(), "wrote");
    Ok(())
}

/// Writes `values` to `path` as compact JSON, one on each line, whole or not at all.
pub(crate) fn write_json_lines<T: Serialize>(
    path: &Path,
    values: impl IntoIterator<Item = T>,
) -> Result<()> {
    replace_with(path, |out| {
        values.into_iter().try_for_each(|value| {
            serde_json::to_writer(&mut *out, &value)?;
            out.write_all(b"\n")
        })
    })?;
    Ok(())
}

pub(crate) fn create_dir(path: &Path) -> Result<()> {
    let made = std::fs::create_dir_all(path);
    if made.is_err() {
        check_link(path)?;
    }
    made.map_err(cannot("create", path))
}

/// SHA-256 of a file in lower-case hex.
pub(crate) fn sha256_file(path: &Path) -> Result<String> {
    let file = File::open(path).map_err(cannot("read", path))?;
    let (_, sha256) = Digest::of(file).map_err(cannot("read", path))?.finish();
    debug!(file = %path.display(), "hashed");
    Ok(sha256)
}

/// The hash of the bytes that were read so far through a [`Hashing`], and their number.
pub(crate) struct Digest(Rc<RefCell<(Sha256, u64)>>);

/// A file whose bytes are hashed while they are read.
pub(crate) struct Hashing {
    file: File,
    state: Rc<RefCell<(Sha256, u64)>>,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        let (hasher, bytes) = &mut *self.state.borrow_mut();
        hasher.update(&buffer[..length]);
        *bytes += length as u64;
        Ok(length)
    }
}

impl Digest {
    pub(crate) fn reading(file: File) -> (Self, Hashing) {
        let state = Rc::default();
        (Self(Rc::clone(&state)), Hashing { file, state })
    }

    /// Of all bytes from the file's position on.
    pub(crate) fn of(file: File) -> io::Result<Self> {
        let (digest, mut reader) = Self::reading(file);
        io::copy(&mut reader, &mut io::sink())?;
        Ok(digest)
    }

    /// Number of bytes, and their SHA-256 in lower-case hex.
    pub(crate) fn finish(self) -> (u64, String) {
        let (hasher, bytes) = &*self.0.borrow();
        (*bytes, hex(&hasher.clone().finalize()))
    }
}

pub(crate) fn sha256_text(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// `bytes` in lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
