//! What a language model learns from: prompts with completions, or conversations.

use std::borrow::Cow;

use anyhow::anyhow;
use lrvd_models::chat::{Message, Role};
use serde::Serialize;
use serde_json::Value;

use super::columns::{INSTRUCTIONS, LanguageColumns};
use super::table::{Row, plain};
use super::{Example, Input};
use crate::error::Result;

/// A row of texts for a language model.
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
    let (_, cell) = row.find(&[column])?;
    let items = row.as_list(cell, column, "a list of messages")?;
    let message = |(place, item): (usize, &Value)| {
        let path = format!("{column}[{place}]");
        let object = row.as_object(item, &path)?;
        let other = object.contains_key("from") && !object.contains_key("role");
        let (role, content) = if other { ("from", "value") } else { ("role", "content") };
        let role = match row.text_within(object, &format!("{path}.{role}"))? {
            "human" if other => "user",
            "gpt" if other => "assistant",
            role => role,
        };
        let role = Role::from_name(role).map_err(|source| anyhow!("{}: {source}", row.place()))?;
        let content = row.text_within(object, &format!("{path}.{content}"))?.to_owned();
        Ok(Message { role, content })
    };
    items.iter().enumerate().map(message).collect()
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
    #![allow(clippy::unwrap_used)]
    use super::super::read_texts;
    use super::*;

    fn read(name: &str, text: &str, columns: &LanguageColumns) -> Result<Vec<TextRow>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        read_texts(&file, Some(columns), true)
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
            assert_eq!(read(name, text, &texts()).unwrap()[0].input, expected, "{name}");
        }
        let line = r#"{"messages": [{"role": "user", "content": "Hi", "weight": 1}]}"#;
        let message = Message { role: Role::User, content: "Hi".to_owned() };
        assert_eq!(read("d.jsonl", line, &chat()).unwrap()[0].input, Content::Chat(vec![message]));
    }

    #[test]
    fn bad_rows_are_named_by_line_and_column() {
        let rejected =
            |text: &str, columns: &LanguageColumns| read("d.jsonl", text, columns).unwrap_err();
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
    }

    #[test]
    fn conversations_of_other_tools_are_read_as_they_are() {
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let row = r#"{"conversations": [{"from": "system", "value": "Be kind."}, {"from": "human", "value": "Hi"},
            {"from": "gpt", "value": "Yes?"}]}"#
            .replace('\n', " ");
        let columns = LanguageColumns::Chat { messages: "conversations".to_owned() };
        let expected = Content::Chat(vec![
            message(Role::System, "Be kind."),
            message(Role::User, "Hi"),
            message(Role::Assistant, "Yes?"),
        ]);
        for (name, text) in [("d.jsonl", row.clone()), ("d.json", format!("[{row}]"))] {
            assert_eq!(read(name, &text, &columns).unwrap()[0].input, expected, "{name}");
        }
        let error = read("d.jsonl", &row.replace("gpt", "bard"), &columns).unwrap_err();
        assert!(error.ends_with("found `bard`"), "{error}");
        let error = read("d.jsonl", &row.replace("\"Hi\"", "3"), &columns).unwrap_err();
        assert!(error.contains("column `conversations[1].value`: a number"), "{error}");

        let rows = r#"[{"instruction": "Add.", "input": "1 2", "output": "3"},
            {"instruction": "Sing.", "input": "", "output": "La"}, {"instruction": "Go.", "output": "Ok"}]"#;
        let rows = read("d.json", rows, &LanguageColumns::Instructions).unwrap();
        for (row, question, answer) in
            [(&rows[0], "Add.\n\n1 2", "3"), (&rows[1], "Sing.", "La"), (&rows[2], "Go.", "Ok")]
        {
            let said = [message(Role::User, question), message(Role::Assistant, answer)];
            assert_eq!(row.input, Content::Chat(said.to_vec()));
        }
    }
}
