//! Columns of a user's file: as they are named, or by the names that are usual.

use std::path::Path;

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::text::{listed, quoted};

const QUESTION: &str = "question";
const CHOICES: &str = "choices";
const ANSWER: &str = "answer";
const PROMPT: &str = "prompt";
const COMPLETION: &str = "completion";
const MESSAGES: &str = "messages";
/// A conversation in the layout of `ShareGPT`.
const CONVERSATIONS: &str = "conversations";
/// Columns of the layout of Alpaca. The second may be empty or absent.
pub(super) const INSTRUCTIONS: [&str; 3] = ["instruction", "input", "output"];

/// Keys of the rows of decision models: the state, the typed questions about it, the targets of these.
const DECISIONS: [&str; 3] = ["state", "questions", "targets"];

/// Column or key of a row's own id.
pub(super) const ID: &str = "id";

const TEXTS: [&str; 4] = ["text", "sentence", "query", "question"];
const LABELS: [&str; 5] = ["label", "category", "intent", "class", "target"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextColumns {
    pub text: String,
    pub pair: Option<String>,
    pub label: Option<String>,
    /// Choices, of which the label is one: a column with the list of them, or a column for each of several; none where rows
    /// have no choices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Typed questions about the text, which is their state; the label holds their targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub questions: Option<String>,
    /// Separator of the labels in the cell of a row with several; a list needs none. `None` where a row has one label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<String>,
    /// Columns of a label each, which have 1 or 0; none where labels are in one column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

impl Default for TextColumns {
    fn default() -> Self {
        let label = Some(LABELS[0].to_owned());
        Self::new(TEXTS[0].to_owned(), label)
    }
}

impl TextColumns {
    /// Single texts with one label.
    fn new(text: String, label: Option<String>) -> Self {
        Self {
            text,
            pair: None,
            label,
            choices: Vec::new(),
            questions: None,
            separator: None,
            labels: Vec::new(),
        }
    }

    pub fn usual_questions() -> Self {
        let [text, label, choices] = [QUESTION, ANSWER, CHOICES].map(str::to_owned);
        Self { choices: vec![choices], ..Self::new(text, Some(label)) }
    }

    /// Columns of the rows of decision models: `state`, `questions` and `targets`.
    pub fn decisions() -> Self {
        let [text, questions, label] = DECISIONS.map(str::to_owned);
        Self { questions: Some(questions), ..Self::new(text, Some(label)) }
    }

    /// These columns, replaced by those that are given.
    #[must_use]
    pub fn with(
        self,
        text: Option<String>,
        pair: Option<String>,
        label: Option<String>,
        choices: Vec<String>,
    ) -> Self {
        // Typed questions have their options, which are no choices.
        let has_own = choices.is_empty() || self.questions.is_some();
        Self {
            text: text.unwrap_or(self.text),
            pair: pair.or(self.pair),
            label: label.or(self.label),
            questions: self.questions.map(|own| choices.first().cloned().unwrap_or(own)),
            choices: if has_own { self.choices } else { choices },
            separator: self.separator,
            labels: self.labels,
        }
    }

    /// Checks that `file`, which has the columns or keys `names`, has all of them.
    pub(crate) fn check(&self, file: &Path, names: &[String]) -> Result<()> {
        let single = [
            (Some(&self.text), "text-column"),
            (self.pair.as_ref(), "pair-column"),
            (self.label.as_ref(), "label-column"),
        ];
        let several = self.choices.iter().chain(&self.questions);
        let choices = several.map(|column| (Some(column), "choice-columns"));
        let labels = self.labels.iter().map(|column| (Some(column), "label-columns"));
        let is_absent =
            |column: &String| !names.iter().any(|name| name == column || leads_to(name, column));
        match single
            .into_iter()
            .chain(choices)
            .chain(labels)
            .find(|(c, _)| c.is_some_and(is_absent))
        {
            Some((Some(column), option)) => Err(absent(file, column, names, option)),
            _ => Ok(()),
        }
    }

    /// Names of the columns that are read, and of that of the rows' ids.
    pub(crate) fn names_with_id(&self) -> Vec<&str> {
        self.names().into_iter().chain([ID]).collect()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        let single = [Some(&self.text), self.pair.as_ref(), self.label.as_ref()];
        let several = self.choices.iter().chain(&self.questions).chain(&self.labels);
        single.into_iter().flatten().chain(several).map(String::as_str).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LanguageColumns {
    Texts {
        prompt: String,
        completion: String,
    },
    /// Conversations: lists of objects with `role` and `content`, or with `from` and `value`.
    Chat {
        messages: String,
    },
    /// Conversations of one answer: `instruction`, perhaps `input`, and `output`.
    Instructions,
}

impl Default for LanguageColumns {
    fn default() -> Self {
        Self::Texts { prompt: PROMPT.to_owned(), completion: COMPLETION.to_owned() }
    }
}

impl LanguageColumns {
    /// The columns of a language model among `names`, by their usual names.
    pub(super) fn recognise(names: &[String]) -> Option<Self> {
        let has = |name| has(names, name);
        let chat = |messages: &str| Self::Chat { messages: messages.to_owned() };
        match () {
            () if has(MESSAGES) => Some(chat(MESSAGES)),
            () if has(PROMPT) && has(COMPLETION) => Some(Self::default()),
            () if has(CONVERSATIONS) => Some(chat(CONVERSATIONS)),
            () if has(INSTRUCTIONS[0]) && has(INSTRUCTIONS[2]) => Some(Self::Instructions),
            () => None,
        }
    }

    /// Remark on columns that have the names of another tool.
    fn note(&self) -> Option<String> {
        match self {
            Self::Chat { messages } if messages == CONVERSATIONS => Some(format!(
                "column `{CONVERSATIONS}` is read as conversations (`--messages-column` names another)"
            )),
            Self::Instructions => Some(
                "columns `instruction`, `input` and `output` are read as conversations of one question and its answer"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    pub fn is_chat(&self) -> bool {
        !matches!(self, Self::Texts { .. })
    }

    pub(super) fn names(&self, with_completions: bool) -> Vec<&str> {
        match self {
            Self::Texts { prompt, .. } if !with_completions => vec![prompt],
            Self::Texts { prompt, completion } => vec![prompt, completion],
            Self::Chat { messages } => vec![messages],
            Self::Instructions if !with_completions => INSTRUCTIONS[..2].to_vec(),
            Self::Instructions => INSTRUCTIONS.to_vec(),
        }
    }
}

/// Columns of a user's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Columns {
    Labelled(TextColumns),
    Texts(LanguageColumns),
}

impl Columns {
    pub fn labelled(&self) -> Option<&TextColumns> {
        match self {
            Self::Labelled(columns) => Some(columns),
            Self::Texts(_) => None,
        }
    }

    pub fn texts(&self) -> Option<&LanguageColumns> {
        match self {
            Self::Texts(columns) => Some(columns),
            Self::Labelled(_) => None,
        }
    }
}

/// Columns that a user names. The others are found by their usual names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedColumns {
    pub text: Option<String>,
    pub pair: Option<String>,
    pub label: Option<String>,
    pub choices: Vec<String>,
    /// Separator of several labels in one cell.
    pub separator: Option<String>,
    /// Columns of a label each.
    pub labels: Vec<String>,
    pub texts: NamedTexts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct NamedTexts {
    /// Column or key of a language model's prompt [default: `prompt`].
    #[cfg_attr(
        feature = "cli",
        arg(long = "prompt-column", value_name = "NAME", hide_short_help = true)
    )]
    pub prompt: Option<String>,
    /// Column or key of the completion, which is learnt [default: `completion`].
    #[cfg_attr(
        feature = "cli",
        arg(long = "completion-column", value_name = "NAME", hide_short_help = true)
    )]
    pub completion: Option<String>,
    /// Key of a conversation, a list of objects with `role` and `content`, or `from` and `value`: the assistant's messages are
    /// learnt [default: `messages`, or else `conversations`, or else `instruction`, `input` and `output`].
    #[cfg_attr(feature = "cli", arg(long = "messages-column", value_name = "NAME", hide_short_help = true, conflicts_with_all = ["prompt", "completion"]))]
    pub messages: Option<String>,
}

impl NamedTexts {
    /// The columns of a language model that are named, if any is.
    pub fn columns(&self) -> Option<LanguageColumns> {
        let or = |given: &Option<String>, usual: &str| given.clone().unwrap_or(usual.to_owned());
        match (&self.messages, &self.prompt, &self.completion) {
            (None, None, None) => None,
            (Some(messages), ..) => Some(LanguageColumns::Chat { messages: messages.clone() }),
            (None, prompt, completion) => Some(LanguageColumns::Texts {
                prompt: or(prompt, PROMPT),
                completion: or(completion, COMPLETION),
            }),
        }
    }
}

impl NamedColumns {
    /// The columns of `file`, which has the columns or keys `names`, and what a user must know of a guess. Other options may
    /// say that the file `classifies`.
    pub(super) fn resolve(
        &self,
        file: &Path,
        names: &[String],
        classifies: bool,
    ) -> Result<(Columns, Option<String>)> {
        let has_several = self.separator.is_some() || !self.labels.is_empty();
        let classifies =
            classifies || self.pair.is_some() || !self.choices.is_empty() || has_several;
        match self.texts.columns() {
            Some(_) if classifies => bail!(
                "columns of a language model cannot be combined with `--labels`, `--pair-column`, `--choice-columns`, `--template`, `--answers` or `--regression`"
            ),
            Some(columns) => return Ok((Columns::Texts(columns), None)),
            None => {}
        }
        let is_named = self.text.is_some() || self.label.is_some() || self.pair.is_some();
        if !is_named
            && !has_several
            && self.choices.is_empty()
            && DECISIONS.into_iter().all(|name| has(names, name))
        {
            return Ok((Columns::Labelled(TextColumns::decisions()), None));
        }
        let has = |named: &Option<String>, usual| has(names, named.as_deref().unwrap_or(usual));
        let is_labelled = has(&self.text, TEXTS[0]) && has(&self.label, LABELS[0]);
        if !classifies
            && !is_labelled
            && let Some(columns) = LanguageColumns::recognise(names)
        {
            let note = columns.note();
            return Ok((Columns::Texts(columns), note));
        }
        let (columns, note) = self.labelled(file, names)?;
        columns.check(file, names)?;
        Ok((Columns::Labelled(columns), note))
    }

    /// `question`, `choices` and `answer`, or else `text` and `label`, or the one column that has another usual name.
    fn labelled(&self, file: &Path, names: &[String]) -> Result<(TextColumns, Option<String>)> {
        let has = |name| has(names, name);
        let mut choices = self.choices.clone();
        let is_named = self.text.is_some() || self.label.is_some();
        let is_usual = has(TEXTS[0]) && has(LABELS[0]);
        let is_question = || [QUESTION, CHOICES, ANSWER].into_iter().all(has);
        if choices.is_empty() && !is_named && !is_usual && is_question() {
            choices.push(CHOICES.to_owned());
        }
        let (text, label) =
            if choices.is_empty() { (TEXTS[0], LABELS[0]) } else { (QUESTION, ANSWER) };
        let text = found(self.text.as_ref(), text, &TEXTS, ("text", file), names)?;
        let label = match &*self.labels {
            [] => Some(found(self.label.as_ref(), label, &LABELS, ("label", file), names)?),
            _ => None,
        };
        let taken: Vec<String> =
            [&text].into_iter().chain(&label).filter_map(|(_, n)| n.clone()).collect();
        let note = (!taken.is_empty()).then(|| format!("`{}`: {}", file.display(), listed(&taken)));
        let columns = TextColumns {
            pair: self.pair.clone(),
            choices,
            separator: self.separator.clone(),
            labels: self.labels.clone(),
            ..TextColumns::new(text.0, label.map(|(name, _)| name))
        };
        Ok((columns, note))
    }
}

/// `true` if `column` is a path of keys that starts with `key`, `ticket.body` within `ticket`.
pub(super) fn leads_to(key: &str, column: &str) -> bool {
    column.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'))
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

/// The column of the text or the label: as `named`, else the `usual` one, else the only one of `others` that there is, with what
/// is said of it.
fn found(
    named: Option<&String>,
    usual: &str,
    others: &[&str],
    (what, file): (&str, &Path),
    names: &[String],
) -> Result<(String, Option<String>)> {
    if let Some(name) = named {
        return Ok((name.clone(), None));
    }
    if has(names, usual) {
        return Ok((usual.to_owned(), None));
    }
    let is_other = |name: &&String| others.iter().any(|other| name.eq_ignore_ascii_case(other));
    let fitting: Vec<&String> = names.iter().filter(is_other).collect();
    match fitting[..] {
        [one] => Ok((
            one.clone(),
            Some(format!("column `{one}` is read as the {what} (`--{what}-column` names another)")),
        )),
        [] => Err(absent(file, usual, names, &format!("{what}-column"))),
        _ => bail!(
            "`{}` has no column `{usual}`, and {} may be the {what}: name it by `--{what}-column`",
            file.display(),
            listed(&fitting.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>())
        ),
    }
}

fn absent(file: &Path, column: &str, names: &[String], option: &str) -> Error {
    let file = file.display();
    let names = quoted(names);
    anyhow!(
        "`{file}` has no column `{column}`; its columns are {names}: name another by `--{option}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_usual_names_and_a_guess_is_noted() {
        let usual = NamedColumns::default();
        let named = NamedColumns { label: Some("topic".to_owned()), ..usual.clone() };
        let mut found = String::new();
        for names in include_str!("cases/columns.txt").lines() {
            let named = if names == "sentence,topic,target" { &named } else { &usual };
            let columns: Vec<String> = names.split(',').map(str::to_owned).collect();
            let read = match named.resolve(Path::new("d.csv"), &columns, false) {
                Ok((columns, note)) => {
                    let note = note.map(|note| format!("    {note}\n")).unwrap_or_default();
                    format!("{names}\n    {columns:?}\n{note}")
                }
                Err(error) => format!("{names}\n    {error}\n"),
            };
            found += &read;
        }
        insta::assert_snapshot!(found);
    }
}
