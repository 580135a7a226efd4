//! Rows of a user's data file: prompts with completions, or conversations.

use std::path::Path;

use anyhow::anyhow;
use lrvd_models::chat::{Message, Role};
use serde::Serialize;

use super::columns::LanguageColumns;
use crate::data::table::{self, Cell, Format, Layout, Place, Table};
use crate::error::Result;

#[derive(Clone, Debug, PartialEq)]
pub struct TextRow {
    pub place: Place,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Content {
    Text {
        prompt: String,
        /// What should follow; `None` where that is asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        completion: Option<String>,
    },
    Chat(Vec<Message>),
}

/// Reads a data file in the format that its name ends in: `.tsv`, `.csv`, `.jsonl` or `.parquet`; a conversation needs one
/// of the last two. Completions are read if they are `wanted`.
pub fn read_texts(file: &Path, columns: &LanguageColumns, wanted: bool) -> Result<Vec<TextRow>> {
    let names = columns.names();
    let format = Format::of(file)?;
    // A missing column is reported by its first row.
    let table = Table::open(
        file,
        &Layout {
            columns: if wanted { &names } else { &names[..1] },
            blank_lines: true,
            ..Layout::of(format)
        },
    )?;
    table.map(|row| TextRow::of(&row?, columns, wanted)).collect()
}

impl TextRow {
    fn of(row: &table::Row, columns: &LanguageColumns, wanted: bool) -> Result<Self> {
        let content = match columns {
            LanguageColumns::Texts { prompt, completion } => Content::Text {
                prompt: row.text(&[prompt])?.to_owned(),
                completion: if wanted { Some(row.text(&[completion])?.to_owned()) } else { None },
            },
            LanguageColumns::Chat { messages } => Content::Chat(conversation(row, messages)?),
        };
        Ok(Self { place: row.place().clone(), content })
    }
}

/// The messages of a row: objects of a `role` and a `content`; what else they hold is not read.
fn conversation(row: &table::Row, column: &str) -> Result<Vec<Message>> {
    let (_, cell) = row.find(&[column])?;
    let Cell::List(items) = cell else {
        return Err(row.wrong_type(column, "a list of messages", cell));
    };
    let message = |(place, item): (usize, &Cell)| {
        let path = format!("{column}[{place}]");
        let object = row.as_object(item, &path)?;
        let role = row.text_within(object, &format!("{path}.role"))?;
        let role = Role::from_name(role).map_err(|source| anyhow!("{}: {source}", row.place()))?;
        let content = row.text_within(object, &format!("{path}.content"))?.to_owned();
        Ok(Message { role, content })
    };
    items.iter().enumerate().map(message).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(name: &str, text: &str, columns: &LanguageColumns) -> Result<Vec<TextRow>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        read_texts(&file, columns, true)
            .map_err(|error| error.to_string().split_once("d.").unwrap().1.to_owned())
    }

    fn texts() -> LanguageColumns {
        LanguageColumns::Texts { prompt: "prompt".to_owned(), completion: "completion".to_owned() }
    }

    fn chat() -> LanguageColumns {
        LanguageColumns::Chat { messages: "messages".to_owned() }
    }

    #[test]
    fn texts_are_taken_verbatim_from_every_format() {
        let wanted =
            Content::Text { prompt: "a, b".to_owned(), completion: Some(" c\n".to_owned()) };
        for (name, text) in [
            ("d.csv", "prompt,completion\n\"a, b\",\" c\n\"\n"),
            ("d.jsonl", "{\"completion\": \" c\\n\", \"prompt\": \"a, b\", \"n\": 1}\n"),
        ] {
            assert_eq!(read(name, text, &texts()).unwrap()[0].content, wanted, "{name}");
        }
        let line = r#"{"messages": [{"role": "user", "content": "Hi", "weight": 1}]}"#;
        let message = Message { role: Role::User, content: "Hi".to_owned() };
        assert_eq!(
            read("d.jsonl", line, &chat()).unwrap()[0].content,
            Content::Chat(vec![message])
        );
    }

    #[test]
    fn bad_rows_are_named_by_line_and_column() {
        let refused =
            |text: &str, columns: &LanguageColumns| read("d.jsonl", text, columns).unwrap_err();
        let good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
        assert_eq!(
            refused(&format!("{good}{{\"prompt\": \"a\", \"completion\": \" \"}}"), &texts()),
            "jsonl`, line 2, column `completion`: empty text"
        );
        assert_eq!(
            refused("{\"prompt\": \"a\"}", &texts()),
            "jsonl`, line 1: no key `completion`; the keys are `prompt`"
        );
        let message = |inner: &str| refused(&format!("{{\"messages\": {inner}}}"), &chat());
        assert_eq!(
            message(r#"[{"role": "narrator", "content": "x"}]"#),
            "jsonl`, line 1: unknown role `narrator`, wanted `system`, `user` or `assistant`"
        );
        assert_eq!(
            message(r#"[{"role": "user", "content": "x"}, {"role": "user"}]"#),
            "jsonl`, line 1: no key `messages[1].content`; the keys are `role`"
        );
        assert_eq!(
            message(r#"[{"role": "user", "content": ["x"]}]"#),
            "jsonl`, line 1, column `messages[0].content`: a list where a string is expected"
        );
        assert_eq!(
            message(r#""Hi""#),
            "jsonl`, line 1, column `messages`: a string where a list of messages is expected"
        );
        assert_eq!(
            read("d.csv", "prompt,answer\na,b\n", &texts()).unwrap_err(),
            "csv` has no column `completion`; its columns are `prompt`, `answer`"
        );
    }
}
