//! Prompts as token ids, with the small vocabularies in the repository.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use lrvd_models::tokenizer::TextTokenizer;

use super::*;
use crate::data::{Label, Origin, Split, SplitName, quick};
use crate::error::Result;

/// 690 pieces with byte fallback, `<s>` before every text.
fn llama() -> TextTokenizer {
    tokenizer("llama2_spm_bpe")
}

fn tokenizer(name: &str) -> TextTokenizer {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden/tokenizers");
    TextTokenizer::from_dir(&folder.join(name)).unwrap()
}

fn item(id: &str, question: &str, texts: &[&str], answer: usize) -> ChoiceItem {
    let choices = LETTERS.iter().zip(texts);
    let choices =
        choices.map(|(l, t)| Choice { label: (*l).to_owned(), text: (*t).to_owned() }).collect();
    ChoiceItem { id: id.into(), passage: None, question: question.into(), choices, answer }
}

fn yes_no(passage: &str, answer: usize) -> ChoiceItem {
    let question = "was the river high".to_owned();
    let mut item = item("0", &question, &["False", "True"], answer);
    item.passage = Some(passage.into());
    item
}

fn data(set: ReasoningSet, items: &[ChoiceItem]) -> ReasoningData {
    let split = |name| Split {
        name,
        origin: Origin::Generated,
        files: Vec::new(),
        examples: items.to_vec(),
    };
    let notes = vec!["made up".to_owned()];
    ReasoningData {
        set,
        train: split(SplitName::Train),
        validation: split(SplitName::Validation),
        notes,
    }
}

fn four() -> ChoiceItem {
    item("four", "What is it?", &["a cat", "a dog", "the sun", "rain"], 2)
}

fn bare(tokenizer: &TextTokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, None, None).unwrap().ids[1..].to_vec()
}

#[test]
fn each_prompt_set_finds_its_label_tokens() {
    let llama = llama();
    let ids = |set, prompt| -> Result<Vec<u32>> {
        Ok(answer_tokens(&llama, set, prompt)?.iter().map(|answer| answer.id).collect())
    };
    // By tokenizers 0.23.3: A is 334; B is 618 69, that is a space and a byte; C 363; D 618 662; E 549.
    let letters = [334, 69, 363, 662, 549];
    assert_eq!(ids(ReasoningSet::ArcC, PromptSet::Blob).unwrap(), letters);
    assert_eq!(ids(ReasoningSet::ArcC, PromptSet::Clean).unwrap(), letters);
    assert_eq!(ids(ReasoningSet::Obqa, PromptSet::Clean).unwrap(), letters[..4]);
    assert_eq!(ids(ReasoningSet::WgS, PromptSet::Laplace).unwrap(), [334, 618]);
    // False is 618 676 352 622 619, True is 290 359 619: their last tokens are the same, their first are not.
    assert_eq!(ids(ReasoningSet::BoolQ, PromptSet::Laplace).unwrap(), [618, 290]);
    assert_eq!(ids(ReasoningSet::BoolQ, PromptSet::Clean).unwrap(), [618, 290]);
    let error = ids(ReasoningSet::BoolQ, PromptSet::Blob).unwrap_err().to_string();
    assert!(error.contains("labels `True` and `False` are both `e` (id 619)"), "{error}");
    let error = ids(ReasoningSet::ArcC, PromptSet::Laplace).unwrap_err().to_string();
    assert!(error.contains("labels `B` and `D` are both"), "{error}");
}

#[test]
fn wrong_label_tokens_are_rejected() {
    let llama = llama();
    let answers = answer_tokens(&llama, ReasoningSet::Obqa, PromptSet::Clean).unwrap();
    let error = require_single(&llama, &answers).unwrap_err().to_string();
    assert!(error.starts_with("wrong label token: `B` is 2 tokens"), "{error}");
    assert!(require_single(&llama, &answers[..1]).is_ok());
    let error = check_known(&llama, &answers, &LLAMA_2_LABELS).unwrap_err().to_string();
    assert!(error.starts_with("wrong label token: `A` has id 334"), "{error}");
    assert!(check_known(&llama, &answers, &[("A", 334), ("E", 1)]).is_ok());
}

