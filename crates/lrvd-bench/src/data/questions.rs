//! Questions with choices: prompts as token ids of a limited length, and the token that stands for each label.

use anyhow::{anyhow, bail};
use lrvd_models::tokenizer::TextTokenizer;
use serde::{Deserialize, Serialize};

use super::batch::{BareTokens, Cut, file, is_special, longest};
use super::prompt::LETTERS;
use super::{Input, Wording};
use crate::error::Result;
use crate::settings::PromptSet;
use crate::task::{Shape, Task};
use crate::text::head;

/// Characters of a question by which an error names it.
const NAME: usize = 60;

/// Which kind of model reads the prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputForm {
    /// A decoder with a vocabulary head: `<s> prompt`, with `</s>` where the prompt set appends it. The answer is read
    /// off the last position, at the label tokens.
    Decoder,
    /// An encoder with a classifier: the prompt up to its cue as one segment, special tokens as the tokenizer puts
    /// them. The classes are the labels.
    Encoder,
}

/// How a question with choices is laid out: as the rows of a task are in the prompts of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionForm {
    #[serde(rename = "set")]
    pub task: Task,
    pub prompt: PromptSet,
}

impl Default for QuestionForm {
    /// A question, and choices that go by letters, asked by `clean`.
    fn default() -> Self {
        Self { task: Task::ArcC, prompt: PromptSet::Clean }
    }
}

impl QuestionForm {
    /// How `prompt` asks the rows of `task`; `None` where they have no choices.
    pub fn of(task: Task, prompt: PromptSet) -> Option<Self> {
        (!matches!(task.row().shape, Shape::Passage)).then_some(Self { task, prompt })
    }

    /// Whether it is that of a user's own questions.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The question that is asked with `letters` choices, and with a passage or without, in words for a record.
    pub(crate) fn wording(self, letters: usize, passage: bool) -> Wording {
        let choices = vec!["…".to_owned(); letters];
        let pair = passage.then(|| "{pair}".to_owned());
        let answers = LETTERS.iter().take(letters).map(ToString::to_string).collect();
        let input = Input { pair, choices, ..Input::text("{text}") };
        Wording { template: self.text(&input), answers }
    }

    /// A user's question as a decoder is asked it, with nothing cut.
    pub(crate) fn text(self, input: &Input) -> String {
        self.prompt.text(self.task, &trimmed(input))
    }
}

/// A user's question without the white space around its parts.
fn trimmed(input: &Input) -> Input {
    let trim = |text: &String| text.trim().to_owned();
    Input {
        text: trim(&input.text),
        pair: input.pair.as_ref().map(trim),
        choices: input.choices.iter().take(LETTERS.len()).map(trim).collect(),
        numbered: input.numbered,
    }
}

/// Turns questions into what a model of either kind reads.
#[derive(Debug)]
pub struct Questions<'a> {
    tokenizer: &'a TextTokenizer,
    bare: BareTokens<'a>,
    pub(super) form: QuestionForm,
    kind: InputForm,
    pub(super) max_length: usize,
    /// The words that stand for the classes, in class order.
    pub labels: &'static [&'static str],
    /// Their tokens, for a decoder; empty for an encoder.
    pub answers: Vec<AnswerToken>,
    /// Whether rows are a user's: trimmed, and answered by as many letters as they have choices. Those of a task are read
    /// verbatim and answered by all labels.
    pub(super) own: bool,
    /// Id that fills a batch: of a decoder's the beginning-of-text token, of an encoder's its padding.
    pub pad_id: u32,
}

impl<'a> Questions<'a> {
    /// A user's questions, with at most as many choices as `letters`.
    pub fn own(
        tokenizer: &'a TextTokenizer,
        kind: InputForm,
        form: QuestionForm,
        letters: usize,
        max_length: usize,
    ) -> Result<Self> {
        let labels = &LETTERS[..letters.min(LETTERS.len())];
        Ok(Self { own: true, ..Self::new(tokenizer, kind, form, labels, max_length)? })
    }

