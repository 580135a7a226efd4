//! How a model reads examples: segments for an encoder, prompts and answers for a language model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{anyhow, bail};
use lrvd_models::tokenizer::TextTokenizer;

use super::batch::{PreparedTask, TokenisedExample, widest};
use super::tokens::{
    AnswerToken, BareTokens, Cut, answer_tokens, longest, reached, require_single,
};
use super::wording::{QuestionForm, is_wide, trimmed};
use super::{At, Example, Input, Label, Place, SplitName, Wording, labelled_row};
use crate::answers::{LETTERS, Readout};
use crate::error::{Error, Kind, Result, kind_of};
use crate::settings::PromptSet;
use crate::task::Goal;
use crate::text::head;

const NAME: usize = 60;
/// Fewest tokens that are read once for several questions.
const SHARED: usize = 64;
/// Most tokens of scored choices that a model reads for a question.
const SCORED: usize = 2048;
/// Characters that a token seldom exceeds on average.
const CHARACTERS: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    pub examples: Vec<TokenisedExample>,
    pub ids: Vec<String>,
    pub places: Vec<At>,
    /// Number of prompts that lost something, by kind of loss.
    pub cut: BTreeMap<Cut, usize>,
    /// Tokens of the longest of them, before anything was cut.
    pub longest: usize,
    /// Questions that the prompt set does not use, or that have more choices than there are labels.
    pub left_out: usize,
}

/// Kind of model that reads the prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputForm {
    /// A decoder with a vocabulary head: `<s> prompt`, with `</s>` where the prompt set appends it. The answer is read
    /// off the last position, at the label tokens.
    Decoder,
    /// An encoder with a classifier: the prompt up to its cue as one segment, special tokens as the tokenizer puts
    /// them. The classes are the labels.
    Encoder,
}

/// Form in which a model reads an example. Batches are padded on the right whatever the model: a causal model reads its
/// answer at each row's last token, which sees no later token.
#[derive(Debug)]
pub struct TextReader<'a> {
    tokenizer: &'a TextTokenizer,
    asked: Asked<'a>,
    max_length: usize,
    /// Tokens that stand for the classes, in class order; none for an encoder or where a number is learnt.
    pub answers: Vec<AnswerToken>,
    /// The token that fills a batch, which nothing reads.
    pub(crate) pad_id: u32,
}

#[derive(Debug)]
enum Asked<'a> {
    /// Of an encoder: `[CLS] a [SEP] b [SEP]`, cut longest first. Of a typed question the state alone.
    Segments,
    /// Of a language model: a question in words. The prompt starts as the tokenizer starts every text and ends with the
    /// template's end; the answer is read at its last token. What is too long loses the ends of its texts, the longer one
    /// first.
    Words {
        wording: &'a Wording,
        task: &'a str,
        tokens: BareTokens<'a>,
        /// Tokens of each answer, where not every one is a single token.
        scored: Option<Arc<[Vec<u32>]>>,
    },
    /// Of either: a question with its choices, of which at most `letters` go by letters.
    Questions {
        form: QuestionForm,
        kind: InputForm,
        letters: usize,
        /// `true` if rows are a user's: trimmed, and answered by as many classes as they have choices. Those of a task are
        /// read verbatim and answered by all labels.
        own: bool,
        tokens: BareTokens<'a>,
    },
}

impl<'a> TextReader<'a> {
    pub(crate) fn segments(tokenizer: &'a TextTokenizer, max_length: usize) -> Self {
        let pad_id = tokenizer.special_tokens().pad.unwrap_or(0);
        Self { tokenizer, asked: Asked::Segments, max_length, answers: Vec::new(), pad_id }
    }

