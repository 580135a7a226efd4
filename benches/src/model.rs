//! Models with random weights, and what goes into them.

use std::error::Error;
use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::ValueEnum;
use lrvd_burn::Selection;
use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::model::{NamedModule, attach_adapters};
use lrvd_burn::parameters::Group;
use lrvd_burn::prune::{PruneEvent, apply};
use lrvd_core::noise::{Generator, NoiseKey};
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaClassifier, DebertaConfig};
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};
use lrvd_models::{AutoModel, Precision, TokenBatch, WeightSource};
use serde_json::Value;

/// Answer tokens of the Llama, which is asked for one of two.
pub(crate) const ANSWERS: [u32; 2] = [11, 22];

/// Architecture of a timed model; weights are random, dropout is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Architecture {
    /// 4 layers, hidden 192: the shipped tiny DeBERTa.
    Nano,
    /// 12 layers, hidden 768: DeBERTa-v3-base.
    Base,
    /// 30 layers, hidden 576, 9 heads over 3 of keys, tied head: SmolLM2-135M.
    Smollm2,
    /// 16 layers, hidden 2048, 32 heads over 8 of keys, tied head: a Llama of 1.2 billion parameters.
    #[value(name = "llama-1b")]
    Llama1b,
    /// 6 layers, hidden 384: a BERT of the size of MiniLM-L6.
    Minilm,
    /// 2 layers, hidden 32: a DeBERTa for steps of milliseconds.
    Tiny,
    /// 2 layers, hidden 32: the same as a language model that learns every next token.
    TinyLlama,
}

impl Architecture {
    /// Its `config.json`, with `layers` layers if given.
    pub(crate) fn config(self, layers: Option<usize>) -> Result<Value, serde_json::Error> {
        let mut config: Value = serde_json::from_str(match self {
            Self::Nano => include_str!("models/nano.json"),
            Self::Base => include_str!("models/base.json"),
            Self::Smollm2 => include_str!("models/smollm2.json"),
            Self::Llama1b => include_str!("models/llama-1b.json"),
            Self::Minilm => include_str!("models/minilm.json"),
            Self::Tiny => include_str!("models/tiny.json"),
            Self::TinyLlama => include_str!("models/tiny-llama.json"),
        })?;
        if let Some(layers) = layers {
            config["num_hidden_layers"] = layers.into();
        }
        Ok(config)
    }

    /// `true` for a language model.
    pub(crate) fn is_decoder(self) -> bool {
        matches!(self, Self::Smollm2 | Self::Llama1b | Self::TinyLlama)
    }

    /// The layers that get an adapter: the six of the published configuration, or queries and values.
    pub fn targets(self) -> Selection {
        let names: &[&str] = match self {
            Self::Nano | Self::Base | Self::Tiny => &ADAPTER_TARGETS,
            Self::Smollm2 | Self::Llama1b | Self::TinyLlama => &["q_proj", "v_proj"],
            Self::Minilm => &[
                "query",
                "key",
                "value",
                "attention.output.dense",
                "intermediate.dense",
                "output.dense",
            ],
        };
        Selection::Names(names.iter().map(|name| (*name).to_owned()).collect())
    }
}

/// A model with random weights and a fresh adapter on the targets; pooler and head train as well, where there are any.
pub fn model(
    architecture: Architecture,
    layers: Option<usize>,
    adapter: Option<&AdapterConfig>,
    device: &Device,
    precision: Precision,
) -> Result<AutoModel, Box<dyn Error>> {
    let mut source = WeightSource::random(NoiseKey::new(1), device, precision);
    let text = architecture.config(layers)?.to_string();
    let bytes = text.as_bytes();
    let name = Path::new("config.json");
    let mut model = if architecture.is_decoder() {
        let config = LlamaConfig::parse(bytes, name)?;
        let model = LlamaForCausalLm::load(&mut source, &config);
        AutoModel::Llama(match architecture {
            Architecture::TinyLlama => model,
            _ => model.answering(ANSWERS.to_vec())?,
        })
    } else {
        let config = DebertaConfig::parse(bytes, name)?;
        AutoModel::Deberta(DebertaClassifier::load(&mut source, &config))
    };
    if let Some(adapter) = adapter {
        attach_adapters(&mut model, &architecture.targets(), adapter, NoiseKey::new(2))?;
    }
    model.visit_parameters_mut(&mut |p| {
        if matches!(p.group, Group::Head | Group::Pooler) {
            p.value.set_trainable(true);
        }
    });
    Ok(model)
}