    /// The questions of a task, answered by `labels`.
    pub fn new(
        tokenizer: &'a TextTokenizer,
        kind: InputForm,
        form: QuestionForm,
        labels: &'static [&'static str],
        max_length: usize,
    ) -> Result<Self> {
        let bare = BareTokens::new(tokenizer)?;
        let (answers, pad_id) = match kind {
            InputForm::Decoder => {
                let begin = tokenizer.special_tokens().bos;
                let pad_id = special(tokenizer, begin, "beginning-of-text")?;
                let cue = form.prompt.cue(form.task);
                (answer_tokens(tokenizer, labels, form.prompt, cue)?, pad_id)
            }
            InputForm::Encoder => (Vec::new(), tokenizer.special_tokens().pad.unwrap_or(0)),
        };
        let own = false;
        Ok(Self { tokenizer, bare, form, kind, max_length, labels, answers, own, pad_id })
    }

    /// What a reader of the results must know if the prompts lost something: words for `cut`.
    pub(super) fn lost(&self, cut: Cut) -> &'static str {
        match (cut, self.kind) {
            (Cut::Right, InputForm::Decoder) => "their answer cue, wholly or in part",
            (Cut::Right, InputForm::Encoder) => "their end",
            (Cut::Choices, _) => "their whole passage or question and the end of choices",
            _ => "the end of their passage or question",
        }
    }

    /// Whether the prompt set does not use this question, or it has more choices than there are labels.
    pub(super) fn leaves_out(&self, input: &Input) -> bool {
        let used = self.form.prompt.uses(self.form.task, input);
        !self.own && (!used || input.choices.len() > self.labels.len())
    }

    pub(super) fn encode(&self, input: &Input) -> Result<(Vec<u32>, Cut)> {
        self.within(input, self.max_length)
    }

    /// Tokens of one question before anything is cut from it.
    pub(crate) fn measure(&self, input: &Input) -> Result<usize> {
        Ok(self.within(input, usize::MAX)?.0.len())
    }

    fn within(&self, input: &Input, max_length: usize) -> Result<(Vec<u32>, Cut)> {
        let own = self.own.then(|| trimmed(input));
        let input = own.as_ref().unwrap_or(input);
        match self.kind {
            InputForm::Decoder => self.decoder_ids(input, max_length),
            InputForm::Encoder => self.encoder_ids(input, max_length),
        }
    }

    /// `<s> prompt [</s>]`. The special tokens stay whatever is cut, as Hugging Face's truncation keeps them.
    fn decoder_ids(&self, input: &Input, max_length: usize) -> Result<(Vec<u32>, Cut)> {
        let QuestionForm { task, prompt } = self.form;
        let mut ids = vec![self.pad_id];
        let end = self.tokenizer.special_tokens().eos;
        let end = prompt.appends_end(task).then(|| special(self.tokenizer, end, "end-of-text"));
        let end = end.transpose()?;
        let frame = ids.len() + usize::from(end.is_some());
        if max_length <= frame {
            let expected = format!("more than {frame}, the number of special tokens");
            return Err(lrvd_models::Error::argument("max_length", expected, max_length).into());
        }
        let limit = max_length - frame;
        let encode = |input: &Input| Ok(self.bare.ids(&prompt.text(task, input))?);
        let (text, cut) = if prompt == PromptSet::Clean {
            fitted(input, limit, frame, encode)?
        } else {
            let mut text = encode(input)?;
            let cut = if text.len() > limit { Cut::Right } else { Cut::Nothing };
            text.truncate(limit);
            (text, cut)
        };
        ids.extend(text);
        ids.extend(end);
        Ok((ids, cut))
    }

    /// The tokenizer's own encoding of the prompt up to its cue.
    fn encoder_ids(&self, input: &Input, max_length: usize) -> Result<(Vec<u32>, Cut)> {
        let QuestionForm { task, prompt } = self.form;
        let text = |input: &Input| prompt.text_before_cue(task, input);
        let encode = |input: &Input| Ok(self.tokenizer.encode(&text(input), None, None)?.ids);
        if prompt == PromptSet::Clean {
            return fitted(input, max_length, 0, encode);
        }
        let ids = encode(input)?;
        if ids.len() <= max_length {
            return Ok((ids, Cut::Nothing));
        }
        let ids = self.tokenizer.encode(&text(input), None, Some(max_length))?.ids;
        Ok((ids, Cut::Right))
    }
}

