//! Prompts as token ids, with the small vocabularies in the repository.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use InputForm::{Decoder, Encoder};
use PromptSet::{Blob, Clean, Laplace};

use crate::data::{At, Encoded, Example, Label, Place, SplitName, TextReader};
use crate::task::Goal;

/// 690 pieces with byte fallback, `<s>` before every text.
fn llama() -> TextTokenizer {
    tokenizer("../lrvd-models/tests/golden/tokenizers/llama2_spm_bpe")
}

/// A vocabulary without byte fallback.
fn deberta() -> TextTokenizer {
    tokenizer("../lrvd-models/tests/golden/tokenizers/deberta_v3_unigram")
}

fn tokenizer(folder: &str) -> TextTokenizer {
    TextTokenizer::from_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap()
}

fn example(id: &str, input: Input, label: usize) -> Example {
    let place = Place { file: Path::new("rows.jsonl").into(), at: At::Line(1) };
    Example { id: id.into(), place, input, label: Label::Class(label) }
}

fn item(id: &str, question: &str, texts: &[&str], answer: usize) -> Example {
    let choices = texts.iter().map(ToString::to_string).collect();
    example(id, Input { choices, ..Input::text(question) }, answer)
}

fn yes_no(passage: &str, answer: usize) -> Example {
    let pair = Some(passage.to_owned());
    example("0", Input { pair, ..Input::text("was the river high") }, answer)
}

fn four() -> Example {
    item("four", "What is it?", &["a cat", "a dog", "the sun", "rain"], 2)
}

fn bare(tokenizer: &TextTokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, None, None).unwrap().ids[1..].to_vec()
}

/// A task's questions as a model reads them.
fn reader(
    tokenizer: &TextTokenizer,
    kind: InputForm,
    (task, prompt): (Task, PromptSet),
    max_length: usize,
) -> Result<TextReader<'_>> {
    let (form, labels) = (QuestionForm { task, prompt }, prompt.labels(task));
    Questions::new(tokenizer, kind, form, labels, max_length).map(TextReader::Questions)
}

fn encode(
    tokenizer: &TextTokenizer,
    kind: InputForm,
    form: (Task, PromptSet),
    max_length: usize,
    examples: &[Example],
) -> Result<(Encoded, Vec<String>)> {
    let reader = reader(tokenizer, kind, form, max_length)?;
    let encoded = reader.encode_all(SplitName::Train, examples)?;
    let notes = reader.notes(&encoded, "train");
    Ok((encoded, notes))
}

fn answers(tokenizer: &TextTokenizer, task: Task, prompt: PromptSet) -> Result<Vec<AnswerToken>> {
    answer_tokens(tokenizer, prompt.labels(task), prompt, prompt.cue(task))
}

#[test]
fn each_prompt_set_finds_its_label_tokens() {
    let llama = llama();
    let ids = |task, prompt| -> Result<Vec<u32>> {
        Ok(answers(&llama, task, prompt)?.iter().map(|answer| answer.id).collect())
    };
    // By tokenizers 0.23.3: A is 334; B is 618 69, that is a space and a byte; C 363; D 618 662; E 549.
    let letters = [334, 69, 363, 662, 549];
    assert_eq!(ids(Task::ArcC, Blob).unwrap(), letters);
    assert_eq!(ids(Task::ArcC, Clean).unwrap(), letters);
    assert_eq!(ids(Task::Obqa, Clean).unwrap(), letters[..4]);
    assert_eq!(ids(Task::WgS, Laplace).unwrap(), [334, 618]);
    // False is 618 676 352 622 619, True is 290 359 619: their last tokens are the same, their first are not.
    assert_eq!(ids(Task::BoolQ, Laplace).unwrap(), [618, 290]);
    assert_eq!(ids(Task::BoolQ, Clean).unwrap(), [618, 290]);
    let error = ids(Task::BoolQ, Blob).unwrap_err().to_string();
    assert!(error.contains("labels `True` and `False` are both `e` (id 619)"), "{error}");
    let error = ids(Task::ArcC, Laplace).unwrap_err().to_string();
    assert!(error.contains("labels `B` and `D` are both"), "{error}");
}

