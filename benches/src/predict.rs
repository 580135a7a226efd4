//! Predictions by draws, timed: the mean, draws one after the other, and several draws in a pass.

use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::train::{Examples, Inputs, Logits, TrainError};
use lrvd_models::TokenBatch;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};

use crate::{batch, classifier};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Texts in a batch.
    pub batch: usize,
    /// Tokens of a text.
    pub length: usize,
    /// Draws of the weights.
    pub draws: usize,
    /// Transformer layers, from the last, whose adapters have a rank left; the others were pruned.
    pub live_layers: usize,
    /// Timed rounds, after one that is not.
    pub rounds: usize,
}

/// Fastest seconds of each way.
#[derive(Clone, Copy, Debug)]
pub struct Seconds {
    /// The posterior mean.
    pub mean: f64,
    /// One pass for each draw.
    pub sequential: f64,
    /// Several draws in a pass.
    pub batched: f64,
}

/// Texts of one length that are ready to be read.
struct Texts(TokenBatch);

impl Examples for Texts {
    type Input = TokenBatch;

    fn len(&self) -> usize {
        self.0.ids.dims()[0]
    }

    fn size(&self, _index: usize) -> usize {
        self.0.ids.dims()[1]
    }

    fn input(&self, indices: &[usize]) -> Result<TokenBatch, TrainError> {
        let rows: Vec<i32> = indices.iter().map(|&i| i as i32).collect();
        let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), &self.0.ids.device());
        Ok(TokenBatch {
            ids: self.0.ids.clone().select(0, rows.clone()),
            type_ids: self.0.type_ids.clone().select(0, rows.clone()),
            mask: self.0.mask.clone().select(0, rows),
        })
    }
}

/// A BayesLoRA classifier whose adapters are pruned but for those of the last `live` layers.
fn pruned(
    config: &DebertaConfig,
    live: usize,
    device: &Device,
) -> Result<DebertaClassifier, Box<dyn std::error::Error>> {
    let kind = AdapterKind::bayes_lora();
    let adapter = AdapterConfig { kind, rank: 8, lora_alpha: 16.0, dropout: 0.0 };
    let mut model = classifier(config, Some(&adapter), device)?;
    let first_live = config.num_hidden_layers.saturating_sub(live);
    model.visit_layers_mut(&mut |path, layer| {
        let number = path.split(".layer.").nth(1).and_then(|rest| rest.split('.').next());
        let is_dead = |number: usize| number < first_live;
        if number.and_then(|n| n.parse().ok()).is_some_and(is_dead) {
            layer.select_ranks(&[]);
        }
    });
    Ok(model.valid())
}

/// Times the three ways in turn.
///
/// # Errors
///
/// If the batched answers are not the sequential ones, to the bit.
pub fn time(
    config: &DebertaConfig,
    question: &Question,
) -> Result<Seconds, Box<dyn std::error::Error>> {
    let Question { draws, rounds, .. } = *question;
    let device = Device::flex();
    let model = pruned(config, question.live_layers, &device)?;
    let texts = Texts(batch(config, question.batch, question.length, &device).0);
    let inputs = Inputs { batch_size: question.batch, ..Inputs::new(&texts) };
    let one_by_one = Inputs { tokens_per_pass: 0, ..inputs };
    let mut best = [f64::INFINITY; 3];
    for round in 0..=rounds {
        let ask: [&dyn Fn() -> Result<Logits, TrainError>; 3] =
            [&|| inputs.predict(&model, 0), &|| one_by_one.predict(&model, draws), &|| {
                inputs.predict(&model, draws)
            }];
        let mut answers = Vec::new();
        for (best, ask) in best.iter_mut().zip(ask) {
            let begun = Instant::now();
            answers.push(ask()?);
            if round > 0 {
                *best = best.min(begun.elapsed().as_secs_f64());
            }
        }
        if answers[1] != answers[2] {
            return Err(
                "several draws in a pass give other numbers than one after the other".into()
            );
        }
    }
    let [mean, sequential, batched] = best;
    Ok(Seconds { mean, sequential, batched })
}