    /// Texts of `task` in a prompt; finds and checks the tokens of the answers.
    pub(crate) fn words(
        wording: &'a Wording,
        task: &'a str,
        tokenizer: &'a TextTokenizer,
        max_length: usize,
    ) -> Result<Self> {
        let tokens = BareTokens::new(tokenizer)?;
        let special = tokenizer.special_tokens();
        let pad_id = special.pad.or(special.bos).or(special.eos).unwrap_or(0);
        let found = tokens.opened(&wording.prompt("", None, 0))?.len();
        if found > max_length {
            return Err(too_long(task, found, max_length));
        }
        let cue = wording.prompt("A", Some("B"), 1);
        let single = answer_tokens(tokenizer, &wording.answers, PromptSet::Clean, &cue)
            .and_then(|answers| require_single(tokenizer, &answers).map(|()| answers));
        let (answers, scored) = match single {
            Ok(answers) => (answers, None),
            Err(_) => {
                let scored = scored(&wording.answers, &cue, &tokens).map_err(|error| {
                    anyhow!("task `{task}`: {error}; choose other words with `wording.answers`")
                })?;
                (Vec::new(), Some(scored))
            }
        };
        let asked = Asked::Words { wording, task, tokens, scored };
        Ok(Self { tokenizer, asked, max_length, answers, pad_id })
    }

    /// Questions with choices, answered by `labels`: those of a task, or a user's `own`.
    pub fn questions(
        tokenizer: &'a TextTokenizer,
        kind: InputForm,
        form: QuestionForm,
        labels: &[&str],
        own: bool,
        max_length: usize,
    ) -> Result<Self> {
        let tokens = BareTokens::new(tokenizer)?;
        let special_tokens = tokenizer.special_tokens();
        let (answers, pad_id) = match kind {
            InputForm::Decoder => {
                let pad_id = special(tokenizer, special_tokens.bos, "beginning-of-text")?;
                let answers = match form.readout {
                    Readout::Options => Vec::new(),
                    _ => answer_tokens(tokenizer, labels, form.prompt, form.cue()).map_err(
                        |error| {
                            anyhow!(
                                "{error}; use another prompt set than `{}`, or tokenizer",
                                form.prompt
                            )
                        },
                    )?,
                };
                (answers, pad_id)
            }
            InputForm::Encoder => (Vec::new(), special_tokens.pad.unwrap_or(0)),
        };
        let asked = Asked::Questions { form, kind, letters: labels.len(), own, tokens };
        Ok(Self { tokenizer, asked, max_length, answers, pad_id })
    }

    /// One example, and what its prompt lost.
    pub fn encode(&self, input: &Input, label: Label) -> Result<(TokenisedExample, Cut)> {
        if let Asked::Questions { own: true, form, kind, .. } = &self.asked
            && form.readout != Readout::Options
            && is_wide(input)
        {
            let options = input.choices.len();
            let letters = LETTERS.len();
            return Err(Kind::Input.mark(match kind {
                InputForm::Decoder => anyhow!(
                    "a question with {options} options, and the model answers by one of {letters} letters: train it with \
                     `--readout options`"
                ),
                InputForm::Encoder => anyhow!(
                    "{options} choices, and an encoder answers by one of {letters} letters: train a language model"
                ),
            }));
        }
        let (ids, type_ids, cut) = self.within(input, Some(self.max_length))?;
        let (choices, scored) = match &self.asked {
            Asked::Questions { own: true, form, kind, tokens, .. } => {
                let is_scored = (*kind, form.readout) == (InputForm::Decoder, Readout::Options);
                let score = || scored(&input.choices, form.cue(), tokens);
                (Some(input.choices.len()), is_scored.then(score).transpose()?)
            }
            Asked::Words { scored, .. } => (None, scored.clone()),
            _ => (None, None),
        };
        let row = labelled_row(input, &label);
        let answer = label.into();
        Ok((TokenisedExample { ids, type_ids, choices, scored, prefix: 0, answer, row }, cut))
    }

