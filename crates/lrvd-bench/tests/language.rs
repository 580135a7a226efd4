//! A language model's training as a library: an interrupted run, and what its files answer.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lrvd_bench::Unused;
use lrvd_bench::adapter::{Evaluation, Generation, OpenOptions, Prompt, SavedLanguageModel};
use lrvd_bench::data::{Content, Data, OwnFiles, ReadOptions, Validation, read_texts};
use lrvd_bench::method::MethodName;
use lrvd_bench::progress::Event;
use lrvd_bench::settings::{Layers, Training};
use lrvd_bench::{Kind, TrainOptions, kind_of, train};
use lrvd_burn::burn::tensor::Device;

fn rows() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rows.csv")
}

fn texts() -> Data {
    OwnFiles::new(rows(), Validation::Share(0.25)).read().unwrap()
}

fn options(dir: &Path, out: &str) -> TrainOptions {
    let mut config = Layers::new(Some(Training::Language), None, None).unwrap();
    let settings = "evaluate_every=5 batch_size=6 accumulation=2 initial_rank=4 learning_rate=5e-3 draws=[2] \
                    kl_weight=0.05 log_variance.initial=-8 prune.start=0.3 prune.every=0.3 \
                    prune.log_alpha_threshold=-1 target_modules=[\"q_proj\",\"down_proj\",\"lm_head\"]";
    for assignment in settings.split(' ').chain(["steps=18"]) {
        config.assign(assignment).unwrap();
    }
    TrainOptions {
        model: concat!(env!("CARGO_MANIFEST_DIR"), "/assets/stories260K").to_owned(),
        method: MethodName::BAYES_LORA,
        target_rank: None,
        settings: config,
        seed: 3,
        device: "cpu".to_owned(),
        out: dir.join(out),
        resume: false,
        baseline: true,
        target: None,
        strict: false,
    }
}

#[test]
fn an_interrupted_run_answers_and_ends_in_the_same_bytes_across_a_prune() {
    let dir = tempfile::tempdir().unwrap();
    let outs = ["whole", "parts"]
        .map(|out| TrainOptions { resume: out == "parts", ..options(dir.path(), out) });
    let run = |options: &TrainOptions, step: usize| {
        let stop = AtomicBool::new(false);
        let mut stop_at = |event: &Event| {
            if let Event::Step { done, .. } = event {
                stop.store(*done >= step, Ordering::Relaxed);
            }
        };
        train(options, texts(), &stop, &mut stop_at).unwrap().record
    };
    let record = run(&outs[0], usize::MAX).unwrap();
    let total = |at: usize| record.rank_events.get(at).map(|event| event.total_rank);
    assert!(total(1) < total(0) && total(1) > Some(0), "{:?}", record.rank_events);
    // Before the first prune, and behind it.
    for step in [3, 8] {
        assert!(run(&outs[1], step).is_none());
        let model =
            SavedLanguageModel::load(&outs[1].out, &OpenOptions::default(), &Device::flex());
        assert_eq!(model.unwrap().info.unwrap().run.step, step);
    }
    run(&outs[1], usize::MAX).unwrap();
    for name in [
        "adapter/adapter_model.safetensors",
        "adapter/lrvd_posterior.safetensors",
        "predictions-last.jsonl",
        "predictions-best.jsonl",
    ] {
        let [one, two] = [0, 1].map(|i| std::fs::read(outs[i].out.join(name)).unwrap());
        assert!(one == two, "{name}");
    }
}

#[test]
fn answers_do_not_depend_on_the_company_of_a_text() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), "out");
    train(&options, texts(), &AtomicBool::new(false), &mut |_| {}).unwrap();
    let load = OpenOptions::default();
    let model = SavedLanguageModel::load(&options.out, &load, &Device::flex()).unwrap();
    let rows =
        read_texts(&rows(), None, true, &ReadOptions::default(), &mut Unused::default()).unwrap();
    let (all, notes) = model.evaluate(&rows, 2, 7).unwrap();
    assert!(notes[0].starts_with("data: 24 rows, "), "{notes:?}");
    let mut start = 0;
    let tokens = |of: &Evaluation, draws: u32| of.scored[&draws].tokens.clone().unwrap();
    let per_row = tokens(&all, 0).per_row;
    for (row, &n) in rows.iter().zip(&per_row).step_by(5) {
        let place = rows.iter().position(|other| other == row).unwrap();
        start = per_row[..place].iter().sum();
        let (alone, _) = model.evaluate(std::slice::from_ref(row), 2, 7).unwrap();
        for draws in [0, 2] {
            let together = &tokens(&all, draws).log_probability[start..start + n];
            for (a, b) in together.iter().zip(&tokens(&alone, draws).log_probability) {
                assert!((a - b).abs() < 1e-4, "row {place} at {draws}: {a} {b}");
            }
        }
    }
    assert!(start > 0);
}

#[test]
fn a_prompt_has_the_room_that_it_has_alone() {
    let stories = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/stories260K");
    let model = SavedLanguageModel::base(stories, &Device::flex()).unwrap();
    let prompt =
        |text: &str| Prompt::from(Content::Text { prompt: text.to_owned(), completion: None });
    // 506 tokens by `tokenizers` 0.23, and four: together with its continuation a prompt has 512 at most.
    let long = prompt(["the"; 505].join(" ").as_str());
    let (short, longer) = (prompt("Once upon a"), prompt(["the"; 512].join(" ").as_str()));
    let options = Generation { max_tokens: 20, ..Generation::default() };
    let texts = |prompts: &[Prompt]| model.generate(prompts, 0, (0, 1), &options, &mut |_| true);
    let found = texts(&[long, short.clone()]).unwrap();
    let lengths: Vec<_> =
        found.iter().map(|text| (text.prompt_tokens, text.tokens.len())).collect();
    assert_eq!(lengths, [(506, 6), (4, 20)]);
    assert_eq!(found[1].text, texts(std::slice::from_ref(&short)).unwrap()[0].text);
    let pieces: String = found[1].tokens.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(pieces, found[1].text);
    let error = texts(&[short, longer]).unwrap_err();
    assert_eq!(kind_of(&error), Some(Kind::Input));
    assert!(error.to_string().starts_with("prompt 2 has 513 tokens"), "{error}");
}