#[test]
fn wrong_label_tokens_are_rejected() {
    let llama = llama();
    let answers = answers(&llama, Task::Obqa, Clean).unwrap();
    let error = require_single(&llama, &answers).unwrap_err().to_string();
    assert!(error.starts_with("wrong label token: `B` is 2 tokens"), "{error}");
    assert!(require_single(&llama, &answers[..1]).is_ok());
    let error = check_known(&llama, &answers, &LLAMA_2_LABELS).unwrap_err().to_string();
    assert!(error.starts_with("wrong label token: `A` has id 334"), "{error}");
    assert!(check_known(&llama, &answers, &[("A", 334), ("E", 1)]).is_ok());
    for prompt in PromptSet::ALL {
        let error = answer_tokens(&llama, &["A", "C", "A"], prompt, "Answer:").unwrap_err();
        assert!(error.to_string().contains("labels `A` and `A` are both"), "{error}");
    }
    // A label whose tokens all occur in another one cannot be told from it.
    let error = answer_tokens(&llama, &["D", "DD"], Clean, "Answer:").unwrap_err();
    assert!(error.to_string().contains("labels `D` and `DD` are both"), "{error}");
    let error = answer_tokens(&llama, &["A", ""], Blob, "").unwrap_err();
    assert!(error.to_string().contains("has no distinct token"), "{error}");
    // What a vocabulary without byte fallback lacks is unknown.
    let error = answer_tokens(&deberta(), &["A", "\u{4e2d}"], Blob, "").unwrap_err().to_string();
    assert!(error.contains("becomes the special token"), "{error}");
}

#[test]
fn a_decoder_reads_begin_prompt_and_end() {
    let llama = llama();
    for (task, prompt, end) in [
        (Task::WgS, Blob, true),
        (Task::ArcE, Blob, false),
        (Task::Obqa, Clean, false),
        (Task::WgS, Clean, false),
        (Task::BoolQ, Laplace, true),
    ] {
        let one = match task {
            Task::BoolQ => yes_no("It was.", 1),
            Task::WgS => item("two", "The _ was high.", &["river", "wall"], 0),
            _ => four(),
        };
        let reader = reader(&llama, Decoder, (task, prompt), 300).unwrap();
        let encoded = reader.encode_all(SplitName::Train, std::slice::from_ref(&one)).unwrap();
        let mut expected = vec![1];
        expected.extend(bare(&llama, &prompt.text(task, &one.input)));
        expected.extend(end.then_some(2));
        assert_eq!(encoded.examples[0].ids, expected, "{task} {prompt}");
        assert_eq!(encoded.examples[0].type_ids, vec![0; expected.len()]);
        assert_eq!(
            (encoded.examples[0].answer.label().unwrap(), encoded.examples[0].choices),
            (one.label, None)
        );
        assert_eq!((reader.pad_id(), encoded.cut.len()), (1, 0));
    }
}

#[test]
fn published_prompts_lose_their_cue_and_ours_do_not() {
    let llama = llama();
    let passage = "The river was high and the man was on the other side. ".repeat(20);
    let long = [yes_no(&passage, 1), yes_no("It was.", 0)];
    let max_length = 120;
    let form = (Task::BoolQ, Laplace);
    let (encoded, notes) = encode(&llama, Decoder, form, max_length, &long).unwrap();
    assert_eq!(encoded.cut, BTreeMap::from([(Cut::Right, 1)]));
    let whole = bare(&llama, &Laplace.text(Task::BoolQ, &long[0].input));
    let ids = &encoded.examples[0].ids;
    assert_eq!((ids.len(), ids[0], ids[max_length - 1]), (max_length, 1, 2));
    assert_eq!(ids[1..max_length - 1], whole[..max_length - 2]);
    let note = "train: 1 of 2 prompts lost their answer cue, wholly or in part at 120 tokens";
    assert_eq!(notes, [note]);

    let form = (Task::BoolQ, Clean);
    let (encoded, notes) = encode(&llama, Decoder, form, max_length, &long).unwrap();
    assert_eq!(encoded.cut, BTreeMap::from([(Cut::Body, 1)]));
    let ids = &encoded.examples[0].ids;
    assert!((max_length - 3..=max_length).contains(&ids.len()), "{}", ids.len());
    let text = llama.decode(ids, true).unwrap();
    assert!(text.starts_with("Read the passage below"), "{text}");
    assert!(text.contains("Passage: The river was high"), "{text}");
    assert!(text.ends_with("Question: was the river high\nAnswer (true or false):"), "{text}");
    let short = bare(&llama, &Clean.text(Task::BoolQ, &long[1].input));
    assert_eq!(encoded.examples[1].ids.len(), 1 + short.len());
    assert!(notes[0].contains("end of their passage"), "{notes:?}");
}

