//! Questions of a user's own: asked by the prompts of `clean`, as those of ARC are, also about a passage; or as a suite asks
//! those of its sets.

use lrvd_models::tokenizer::TextTokenizer;
use serde::{Deserialize, Serialize};

use super::answer::{AnswerToken, find, split_labels};
use super::encode::{EncodeConfig, InputForm, PromptEncoder};
use super::set::Layout;
use super::{Choice, ChoiceItem, LETTERS, PromptSet, ReasoningSet};
use crate::data::batch::TokenisedExample;
use crate::data::{Label, Texts, Wording};
use crate::error::Result;
use crate::text::head;

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
        let wanted = "Return the label of the correct answer for the question below.\n\n\
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
            let whole = tokenizer.encode(&format!("{wanted}{cue}"), None, None).unwrap().ids;
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
            let wanted = encoder.encode(set, &[item(asked)], 2).unwrap().examples.remove(0);
            assert_eq!(own.encode(asked, Label::Class(0)).unwrap().0.ids, wanted.ids, "{prompt}");
            let tokens = super::super::answer_tokens(&tokenizer, set, prompt).unwrap();
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