#[test]
fn a_decoder_reads_begin_prompt_and_end() {
    let llama = llama();
    for (set, prompt, end) in [
        (ReasoningSet::WgS, PromptSet::Blob, true),
        (ReasoningSet::ArcE, PromptSet::Blob, false),
        (ReasoningSet::Obqa, PromptSet::Clean, false),
        (ReasoningSet::WgS, PromptSet::Clean, false),
        (ReasoningSet::BoolQ, PromptSet::Laplace, true),
    ] {
        let one = match set {
            ReasoningSet::BoolQ => yes_no("It was.", 1),
            ReasoningSet::WgS => item("two", "The _ was high.", &["river", "wall"], 0),
            _ => four(),
        };
        let config = EncodeConfig::decoder(prompt, 300);
        let task =
            ReasoningTask::new(&data(set, std::slice::from_ref(&one)), &llama, config).unwrap();
        let mut expected = vec![1];
        expected.extend(bare(&llama, &prompt.text(set, &one)));
        expected.extend(end.then_some(2));
        assert_eq!(task.train[0].ids, expected, "{set} {prompt}");
        assert_eq!(task.train[0].type_ids, vec![0; expected.len()]);
        assert_eq!(task.train[0].label, Label::Class(one.answer));
        assert_eq!(task.pad_id, 1);
        assert_eq!(task.classes, task.answers.len());
        assert_eq!(task.goal().classes, task.labels);
        assert_eq!(task.train_cut.total() + task.validation_cut.total(), 0);
    }
}

#[test]
fn published_prompts_lose_their_cue_and_ours_do_not() {
    let llama = llama();
    let passage = "The river was high and the man was on the other side. ".repeat(20);
    let long = data(ReasoningSet::BoolQ, &[yes_no(&passage, 1), yes_no("It was.", 0)]);
    let max_length = 120;

    let config = EncodeConfig::decoder(PromptSet::Laplace, max_length);
    let task = ReasoningTask::new(&long, &llama, config).unwrap();
    assert_eq!(task.train_cut, CutCounts { right: 1, body: 0, choices: 0 });
    let whole = bare(&llama, &PromptSet::Laplace.text(ReasoningSet::BoolQ, &yes_no(&passage, 1)));
    let ids = &task.train[0].ids;
    assert_eq!((ids.len(), ids[0], ids[max_length - 1]), (max_length, 1, 2));
    assert_eq!(ids[1..max_length - 1], whole[..max_length - 2]);
    let note = "train: 1 of 2 prompts lost their answer cue, wholly or in part at 120 tokens";
    assert!(task.notes.contains(&note.to_owned()), "{:?}", task.notes);

    let config = EncodeConfig::decoder(PromptSet::Clean, max_length);
    let task = ReasoningTask::new(&long, &llama, config).unwrap();
    assert_eq!(task.validation_cut, CutCounts { right: 0, body: 1, choices: 0 });
    let ids = &task.train[0].ids;
    assert!((max_length - 3..=max_length).contains(&ids.len()), "{}", ids.len());
    let text = llama.decode(ids, true).unwrap();
    assert!(text.starts_with("Read the passage below"), "{text}");
    assert!(text.contains("Passage: The river was high"), "{text}");
    assert!(text.ends_with("Question: was the river high\nAnswer (true or false):"), "{text}");
    assert_eq!(
        task.train[1].ids.len(),
        1 + bare(&llama, &PromptSet::Clean.text(ReasoningSet::BoolQ, &yes_no("It was.", 0))).len()
    );
    assert!(
        task.notes[0] == "made up" && task.notes.iter().any(|n| n.contains("end of their passage"))
    );
}

#[test]
fn choices_are_cut_when_the_question_is_gone_and_then_there_is_an_error() {
    let llama = llama();
    let texts = ["the river was high ".repeat(12), "the man ".repeat(9), "x".into(), "y".into()];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let long = data(ReasoningSet::Obqa, &[item("7-1", "Why is it so?", &texts, 3)]);
    let at = |max_length| {
        let config = EncodeConfig::decoder(PromptSet::Clean, max_length);
        ReasoningTask::new(&long, &llama, config)
    };
    let task = at(120).unwrap();
    assert_eq!(task.train_cut, CutCounts { right: 0, body: 0, choices: 1 });
    let text = llama.decode(&task.train[0].ids, true).unwrap();
    assert!(task.train[0].ids.len() <= 120 && text.ends_with("C) x\nD) y\nAnswer:"), "{text}");
    assert!(text.contains("Question: \nChoices:\nA) the river"), "{text}");
    let error = at(40).unwrap_err().to_string();
    assert!(error.starts_with("item `7-1`") && error.ends_with("the limit is 40"), "{error}");
    let error = at(1).unwrap_err().to_string();
    let expected = "`max_length` should be more than 1, the number of special tokens, found 1";
    assert_eq!(error, expected);
}