#[test]
fn choices_are_cut_when_the_question_is_gone_and_then_there_is_an_error() {
    let llama = llama();
    let texts = ["the river was high ".repeat(12), "the man ".repeat(9), "x".into(), "y".into()];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let long = [item("7-1", "Why is it so?", &texts, 3)];
    let at = |max_length| encode(&llama, Decoder, (Task::Obqa, Clean), max_length, &long);
    let (encoded, _) = at(120).unwrap();
    assert_eq!(encoded.cut, BTreeMap::from([(Cut::Choices, 1)]));
    let ids = &encoded.examples[0].ids;
    let text = llama.decode(ids, true).unwrap();
    assert!(ids.len() <= 120 && text.ends_with("C) x\nD) y\nAnswer:"), "{text}");
    assert!(text.contains("Question: \nChoices:\nA) the river"), "{text}");
    let error = at(40).unwrap_err().to_string();
    assert!(error.starts_with("item `Why is it so?`: the prompt takes"), "{error}");
    assert!(error.ends_with("the limit is 40"), "{error}");
    let error = at(1).unwrap_err().to_string();
    let expected = "`max_length` should be more than 1, the number of special tokens, found 1";
    assert_eq!(error, expected);
}

#[test]
fn an_encoder_reads_the_prompt_up_to_its_cue() {
    let deberta = deberta();
    let reader = reader(&deberta, Encoder, (Task::ArcC, Clean), 300).unwrap();
    let labels = Clean.labels(Task::ArcC);
    let prepared = reader.prepare(Goal::questions("arc-c", labels), &[], &[four()]).unwrap();
    let text = "Return the label of the correct answer for the question below.\n\n\
                Question: What is it?\nChoices:\nA) a cat\nB) a dog\nC) the sun\nD) rain";
    assert_eq!(prepared.validation[0].ids, deberta.encode(text, None, None).unwrap().ids);
    assert!(prepared.answers.is_empty() && prepared.labels == 5);
    assert_eq!(Some(prepared.pad_id), deberta.special_tokens().pad);

    let passage = "The river was high and the man was on the other side. ".repeat(20);
    for (prompt, cut) in [(Clean, Cut::Body), (Blob, Cut::Right)] {
        let long = [yes_no(&passage, 1)];
        let (encoded, _) = encode(&deberta, Encoder, (Task::BoolQ, prompt), 90, &long).unwrap();
        assert_eq!(encoded.cut, BTreeMap::from([(cut, 1)]));
        let ids = &encoded.examples[0].ids;
        assert!((86..=90).contains(&ids.len()), "{}", ids.len());
        let special = deberta.special_tokens();
        assert_eq!((Some(ids[0]), ids.last().copied()), (special.cls, special.sep));
    }
}

#[test]
fn items_that_a_prompt_set_does_not_use_are_counted() {
    let three = item("three", "What is it?", &["a", "b", "c"], 0);
    let (deberta, form) = (deberta(), (Task::ArcC, Laplace));
    let both = [three.clone(), four()];
    let (encoded, notes) = encode(&deberta, Encoder, form, 300, &both).unwrap();
    assert_eq!((encoded.ids.as_slice(), encoded.left_out), (&["four".to_owned()][..], 1));
    assert_eq!(notes, ["train: 1 items are left out, as prompt set `laplace` wants it"]);
    let error = encode(&deberta, Encoder, form, 300, &[three]).unwrap_err().to_string();
    assert_eq!(error, "the train split of `arc-c` has no item for prompt set `laplace`");
}

#[test]
fn a_decoder_needs_its_special_tokens() {
    let plain = tokenizer("../lrvd-models/tests/golden/tokenizers/byte_level_bpe");
    let special = plain.special_tokens();
    let encoded = encode(&plain, Decoder, (Task::Obqa, Clean), 300, &[four()]);
    match special.bos {
        Some(bos) => assert_eq!(encoded.unwrap().0.examples[0].ids[0], bos),
        None => assert!(encoded.unwrap_err().to_string().contains("no beginning-of-text token")),
    }
}

