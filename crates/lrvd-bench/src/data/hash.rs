//! Hashes of rows, by which a row is recognised in another file.
//!
//! The first 8 bytes of the SHA-256 of the texts and the label of a row. Runs of white space count as one space; the order of
//! choices does not count, nor the columns, ids and place of the row. Among a million rows and a million others that are unlike
//! them, the expected number of equal hashes is 10¹² / 2⁶⁴ = 5·10⁻⁸.

use sha2::{Digest as _, Sha256};

use super::{Content, Input, Label};

/// Parts of a row, each with its length in front.
#[derive(Default)]
struct Parts(Sha256);

impl Parts {
    fn text(&mut self, text: &str) {
        let words = text.split_whitespace();
        let length = words.clone().map(|word| word.len() + 1).sum::<usize>();
        self.0.update((length as u64).to_le_bytes());
        for word in words {
            self.0.update(word);
            self.0.update(b" ");
        }
    }

    fn number(&mut self, number: f64) {
        self.text(&number.to_string());
    }

    fn end(self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0.finalize()[..8]);
        u64::from_le_bytes(first)
    }
}

/// Hash of a labelled row.
pub(crate) fn labelled_row(input: &Input, label: &Label) -> u64 {
    let mut parts = Parts::default();
    parts.text(&input.text);
    parts.text(input.pair.as_deref().unwrap_or_default());
    let mut choices: Vec<(&str, f64)> = match label.shares(input.choices.len()) {
        Some(shares) => input.choices.iter().map(String::as_str).zip(shares).collect(),
        None => Vec::new(),
    };
    choices.sort_by(|a, b| a.0.cmp(b.0).then(a.1.total_cmp(&b.1)));
    for &(choice, share) in &choices {
        parts.text(choice);
        parts.number(share);
    }
    if choices.is_empty() {
        match label {
            Label::Class(class) => parts.number(*class as f64),
            Label::Shares(shares) => shares.iter().for_each(|&share| parts.number(share)),
            Label::Set(labels) => labels.iter().for_each(|&label| parts.number(label as f64)),
            Label::Score(score) => parts.number(*score),
        }
    }
    parts.end()
}

/// Hash of a row of texts.
pub(crate) fn text_row(content: &Content) -> u64 {
    let mut parts = Parts::default();
    match content {
        Content::Text { prompt, completion } => {
            parts.text(prompt);
            parts.text(completion.as_deref().unwrap_or_default());
        }
        Content::Chat(messages) => {
            for message in messages {
                parts.text(message.role.name());
                parts.text(&message.content);
            }
        }
    }
    parts.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_known_by_its_texts_and_its_label() {
        let pair = |text: &str, pair: Option<&str>| Input {
            pair: pair.map(str::to_owned),
            ..Input::text(text)
        };
        let row = |input: &Input, label: &Label| labelled_row(input, label);
        let first = row(&pair("a fine film", None), &Label::Class(1));
        // The first 8 bytes, little-endian, of Python's `hashlib.sha256` of the same parts.
        assert_eq!(first, 0x1150_a202_4e8b_e533);
        assert_eq!(row(&pair("  a\tfine\r\nfilm ", None), &Label::Class(1)), first);
        for (input, label) in [
            (pair("a fine film", None), Label::Class(0)),
            (pair("a fine", Some("film")), Label::Class(1)),
            (pair("a fine films", None), Label::Class(1)),
            (pair("", Some("a fine film")), Label::Class(1)),
        ] {
            assert_ne!(row(&input, &label), first);
        }
        // Choices in another order have the same answer.
        let asked = |choices: [&str; 3]| Input {
            choices: choices.map(str::to_owned).to_vec(),
            ..Input::text("which?")
        };
        let (old, new) = (asked(["a", "b", "c"]), asked(["c", "a", "b"]));
        assert_eq!(row(&old, &Label::Class(2)), row(&new, &Label::Class(0)));
        assert_ne!(row(&old, &Label::Class(2)), row(&new, &Label::Class(2)));
        let shares = |shares: [f64; 3]| Label::Shares(shares.to_vec());
        assert_eq!(row(&old, &shares([0.5, 0.2, 0.3])), row(&new, &shares([0.3, 0.5, 0.2])));
    }
}
