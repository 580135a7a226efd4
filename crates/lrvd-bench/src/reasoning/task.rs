//! A set as the model sees it, and a user's own questions.

use anyhow::bail;
use lrvd_models::tokenizer::TextTokenizer;
use serde::{Deserialize, Serialize};

use super::encode::{
    AnswerToken, CutCounts, EncodeConfig, EncodedItems, InputForm, PromptEncoder, answer_tokens,
    find, split_labels,
};
use super::set::Layout;
use super::{Choice, ChoiceItem, LETTERS, PromptSet, ReasoningData, ReasoningSet};
use crate::data::batch::TokenisedExample;
use crate::data::{Label, PreparedTask, SplitName, Texts, Wording};
use crate::error::Result;
use crate::task::{Goal, Metric};
use crate::text::{head, quoted};

/// Tokenised splits of one set.
///
/// Batches are padded on the right: a decoder's with the beginning-of-text token, an encoder's with its padding
/// token. A causal model reads its answer at each row's last token, which never sees what stands behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningTask {
    pub set: ReasoningSet,
    pub config: EncodeConfig,
    pub classes: usize,
    /// The words that stand for the classes, in class order.
    pub labels: Vec<String>,
    /// Their tokens, for a decoder; empty for an encoder.
    pub answers: Vec<AnswerToken>,
    pub train: Vec<TokenisedExample>,
    pub validation: Vec<TokenisedExample>,
    pub validation_ids: Vec<String>,
    pub pad_id: u32,
    pub train_cut: CutCounts,
    pub validation_cut: CutCounts,
    /// What a reader of the results must know, one sentence each.
    pub notes: Vec<String>,
}

impl ReasoningTask {
    /// The task as training and evaluation take it.
    ///
    /// Batches are padded on the right whatever the model: a causal model reads its answer at each
    /// row's last token, which never sees what stands behind it.
    pub fn prepared(&self) -> PreparedTask {
        PreparedTask {
            labels: self.classes,
            train: self.train.clone(),
            validation: self.validation.clone(),
            validation_ids: self.validation_ids.clone(),
            pad_id: self.pad_id,
            answers: self.answers.iter().map(|answer| answer.id).collect(),
            ..PreparedTask::without_examples(self.goal())
        }
    }

    pub fn new(
        data: &ReasoningData,
        tokenizer: &TextTokenizer,
        config: EncodeConfig,
    ) -> Result<Self> {
        let set = data.set;
        let labels = config.prompt.labels(set);
        let mut notes = data.notes.clone();
        let answers = match config.form {
            InputForm::Decoder => answer_tokens(tokenizer, set, config.prompt)?,
            InputForm::Encoder => Vec::new(),
        };
        notes.extend(split_labels(&answers));
        let encoder = PromptEncoder::new(tokenizer, config)?;
        let mut split = |name: SplitName, items| {
            let encoded = encoder.encode(set, items, labels.len())?;
            notes.extend(notes_on(&encoded, &name.to_string(), config));
            not_empty(encoded, set, name, config.prompt)
        };
        let train = split(SplitName::Train, &data.train.examples)?;
        let validation = split(SplitName::Validation, &data.validation.examples)?;
        Ok(Self {
            set,
            config,
            classes: labels.len(),
            labels: labels.iter().map(ToString::to_string).collect(),
            answers,
            train: train.examples,
            validation: validation.examples,
            validation_ids: validation.ids,
            pad_id: encoder.pad_id()?,
            train_cut: train.cut,
            validation_cut: validation.cut,
            notes,
        })
    }

