//! What a language model learns from: prompts with completions, or conversations.

use std::borrow::Cow;

use anyhow::{anyhow, bail, ensure};
use lrvd_models::chat::{Message, Role};
use serde::Serialize;
use serde_json::{Map, Value};

use super::columns::{INSTRUCTIONS, LanguageColumns};
use super::rows::Rows;
use super::table::{Cell, Row};
use super::{Example, Input};
use crate::error::Result;
use crate::io::{kind, plain};

pub type TextRow = Example<Content, ()>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Content {
    Text {
        prompt: String,
        /// The answer to be learnt; `None` where it is asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        completion: Option<String>,
    },
    Chat(Vec<Message>),
}

/// Keys beside the text of a row or a message that say what a model reads or learns: a value under one of them that is not
/// used is an error, unless the key is dropped. Other keys are counted.
pub(super) const MEANT: [&str; 19] = [
    "system",
    "history",
    "weight",
    "train",
    "tools",
    "functions",
    "tool_calls",
    "function_call",
    "tool_call_id",
    "documents",
    "chat_template_kwargs",
    "reasoning_content",
    "reasoning",
    "thinking",
    "image",
    "images",
    "audio",
    "audios",
    "videos",
];
const SYSTEM: &str = "system";
/// Turns before the instruction, in the layout of Alpaca: pairs of a question and its answer, which is learnt.
const HISTORY: &str = "history";
/// Keys that say if an answer is learnt: 1 or 0 in the format of `OpenAI`, a truth value in that of axolotl.
const LEARNT: [&str; 2] = ["weight", "train"];

/// The content of a row; a conversation needs JSON or parquet, or the columns of instructions. A key `system` is the first
/// message of a conversation.
pub(super) fn content(
    rows: &mut Rows<'_>,
    row: &Row,
    columns: &LanguageColumns,
    with_completions: bool,
) -> Result<Content> {
    let text = |column: &str| row.text(&[column]).map(str::to_owned);
    let used: &[&str] = match columns {
        LanguageColumns::Texts { .. } => &[],
        LanguageColumns::Chat { .. } => &[SYSTEM],
        LanguageColumns::Instructions => &[SYSTEM, HISTORY],
    };
    for key in row.keys() {
        let is_read = used.contains(&key.as_str()) || columns.names(true).contains(&key.as_str());
        if MEANT.contains(&key.as_str()) && !is_read && !rows.drops(key) {
            let value = row.get(key)?.unwrap_or(&Value::Null);
            check_empty(&Cell { place: &row.place, column: key.clone(), value })?;
        }
    }
    let system = match row.get(SYSTEM)? {
        Some(value) if used.contains(&SYSTEM) && !rows.drops(SYSTEM) && !is_nothing(value) => {
            Some(Message::new(Role::System, text(SYSTEM)?))
        }
        _ => None,
    };
    Ok(match columns {
        LanguageColumns::Texts { prompt, completion } => Content::Text {
            prompt: text(prompt)?,
            completion: with_completions.then(|| text(completion)).transpose()?,
        },
        LanguageColumns::Chat { messages } => {
            let messages = conversation(rows, row, messages)?;
            if system.is_some() && messages.first().is_some_and(|first| first.role == Role::System)
            {
                bail!(
                    "{}: the row has a key `{SYSTEM}`, and its conversation starts with a system message: \
                     `--drop-keys {SYSTEM}` leaves out the key",
                    row.place
                );
            }
            Content::Chat(system.into_iter().chain(messages).collect())
        }
        LanguageColumns::Instructions => {
            let [instruction, input, output] = INSTRUCTIONS;
            let input = row.get(input)?.and_then(plain).unwrap_or_default();
            let mut question = text(instruction)?;
            if !input.trim().is_empty() {
                question = format!("{question}\n\n{input}");
            }
            let mut messages = Vec::from_iter(system);
            if !rows.drops(HISTORY) {
                messages.extend(history(row)?);
            }
            messages.push(Message::new(Role::User, question));
            if with_completions {
                messages.push(Message::new(Role::Assistant, text(output)?));
            }
            Content::Chat(messages)
        }
    })
}

