//! Texts from files, for terminals and Markdown.

use std::borrow::Cow;

/// `text` with control characters and text-direction overrides escaped, as `\u{1b}`: data, model and file names may hold sequences
/// that a terminal executes. Line breaks and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.escape_unicode().to_string())
}

/// As [`printable`], in the escapes of JSON. Outside of its strings, a document has no such characters.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escaped(json, |c| format!("\\u{:04x}", u32::from(c)))
}

/// `name` as code in a line of Markdown, which it cannot end: as [`printable`], line breaks and tabs as spaces, backticks as
/// apostrophes.
pub fn code(name: &str) -> String {
    format!("`{}`", printable(name).replace(['\n', '\t'], " ").replace('`', "'"))
}

/// `text` as a cell of a Markdown table, which it cannot end.
pub fn cell(text: &str) -> String {
    printable(text).replace('|', "\\|").replace('\n', " ")
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    let hidden = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) { out.push_str(&escape(c)) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\tb\nc é"), "a\tb\nc é");
        let hostile = "\u{1b}[2J\r\u{9b}x\u{202e}\u{7f}";
        assert_eq!(printable(hostile), "\\u{1b}[2J\\u{d}\\u{9b}x\\u{202e}\\u{7f}");
        let json = serde_json::to_string_pretty(&[hostile]).unwrap();
        let shown = printable_json(&json);
        assert!(!shown.contains(['\u{9b}', '\u{202e}', '\u{7f}']), "{shown}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [hostile]);
    }

    #[test]
    fn a_name_does_not_end_its_place_in_markdown() {
        assert_eq!(code("a.b-c_d"), "`a.b-c_d`");
        assert_eq!(code("a`<b>\r\n\n# c"), "`a'<b>\\u{d}  # c`");
        assert_eq!(cell("a|b\n| c\u{1b}"), "a\\|b \\| c\\u{1b}");
    }
}
