//! Rows of a user's data file: prompts with completions, or conversations.

use std::path::Path;

use anyhow::anyhow;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::train::{Examples, LabelledExamples, Targets, TokenTargets};
use lrvd_models::TokenBatch;
use lrvd_models::chat::{Message, Role};
use lrvd_models::llama::TextBatch;
use serde::{Deserialize, Serialize};

use crate::data::batch::picked;
use crate::data::table::{self, Cell, Format, Layout, Place, Table};
use crate::error::{Burn, Result};

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
/// of the last two. Completions are read `with_completions`.
pub fn read_texts(
    file: &Path,
    columns: &LanguageColumns,
    with_completions: bool,
) -> Result<Vec<TextRow>> {
    let names = columns.names();
    let format = Format::of(file)?;
    // A missing column is reported by its first row.
    let table = Table::open(
        file,
        &Layout {
            columns: if with_completions { &names } else { &names[..1] },
            blank_lines: true,
            ..Layout::of(format)
        },
    )?;
    table.map(|row| TextRow::of(&row?, columns, with_completions)).collect()
}

impl TextRow {
    fn of(row: &table::Row, columns: &LanguageColumns, with_completions: bool) -> Result<Self> {
        let content = match columns {
            LanguageColumns::Texts { prompt, completion } => Content::Text {
                prompt: row.text(&[prompt])?.to_owned(),
                completion: with_completions
                    .then(|| row.text(&[completion]).map(str::to_owned))
                    .transpose()?,
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

/// Usual name of the column with the prompt.
const PROMPT: &str = "prompt";
/// Usual name of the column with what is learnt.
const COMPLETION: &str = "completion";
/// Usual name of the column with a conversation.
const MESSAGES: &str = "messages";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LanguageColumns {
    Texts {
        prompt: String,
        completion: String,
    },
    /// Conversations: lists of objects with `role` and `content`.
    Chat {
        messages: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedColumns {
    pub prompt: Option<String>,
    pub completion: Option<String>,
    pub messages: Option<String>,
}

impl NamedColumns {
    /// The columns that are meant, if any is named.
    pub fn meant(&self) -> Result<Option<LanguageColumns>> {
        let or = |given: &Option<String>, usual: &str| given.clone().unwrap_or(usual.to_owned());
        match (&self.messages, &self.prompt, &self.completion) {
            (None, None, None) => Ok(None),
            (Some(messages), None, None) => {
                Ok(Some(LanguageColumns::Chat { messages: messages.clone() }))
            }
            (None, prompt, completion) => Ok(Some(LanguageColumns::Texts {
                prompt: or(prompt, PROMPT),
                completion: or(completion, COMPLETION),
            })),
            (Some(_), ..) => Err(anyhow!(
                "a row is a conversation or a prompt with its completion, not both: name `--messages-column` or \
                 the other two"
            )),
        }
    }
}

impl LanguageColumns {
    /// The columns that the first row of `file` has under their usual names: `messages`, or `prompt` and `completion`;
    /// `None` if it has neither, or all of `others`, which are those of another kind of data.
    pub fn recognise(file: &Path, others: &[&str]) -> Result<Option<Self>> {
        let Some(first) = table::read(file)?.next().transpose()? else { return Ok(None) };
        if others.iter().all(|name| first.has(name)) {
            return Ok(None);
        }
        let texts = first.has(PROMPT) && first.has(COMPLETION);
        Ok(if first.has(MESSAGES) {
            Some(Self::Chat { messages: MESSAGES.to_owned() })
        } else {
            let (prompt, completion) = (PROMPT.to_owned(), COMPLETION.to_owned());
            texts.then_some(Self::Texts { prompt, completion })
        })
    }

    pub fn is_chat(&self) -> bool {
        matches!(self, Self::Chat { .. })
    }

    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Self::Texts { prompt, completion } => vec![prompt, completion],
            Self::Chat { messages } => vec![messages],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanguageExample {
    pub(super) ids: Vec<u32>,
    pub(super) columns: Vec<usize>,
    pub(super) expected: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LanguageExamples<'a> {
    pub(super) texts: &'a [LanguageExample],
    pub(super) pad_id: u32,
    pub(super) device: &'a Device,
}

impl Examples for LanguageExamples<'_> {
    type Input = TextBatch;

    fn len(&self) -> usize {
        self.texts.len()
    }

    fn size(&self, index: usize) -> usize {
        self.texts[index].ids.len()
    }

    fn input(&self, indices: &[usize]) -> Burn<TextBatch> {
        let texts = picked(self.texts, indices)?;
        let rows: Vec<(&[u32], &[u32])> =
            texts.iter().map(|text| (&text.ids[..], &[][..])).collect();
        let tokens = TokenBatch::padded(&rows, self.pad_id, self.device, DType::F32);
        Ok(TextBatch { tokens, columns: texts.iter().map(|text| text.columns.clone()).collect() })
    }
}

impl LabelledExamples for LanguageExamples<'_> {
    fn targets(&self, indices: &[usize]) -> Burn<Targets> {
        let texts = picked(self.texts, indices)?;
        let ids: Vec<i64> =
            texts.iter().flat_map(|text| &text.expected).map(|&id| i64::from(id)).collect();
        let n = ids.len();
        Ok(Targets::Tokens(TokenTargets {
            ids: Tensor::from_data(TensorData::new(ids, [n]), self.device),
            per_row: texts.iter().map(|text| text.expected.len()).collect(),
        }))
    }

    fn answers(&self, index: usize) -> usize {
        self.texts[index].expected.len()
    }
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
        let expected =
            Content::Text { prompt: "a, b".to_owned(), completion: Some(" c\n".to_owned()) };
        for (name, text) in [
            ("d.csv", "prompt,completion\n\"a, b\",\" c\n\"\n"),
            ("d.jsonl", "{\"completion\": \" c\\n\", \"prompt\": \"a, b\", \"n\": 1}\n"),
        ] {
            assert_eq!(read(name, text, &texts()).unwrap()[0].content, expected, "{name}");
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
        let rejected =
            |text: &str, columns: &LanguageColumns| read("d.jsonl", text, columns).unwrap_err();
        let good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
        assert_eq!(
            rejected(&format!("{good}{{\"prompt\": \"a\", \"completion\": \" \"}}"), &texts()),
            "jsonl`, line 2, column `completion`: empty text"
        );
        assert_eq!(
            rejected("{\"prompt\": \"a\"}", &texts()),
            "jsonl`, line 1: no key `completion`; the keys are `prompt`"
        );
        let message = |inner: &str| rejected(&format!("{{\"messages\": {inner}}}"), &chat());
        assert_eq!(
            message(r#"[{"role": "narrator", "content": "x"}]"#),
            "jsonl`, line 1: `role` should be `system`, `user` or `assistant`, found `narrator`"
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

    #[test]
    fn columns_are_known_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let file = dir.path().join("d.csv");
            std::fs::write(&file, text).unwrap();
            LanguageColumns::recognise(&file, &["text", "label"]).unwrap()
        };
        let texts = |prompt: &str, completion: &str| LanguageColumns::Texts {
            prompt: prompt.to_owned(),
            completion: completion.to_owned(),
        };
        let chat = |messages: &str| LanguageColumns::Chat { messages: messages.to_owned() };
        assert_eq!(of("prompt,completion\na,b\n"), Some(texts("prompt", "completion")));
        assert_eq!(of("messages,text\na,b\n"), Some(chat("messages")));
        assert_eq!(of("prompt,completion,text,label\na,b,c,d\n"), None);
        assert_eq!(of("prompt,answer\na,b\n"), None);
        let named = |prompt: Option<&str>, completion: Option<&str>, messages: Option<&str>| {
            let [prompt, completion, messages] =
                [prompt, completion, messages].map(|name| name.map(str::to_owned));
            NamedColumns { prompt, completion, messages }.meant()
        };
        assert_eq!(named(None, None, None).unwrap(), None);
        assert_eq!(named(None, Some("answer"), None).unwrap(), Some(texts("prompt", "answer")));
        assert_eq!(named(None, None, Some("talk")).unwrap(), Some(chat("talk")));
        assert!(named(Some("a"), None, Some("b")).is_err());
    }
}