/// Prunes to `rank` percent of each adapter's rank, and to `modules` percent of the adapters, spread evenly.
pub fn prune_to(model: &mut AutoModel, rank: usize, modules: usize) {
    let mut event = PruneEvent::default();
    let mut seen = 0;
    model.visit_layers(&mut |path, layer| {
        let full = layer.rank();
        if full > 0 {
            let stays = (seen + 1) * modules / 100 > seen * modules / 100;
            let kept = if stays { (full * rank + 50) / 100 } else { 0 };
            seen += 1;
            if kept < full {
                event.changed.insert(path.to_owned());
            }
            event.kept.insert(path.to_owned(), (0..kept).collect());
        }
    });
    apply(model, &event, None, None);
}

/// Prunes every adapter but those of the last `live` layers.
pub fn keep_last_layers(model: &mut AutoModel, live: usize) {
    let number = |path: &str| path.split('.').find_map(|part| part.parse::<usize>().ok());
    let mut depth = 0;
    model.visit_layers(&mut |path, _| depth = depth.max(number(path).map_or(0, |n| n + 1)));
    model.visit_layers_mut(&mut |path, layer| {
        if number(path).is_some_and(|number| number + live < depth) {
            layer.select_ranks(&[]);
        }
    });
}

/// Random token ids without padding, and one-hot labels `[rows, 2]`.
pub fn batch(
    architecture: Architecture,
    rows: usize,
    length: usize,
    device: &Device,
) -> Result<(TokenBatch, Tensor<2>), Box<dyn Error>> {
    let vocabulary = architecture.config(None)?["vocab_size"].as_u64().ok_or("no `vocab_size`")?;
    let mut draws = Generator::new(NoiseKey::new(3));
    let mut id = |_| i64::from(draws.bounded(vocabulary as u32));
    let ids: Vec<i64> = (0..rows * length).map(&mut id).collect();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [rows, length]), device);
    let labels: Vec<f32> =
        (0..rows).flat_map(|i| if i % 2 == 0 { [1.0, 0.0] } else { [0.0, 1.0] }).collect();
    let mask = Tensor::ones([rows, length], device);
    let input = TokenBatch::new(ids.clone(), ids.zeros_like(), mask);
    Ok((input, Tensor::from_data(TensorData::new(labels, [rows, 2]), device)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::DType;
    use lrvd_burn::model::ranks;

    use super::*;

    #[test]
    fn a_prune_leaves_the_percentages() {
        let adapter = AdapterConfig { rank: 20, ..AdapterConfig::default() };
        let full = || {
            model(Architecture::Nano, None, Some(&adapter), &Device::flex(), DType::F32.into())
                .unwrap()
        };
        for (rank, modules, total) in
            [(100, 100, 480), (25, 100, 120), (10, 100, 48), (100, 50, 240)]
        {
            let mut pruned = full();
            prune_to(&mut pruned, rank, modules);
            let left: usize = ranks(&pruned).into_iter().map(|(_, rank)| rank).sum();
            assert_eq!(left, total, "{rank} % of the rank, {modules} % of the modules");
        }
        let mut live = full();
        keep_last_layers(&mut live, 1);
        for (path, rank) in ranks(&live) {
            assert_eq!(rank > 0, path.contains(".layer.3."), "{path}: {rank}");
        }
    }
}
