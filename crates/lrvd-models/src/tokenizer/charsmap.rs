//! A SentencePiece replacement table, checked to be safe to look up in.
//!
//! `precompiled_charsmap` is a double-array trie over bytes followed by the replacement texts:
//!
//! ```text
//! u32 trie_bytes | trie_bytes / 4 units of u32 | replacements, each ended by a zero byte
//! ```
//!
//! The library that looks up in it indexes without checks: a malformed table would panic in the middle of a text.
//! [`check`] walks every state that any text can reach and proves all accesses to be in bounds before the table is used.

use std::collections::VecDeque;
use std::path::Path;

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet, engine::DecodePaddingMode};

use crate::error::{Error, Result};

/// Key of the table in both kinds of file.
const KEY: &str = "precompiled_charsmap";

/// One unit of a double-array trie (the layout of the Darts-clone library).
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// Byte on the edge into this unit; bit 31 is set on value units, which therefore match no byte.
    fn label(self) -> u32 {
        self.0 & (1 << 31 | 0xff)
    }

    /// A value hangs on this unit.
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// Exclusive-or distance to the units of the next byte; bit 9 scales it by 256.
    fn offset(self) -> usize {
        ((self.0 >> 10) as usize) << ((self.0 & 1 << 9) >> 6)
    }

    /// The value, for a value unit.
    fn value(self) -> usize {
        (self.0 & ((1 << 31) - 1)) as usize
    }
}

/// Proves that no lookup in the table can leave it, and returns the most bytes that it makes of one byte of a text.
pub(super) fn check(table: &[u8], file: &Path) -> Result<f64> {
    let (header, rest) = table.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    let declared = u32::from_le_bytes(*header) as usize;
    if declared == 0 || !declared.is_multiple_of(4) || declared > rest.len() {
        let expected = format!("a trie of a positive multiple of 4 up to {} bytes", rest.len());
        return Err(Error::format(file, KEY, expected, format_args!("{declared} bytes")));
    }
    let (trie, texts) = rest.split_at(declared);
    let texts = std::str::from_utf8(texts)
        .map_err(|error| Error::format(file, KEY, "a table of UTF-8 texts", error))?;
    let units: Vec<Unit> = trie
        .chunks_exact(4)
        .map(|word| Unit(u32::from_le_bytes(word.try_into().expect("chunks of 4 bytes"))))
        .collect();
    walk(&units, texts, file)
}

/// Visits every state once, however the units are linked, by the fewest bytes that lead to it.
fn walk(units: &[Unit], texts: &str, file: &Path) -> Result<f64> {
    let outside = |state: usize| {
        let expected = format!("a trie of states below {}", units.len());
        Error::format(file, KEY, expected, format_args!("state {state}"))
    };
    let mut seen = vec![false; units.len()];
    let mut open = VecDeque::from([(units[0].offset(), 1_usize)]);
    // A byte that nothing replaces stays.
    let mut growth = 1.0_f64;
    while let Some((state, bytes)) = open.pop_front() {
        // A lookup reads `state ^ byte` for any byte: the whole block of 256 units around the state.
        if state | 0xff >= units.len() {
            return Err(outside(state));
        }
        if std::mem::replace(&mut seen[state], true) {
            continue;
        }
        for byte in 1..=0xff_u32 {
            let position = state ^ byte as usize;
            let unit = units[position];
            if unit.label() != byte {
                continue;
            }
            let next = position ^ unit.offset();
            open.push_back((next, bytes + 1));
            if unit.has_leaf() {
                let value = units.get(next).ok_or_else(|| outside(next))?.value();
                if !texts.is_char_boundary(value) {
                    let expected = format!("a start of a text within {} bytes", texts.len());
                    let found = format!("byte {value} in trie unit {next}");
                    return Err(Error::format(file, KEY, expected, found));
                }
                let text = texts[value..].split('\0').next().unwrap_or_default();
                growth = growth.max(text.len() as f64 / bytes as f64);
            }
        }
    }
    Ok(growth)
}

/// Decodes standard base64 with or without `=` at the end, as `tokenizer.json` stores the table.
pub(super) fn decode_base64(text: &str, file: &Path) -> Result<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(&alphabet::STANDARD, config).decode(text);
    decoded.map_err(|error| Error::format(file, KEY, "base64", error))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FILE: &str = "spm.model";

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

    #[test]
    fn a_sound_table_passes_and_is_read_as_the_library_reads_it() {
        let bytes = table(2, "b\0cd\0");
        assert_eq!(check(&bytes, FILE.as_ref()).unwrap(), 2.0);
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
            let error = check(&table, FILE.as_ref()).unwrap_err().to_string();
            assert!(error.starts_with("`spm.model`: `precompiled_charsmap` should"), "{error}");
            assert!(error.contains(text), "{error}");
        }
    }
}
