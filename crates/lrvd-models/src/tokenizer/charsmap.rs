//! Check of a SentencePiece replacement table.
//!
//! `precompiled_charsmap` is a double-array trie over bytes followed by the replacement texts:
//!
//! ```text
//! u32 trie_bytes | trie_bytes / 4 units of u32 | replacements, each ended by a zero byte
//! ```
//!
//! The library that looks up in it indexes without checks: a malformed table would panic in the middle of a text.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::error::{Error, Result};

/// Key of the table in both kinds of file.
const KEY: &str = "precompiled_charsmap";

/// Unit of a double-array trie (the layout of the Darts-clone library).
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// Bit 31 marks a value; bytes match no such unit.
    fn is_value(self) -> bool {
        self.0 >> 31 == 1
    }

    /// `true` if the next unit is a value.
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// Exclusive-or distance to the units of the next byte; bit 9 scales it by 256.
    fn offset(self) -> usize {
        ((self.0 >> 10) as usize) << ((self.0 & 1 << 9) >> 6)
    }

    /// Start of the replacement, for a value unit.
    fn value(self) -> usize {
        (self.0 & ((1 << 31) - 1)) as usize
    }
}

/// Checks that no lookup can leave the table in `base64`. Returns the length of its longest text in bytes.
pub(super) fn check(base64: &str, file: &Path) -> Result<usize> {
    let table = BASE64_STANDARD.decode(base64);
    let table = table.map_err(|error| Error::format(file, KEY, "base64", error))?;
    let (header, rest) = table.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    let declared = u32::from_le_bytes(*header) as usize;
    if declared == 0 || !declared.is_multiple_of(4) || declared > rest.len() {
        let expected = format!("a trie of a positive multiple of 4 up to {} bytes", rest.len());
        return Err(Error::format(file, KEY, expected, format_args!("{declared} bytes")));
    }
    let (trie, texts) = rest.split_at(declared);
    let texts = std::str::from_utf8(texts)
        .map_err(|error| Error::format(file, KEY, "a table of UTF-8 texts", error))?;
    let (words, _) = trie.as_chunks::<4>();
    let units: Vec<Unit> = words.iter().map(|word| Unit(u32::from_le_bytes(*word))).collect();
    for (place, unit) in units.iter().enumerate().filter(|(_, unit)| !unit.is_value()) {
        // A lookup reads `next` exclusive-or any byte: the whole block of 256 units.
        let next = place ^ unit.offset();
        if next | 0xff >= units.len() {
            let expected = format!("a trie of states below {}", units.len());
            return Err(Error::format(file, KEY, expected, format_args!("state {next}")));
        }
        let value = units[next].value();
        if unit.has_leaf() && !texts.is_char_boundary(value) {
            let expected = format!("a start of a text within {} bytes", texts.len());
            let found = format!("byte {value} in trie unit {next}");
            return Err(Error::format(file, KEY, expected, found));
        }
    }
    Ok(texts.split('\0').map(str::len).max().unwrap_or(0))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A table of one trie block that replaces byte `a` by the text at `value`.
    pub(in super::super) fn table(value: u32, texts: &str) -> Vec<u8> {
        let mut units = [0u32; 512];
        // Root at 0 leads to state 256; `a` sits at 256 ^ 'a', has a leaf, and leads to state 1.
        units[0] = 256 << 10;
        let position = 256 ^ usize::from(b'a');
        units[position] = ((position ^ 1) as u32) << 10 | 1 << 8 | u32::from(b'a');
        units[1] = 1 << 31 | value;
        let mut bytes = 2048u32.to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(texts.as_bytes());
        bytes
    }

    fn checked(table: &[u8]) -> Result<usize> {
        check(&BASE64_STANDARD.encode(table), "spm.model".as_ref())
    }

    #[test]
    fn a_sound_table_passes_and_is_read_as_the_library_reads_it() {
        let bytes = table(2, "b\0cd\0");
        assert_eq!(checked(&bytes).unwrap(), 2);
        let library = tokenizers::normalizers::Precompiled::from(&bytes).unwrap();
        assert_eq!(library.normalize_string("xax"), "xcdx");
    }

    #[test]
    fn unsound_tables_are_errors() {
        let mut far = table(0, "b\0");
        far[4..8].copy_from_slice(&(600u32 << 10).to_le_bytes());
        let not_text = [table(0, "b\0"), vec![0xff]].concat();
        for (table, text) in [
            (vec![1, 2], "up to 0 bytes, found 0 bytes"),
            (vec![8, 0, 0, 0, 1], "up to 1 bytes, found 8 bytes"),
            (table(9, "b\0cd\0"), "within 5 bytes, found byte 9 in trie unit 1"),
            // Inside a character.
            (table(1, "é\0"), "within 3 bytes, found byte 1 in trie unit 1"),
            (far, "states below 512, found state 600"),
            (not_text, "UTF-8"),
        ] {
            let error = checked(&table).unwrap_err().to_string();
            assert!(error.starts_with("`spm.model`: `precompiled_charsmap` should"), "{error}");
            assert!(error.contains(text), "{error}");
        }
    }
}