    /// Number of first tokens of a prompt, `ids`, that every question about its state shares: up to the question or, if
    /// something was `cut`, half of the longest length, so that questions of different lengths share them. 0 where they are too
    /// few to be worth a separate pass.
    pub(crate) fn shared(&self, input: &Input, ids: &[u32], cut: Cut) -> Result<usize> {
        let Asked::Questions { form, kind: InputForm::Decoder, own: true, tokens, .. } =
            &self.asked
        else {
            return Ok(0);
        };
        if ids.len() <= SHARED {
            return Ok(0);
        }
        let unasked = trimmed(&Input { pair: input.pair.clone(), ..Input::default() });
        let length = unasked.pair.as_ref().map_or(0, |state| state.chars().count());
        let text = |room| tokens.ids(&form.verbatim(&shortened(&unasked, room, usize::MAX)));
        let (_, text) = reached(length, ids.len(), text)?;
        let state = [self.pad_id].into_iter().chain(text);
        let shared = state.zip(ids).take_while(|(a, b)| a == *b).count().min(ids.len() - 1);
        let most = if cut == Cut::Nothing { shared } else { self.max_length / 2 };
        Ok(if shared < most || most < SHARED { 0 } else { most })
    }

    /// Tokens before anything is cut, of more text than the tokenizer reads those of a part; and whether something will be cut.
    pub(crate) fn measure(&self, input: &Input) -> Result<(usize, bool)> {
        let (ids, _, cut) = self.within(input, None)?;
        Ok((ids.len(), ids.len() > self.max_length || cut != Cut::Nothing))
    }

    /// Token ids and segment ids within a limit, and what was cut. Of more text than the tokenizer reads only a part is looked at.
    fn within(&self, input: &Input, limit: Option<usize>) -> Result<(Vec<u32>, Vec<u32>, Cut)> {
        match self.readable(input) {
            None => self.readable_within(input, limit),
            Some(part) => {
                let (ids, type_ids, cut) = self.readable_within(&part, limit)?;
                Ok((ids, type_ids, cut.max(Cut::Text)))
            }
        }
    }

    /// The texts of `input` cut to what the tokenizer reads, with room for the words around them; `None` if it reads all.
    fn readable(&self, input: &Input) -> Option<Input> {
        let most = self.tokenizer.longest_text() / 4 * 3;
        let Input { text, pair, choices, numbered, kind } = input;
        let lengths = [text].into_iter().chain(pair).chain(choices).map(String::len);
        if lengths.clone().sum::<usize>() <= most {
            return None;
        }
        let each = most / lengths.count();
        let cut = |text: &String| self.tokenizer.part(text, each).to_owned();
        Some(Input {
            text: cut(text),
            pair: pair.as_ref().map(cut),
            choices: choices.iter().map(cut).collect(),
            numbered: *numbered,
            kind: *kind,
        })
    }

    fn readable_within(
        &self,
        input: &Input,
        limit: Option<usize>,
    ) -> Result<(Vec<u32>, Vec<u32>, Cut)> {
        let (ids, cut) = match &self.asked {
            Asked::Segments => {
                let (text, pair) = match (input.kind, &input.pair) {
                    // The state of the one question that the encoder answers.
                    (Some(_), Some(state)) => (state, None),
                    (_, pair) => (&input.text, pair.as_deref()),
                };
                let encoded = self.tokenizer.encode(text, pair, limit)?;
                let (ids, type_ids) = (encoded.get_ids(), encoded.get_type_ids());
                let is_cut = !encoded.get_overflowing().is_empty();
                let cut = if is_cut { Cut::Text } else { Cut::Nothing };
                return Ok((ids.to_vec(), type_ids.to_vec(), cut));
            }
            Asked::Words { wording, task, tokens, .. } => {
                let prompt =
                    |room| tokens.opened(&wording.prompt(&input.text, input.pair.as_deref(), room));
                worded(input, task, limit, prompt)?
            }
            Asked::Questions { form, kind, own, tokens, .. } => {
                let own = own.then(|| trimmed(input));
                let input = own.as_ref().unwrap_or(input);
                let limit = limit.unwrap_or(usize::MAX);
                match kind {
                    InputForm::Decoder => self.decoder_ids(*form, tokens, input, limit)?,
                    InputForm::Encoder => self.encoder_ids(*form, input, limit)?,
                }
            }
        };
        let type_ids = vec![0; ids.len()];
        Ok((ids, type_ids, cut))
    }