    /// The validation items of another set, to be answered with the labels of this one: what a model of this task is
    /// shown from another distribution. Items with more choices than labels are left out and counted.
    ///
    /// To score the other set with *its* labels instead (five letters for a model trained on four), see
    /// [`with_letters_of`](Self::with_letters_of).
    pub fn encode_for(
        &self,
        other: &ReasoningData,
        tokenizer: &TextTokenizer,
    ) -> Result<EncodedItems> {
        let prompt = self.config.prompt;
        let theirs = prompt.labels(other.set);
        if self.labels.iter().zip(theirs).any(|(own, other)| own != other) {
            bail!(
                "a model of `{set}` answers with {}, which are no labels of `{other}` ({})",
                quoted(&self.labels),
                quoted(theirs),
                set = self.set.name(),
                other = other.set.name()
            );
        }
        let encoder = PromptEncoder::new(tokenizer, self.config)?;
        let encoded = encoder.encode(other.set, &other.validation.examples, self.classes)?;
        not_empty(encoded, other.set, SplitName::Validation, prompt)
    }

    /// The validation items of another set with the labels of that set: what a language model of this task is asked
    /// with other answer tokens. `None` where the labels are the same, or where answers are no tokens.
    pub fn with_letters_of(
        &self,
        other: &ReasoningData,
        tokenizer: &TextTokenizer,
    ) -> Result<Option<PreparedTask>> {
        let theirs = self.config.prompt.labels(other.set);
        if self.config.form == InputForm::Encoder || self.labels == theirs {
            return Ok(None);
        }
        let task = Self::new(other, tokenizer, self.config)?.prepared();
        Ok(Some(PreparedTask { train: Vec::new(), ..task }))
    }

    /// What a reader of the results must know of prompts of `from`, encoded as this task's are.
    pub(crate) fn notes_on(&self, encoded: &EncodedItems, from: &str) -> Vec<String> {
        notes_on(encoded, from, self.config)
    }

    pub fn goal(&self) -> Goal {
        Goal {
            name: self.set.name().to_owned(),
            classes: self.labels.clone(),
            standard_metrics: Vec::new(),
            selection: Metric::Accuracy,
        }
    }
}

fn not_empty(
    encoded: EncodedItems,
    set: ReasoningSet,
    split: SplitName,
    prompt: PromptSet,
) -> Result<EncodedItems> {
    if encoded.examples.is_empty() {
        bail!(
            "the {split} split of `{set}` has no item for prompt set `{prompt}`",
            set = set.name(),
            prompt = prompt.name()
        );
    }
    Ok(encoded)
}

fn notes_on(encoded: &EncodedItems, split: &str, config: EncodeConfig) -> Vec<String> {
    let EncodeConfig { prompt, form, max_length } = config;
    let CutCounts { right, body, choices } = encoded.cut;
    let rows = encoded.examples.len();
    let lost = match form {
        InputForm::Decoder => "their answer cue, wholly or in part",
        InputForm::Encoder => "their end",
    };
    let cuts = [
        (right, lost),
        (body, "the end of their passage or question"),
        (choices, "their whole passage or question and the end of choices"),
    ];
    let mut notes: Vec<String> = cuts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, lost)| {
            format!("{split}: {count} of {rows} prompts lost {lost} at {max_length} tokens")
        })
        .collect();
    if encoded.left_out > 0 {
        let count = encoded.left_out;
        notes.push(format!(
            "{split}: {count} items are left out, as prompt set `{prompt}` wants it"
        ));
    }
    notes
}

// Questions of a user's own: asked by the prompts of `clean`, as those of ARC are, also about a passage; or as a suite asks
// those of its sets.

/// Characters of a question by which an error names it.
const NAME: usize = 60;

/// How a question with choices is laid out: as the rows of a set are in the prompts of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionForm {
    set: ReasoningSet,
    prompt: PromptSet,
}

impl Default for QuestionForm {
    /// A question, and choices that go by letters, asked by `clean`.
    fn default() -> Self {
        Self { set: ReasoningSet::ArcC, prompt: PromptSet::Clean }
    }
}

impl QuestionForm {
    /// How `prompt` asks the rows of `set`; `None` where they have no choices.
    pub fn of(set: ReasoningSet, prompt: PromptSet) -> Option<Self> {
        (set.spec().layout != Layout::Passage).then_some(Self { set, prompt })
    }

