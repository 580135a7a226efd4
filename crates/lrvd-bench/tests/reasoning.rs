//! Prompts of the reasoning sets against files written by hand, and the real sets where they lie beside the
//! workspace.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lrvd_bench::data::{Format, Origin};
use lrvd_bench::reasoning::{
    EncodeConfig, LLAMA_2_LABELS, PromptSet, ReasoningSet, ReasoningTask, answer_tokens,
    check_known, load, read_items, require_single,
};
use lrvd_models::tokenizer::TextTokenizer;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/reasoning")
}

#[test]
fn prompts_are_those_written_by_hand() {
    let mut checked = BTreeSet::new();
    for prompt in PromptSet::ALL {
        for set in ReasoningSet::ALL {
            let items =
                read_items(&golden().join(format!("items/{set}.jsonl")), Format::Jsonl, set, 0)
                    .unwrap();
            for (row, item) in items.iter().enumerate() {
                let name = format!("{prompt}/{set}-{row}.txt");
                let file = golden().join(&name);
                assert_eq!(prompt.uses(set, item), file.is_file(), "{name}");
                if !file.is_file() {
                    continue;
                }
                let end = if prompt.appends_end(set) { "</s>" } else { "" };
                let found = format!("<s>{}{end}", prompt.text(set, item));
                assert_eq!(found, std::fs::read_to_string(&file).unwrap(), "{name}");
                assert!(prompt.text(set, item).ends_with(prompt.cue(set)));
                checked.insert(name);
            }
        }
    }
    assert_eq!(checked.len(), 9 + 7 + 9);
}

#[test]
fn answers_are_scored_at_the_labels_of_the_specification() {
    // Prompt set, set, row, word at whose token the right answer is scored.
    for (prompt, set, row, expected) in [
        (PromptSet::Blob, ReasoningSet::WgS, 0, "A"),
        (PromptSet::Blob, ReasoningSet::WgM, 0, "B"),
        (PromptSet::Blob, ReasoningSet::ArcC, 1, "C"),
        (PromptSet::Blob, ReasoningSet::ArcC, 2, "E"),
        (PromptSet::Blob, ReasoningSet::ArcE, 0, "C"),
        (PromptSet::Blob, ReasoningSet::Obqa, 0, "B"),
        // True is scored at False and the other way round.
        (PromptSet::Blob, ReasoningSet::BoolQ, 0, "False"),
        (PromptSet::Blob, ReasoningSet::BoolQ, 1, "True"),
        (PromptSet::Laplace, ReasoningSet::ArcE, 0, "C"),
        (PromptSet::Laplace, ReasoningSet::BoolQ, 0, "True"),
        (PromptSet::Clean, ReasoningSet::ArcC, 2, "E"),
        (PromptSet::Clean, ReasoningSet::BoolQ, 0, "True"),
        (PromptSet::Clean, ReasoningSet::BoolQ, 1, "False"),
    ] {
        let items = read_items(&golden().join(format!("items/{set}.jsonl")), Format::Jsonl, set, 0)
            .unwrap();
        assert_eq!(prompt.labels(set)[items[row].answer], expected, "{prompt} {set} {row}");
    }
    let n_labels = |prompt: PromptSet| ReasoningSet::ALL.map(|set| prompt.labels(set).len());
    assert_eq!(n_labels(PromptSet::Blob), ReasoningSet::ALL.map(|set| set.spec().n_classes));
    assert_eq!(n_labels(PromptSet::Laplace), [2, 4, 4, 2, 4, 2]);
    assert_eq!(n_labels(PromptSet::Clean), n_labels(PromptSet::Blob));
}

/// The folder of shared data, named by `LRVD_SHARED_DIR` or `shared` beside the workspace.
fn shared(part: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("LRVD_SHARED_DIR").map_or(beside, PathBuf::from).join(part);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no `{}`", folder.display());
    None
}

#[test]
fn real_files_have_their_published_rows() {
    use Origin::{LocalSplit, Official, Subset};
    let Some(folder) = shared("data/reasoning") else { return };
    for (set, train, validation, classes) in [
        (ReasoningSet::WgS, (640, Official), (1_266, LocalSplit), vec![320, 320]),
        (ReasoningSet::WgM, (2_558, Official), (1_266, LocalSplit), vec![1_279, 1_279]),
        (ReasoningSet::ArcC, (1_119, Official), (299, Official), vec![]),
        (ReasoningSet::ArcE, (2_251, Official), (570, Official), vec![]),
        (ReasoningSet::Obqa, (3_966, LocalSplit), (991, LocalSplit), vec![]),
        (ReasoningSet::BoolQ, (2_000, Subset), (3_270, Official), vec![759, 1_241]),
    ] {
        let data = load(&folder, set).unwrap();
        assert_eq!((data.train.rows(), data.train.origin), train, "{set}");
        assert_eq!((data.validation.rows(), data.validation.origin), validation, "{set}");
        let count = |class| data.train.examples.iter().filter(|i| i.answer == class).count();
        assert!(classes.is_empty() || [count(0), count(1)][..] == classes, "{set}");
        assert_eq!(data.train.files.len(), 1);
    }
}

#[test]
fn real_sets_become_prompts_of_the_published_vocabulary() {
    let (Some(folder), Some(vocabulary)) =
        (shared("data/reasoning"), shared("data/tokenizers/llama-2"))
    else {
        return;
    };
    let tokenizer = TextTokenizer::from_dir(&vocabulary).unwrap();
    for set in ReasoningSet::ALL {
        let mut data = load(&folder, set).unwrap();
        // Enough rows to meet long ones, few enough to stay quick.
        data.train.examples.truncate(300);
        data.validation.examples.truncate(300);
        // Counted with the tokenizers library from Python.
        for (prompt, cut, cut_validation) in
            [(PromptSet::Blob, 17, 15), (PromptSet::Laplace, 26, 19), (PromptSet::Clean, 34, 23)]
        {
            let answers = answer_tokens(&tokenizer, set, prompt).unwrap();
            require_single(&tokenizer, &answers).unwrap();
            check_known(&tokenizer, &answers, &LLAMA_2_LABELS).unwrap();
            let config = EncodeConfig::decoder(prompt, 300);
            let task = ReasoningTask::new(&data, &tokenizer, config).unwrap();
            assert!(task.train.iter().chain(&task.validation).all(|e| e.ids.len() <= 300));
            // Only passages are too long; what is too long is counted, and the cue stays where it is promised.
            let expected = if set == ReasoningSet::BoolQ { (cut, cut_validation) } else { (0, 0) };
            let found = (task.train_cut.total(), task.validation_cut.total());
            assert_eq!(found, expected, "{set} {prompt}");
            assert!(prompt != PromptSet::Clean || task.train_cut.right == 0);
        }
    }
}
