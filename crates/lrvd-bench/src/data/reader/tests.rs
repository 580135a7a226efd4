//! Prompts as token ids, with the small vocabularies in the repository.

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use InputForm::{Decoder, Encoder};
use PromptSet::{Blob, Clean};

use crate::answers::{LETTERS, Readout};
use crate::data::tokens::{LLAMA_2_LABELS, check_known};
use crate::data::{At, Place};
use crate::error::kind_of;
use crate::task::Task;

/// 690 pieces with byte fallback, `<s>` before every text.
const LLAMA: &str = "../lrvd-models/tests/golden/tokenizers/llama2_spm_bpe";
/// Without byte fallback.
const DEBERTA: &str = "../lrvd-models/tests/golden/tokenizers/deberta_v3_unigram";
const STORIES: &str = "assets/stories260K";

fn tokenizer(folder: &str) -> TextTokenizer {
    TextTokenizer::from_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap()
}

fn example(id: &str, input: Input, label: usize) -> Example {
    let place = Place { file: Path::new("rows.jsonl").into(), at: At::Line(1) };
    Example { id: id.into(), place, input, label: Label::Class(label) }
}

/// Text that a model reads of `examples`, or the error.
fn read(reader: Result<TextReader<'_>>, examples: &[Example]) -> String {
    let read = || {
        let reader = reader?;
        let encoded = reader.encode_all(SplitName::Train, examples)?;
        let mut found = format!("padded by {}\n", reader.pad_id);
        for note in reader.notes(&encoded, "train", true) {
            writeln!(found, "{note}").unwrap();
        }
        for (TokenisedExample { ids, choices, answer, .. }, id) in
            encoded.examples.iter().zip(&encoded.ids)
        {
            let text = reader.tokenizer.decode(ids, false)?;
            let label = answer.label().unwrap();
            writeln!(found, "{id}: {} ids, {choices:?}, {label:?}\n{text:?}", ids.len()).unwrap();
        }
        Ok::<_, Error>(found)
    };
    let found = read().unwrap_or_else(|error| format!("{error}\n"));
    found.replace(env!("CARGO_MANIFEST_DIR"), "")
}

/// Id, question, passage, choices and answer.
type Row = (String, String, Option<String>, Vec<String>, usize);

/// Published prompts lose their cue, and ours do not: choices are cut when the question is gone, and then there is an error.
/// An encoder reads the prompt up to its cue. Items that a prompt set does not use are counted.
#[test]
fn questions_of_tasks_are_read_by_both_kinds_of_model_and_cut_where_they_may() {
    let cases: Vec<(String, String, Task, PromptSet, usize, Vec<Row>)> =
        serde_json::from_str(include_str!("../cases/questions.json")).unwrap();
    let mut found = String::new();
    for (vocabulary, kind, task, prompt, max_length, rows) in cases {
        let tokenizer = tokenizer(&vocabulary);
        let kind = if kind == "Decoder" { Decoder } else { Encoder };
        let form = QuestionForm { task, prompt, readout: Readout::Letters };
        let row = |(id, text, pair, choices, answer): Row| {
            example(&id, Input { text, pair, choices, numbered: false, kind: None }, answer)
        };
        let examples: Vec<Example> = rows.into_iter().map(row).collect();
        let labels = prompt.labels(task);
        let reader = TextReader::questions(&tokenizer, kind, form, labels, false, max_length);
        writeln!(found, "{kind:?} {task} {prompt} {max_length}\n{}", read(reader, &examples))
            .unwrap();
    }
    insta::assert_snapshot!(found);
}

