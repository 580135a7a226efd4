//! Prompts of the reasoning sets against files written by hand.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lrvd_bench::answers::Readout;
use lrvd_bench::data::{self, Example};
use lrvd_bench::settings::PromptSet;
use lrvd_bench::task::Task;
use lrvd_models::tokenizer::TextTokenizer;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/reasoning")
}

fn items(task: Task) -> Vec<Example> {
    let mut items = Vec::new();
    let file = golden().join(format!("items/{task}.jsonl"));
    data::read_examples(&file, data::Format::Jsonl, task, &mut items).unwrap();
    items
}

#[test]
fn prompts_are_those_written_by_hand() {
    let mut checked = BTreeSet::new();
    for prompt in PromptSet::ALL {
        for set in Task::reasoning() {
            for (row, item) in items(set).iter().enumerate() {
                let item = &item.input;
                let name = format!("{prompt}/{set}-{row}.txt");
                let file = golden().join(&name);
                assert_eq!(prompt.uses(set, item), file.is_file(), "{name}");
                if !file.is_file() {
                    continue;
                }
                let end = if prompt.of(set).ends { "</s>" } else { "" };
                let found = format!("<s>{}{end}", prompt.text(set, item));
                assert_eq!(found, std::fs::read_to_string(&file).unwrap(), "{name}");
                assert!(prompt.text(set, item).ends_with(prompt.of(set).cue));
                checked.insert(name);
            }
        }
    }
    assert_eq!(checked.len(), 9 + 7 + 9);
}

#[test]
fn answers_are_scored_at_the_labels_of_the_specification() {
    let mut found = String::new();
    for prompt in PromptSet::ALL {
        for set in Task::reasoning() {
            let labels = prompt.labels(set);
            let right = |item: &Example| labels.get(item.label.class().unwrap());
            let items: Vec<_> = items(set).iter().map(right).collect();
            writeln!(found, "{prompt} {set} of {labels:?}: {items:?}").unwrap();
        }
    }
    insta::assert_snapshot!(found);
}

/// The data in `LRVD_SHARED_DIR`, or in `shared` beside the workspace.
#[test]
fn real_sets_become_prompts_of_the_published_vocabulary() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("LRVD_SHARED_DIR").map_or(beside, PathBuf::from);
    let (folder, vocabulary) =
        (shared.join("data/reasoning"), shared.join("data/tokenizers/llama-2"));
    if !folder.is_dir() || !vocabulary.is_dir() {
        eprintln!("skipped: no data in `{}`", shared.display());
        return;
    }
    let tokenizer = TextTokenizer::from_dir(&vocabulary).unwrap();
    for set in Task::reasoning() {
        let mut data = data::load(&folder, set, None).unwrap();
        // Enough rows to meet long ones, few enough to stay quick.
        data.train.examples.truncate(300);
        data.validation.examples.truncate(300);
        // Counted with the tokenizers library from Python.
        for (prompt, cut, cut_validation) in
            [(PromptSet::Blob, 17, 15), (PromptSet::Laplace, 26, 19), (PromptSet::Clean, 34, 23)]
        {
            let (readout, labels) = (Readout::Letters, prompt.labels(set));
            let form = data::QuestionForm { task: set, prompt, readout };
            let kind = data::InputForm::Decoder;
            let reader =
                data::TextReader::questions(&tokenizer, kind, form, labels, false, 300).unwrap();
            data::require_single(&tokenizer, &reader.answers).unwrap();
            data::check_known(&tokenizer, &reader.answers, &data::LLAMA_2_LABELS).unwrap();
            let encode = |examples: &[Example]| {
                let encoded = reader.encode_all(data::SplitName::Train, examples).unwrap();
                assert!(encoded.examples.iter().all(|e| e.ids.len() <= 300));
                assert!(prompt != PromptSet::Clean || !encoded.cut.contains_key(&data::Cut::Right));
                encoded.cut.values().sum::<usize>()
            };
            let found = (encode(&data.train.examples), encode(&data.validation.examples));
            // Only passages are too long; what is too long is counted, and the cue stays where it is promised.
            let expected = if set == Task::BoolQ { (cut, cut_validation) } else { (0, 0) };
            assert_eq!(found, expected, "{set} {prompt}");
        }
    }
}