// Questions of a user's own.

fn asked(pair: Option<&str>) -> Input {
    let choices = ["the cat", "a dog "].map(str::to_owned).to_vec();
    Input { pair: pair.map(str::to_owned), choices, ..Input::text(" Who saw the ball? ") }
}

fn own(
    tokenizer: &TextTokenizer,
    kind: InputForm,
    letters: usize,
    length: usize,
) -> TextReader<'_> {
    let form = QuestionForm::default();
    TextReader::Questions(Questions::own(tokenizer, kind, form, letters, length).unwrap())
}

#[test]
fn both_kinds_of_model_read_the_same_question_and_only_one_its_cue() {
    let expected = "Return the label of the correct answer for the question below.\n\n\
                  Passage: The cat did.\nQuestion: Who saw the ball?\nChoices:\nA) the cat\nB) a dog";
    for (name, kind) in [("stories260K", Decoder), ("deberta-v3-nano", Encoder)] {
        let tokenizer = tokenizer(&format!("assets/{name}"));
        let own = own(&tokenizer, kind, 3, 500);
        let asked = asked(Some("The cat did.\n"));
        let (example, cut) = own.encode(&asked, Label::Class(1)).unwrap();
        assert_eq!((example.choices, cut), (Some(2), Cut::Nothing), "{name}");
        assert_eq!(own.measure(&asked).unwrap(), (example.ids.len(), false));
        let cue = if kind == Decoder { "\nAnswer:" } else { "" };
        let whole = tokenizer.encode(&format!("{expected}{cue}"), None, None).unwrap().ids;
        assert_eq!(example.ids, whole, "{name}");
        let TextReader::Questions(questions) = own else { panic!("questions") };
        assert_eq!(questions.answers.len(), if kind == Decoder { 3 } else { 0 });
    }
    let wording = QuestionForm::default().wording(2, false);
    assert!(
        wording.template.ends_with("Question: {text}\nChoices:\nA) …\nB) …\nAnswer:"),
        "{wording:?}"
    );
    assert_eq!(wording.answers, ["A", "B"]);
}

#[test]
fn a_saved_question_is_that_of_its_task() {
    let tokenizer = tokenizer("assets/stories260K");
    let (task, asked) = (Task::WgS, asked(None));
    for prompt in PromptSet::ALL {
        let form = QuestionForm::of(task, prompt).unwrap();
        let own = Questions::own(&tokenizer, Decoder, form, 2, 300).unwrap();
        let of_task = Questions::new(&tokenizer, Decoder, form, prompt.labels(task), 300).unwrap();
        let expected = of_task.encode(&trimmed(&asked)).unwrap();
        assert_eq!(own.encode(&asked).unwrap(), expected, "{prompt}");
        assert_eq!(own.answers, of_task.answers);
        assert_eq!(QuestionForm::of(Task::BoolQ, prompt), None);
    }
}

#[test]
fn a_passage_goes_before_the_question_and_the_choices_when_room_is_short() {
    let tokenizer = tokenizer("assets/stories260K");
    let long = asked(Some(&"once upon a time ".repeat(30)));
    let (frame, _) = own(&tokenizer, Decoder, 2, 1000).measure(&asked(Some("a"))).unwrap();
    let short = own(&tokenizer, Decoder, 2, frame + 9);
    let (example, cut) = short.encode(&long, Label::Class(0)).unwrap();
    let text = tokenizer.decode(&example.ids, true).unwrap();
    assert_eq!(cut, Cut::Body);
    assert!(example.ids.len() <= frame + 9, "{}", example.ids.len());
    let (whole, is_cut) = short.measure(&long).unwrap();
    assert!(is_cut && whole > frame + 9);
    assert!(
        text.contains("Passage: once") && text.contains("Who saw the ball?\nChoices:"),
        "{text}"
    );
    assert!(text.ends_with("B) a dog\nAnswer:"), "{text}");
    let tight = own(&tokenizer, Decoder, 2, 20);
    let error = tight.encode(&long, Label::Class(0)).unwrap_err().to_string();
    assert!(error.starts_with("item `Who saw the ball?`: the prompt takes"), "{error}");
}