/// Null, and what is empty, are how files with one schema for all rows write that a row has no such key.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(Value::is_null),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Checks that there is no value under a key of [`MEANT`].
fn check_empty(Cell { place, column, value }: &Cell<'_>) -> Result<()> {
    let key = column.rsplit('.').next().unwrap_or(column);
    ensure!(
        is_nothing(value),
        "{place}: key `{column}` says what the model reads or learns, and is not used: `--drop-keys {key}` leaves it out"
    );
    Ok(())
}

/// The turns before the instruction.
fn history(row: &Row) -> Result<Vec<Message>> {
    const TURNS: &str = "a list of pairs of a question and its answer";
    let Some(value) = row.get(HISTORY)?.filter(|value| !is_nothing(value)) else {
        return Ok(Vec::new());
    };
    let cell = Cell { place: &row.place, column: HISTORY.to_owned(), value };
    let mut messages = Vec::new();
    for turn in cell.list(TURNS)? {
        let texts = turn.list(TURNS)?;
        let [question, answer] = &texts[..] else { return Err(turn.wrong_type(TURNS)) };
        messages.push(Message::new(Role::User, question.text()?));
        messages.push(Message::new(Role::Assistant, answer.text()?));
    }
    Ok(messages)
}

/// The messages of a row: objects of a `role` and a `content`, or of `from` and `value`.
fn conversation(rows: &mut Rows<'_>, row: &Row, column: &str) -> Result<Vec<Message>> {
    let message = |item: Cell<'_>| {
        let other = item.value.get("from").is_some() && item.value.get("role").is_none();
        let keys = if other { ["from", "value"] } else { ["role", "content"] };
        let [role, content] = keys;
        let role = match item.field(role)?.text()? {
            "human" if other => "user",
            "gpt" if other => "assistant",
            role => role,
        };
        let role = Role::from_name(role).map_err(|source| anyhow!("{}: {source}", row.place))?;
        let mut message = Message::new(role, item.field(content)?.text()?);
        for key in item.value.as_object().into_iter().flat_map(Map::keys) {
            if keys.contains(&key.as_str()) || rows.drops(key) {
                continue;
            }
            let cell = item.field(key)?;
            if LEARNT.contains(&key.as_str()) {
                message.learnt &= is_learnt(&cell, role)?;
            } else if MEANT.contains(&key.as_str()) {
                check_empty(&cell)?;
            } else {
                rows.unused.add(format!("key `{key}` of a message"), &row.place);
            }
        }
        Ok(message)
    };
    row.find(&[column])?.list("a list of messages")?.into_iter().map(message).collect()
}

/// Value of a key of [`LEARNT`] in a message.
fn is_learnt(cell: &Cell<'_>, role: Role) -> Result<bool> {
    let learnt = match cell.value {
        Value::Null => role == Role::Assistant,
        Value::Bool(learnt) => *learnt,
        Value::Number(number) if number.as_f64() == Some(0.0) => false,
        Value::Number(number) if number.as_f64() == Some(1.0) => true,
        value => bail!(
            "{}, column `{}`: {} where 0, 1, true or false is expected",
            cell.place,
            cell.column,
            plain(value).map_or_else(|| kind(value).to_owned(), |found| format!("`{found}`"))
        ),
    };
    if learnt && role != Role::Assistant {
        let key = cell.column.rsplit('.').next().unwrap_or_default();
        bail!(
            "{}, column `{}`: only the assistant's messages are learnt, and this is a message of the role `{}`: \
             `--drop-keys {key}` leaves the key out",
            cell.place,
            cell.column,
            role.name()
        );
    }
    Ok(learnt)
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
                    (text.into(), message.learnt)
                });
                messages.collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::{ReadOptions, read_texts};
    use super::*;
    use crate::unused::Unused;

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
            let options = ReadOptions::default();
            let mut unused = Unused::default();
            match read_texts(&file, Some(&columns), true, &options, &mut unused) {
                Ok(rows) => {
                    unused.notes(false).unwrap().iter().for_each(|note| {
                        writeln!(found, "    {note}").unwrap();
                    });
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
