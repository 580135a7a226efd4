//! How much longer a tokenizer can make a text before it cuts it into tokens.
//!
//! Steps of `normalizer` and `pre_tokenizer` may replace a character by a longer text, one step after the other: forty
//! that each double a letter would fill any memory. The bound here is the product of what one byte can become.

use std::path::Path;

use serde_json::Value;

use super::charsmap;
use crate::error::{Error, Result};

/// Steps of a tokenizer.
const STEPS: usize = 64;
/// Times that a text may become longer.
const FACTOR: f64 = 10_000.0;
/// Bytes that may be put in front of a text.
const ADDED: f64 = 65_536.0;
/// Bytes that a text may become.
const BYTES: f64 = (256 << 20) as f64;

/// A text of `n` bytes has at most `factor · n + added` bytes after some steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Growth {
    factor: f64,
    added: f64,
    steps: usize,
}

impl Growth {
    const NONE: Self = Self { factor: 1.0, added: 0.0, steps: 0 };

    /// That of the steps in a `tokenizer.json`'s form.
    pub(super) fn of(file: &Path, normalizer: &Value, pre_tokenizer: &Value) -> Result<Self> {
        let growth = then(file, then(file, Self::NONE, normalizer)?, pre_tokenizer)?;
        let Self { factor, added, steps } = growth;
        if factor <= FACTOR && added <= ADDED && steps <= STEPS {
            return Ok(growth);
        }
        let found = format!(
            "{steps} steps that make a text up to {factor:.0} times as long and add up to {added:.0} bytes"
        );
        Err(Error::unsupported(file, "normalizer", found, "64 steps, 10000 times, 65536 bytes"))
    }

    /// Checks that `text` stays short enough.
    pub(super) fn check(&self, file: &Path, text: &str) -> Result<()> {
        let most = (BYTES - self.added) / self.factor;
        if text.len() as f64 <= most {
            return Ok(());
        }
        let (bytes, most) = (text.len(), most as usize);
        Err(Error::tokenizer(file, format!("reads at most {most} bytes, a text has {bytes}")))
    }
}

/// `before`, followed by the steps of `part`.
fn then(file: &Path, before: Growth, part: &Value) -> Result<Growth> {
    let mut growth = before;
    for list in ["normalizers", "pretokenizers"] {
        for step in part[list].as_array().into_iter().flatten() {
            growth = then(file, growth, step)?;
        }
    }
    let length = |key: &str| part[key].as_str().map_or(0.0, |text| text.len() as f64);
    let (factor, added) = match part["type"].as_str().unwrap_or_default() {
        _ if part["content"].is_string() => replace(&part["pattern"], length("content")),
        _ if part["prepend"].is_string() => (1.0, length("prepend")),
        _ if part["replacement"].is_string() => {
            (length("replacement").max(1.0), length("replacement"))
        }
        _ if part["precompiled_charsmap"].is_string() => {
            let table = part["precompiled_charsmap"].as_str().unwrap_or_default();
            (charsmap::check(&charsmap::decode_base64(table, file)?, file)?, 0.0)
        }
        // The largest factors of Unicode's normal forms in UTF-8.
        "NFKC" | "NFKD" => (11.0, 0.0),
        "NFC" | "NFD" => (3.0, 0.0),
        "Lowercase" => (2.0, 0.0),
        "ByteLevel" => (2.0, 1.0),
        // Spaces around Chinese characters, NFD, lower case.
        "BertNormalizer" => (10.0, 0.0),
        _ => (1.0, 0.0),
    };
    Ok(Growth {
        factor: growth.factor * factor,
        added: growth.added * factor + added,
        steps: growth.steps + usize::from(part.is_object()),
    })
}

/// The growth by replacing a pattern by `content` bytes. A regular expression may match a byte, or nothing before it.
fn replace(pattern: &Value, content: f64) -> (f64, f64) {
    match pattern["String"].as_str().filter(|text| !text.is_empty()) {
        Some(text) => ((content / text.len() as f64).max(1.0), 0.0),
        None => (1.0 + content, content),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn growth(steps: &[Value]) -> Result<Growth> {
        let sequence = json!({"type": "Sequence", "normalizers": steps});
        Growth::of(Path::new("tokenizer.json"), &sequence, &Value::Null)
    }

    fn double() -> Value {
        json!({"type": "Replace", "pattern": {"String": "H"}, "content": "HH"})
    }

    #[test]
    fn factors_multiply() {
        let pattern = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"});
        let prepend = json!({"type": "Prepend", "prepend": "▁"});
        let found = growth(&[double(), prepend, double(), pattern]).unwrap();
        // By hand: 1 -> 2n -> 2n + 3 -> 4n + 6 -> four times that and three more.
        assert_eq!((found.factor, found.added, found.steps), (16.0, 27.0, 5));
    }

    #[test]
    fn steps_that_grow_without_end_are_errors() {
        let huge = json!({"type": "Prepend", "prepend": "x".repeat(1 << 20)});
        let trim = json!({"type": "Strip", "strip_left": true, "strip_right": true});
        let decompose = json!({"type": "NFKD"});
        for steps in [vec![double(); 40], vec![huge; 50], vec![trim; 1000], vec![decompose; 5]] {
            let text = growth(&steps).unwrap_err().to_string();
            assert!(text.contains("`tokenizer.json`: `normalizer` is"), "{text}");
        }
        let bytes =
            json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "ByteLevel"}); 40]});
        assert!(Growth::of(Path::new("x"), &Value::Null, &bytes).is_err());
    }

    #[test]
    fn texts_have_a_longest_length() {
        let found = growth(&vec![double(); 13]).unwrap();
        // 256 MiB over 8192.
        let (file, long) = (Path::new("x"), "a".repeat(32_769));
        found.check(file, &long[1..]).unwrap();
        let error = found.check(file, &long).unwrap_err().to_string();
        assert_eq!(error, "tokenizer `x` reads at most 32768 bytes, a text has 32769");
    }
}