/// The prompt with as much of its texts as fits `limit` tokens: all; else the longest beginning of the body; else
/// no body and the longest beginning of every choice.
fn fitted(
    input: &Input,
    limit: usize,
    special: usize,
    encode: impl Fn(&Input) -> Result<Vec<u32>>,
) -> Result<(Vec<u32>, Cut)> {
    let whole = encode(input)?;
    if whole.len() <= limit {
        return Ok((whole, Cut::Nothing));
    }
    let body = |body| encode(&shortened(input, body, usize::MAX));
    let length = input.pair.as_ref().unwrap_or(&input.text).chars().count();
    if let Some(ids) = longest(length, limit, body)? {
        return Ok((ids, Cut::Body));
    }
    let choices = |choice| encode(&shortened(input, 0, choice));
    let texts = input.choices.iter().chain([&input.text]);
    let length = texts.map(|text| text.chars().count()).max().unwrap_or_default();
    if let Some(ids) = longest(length, limit, choices)? {
        return Ok((ids, Cut::Choices));
    }
    let found = choices(0)?.len() + special;
    let (max_length, item) = (limit + special, head(input.text.trim(), NAME));
    Err(anyhow!(
        "item `{item}`: the prompt takes {found} tokens without what may be cut, but the limit is {max_length}"
    ))
}

/// The question with at most `body` characters of its passage, or of the question where there is no passage, and at most
/// `choice` of every other text.
fn shortened(input: &Input, body: usize, choice: usize) -> Input {
    let cut = |text: &String, most| head(text, most).to_owned();
    Input {
        text: cut(&input.text, if input.pair.is_some() { choice } else { body }),
        pair: input.pair.as_ref().map(|passage| cut(passage, body)),
        choices: input.choices.iter().map(|text| cut(text, choice)).collect(),
        numbered: input.numbered,
    }
}

fn special(tokenizer: &TextTokenizer, id: Option<u32>, what: &str) -> Result<u32> {
    let file = file(tokenizer);
    id.ok_or_else(|| {
        anyhow!("tokenizer `{file}` has no {what} token, which prompts for a decoder need")
    })
}

/// A decoder answers with the logits of a few tokens at its last position. Each prompt set finds them in its own way,
/// and a vocabulary may thwart it: large ones have a token for every label, a small one spells `True` and
/// `False` in pieces that end alike. Whatever is found is checked before anything is trained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerToken {
    pub label: String,
    pub id: u32,
    pub piece: String,
    /// Number of tokens that the whole label takes; the others are not looked at.
    pub n_pieces: usize,
}

