//! What a language model learns from: prompts with completions, or conversations.

use std::borrow::Cow;

use anyhow::anyhow;
use lrvd_models::chat::{Message, Role};
use serde::Serialize;

use super::columns::{INSTRUCTIONS, LanguageColumns};
use super::table::{Cell, Row, plain};
use super::{Example, Input};
use crate::error::Result;

pub type TextRow = Example<Content, ()>;

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

/// The content of a row; a conversation needs JSON or parquet, or the columns of instructions.
pub(super) fn content(
    row: &Row,
    columns: &LanguageColumns,
    with_completions: bool,
) -> Result<Content> {
    let text = |column: &str| row.text(&[column]).map(str::to_owned);
    Ok(match columns {
        LanguageColumns::Texts { prompt, completion } => Content::Text {
            prompt: text(prompt)?,
            completion: with_completions.then(|| text(completion)).transpose()?,
        },
        LanguageColumns::Chat { messages } => Content::Chat(conversation(row, messages)?),
        LanguageColumns::Instructions => {
            let [instruction, input, output] = INSTRUCTIONS;
            let input = row.get(input)?.and_then(plain).unwrap_or_default();
            let mut question = text(instruction)?;
            if !input.trim().is_empty() {
                question = format!("{question}\n\n{input}");
            }
            let mut messages = vec![Message { role: Role::User, content: question }];
            if with_completions {
                messages.push(Message { role: Role::Assistant, content: text(output)? });
            }
            Content::Chat(messages)
        }
    })
}

/// The messages of a row: objects of a `role` and a `content`, or of `from` and `value`; what else they hold is not read.
fn conversation(row: &Row, column: &str) -> Result<Vec<Message>> {
    let message = |item: Cell<'_>| {
        let other = item.value.get("from").is_some() && item.value.get("role").is_none();
        let (role, content) = if other { ("from", "value") } else { ("role", "content") };
        let role = match item.field(role)?.text()? {
            "human" if other => "user",
            "gpt" if other => "assistant",
            role => role,
        };
        let role = Role::from_name(role).map_err(|source| anyhow!("{}: {source}", row.place))?;
        let content = item.field(content)?.text()?.to_owned();
        Ok(Message { role, content })
    };
    row.find(&[column])?.list("a list of messages")?.into_iter().map(message).collect()
}

/// The texts of a row, as they are counted and compared.
pub(crate) trait Pieces {
    fn pieces(&self) -> Vec<Cow<'_, str>>;
}

impl Pieces for Input {
    fn pieces(&self) -> Vec<Cow<'_, str>> {
        let all = std::iter::once(&self.text).chain(&self.pair).chain(&self.choices);
        all.map(|text| text.as_str().into()).collect()
    }
}

impl Pieces for Content {
    fn pieces(&self) -> Vec<Cow<'_, str>> {
        self.marked().into_iter().map(|(text, _)| text).collect()
    }
}

impl Content {
    /// Its texts, each with whether it is learnt.
    pub(crate) fn marked(&self) -> Vec<(Cow<'_, str>, bool)> {
        match self {
            Self::Text { prompt, completion } => {
                let completion = completion.as_deref().unwrap_or_default();
                vec![(prompt.into(), false), (completion.into(), true)]
            }
            Self::Chat(messages) => {
                let messages = messages.iter().map(|message| {
                    let text = format!("{}: {}\n", message.role.name(), message.content);
                    (text.into(), message.role == Role::Assistant)
                });
                messages.collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::read_texts;
    use super::*;

    #[test]
    fn texts_and_conversations_are_read_verbatim_or_named_by_their_place() {
        let cases: Vec<(String, String, LanguageColumns)> =
            serde_json::from_str(include_str!("cases/content.json")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut found = String::new();
        for (name, text, columns) in cases {
            let file = dir.path().join(&name);
            std::fs::write(&file, &text).unwrap();
            writeln!(found, "{name} {text:?}").unwrap();
            match read_texts(&file, Some(&columns), true) {
                Ok(rows) => {
                    for row in rows {
                        writeln!(found, "    {:?}", row.input).unwrap();
                    }
                }
                Err(error) => writeln!(found, "    {error}").unwrap(),
            }
        }
        insta::assert_snapshot!(found.replace(&format!("{}/", dir.path().display()), ""));
    }
}