/// By tokenizers 0.23.3: A is 334; B is 618 69, that is a space and a byte; C 363; D 618 662; E 549. False is 618 676 352 622
/// 619, True is 290 359 619: their last tokens are the same, their first are not.
#[test]
fn each_prompt_set_finds_its_label_tokens_or_names_what_is_wrong() {
    let llama = tokenizer(LLAMA);
    let ids = |labels: &[&str], prompt, cue: &str| match answer_tokens(&llama, labels, prompt, cue)
    {
        Ok(answers) => {
            format!("{:?}", answers.iter().map(|a| (a.id, a.pieces.len())).collect::<Vec<_>>())
        }
        Err(error) => error.to_string(),
    };
    let mut found = String::new();
    for prompt in PromptSet::ALL {
        for task in [Task::ArcC, Task::Obqa, Task::WgS, Task::BoolQ] {
            let ids = ids(prompt.labels(task), prompt, prompt.of(task).cue);
            writeln!(found, "{prompt} {task}: {ids}").unwrap();
        }
        let twice = ids(&["A", "C", "A"], prompt, "Answer:");
        writeln!(found, "{prompt}: {twice}").unwrap();
    }
    // A label whose tokens all occur in another one cannot be told from it.
    writeln!(found, "{}", ids(&["D", "DD"], Clean, "Answer:")).unwrap();
    writeln!(found, "{}", ids(&["A", ""], Blob, "")).unwrap();
    // What a vocabulary without byte fallback lacks is unknown.
    let unknown = answer_tokens(&tokenizer(DEBERTA), &["A", "\u{4e2d}"], Blob, "");
    writeln!(found, "{}", unknown.unwrap_err()).unwrap();
    let answers = answer_tokens(&llama, Clean.labels(Task::Obqa), Clean, "Answer:").unwrap();
    assert!(require_single(&llama, &answers[..1]).is_ok());
    writeln!(found, "{}", require_single(&llama, &answers).unwrap_err()).unwrap();
    assert!(check_known(&llama, &answers, &[("A", 334), ("E", 1)]).is_ok());
    writeln!(found, "{}", check_known(&llama, &answers, &LLAMA_2_LABELS).unwrap_err()).unwrap();
    insta::assert_snapshot!(found.replace(env!("CARGO_MANIFEST_DIR"), ""));
}

// Questions of a user's own.

fn asked(pair: Option<&str>) -> Input {
    let choices = ["the cat", "a dog "].map(str::to_owned).to_vec();
    Input { pair: pair.map(str::to_owned), choices, ..Input::text(" Who saw the ball? ") }
}

#[test]
fn a_users_question_is_the_same_for_both_kinds_of_model_and_loses_its_passage_first() {
    let long = "once upon a time ".repeat(30);
    let mut found = String::new();
    for (folder, kind, letters, max_length, passage) in [
        (STORIES, Decoder, 3, 500, Some("The cat did.\n")),
        ("assets/deberta-v3-nano", Encoder, 3, 500, Some("The cat did.\n")),
        (STORIES, Decoder, 2, 160, Some(long.as_str())),
        (STORIES, Decoder, 2, 20, None),
    ] {
        let tokenizer = tokenizer(folder);
        let form = QuestionForm::own(Readout::Letters);
        let own = |length| {
            TextReader::questions(&tokenizer, kind, form, &LETTERS[..letters], true, length)
        };
        let asked = example("own", asked(passage), 1);
        let whole = own(max_length).unwrap().measure(&asked.input).unwrap().0;
        let read = read(own(max_length), std::slice::from_ref(&asked));
        writeln!(found, "{kind:?} {max_length}: {whole} tokens before it is cut\n{read}").unwrap();
    }
    // A saved question is that of its task.
    let tokenizer = tokenizer(STORIES);
    let task = Task::WgS;
    let asked = asked(None);
    for prompt in PromptSet::ALL {
        let form = QuestionForm::of(task, prompt).unwrap();
        let own =
            TextReader::questions(&tokenizer, Decoder, form, &LETTERS[..2], true, 300).unwrap();
        let of_task =
            TextReader::questions(&tokenizer, Decoder, form, prompt.labels(task), false, 300)
                .unwrap();
        let expected = of_task.within(&trimmed(&asked), None).unwrap();
        assert_eq!(own.within(&asked, None).unwrap(), expected, "{prompt}");
        assert_eq!(own.answers, of_task.answers);
        assert_eq!(QuestionForm::of(Task::BoolQ, prompt), None);
    }
    for readout in Readout::OF_OPTIONS {
        let Wording { template, answers } = QuestionForm::own(readout).wording(2, false);
        writeln!(found, "{template:?} {answers:?}").unwrap();
    }
    insta::assert_snapshot!(found);
}