    /// `true` if the prompt set does not use this question, or it has more choices than there are labels.
    fn leaves_out(&self, input: &Input) -> bool {
        match &self.asked {
            Asked::Questions { form, letters, own: false, .. } => {
                !form.prompt.uses(form.task, input) || input.choices.len() > *letters
            }
            _ => false,
        }
    }

    /// `<s> prompt [</s>]`. The special tokens stay whatever is cut, as Hugging Face's truncation keeps them.
    fn decoder_ids(
        &self,
        form: QuestionForm,
        tokens: &BareTokens<'_>,
        input: &Input,
        max_length: usize,
    ) -> Result<(Vec<u32>, Cut)> {
        let QuestionForm { task, prompt, .. } = form;
        let mut ids = vec![self.pad_id];
        let end = self.tokenizer.special_tokens().eos;
        let end = prompt.of(task).ends.then(|| special(self.tokenizer, end, "end-of-text"));
        let end = end.transpose()?;
        let frame = ids.len() + usize::from(end.is_some());
        if max_length <= frame {
            let expected = format!("more than {frame}, the number of special tokens");
            return Err(lrvd_models::Error::argument("max_length", expected, max_length).into());
        }
        let limit = max_length - frame;
        let encode = |input: &Input| Ok(tokens.ids(&form.verbatim(input))?);
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
    fn encoder_ids(
        &self,
        QuestionForm { task, prompt, .. }: QuestionForm,
        input: &Input,
        max_length: usize,
    ) -> Result<(Vec<u32>, Cut)> {
        let text = |input: &Input| prompt.text_before_cue(task, input);
        let within = |input: &Input, limit| -> Result<Vec<u32>> {
            Ok(self.tokenizer.encode(&text(input), None, limit)?.get_ids().to_vec())
        };
        let encode = |input: &Input| within(input, None);
        if prompt == PromptSet::Clean {
            return fitted(input, max_length, 0, encode);
        }
        let ids = encode(input)?;
        if ids.len() <= max_length {
            return Ok((ids, Cut::Nothing));
        }
        Ok((within(input, Some(max_length))?, Cut::Right))
    }

    /// The examples of one split, in their order.
    pub fn encode_all(&self, split: SplitName, examples: &[Example]) -> Result<Encoded> {
        let mut encoded = Vec::with_capacity(examples.len());
        let mut ids = Vec::new();
        let mut places = Vec::new();
        let mut cut = BTreeMap::new();
        let mut longest = 0;
        let mut left_out = 0;
        for Example { id, place, input, label } in examples {
            if self.leaves_out(input) {
                left_out += 1;
                continue;
            }
            let (example, lost) =
                self.encode(input, label.clone()).map_err(|error| at(place, &error))?;
            if lost != Cut::Nothing {
                *cut.entry(lost).or_default() += 1;
                longest = self.measure(input)?.0.max(longest);
            }
            encoded.push(example);
            ids.push(id.clone());
            places.push(place.at);
        }
        match &self.asked {
            Asked::Questions { form: QuestionForm { task, prompt, .. }, .. }
                if encoded.is_empty() && left_out > 0 =>
            {
                bail!("the {split} split of `{task}` has no item for prompt set `{prompt}`")
            }
            _ => Ok(Encoded { examples: encoded, ids, places, cut, longest, left_out }),
        }
    }

    /// Remarks for a reader of the results on examples from `from`, one sentence each; they are of a training or of a
    /// command that reads data.
    pub(crate) fn notes(&self, encoded: &Encoded, from: &str, is_trained: bool) -> Vec<String> {
        let rows = encoded.examples.len();
        let length = self.max_length;
        let longest = encoded.longest;
        let note = |(&cut, count): (&Cut, &usize)| {
            let (what, lost) = match &self.asked {
                Asked::Segments => ("rows", "the end of a text"),
                Asked::Words { .. } => ("prompts", "the end of a text"),
                Asked::Questions { kind, .. } => ("prompts", lost(cut, *kind)),
            };
            format!(
                "{from}: {count} of {rows} {what} lost {lost} at {length} tokens; the longest has {longest} \
                 ({option})",
                option = length_option(is_trained)
            )
        };
        let mut notes: Vec<String> = encoded.cut.iter().map(note).collect();
        if let (Asked::Questions { form, .. }, count @ 1..) = (&self.asked, encoded.left_out) {
            let prompt = form.prompt;
            notes.push(format!(
                "{from}: {count} items are left out, as prompt set `{prompt}` wants it"
            ));
        }
        notes
    }

    /// Encodes examples of any origin; `train` may be empty where nothing is trained.
    pub fn prepare(
        &self,
        goal: Goal,
        train: &[Example],
        validation: &[Example],
    ) -> Result<PreparedTask> {
        let mut notes = Vec::from_iter(split_labels(&self.answers));
        if let Asked::Words { scored: Some(_), .. } = &self.asked {
            notes.push("answers of several tokens: the texts of all are scored".to_owned());
        }
        let is_trained = !train.is_empty();
        let mut encode = |split: SplitName, examples| {
            let encoded = self.encode_all(split, examples)?;
            let from = if is_trained { split.to_string() } else { "data".to_owned() };
            notes.extend(self.notes(&encoded, &from, is_trained));
            Ok::<_, Error>(encoded)
        };
        let train = encode(SplitName::Train, train)?.examples;
        let validation = encode(SplitName::Validation, validation)?;
        let labels = widest(goal.answers.width(), train.iter().chain(&validation.examples));
        Ok(PreparedTask {
            labels,
            train,
            validation: validation.examples,
            validation_ids: validation.ids,
            validation_places: validation.places,
            pad_id: self.pad_id,
            answers: self.answers.iter().map(|token| token.id).collect(),
            notes,
            ..PreparedTask::without_examples(goal)
        })
    }
}

/// Option that states the longest input: commands that read data alone have it themselves.
pub(crate) fn length_option(is_trained: bool) -> &'static str {
    if is_trained { "`--max-length` of `lrvd train`" } else { "`--max-length`" }
}