    /// Whether it is that of a user's own questions.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The question that is asked with `letters` choices, and with a passage or without, in words for a record.
    pub(crate) fn wording(self, letters: usize, passage: bool) -> Wording {
        let choices = vec!["…".to_owned(); letters];
        let pair = passage.then_some("{pair}");
        let answers = LETTERS.iter().take(letters).map(ToString::to_string).collect();
        Wording { template: self.text(Texts { text: "{text}", pair, choices: &choices }), answers }
    }

    /// The question as a decoder is asked it, with nothing cut.
    pub(crate) fn text(self, texts: Texts<'_>) -> String {
        self.prompt.text(self.set, &item(texts))
    }
}

/// Turns questions with choices into what a model of either kind reads. The classes are letters.
#[derive(Debug)]
pub struct OwnQuestions<'a> {
    encoder: PromptEncoder<'a>,
    set: ReasoningSet,
    /// For a decoder; empty for an encoder.
    letters: Vec<AnswerToken>,
    pub pad_id: u32,
}

impl<'a> OwnQuestions<'a> {
    /// Finds and checks the tokens of the first `letters` letters, at most as many as there are [`LETTERS`].
    pub fn new(
        tokenizer: &'a TextTokenizer,
        form: InputForm,
        QuestionForm { set, prompt }: QuestionForm,
        letters: usize,
        max_length: usize,
    ) -> Result<Self> {
        let encoder = PromptEncoder::new(tokenizer, EncodeConfig { prompt, form, max_length })?;
        let letters = match form {
            InputForm::Decoder => find(tokenizer, &LETTERS[..letters], prompt, prompt.cue(set))?,
            InputForm::Encoder => Vec::new(),
        };
        Ok(Self { pad_id: encoder.pad_id()?, encoder, set, letters })
    }

    pub(crate) fn max_length(&self) -> usize {
        self.encoder.config.max_length
    }

    pub fn encode(&self, texts: Texts<'_>, label: Label) -> Result<(TokenisedExample, bool)> {
        let (ids, is_cut) = self.encoder.ids(self.set, &item(texts))?;
        let (type_ids, choices) = (vec![0; ids.len()], Some(texts.choices.len()));
        Ok((TokenisedExample { ids, type_ids, choices, label }, is_cut))
    }

    /// Tokens of one question before anything is cut from it.
    pub(crate) fn measure(&self, texts: Texts<'_>) -> Result<usize> {
        Ok(self.encoder.unlimited().ids(self.set, &item(texts))?.0.len())
    }

    /// The tokens of the letters, in their order; none for an encoder.
    pub fn answers(&self) -> Vec<u32> {
        self.letters.iter().map(|letter| letter.id).collect()
    }

    /// What a reader of the results must know of them.
    pub(crate) fn note(&self) -> Option<String> {
        split_labels(&self.letters)
    }
}

