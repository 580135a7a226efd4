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

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _, alphabet, engine::DecodePaddingMode};

/// A replacement table cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CharsMapError {
    /// The text form is not base64.
    #[error("the table is not base64")]
    Base64(#[from] DecodeError),
    /// The declared size of the trie does not fit the table.
    #[error(
        "the trie is said to take {declared} bytes of the {available} that are there, wanted a positive multiple of 4"
    )]
    TrieSize {
        /// Size in the header.
        declared: usize,
        /// Bytes after the header.
        available: usize,
    },
    /// The replacements are not UTF-8.
    #[error("the replacement texts are not valid UTF-8")]
    Utf8,
    /// A state has transitions outside the trie.
    #[error("trie state {state} reaches beyond the {units} units of the trie")]
    State {
        /// Position of the state.
        state: usize,
        /// Units in the trie.
        units: usize,
    },
    /// A match points at no replacement.
    #[error("trie unit {unit} points at byte {found} of {length} bytes of replacement texts")]
    Replacement {
        /// Position of the unit.
        unit: usize,
        /// Where it points.
        found: usize,
        /// Bytes of the replacement texts.
        length: usize,
    },
}

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
///
/// # Errors
///
/// [`CharsMapError`] if the table is cut short, is not UTF-8, or has a reachable state or value out of bounds.
pub(super) fn check(table: &[u8]) -> Result<f64, CharsMapError> {
    let size_error = |declared, available| CharsMapError::TrieSize { declared, available };
    let (header, rest) = table.split_first_chunk::<4>().ok_or(size_error(0, 0))?;
    let declared = u32::from_le_bytes(*header) as usize;
    if declared == 0 || !declared.is_multiple_of(4) || declared > rest.len() {
        return Err(size_error(declared, rest.len()));
    }
    let (trie, texts) = rest.split_at(declared);
    let texts = std::str::from_utf8(texts).map_err(|_| CharsMapError::Utf8)?;
    let units: Vec<Unit> = trie
        .chunks_exact(4)
        .map(|word| Unit(u32::from_le_bytes(word.try_into().expect("chunks of 4 bytes"))))
        .collect();
    walk(&units, texts)
}

/// Visits every state once, however the units are linked, by the fewest bytes that lead to it.
fn walk(units: &[Unit], texts: &str) -> Result<f64, CharsMapError> {
    let mut seen = vec![false; units.len()];
    let mut open = VecDeque::from([(units[0].offset(), 1_usize)]);
    // A byte that nothing replaces stays.
    let mut growth = 1.0_f64;
    while let Some((state, bytes)) = open.pop_front() {
        // A lookup reads `state ^ byte` for any byte: the whole block of 256 units around the state.
        if state | 0xff >= units.len() {
            return Err(CharsMapError::State { state, units: units.len() });
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
                let value = units.get(next).map(|leaf| leaf.value());
                let value =
                    value.ok_or(CharsMapError::State { state: next, units: units.len() })?;
                if !texts.is_char_boundary(value) {
                    let length = texts.len();
                    return Err(CharsMapError::Replacement { unit: next, found: value, length });
                }
                let text = texts[value..].split('\0').next().unwrap_or_default();
                growth = growth.max(text.len() as f64 / bytes as f64);
            }
        }
    }
    Ok(growth)
}

/// Decodes standard base64 with or without `=` at the end, as `tokenizer.json` stores the table.
pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, CharsMapError> {
    let config = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    Ok(GeneralPurpose::new(&alphabet::STANDARD, config).decode(text)?)
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

    #[test]
    fn a_sound_table_passes_and_is_read_as_the_library_reads_it() {
        let bytes = table(2, "b\0cd\0");
        assert_eq!(check(&bytes).unwrap(), 2.0);
        let library = tokenizers::normalizers::Precompiled::from(&bytes).unwrap();
        assert_eq!(library.normalize_string("xax"), "xcdx");
    }

    #[test]
    fn unsound_tables_are_refused() {
        assert_eq!(
            check(&[1, 2]).unwrap_err(),
            CharsMapError::TrieSize { declared: 0, available: 0 }
        );
        assert_eq!(
            check(&[8, 0, 0, 0, 1]).unwrap_err(),
            CharsMapError::TrieSize { declared: 8, available: 1 }
        );
        let beyond = check(&table(9, "b\0cd\0")).unwrap_err();
        assert_eq!(beyond, CharsMapError::Replacement { unit: 1, found: 9, length: 5 });
        let inside_a_character = check(&table(1, "é\0")).unwrap_err();
        assert!(matches!(inside_a_character, CharsMapError::Replacement { found: 1, .. }));
        let mut far = table(0, "b\0");
        far[4..8].copy_from_slice(&(600u32 << 10).to_le_bytes());
        assert_eq!(check(&far).unwrap_err(), CharsMapError::State { state: 600, units: 512 });
        let mut not_text = table(0, "b\0");
        not_text.push(0xff);
        assert_eq!(check(&not_text).unwrap_err(), CharsMapError::Utf8);
    }

    #[test]
    fn base64_matches_known_vectors() {
        // RFC 4648, section 10.
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(decode_base64(text).unwrap(), bytes.as_bytes());
        }
        let wrong = DecodeError::InvalidByte(3, b'*');
        assert_eq!(decode_base64("Zm9*").unwrap_err(), CharsMapError::Base64(wrong));
    }
}
