//! One object a line.

use std::path::Path;

use super::record::Record;
use crate::data::{At, DataError, Place};

/// Some files start with this mark; it is no part of the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Every line as an object. A line break at the end of the file ends its last line and begins none.
pub(super) fn records(file: &Path) -> Result<Vec<Record>, DataError> {
    let bytes =
        std::fs::read(file).map_err(|source| DataError::Read { file: file.into(), source })?;
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
    let mut offset = bytes.len() - text.len();
    let mut records = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let place = Place { file: file.into(), at: At::Line(records.len() + 1) };
        let line_text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(error) => {
                let offset = offset + error.valid_up_to();
                return Err(DataError::Encoding { place, offset });
            }
        };
        match serde_json::from_str(line_text) {
            Ok(fields) => records.push(Record { place, fields }),
            Err(source) => return Err(DataError::Json { place, source: source.into() }),
        }
        offset += line.len();
    }
    if records.is_empty() {
        return Err(DataError::Empty { file: file.into() });
    }
    Ok(records)
}