/// The error of the row at `place`, of the same kind.
fn at(place: &Place, error: &Error) -> Error {
    let found = anyhow!("{place}: {error:#}");
    match kind_of(error) {
        Some(kind) => kind.mark(found),
        None => found,
    }
}

/// Labels for which a part of their tokens has to serve.
fn split_labels(answers: &[AnswerToken]) -> Option<String> {
    let split = answers.iter().filter(|answer| answer.pieces.len() > 1);
    let each: Vec<String> = split
        .map(|a| format!("`{}` by `{}` (one of its {} tokens)", a.label, a.piece, a.pieces.len()))
        .collect();
    (!each.is_empty())
        .then(|| format!("labels are distinguished by parts of them: {}", each.join(", ")))
}

/// Remark on prompts of questions that lost something: words for `cut`.
fn lost(cut: Cut, kind: InputForm) -> &'static str {
    match (cut, kind) {
        (Cut::Right, InputForm::Decoder) => "their answer cue, wholly or in part",
        (Cut::Right, InputForm::Encoder) => "their end",
        (Cut::Choices, _) => "their whole passage or question and the end of choices",
        _ => "the end of their passage or question",
    }
}

/// The tokens by which each choice follows the cue. All are cut to as many first tokens as leave [`SCORED`] to be read, those that
/// several choices start with being read once; they must tell the choices apart.
fn scored(choices: &[String], cue: &str, tokens: &BareTokens<'_>) -> Result<Arc<[Vec<u32>]>> {
    let name = |choice: &str| head(choice.trim(), NAME).to_owned();
    let following = tokens.following(cue)?;
    let mut scored = Vec::with_capacity(choices.len());
    for choice in choices {
        // What is cut here is far beyond the tokens that count.
        let text = head(choice.trim(), CHARACTERS * SCORED / choices.len());
        let ids = following(&format!(" {text}"))?;
        if text.is_empty() || ids.is_empty() {
            return Err(Kind::Input.mark(anyhow!("choice `{}` has no tokens", name(choice))));
        }
        if let Some(&id) = ids.iter().find(|&&id| tokens.is_special(id)) {
            let special = tokens.name(id)?;
            let choice = name(choice);
            return Err(Kind::Input
                .mark(anyhow!("choice `{choice}` contains the special token `{special}`")));
        }
        scored.push(ids);
    }
    let most = readable(&scored);
    let mut known = BTreeMap::new();
    for (ids, choice) in scored.iter_mut().zip(choices) {
        ids.truncate(most);
        if let Some(other) = known.insert(ids.clone(), choice) {
            return Err(Kind::Input.mark(anyhow!(
                "choices `{}` and `{}` have the same tokens as far as they are scored: at most {most} of each of {} \
                 choices",
                name(other),
                name(choice),
                choices.len()
            )));
        }
    }
    Ok(scored.into())
}