/// Finds the tokens of labels, in class order.
///
/// | prompt set | token of a label |
/// |---|---|
/// | `blob` | the last one of the label encoded by itself |
/// | `laplace` | the first one of the label encoded by itself |
/// | `clean` | of the tokens that follow the cue in `{cue} {label}`, the first that no other label has |
///
/// With the vocabulary of Llama-2 every label is one token and the three agree. The last rule works with any
/// vocabulary that tells the labels apart at all, down to single bytes.
pub fn answer_tokens(
    tokenizer: &TextTokenizer,
    labels: &[&str],
    prompt: PromptSet,
    cue: &str,
) -> Result<Vec<AnswerToken>> {
    let bare = BareTokens::new(tokenizer)?;
    let pieces = labels
        .iter()
        .map(|label| match prompt {
            PromptSet::Blob | PromptSet::Laplace => bare.ids(label),
            PromptSet::Clean => bare.following(cue, &format!(" {label}")),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut answers: Vec<AnswerToken> = Vec::with_capacity(labels.len());
    for (class, label) in labels.iter().enumerate() {
        let own = &pieces[class];
        let found = match prompt {
            PromptSet::Blob => own.last(),
            PromptSet::Laplace => own.first(),
            PromptSet::Clean => {
                let elsewhere = |id: &u32| {
                    pieces.iter().enumerate().any(|(other, ids)| other != class && ids.contains(id))
                };
                // Without a distinct one, the first will collide and be named below.
                own.iter().find(|id| !elsewhere(id)).or(own.first())
            }
        };
        let without = || {
            anyhow!(
                "wrong label token: `{label}` has no distinct token in tokenizer `{}`",
                file(tokenizer)
            )
        };
        let id = *found.ok_or_else(without)?;
        let piece = tokenizer.token(id)?;
        if is_special(tokenizer, id) {
            let tokenizer = file(tokenizer);
            bail!(
                "wrong label token: `{label}` becomes the special token `{piece}` (id {id}) of tokenizer \
                 `{tokenizer}`"
            );
        }
        answers.push(AnswerToken { label: (*label).into(), id, piece, n_pieces: own.len() });
    }
    check_distinct(tokenizer, &answers, &pieces, prompt)?;
    Ok(answers)
}

/// Rejects labels that take more than one token, as a run that is to be compared with published numbers must.
pub fn require_single(tokenizer: &TextTokenizer, answers: &[AnswerToken]) -> Result<()> {
    match answers.iter().find(|answer| answer.n_pieces != 1) {
        None => Ok(()),
        Some(AnswerToken { label, n_pieces, .. }) => Err(anyhow!(
            "wrong label token: `{label}` is {pieces} tokens in tokenizer `{tokenizer}`, expected a single one",
            pieces = *n_pieces,
            tokenizer = file(tokenizer)
        )),
    }
}

/// Compares with ids that are known of the model, by label; labels that are not listed pass.
pub fn check_known(
    tokenizer: &TextTokenizer,
    answers: &[AnswerToken],
    known: &[(&str, u32)],
) -> Result<()> {
    for AnswerToken { label, id, .. } in answers {
        let listed = known.iter().find(|(name, _)| name == label);
        if let Some(&(_, expected)) = listed.filter(|(_, expected)| expected != id) {
            let tokenizer = file(tokenizer);
            bail!(
                "wrong label token: `{label}` has id {id} in tokenizer `{tokenizer}`, expected {expected}"
            );
        }
    }
    Ok(())
}

/// Label ids of the vocabulary of Llama-2.
pub const LLAMA_2_LABELS: [(&str, u32); 7] =
    [("A", 319), ("B", 350), ("C", 315), ("D", 360), ("E", 382), ("True", 5_852), ("False", 7_700)];

/// No label has a token that stands for another one; for `clean`, nor one that occurs in it.
fn check_distinct(
    tokenizer: &TextTokenizer,
    answers: &[AnswerToken],
    pieces: &[Vec<u32>],
    prompt: PromptSet,
) -> Result<()> {
    for (class, answer) in answers.iter().enumerate() {
        let collides = |other: usize| {
            let within = prompt == PromptSet::Clean && pieces[other].contains(&answer.id);
            other != class && (answers[other].id == answer.id || within)
        };
        if let Some(other) = (0..answers.len()).find(|other| collides(*other)) {
            bail!(
                "wrong label token: labels `{first}` and `{second}` are both `{piece}` (id {id}) in tokenizer \
                 `{tokenizer}` under prompt set `{prompt}`; use another prompt set or tokenizer",
                first = answer.label,
                second = answers[other].label,
                piece = answer.piece,
                id = answer.id,
                tokenizer = file(tokenizer),
                prompt = prompt.name()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
