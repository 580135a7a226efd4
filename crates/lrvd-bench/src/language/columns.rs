//! Which columns hold what.

use std::path::Path;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use crate::data::table;
use crate::error::Result;

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