/// The number of first tokens to which texts are cut so that at most [`SCORED`] are read: what several texts start with is read
/// once, and the last token of each not at all.
fn readable(texts: &[Vec<u32>]) -> usize {
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    let mut read = 0;
    for tokens in 1..longest {
        let starts: BTreeSet<&[u32]> =
            texts.iter().filter(|ids| ids.len() > tokens).map(|ids| &ids[..tokens]).collect();
        read += starts.len();
        if read > SCORED {
            return tokens;
        }
    }
    longest
}

/// The prompt with as much of its texts as fits the limit.
fn worded(
    input: &Input,
    task: &str,
    limit: Option<usize>,
    prompt: impl Fn(usize) -> lrvd_models::Result<Vec<u32>>,
) -> Result<(Vec<u32>, Cut)> {
    let texts = [&input.text].into_iter().chain(&input.pair);
    let length = texts.map(|text| text.trim().chars().count()).max().unwrap_or_default();
    let (most, ids) = reached(length, limit.unwrap_or(usize::MAX), &prompt)?;
    let Some(limit) = limit.filter(|limit| ids.len() > *limit) else {
        return Ok((ids, Cut::Nothing));
    };
    match longest(most, limit, &prompt)? {
        Some(ids) => Ok((ids, Cut::Text)),
        None => Err(Kind::Input.mark(too_long(task, prompt(0)?.len(), limit))),
    }
}

fn too_long(task: &str, found: usize, max_length: usize) -> Error {
    anyhow!(
        "task `{task}`: the prompt takes {found} tokens without its texts, but `max_length` is {max_length}"
    )
}

/// The prompt with as much of its texts as fits `limit` tokens: all; else the longest beginning of the body; else
/// no body and the longest beginning of every choice.
fn fitted(
    input: &Input,
    limit: usize,
    special: usize,
    encode: impl Fn(&Input) -> Result<Vec<u32>>,
) -> Result<(Vec<u32>, Cut)> {
    let body = |body| encode(&shortened(input, body, usize::MAX));
    let length = input.pair.as_ref().unwrap_or(&input.text).chars().count();
    let (length, ids) = reached(length, limit, body)?;
    if ids.len() <= limit {
        return Ok((ids, Cut::Nothing));
    }
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
    let max_length = limit + special;
    let item = head(input.text.trim(), NAME);
    Err(Kind::Input.mark(anyhow!(
        "item `{item}`: the prompt takes {found} tokens without what may be cut, but the limit is {max_length}"
    )))
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
        kind: input.kind,
    }
}

fn special(tokenizer: &TextTokenizer, id: Option<u32>, what: &str) -> Result<u32> {
    let file = tokenizer.file().display();
    id.ok_or_else(|| {
        anyhow!("tokenizer `{file}` has no {what} token, which prompts for a decoder need")
    })
}

#[cfg(test)]
mod tests;