/// A prompt without letters, and the tokens of each choice behind the cue.
#[test]
fn options_are_scored_by_their_texts_if_their_tokens_tell_them_apart() {
    let tokenizer = tokenizer(STORIES);
    let [letters, options] = Readout::OF_OPTIONS.map(|readout| {
        let form = QuestionForm::own(readout);
        TextReader::questions(&tokenizer, Decoder, form, LETTERS, true, 300).unwrap()
    });
    let by = |reader: &TextReader<'_>, choices: Vec<String>| {
        let input =
            Input { pair: Some("It was day.".to_owned()), choices, ..Input::text("Which?") };
        reader.encode(&input, Label::Class(1))
    };
    let asked = |choices: Vec<String>| by(&options, choices);
    let names = |n: usize| (1..=n).map(|i| format!("day {i} ")).collect::<Vec<_>>();
    let (found, cut) = asked(names(30)).unwrap();
    let text = |ids: &[u32]| tokenizer.decode(ids, false).unwrap();
    let scored = found.scored.clone().unwrap();
    assert_eq!((scored.len(), found.choices, cut), (30, Some(30), Cut::Nothing));
    assert!(text(&found.ids).ends_with("Passage: It was day.\nQuestion: Which?\nAnswer:"));
    assert_eq!([0, 29].map(|i| text(&scored[i])), ["day 1", "day 30"]);
    assert_eq!(found.tokens(), found.ids.len() + scored.concat().len());
    // 2048 tokens are read, those that several choices start with once.
    let long = |i: usize| format!("{i:03} {}", "a dog ".repeat(500));
    let (found, _) = asked((0..255).map(long).collect()).unwrap();
    let scored = found.scored.unwrap();
    let starts = |n: usize| scored.iter().map(|ids| &ids[..n]).collect::<BTreeSet<_>>().len();
    let read = |tokens: usize| (1..tokens).map(starts).sum::<usize>();
    let tokens = scored[0].len();
    assert!(scored.iter().all(|ids| ids.len() == tokens));
    assert!(read(tokens) <= SCORED && read(tokens) + 255 > SCORED, "{tokens}");
    let mut same = names(40);
    same[7] = same[3].clone();
    let error = asked(same).unwrap_err();
    assert_eq!(kind_of(&error), Some(Kind::Input));
    assert_eq!(
        error.to_string(),
        "choices `day 4` and `day 4` have the same tokens as far as they are scored: at most 4 of each of 40 choices"
    );
    // Of few options the same, behind the same prompt.
    let (few, _) = asked(names(2)).unwrap();
    let few_scored = few.scored.unwrap();
    let all = asked(names(30)).unwrap().0;
    assert_eq!((few.ids, &few_scored[..]), (all.ids, &all.scored.unwrap()[..2]));
    assert!(options.answers.is_empty());
    // Letters are for 26 at most.
    assert_eq!(by(&letters, names(26)).unwrap().0.scored, None);
    let error = by(&letters, names(27)).unwrap_err();
    assert_eq!(kind_of(&error), Some(Kind::Input));
    assert_eq!(
        error.to_string(),
        "a question with 27 options, and the model answers by one of 26 letters: train it with `--readout options`"
    );
}

type Case = (String, Vec<String>, usize, String, Option<String>);

#[test]
fn prompts_and_answers_are_single_tokens_and_texts_are_cut_the_longer_one_first() {
    // 512 pieces with byte fallback; `<s>` before every text.
    let tokenizer = tokenizer(STORIES);
    let mut found = String::new();
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../cases/worded_texts.json")).unwrap();
    for (template, answers, max_length, text, pair) in cases {
        let wording = Wording { template, answers };
        let input = Input { pair, ..Input::text(text) };
        let read = match TextReader::words(&wording, "tone", &tokenizer, max_length) {
            Ok(reader) => {
                let (ids, _, cut) = reader.within(&input, Some(max_length)).unwrap();
                let read = tokenizer.decode(&ids, false).unwrap();
                let answers: Vec<u32> = reader.answers.iter().map(|token| token.id).collect();
                let pad_id = reader.pad_id;
                format!(
                    "answers {answers:?}, padded by {pad_id}, {cut:?} cut\n    {read:?}\n    {ids:?}\n"
                )
            }
            Err(error) => format!("{error}\n"),
        };
        found += &read;
    }
    insta::assert_snapshot!(found.replace(env!("CARGO_MANIFEST_DIR"), ""));
    let answers = ["it", "big"].map(str::to_owned).to_vec();
    let template = "One: {text}\nTwo: {pair}\nSame:".to_owned();
    let wording = Wording { template, answers };
    let error = TextReader::words(&wording, "tone", &tokenizer, 8).unwrap_err().to_string();
    assert!(error.ends_with("tokens without its texts, but `max_length` is 8"), "{error}");
}

