//! Fine-tunes DeBERTa with BayesLoRA on the texts of a JSONL file, and says how sure it is of new ones.
//!
//! ```text
//! cargo run --release -p lrvd-models --example deberta_jsonl -- [texts.jsonl [model-folder]]
//! ```
//!
//! Every line is `{"text": ..., "label": ...}`; the last fifth is kept for validation. Without arguments
//! the texts are those of `tone.jsonl` and the model is the tiny one in this repository.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::error::Error;
use std::path::PathBuf;

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::ranks;
use lrvd_burn::train::{Event, Examples, Inputs, OrderConfig, Ordered, Targets, Watch};
use lrvd_burn::{BayesLora, TrainConfig};
use lrvd_core::noise::NoiseKey;
use lrvd_models::TokenBatch;
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaClassifier, DebertaConfig};
use lrvd_models::tokenizer::TextTokenizer;
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    text: String,
    label: String,
}

/// Encoded texts with the numbers of their labels.
struct Texts {
    rows: Vec<(Vec<u32>, Vec<u32>)>,
    classes: Vec<usize>,
    names: Vec<String>,
    pad: u32,
}

impl Texts {
    fn new(
        lines: &[Line],
        names: &[String],
        tokenizer: &TextTokenizer,
    ) -> Result<Self, Box<dyn Error>> {
        let encode = |line: &Line| {
            let encoded = tokenizer.encode(&line.text, None, Some(128))?;
            Ok((encoded.get_ids().to_vec(), encoded.get_type_ids().to_vec()))
        };
        let class = |line: &Line| names.iter().position(|name| *name == line.label);
        Ok(Self {
            rows: lines.iter().map(encode).collect::<Result<_, Box<dyn Error>>>()?,
            classes: lines.iter().filter_map(class).collect(),
            names: names.to_vec(),
            pad: tokenizer.special_tokens().pad.unwrap_or(0),
        })
    }
}

impl Examples for Texts {
    type Input = TokenBatch;

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn size(&self, index: usize) -> usize {
        self.rows[index].0.len()
    }

    fn input(&self, indices: &[usize]) -> Result<TokenBatch, lrvd_burn::Error> {
        let rows: Vec<(&[u32], &[u32])> = indices
            .iter()
            .map(|&i| (self.rows[i].0.as_slice(), self.rows[i].1.as_slice()))
            .collect();
        Ok(TokenBatch::padded(&rows, self.pad, &Device::flex(), DType::F32))
    }

    fn targets(&self, indices: &[usize]) -> Result<Targets, lrvd_burn::Error> {
        let width = self.names.len();
        let mut one_hot = vec![0.0_f32; indices.len() * width];
        for (row, &index) in indices.iter().enumerate() {
            one_hot[row * width + self.classes[index]] = 1.0;
        }
        let data = TensorData::new(one_hot, [indices.len(), width]);
        Ok(Targets::Classes(Tensor::from_data(data, &Device::flex())))
    }
}

/// Prints what happens.
fn show(event: &Event) {
    match event {
        Event::Evaluated { done, metric, value, total_rank, .. } => {
            println!("step {done:3}: {metric} {value:.3}, total rank {total_rank}");
        }
        Event::Pruned { done, before, after } => {
            println!("step {done:3}: rank {before} -> {after}");
        }
        _ => {}
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let file = arguments.next().unwrap_or_else(|| here.join("examples/tone.jsonl"));
    let folder =
        arguments.next().unwrap_or_else(|| here.join("../lrvd-bench/assets/deberta-v3-nano"));

    let text = std::fs::read_to_string(&file)?;
    let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Line>, _>>()?;
    let names: BTreeSet<&String> = lines.iter().map(|line| &line.label).collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    let tokenizer = TextTokenizer::from_dir(&folder)?;
    let (train, validation) = lines.split_at(lines.len() - lines.len() / 5);
    let train = Texts::new(train, &names, &tokenizer)?;
    let validation = Texts::new(validation, &names, &tokenizer)?;

    let config = DebertaConfig::read(&folder.join("config.json"))?.with_labels(names.clone());
    let store = WeightStore::open(&folder)?;
    let settings = TrainConfig { steps: 120, evaluate_every: 40, ..TrainConfig::default() };
    let seed = NoiseKey::new(settings.seed);
    let (model, _) =
        DebertaClassifier::from_pretrained(&store, &config, seed, &Device::flex(), DType::F32)?;
    let mut run = BayesLora::default().targets(ADAPTER_TARGETS).run(model, &settings)?;
    let mut batches = Ordered::new(&train, OrderConfig::shuffled(16), settings.seed)?;
    let mut watch =
        Watch { validation: Some(&validation), sink: Some(&mut show), ..Watch::default() };
    run.fit(&mut batches, &mut watch)?;
    for (path, rank) in ranks(&run.state.model) {
        println!("{path}: rank {rank}");
    }
    for (answer, line) in run
        .predict(&Inputs::new(&validation).drawn(10))?
        .classes()?
        .iter()
        .zip(&lines[train.len()..])
        .take(5)
    {
        println!(
            "{:40} {:5} p {:.2}, mutual information {:.4} nats",
            line.text,
            names[answer.class],
            answer.probabilities[answer.class],
            answer.mutual_information.unwrap_or(f64::NAN)
        );
    }
    Ok(())
}
