//! A classifier that has learnt something, and what its answers to held-out texts are worth.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use lrvd_bench::adapter::{OpenOptions, RowAnswer, SavedClassifier};
use lrvd_bench::data::{Data, Input, load, write_generated};
use lrvd_bench::method::MethodName;
use lrvd_bench::settings::{Config, Layers, Preset, TargetModules};
use lrvd_bench::suite::{Profile, Suite};
use lrvd_bench::task::Task;
use lrvd_bench::{TrainOptions, train};
use lrvd_burn::train::DrawPolicy;
use lrvd_core::metrics::Predictions;
use serde_json::{Value, json};

/// The shipped tiny `DeBERTa`.
const BACKBONE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/lrvd-bench/assets/deberta-v3-nano");
const LAYERS: usize = 4;
const TASK: Task = Task::Sst2;
const SEED: u64 = 1;
/// Twice those of the quick profile, after which this task is learnt.
const STEPS: usize = 400;

/// A trained classifier with texts that it has not seen.
pub struct Held {
    classifier: SavedClassifier,
    texts: Vec<Input>,
    labels: Vec<usize>,
}

impl Held {
    /// The classifier in `folder`, trained and pruned there first unless it is there: the settings of the quick
    /// profile, with adapters on the last `live` layers or on all of them.
    pub fn open(
        folder: &Path,
        live: Option<usize>,
        policy: DrawPolicy,
    ) -> Result<Self, Box<dyn Error>> {
        let data_dir = folder.join("data");
        if !data_dir.is_dir() {
            std::fs::create_dir_all(&data_dir)?;
            write_generated(&data_dir)?;
        }
        let live = live.unwrap_or(LAYERS);
        let options = TrainOptions {
            model: BACKBONE.to_owned(),
            method: MethodName::BAYES_LORA,
            target_rank: None,
            settings: Layers::over(&config(live)?)?,
            seed: SEED,
            device: "cpu".to_owned(),
            out: folder.join(format!("last-{live}")),
            resume: true,
            strict: false,
            baseline: false,
            target: None,
        };
        let data = Data::Labelled(load(&data_dir, TASK, None)?);
        let trained = train(&options, data, &AtomicBool::new(false), &mut |_| {})?;
        let open = OpenOptions::default();
        let device = Device::flex();
        let classifier = SavedClassifier::load(&trained.adapter, &open, policy, &device)?;
        let examples = classifier.read_task(TASK, &data_dir)?.examples;
        let labels = examples.iter().filter_map(|example| example.label.class()).collect();
        let texts = examples.into_iter().map(|example| example.input);
        Ok(Self { texts: texts.collect(), labels, classifier })
    }

    /// Answers every text, by the call that a user makes.
    pub fn answers(&self, draws: usize) -> Result<Vec<RowAnswer>, Box<dyn Error>> {
        Ok(self.classifier.predict(&self.texts, draws, SEED, 0)?)
    }

    /// Worth of `answers`: mean negative log-likelihood in nats, accuracy, draws that a text got in the mean; and the
    /// ranks that pruning left.
    pub fn worth(&self, answers: &[RowAnswer]) -> Result<Value, Box<dyn Error>> {
        let mut all = Vec::new();
        let mut made = 0;
        for answer in answers {
            let RowAnswer::Class { probabilities, draws, .. } = answer else {
                return Err("an answer is a score".into());
            };
            all.extend_from_slice(probabilities);
            made += draws;
        }
        let rows = self.labels.len();
        let scored = Predictions::new(&all, all.len() / rows.max(1), &self.labels)?;
        Ok(json!({
            "texts": rows,
            "rank": self.classifier.info.run.ranks.values().sum::<usize>(),
            "nll": scored.nll(),
            "accuracy": scored.accuracy(),
            "draws": made as f64 / rows as f64,
        }))
    }
}

/// Settings with adapters on the last `live` layers.
fn config(live: usize) -> Result<Config, Box<dyn Error>> {
    let quick = Profile::Quick.shorten(Suite::Glue, Preset::ConstantWeight.config())?;
    let layers = [
        "attention.self.query_proj",
        "attention.self.key_proj",
        "attention.self.value_proj",
        "attention.output.dense",
        "intermediate.dense",
        "output.dense",
    ];
    let of_layer = |i: usize| layers.map(|name| format!("encoder.layer.{i}.{name}"));
    let target_modules =
        TargetModules::names((LAYERS.saturating_sub(live)..LAYERS).flat_map(of_layer));
    Ok(Config { target_modules, steps: STEPS, evaluate_every: STEPS, ..quick })
}