/// The work for a text is that for the part that can be read, and that part is the one of the whole text.
#[test]
fn a_text_far_beyond_the_limit_is_not_encoded_whole() {
    let read = std::cell::Cell::new(0);
    let most = 900_000;
    // A token for every four characters.
    let encode = |characters: usize| {
        read.set(read.get() + characters);
        Ok::<_, Error>(vec![7_u32; characters.div_ceil(4)])
    };
    let (length, ids) = reached(most, 96, encode).unwrap();
    assert!(length < 10_000 && ids.len() > 96, "{length}");
    let cut = longest(length, 96, encode).unwrap();
    assert!(read.get() < 100_000, "{}", read.get());
    assert_eq!(cut, longest(most, 96, encode).unwrap());
    assert_eq!(cut.map(|ids| ids.len()), Some(96));
    for (length, limit) in [(300, 96), (30_000, 7500), (300, usize::MAX), (0, 5)] {
        assert_eq!(reached(length, limit, encode).unwrap().0, length);
    }
}

/// Steps that may make a text 2048 times as long: of one 256 MiB / 6144 are read.
#[test]
fn more_text_than_a_tokenizer_reads_is_cut_as_any_long_text() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(DEBERTA).join("tokenizer.json");
    let mut all: serde_json::Value = crate::io::read_json(&file).unwrap();
    let pattern = serde_json::json!({"String": "\u{1}"});
    let double =
        serde_json::json!({"type": "Replace", "pattern": pattern, "content": "\u{1}\u{1}"});
    all["normalizer"]["normalizers"] = vec![double; 11].into();
    let tokenizer = TextTokenizer::from_texts(all.to_string().as_bytes(), b"{}", &file).unwrap();
    let long = "once upon a time ".repeat(4000);
    tokenizer.encode(&long, None, Some(40)).unwrap_err();
    let input = |length: usize| Input { pair: Some(long[..length].to_owned()), ..asked(None) };
    let form = QuestionForm::own(Readout::Letters);
    for reader in [
        TextReader::segments(&tokenizer, 40),
        TextReader::questions(&tokenizer, Encoder, form, &LETTERS[..2], true, 90).unwrap(),
    ] {
        let read = |length| reader.encode(&input(length), Label::Class(0)).unwrap();
        let [(found, cut), (expected, _)] = [long.len(), 20_000].map(read);
        assert_eq!(found.ids, expected.ids);
        assert!(cut > Cut::Nothing && reader.measure(&input(long.len())).unwrap().1);
    }
    // Fewer tokens than fit are no whole text.
    let reader = TextReader::segments(&tokenizer, 100_000);
    assert!(reader.measure(&input(long.len())).unwrap().1);
    assert_eq!(reader.encode(&input(long.len()), Label::Class(0)).unwrap().1, Cut::Text);
}

/// Questions of different lengths about a state that is cut share the first half of their prompts.
#[test]
fn prompts_about_a_long_state_start_with_the_same_tokens() {
    Readout::OF_OPTIONS.into_iter().for_each(prompts_start_with_the_same_tokens);
}

fn prompts_start_with_the_same_tokens(readout: Readout) {
    let tokenizer = tokenizer(STORIES);
    let form = QuestionForm::own(readout);
    let reader = TextReader::questions(&tokenizer, Decoder, form, LETTERS, true, 200).unwrap();
    let shared = |state: &str, question: &str| {
        let choices = ["yes", "no"].map(str::to_owned).to_vec();
        let input = Input { pair: Some(state.to_owned()), choices, ..Input::text(question) };
        let (example, cut) = reader.encode(&input, Label::Class(0)).unwrap();
        (reader.shared(&input, &example.ids, cut).unwrap(), example.ids)
    };
    let long = "once upon a time ".repeat(40_000);
    let [(a, first), (b, second)] =
        ["Was it?", "Was it long ago, and who was there?"].map(|words| shared(&long, words));
    assert_eq!((a, b, first.len() <= 200, second.len() <= 200), (100, 100, true, true));
    assert_eq!(first[..100], second[..100]);
    assert_ne!(first, second);
    // A whole state is shared up to the question.
    let state = "once upon a time ".repeat(20);
    let [(a, first), (b, second)] = ["Was it?", "And then?"].map(|words| shared(&state, words));
    assert!(a == b && a > 64 && first[..a] == second[..b], "{a} {b}");
    assert_eq!(shared("a day", "Was it?").0, 0);
}