fn item(texts: Texts<'_>) -> ChoiceItem {
    let trimmed = |text: &str| text.trim().to_owned();
    let choices = LETTERS.iter().zip(texts.choices);
    let choice = |(label, text): (&&str, &String)| Choice {
        label: (*label).to_owned(),
        text: trimmed(text),
    };
    ChoiceItem {
        id: head(texts.text.trim(), NAME).to_owned(),
        passage: texts.pair.map(trimmed),
        question: trimmed(texts.text),
        choices: choices.map(choice).collect(),
        answer: 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

    fn tokenizer(name: &str) -> TextTokenizer {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name);
        TextTokenizer::from_dir(&folder).unwrap()
    }

    fn texts<'a>(pair: Option<&'a str>, choices: &'a [String]) -> Texts<'a> {
        Texts { text: " Who saw the ball? ", pair, choices }
    }

    #[test]
    fn both_kinds_of_model_read_the_same_question_and_only_one_its_cue() {
        let choices = ["the cat", "a dog "].map(str::to_owned);
        let expected = "Return the label of the correct answer for the question below.\n\n\
                      Passage: The cat did.\nQuestion: Who saw the ball?\nChoices:\nA) the cat\nB) a dog";
        for (name, form) in
            [("stories260K", InputForm::Decoder), ("deberta-v3-nano", InputForm::Encoder)]
        {
            let tokenizer = tokenizer(name);
            let own = OwnQuestions::new(&tokenizer, form, QuestionForm::default(), 3, 500).unwrap();
            let asked = texts(Some("The cat did.\n"), &choices);
            let (example, is_cut) = own.encode(asked, Label::Class(1)).unwrap();
            assert_eq!((example.choices, is_cut), (Some(2), false), "{name}");
            assert_eq!(own.measure(asked).unwrap(), example.ids.len());
            let cue = if form == InputForm::Decoder { "\nAnswer:" } else { "" };
            let whole = tokenizer.encode(&format!("{expected}{cue}"), None, None).unwrap().ids;
            assert_eq!(example.ids, whole, "{name}");
            assert_eq!(own.answers().len(), if form == InputForm::Decoder { 3 } else { 0 });
        }
        let wording = QuestionForm::default().wording(2, false);
        assert!(
            wording.template.ends_with("Question: {text}\nChoices:\nA) …\nB) …\nAnswer:"),
            "{wording:?}"
        );
        assert_eq!(wording.answers, ["A", "B"]);
    }

    #[test]
    fn a_saved_question_is_that_of_its_set() {
        let tokenizer = tokenizer("stories260K");
        let choices = ["the cat", "a dog"].map(str::to_owned);
        let asked = texts(None, &choices);
        let set = ReasoningSet::WgS;
        for prompt in PromptSet::ALL {
            let form = QuestionForm::of(set, prompt).unwrap();
            let own = OwnQuestions::new(&tokenizer, InputForm::Decoder, form, 2, 300).unwrap();
            let config = EncodeConfig { prompt, form: InputForm::Decoder, max_length: 300 };
            let encoder = PromptEncoder::new(&tokenizer, config).unwrap();
            let expected = encoder.encode(set, &[item(asked)], 2).unwrap().examples.remove(0);
            assert_eq!(own.encode(asked, Label::Class(0)).unwrap().0.ids, expected.ids, "{prompt}");
            let tokens = answer_tokens(&tokenizer, set, prompt).unwrap();
            assert_eq!(own.answers(), tokens[..2].iter().map(|t| t.id).collect::<Vec<_>>());
            assert_eq!(QuestionForm::of(ReasoningSet::BoolQ, prompt), None);
        }
    }

    #[test]
    fn a_passage_goes_before_the_question_and_the_choices_when_room_is_short() {
        let tokenizer = tokenizer("stories260K");
        let choices = ["the cat", "a dog"].map(str::to_owned);
        let passage = "once upon a time ".repeat(30);
        let asked = texts(Some(&passage), &choices);
        let (decoder, usual) = (InputForm::Decoder, QuestionForm::default());
        let new = |length| OwnQuestions::new(&tokenizer, decoder, usual, 2, length).unwrap();
        let frame = new(1000).measure(texts(Some("a"), &choices)).unwrap();
        let short = new(frame + 9);
        let (example, is_cut) = short.encode(asked, Label::Class(0)).unwrap();
        let text = tokenizer.decode(&example.ids, true).unwrap();
        assert!(is_cut && example.ids.len() <= frame + 9, "{}", example.ids.len());
        assert!(short.measure(asked).unwrap() > frame + 9);
        assert!(
            text.contains("Passage: once") && text.contains("Who saw the ball?\nChoices:"),
            "{text}"
        );
        assert!(text.ends_with("B) a dog\nAnswer:"), "{text}");
        let error = new(20).encode(asked, Label::Class(0)).unwrap_err().to_string();
        assert!(error.starts_with("item `Who saw the ball?`: the prompt takes"), "{error}");
    }
}