#[test]
fn an_encoder_reads_the_prompt_up_to_its_cue() {
    let deberta = tokenizer("deberta_v3_unigram");
    let config = EncodeConfig::encoder(PromptSet::Clean, 300);
    let task = ReasoningTask::new(&data(ReasoningSet::ArcC, &[four()]), &deberta, config).unwrap();
    let text = "Return the label of the correct answer for the question below.\n\n\
                Question: What is it?\nChoices:\nA) a cat\nB) a dog\nC) the sun\nD) rain";
    assert_eq!(task.train[0].ids, deberta.encode(text, None, None).unwrap().ids);
    assert!(task.answers.is_empty() && task.classes == 5);
    assert_eq!(Some(task.pad_id), deberta.special_tokens().pad);

    let passage = "The river was high and the man was on the other side. ".repeat(20);
    let long = data(ReasoningSet::BoolQ, &[yes_no(&passage, 1)]);
    for (prompt, counts) in [
        (PromptSet::Clean, CutCounts { right: 0, body: 1, choices: 0 }),
        (PromptSet::Blob, CutCounts { right: 1, body: 0, choices: 0 }),
    ] {
        let config = EncodeConfig::encoder(prompt, 90);
        let task = ReasoningTask::new(&long, &deberta, config).unwrap();
        assert_eq!(task.train_cut, counts);
        let ids = &task.train[0].ids;
        assert!((86..=90).contains(&ids.len()), "{}", ids.len());
        let special = deberta.special_tokens();
        assert_eq!((Some(ids[0]), ids.last().copied()), (special.cls, special.sep));
    }
}

#[test]
fn items_that_a_prompt_set_does_not_use_are_counted() {
    let three = item("three", "What is it?", &["a", "b", "c"], 0);
    let both = data(ReasoningSet::ArcC, &[three.clone(), four()]);
    let encoder = tokenizer("deberta_v3_unigram");
    let config = EncodeConfig::encoder(PromptSet::Laplace, 300);
    let task = ReasoningTask::new(&both, &encoder, config).unwrap();
    assert_eq!((task.classes, task.train.len()), (4, 1));
    assert_eq!(task.validation_ids, ["four"]);
    let note = "validation: 1 items are left out, as prompt set `laplace` wants it";
    assert!(task.notes.contains(&note.to_owned()), "{:?}", task.notes);
    let none = data(ReasoningSet::ArcC, &[three]);
    let error = ReasoningTask::new(&none, &encoder, config).unwrap_err().to_string();
    assert_eq!(error, "the train split of `arc-c` has no item for prompt set `laplace`");
}

#[test]
fn another_set_is_answered_with_the_labels_of_this_one() {
    let llama = llama();
    let config = EncodeConfig::decoder(PromptSet::Clean, 300);
    let task = ReasoningTask::new(&data(ReasoningSet::Obqa, &[four()]), &llama, config).unwrap();
    let five = item("five", "What is it?", &["a", "b", "c", "d", "e"], 4);
    let other = data(ReasoningSet::ArcE, &[five.clone(), four()]);
    let encoded = task.encode_for(&other, &llama).unwrap();
    assert_eq!((encoded.ids.as_slice(), encoded.left_out), (&["four".to_owned()][..], 1));
    assert_eq!(encoded.examples[0], task.validation[0]);
    let error = task.encode_for(&data(ReasoningSet::ArcE, &[five]), &llama).unwrap_err();
    assert!(error.to_string().contains("split of `arc-e` has no item"), "{error}");
    let error = task.encode_for(&data(ReasoningSet::BoolQ, &[yes_no("x", 0)]), &llama);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("which are no labels of `boolq` (`False`, `True`)"), "{error}");
}

#[test]
fn a_decoder_needs_its_special_tokens() {
    let plain = tokenizer("byte_level_bpe");
    let special = plain.special_tokens();
    let config = EncodeConfig::decoder(PromptSet::Clean, 300);
    let task = ReasoningTask::new(&data(ReasoningSet::Obqa, &[four()]), &plain, config);
    match special.bos {
        Some(bos) => assert_eq!(task.unwrap().train[0].ids[0], bos),
        None => assert!(task.unwrap_err().to_string().contains("no beginning-of-text token")),
    }
}

#[test]
fn the_shipped_sets_are_read_and_marked_as_generated() {
    let dir = tempfile::tempdir().unwrap();
    quick::REASONING.write(dir.path()).unwrap();
    for (set, rows) in [
        (ReasoningSet::WgS, 640),
        (ReasoningSet::ArcC, 640),
        (ReasoningSet::ArcE, 2_000),
        (ReasoningSet::WgM, 2_000),
        (ReasoningSet::Obqa, 2_000),
    ] {
        let data = load(dir.path(), set).unwrap();
        assert_eq!((data.train.rows(), data.validation.rows()), (rows, 400), "{set}");
        assert_eq!(data.train.origin, Origin::Generated);
        let noise = format!(
            "label noise: {} of {rows} train and 20 of 400 validation answers are changed at random; best reachable \
             validation accuracy 0.950",
            rows / 20
        );
        let name = set.display_name();
        let origin = format!("generated by a grammar from seed 1, not real {name}");
        assert_eq!(data.notes, [origin, noise]);
    }
}
