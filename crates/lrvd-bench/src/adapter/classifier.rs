//! A classifier that was trained: its answers.

use std::path::Path;

use anyhow::{anyhow, bail};
use burn::tensor::{DType, Device};
use lrvd_burn::model::AdaptedModel as _;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{ClassAnswer, DrawPolicy, Inputs, Logits, ScoreAnswer};
use lrvd_models::AutoModel;

use super::description::{Abstention, ClassifierInfo, Description};
use super::open::{Adapter, OpenOptions};
use super::saved::{Sampler, SavedModel, no_head};
use crate::backbone::{Backbone, ModelLocation, load_model};
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::data::{Input, Label, TextColumns, TextReader};
use crate::error::{Burn, Kind, Result};
use crate::method::softened;
use crate::settings::{BasePrecision, PredictionDraws};
use crate::text::quoted;

/// Batches in which texts of like length are looked for.
const WINDOW: usize = 32;
/// Logits that such a window may have.
const KEPT_LOGITS: usize = 1 << 23;

pub type SavedClassifier = SavedModel<AutoModel, ClassifierInfo>;

#[derive(Clone, Debug, PartialEq)]
pub enum Prediction {
    Class {
        /// Probabilities in label order, averaged over the draws.
        probabilities: Vec<f64>,
        /// The most probable class; ties go to the lowest.
        class: usize,
        /// Entropy of the probabilities, nats.
        entropy: f64,
        /// Mutual information between answer and weights, nats; `None` without draws.
        mutual_information: Option<f64>,
        /// Draws that the answer is averaged over; 0 at the mean.
        draws: usize,
    },
    Score {
        score: f64,
        /// Standard deviation over the draws; `None` below two draws.
        deviation: Option<f64>,
    },
}

impl SavedClassifier {
    /// Loads the adapter in `dir`: a PEFT folder, the output of a training run, or one of its
    /// checkpoints. The `policy` says how draws are made, and when fewer of them will do.
    ///
    /// Adapters that were not made here have no description; their labels are `LABEL_0`,
    /// `LABEL_1`, ... by the width of the head.
    pub fn load(
        dir: &Path,
        options: &OpenOptions,
        policy: DrawPolicy,
        device: &Device,
    ) -> Result<Self> {
        policy.check()?;
        Self::on(&Adapter::open(dir, options, device)?, policy, None, device)
    }

    /// `adapter` on its base model.
    pub(crate) fn on(
        adapter: &Adapter,
        policy: DrawPolicy,
        precision: Option<BasePrecision>,
        device: &Device,
    ) -> Result<Self> {
        let (backbone, changed) = adapter.base()?;
        let (info, peft) = (adapter.classifier(&backbone)?, &adapter.files.peft);
        let task = info.reader(&backbone)?.prepare(info.goal.clone(), &[], &[])?;
        let dtype = backbone.stored_as(precision.unwrap_or(info.base_precision))?;
        let (model, fresh) = load_model(&backbone, &task, false, info.run.seed, device, dtype)?;
        let absent: Vec<&String> =
            fresh.iter().filter(|name| !peft.saved.contains_key(*name)).collect();
        if !absent.is_empty() {
            return Err(no_head(&adapter.folder, absent));
        }
        let mut saved = Self { policy, ..Self::of(info, adapter, backbone, model, device)? };
        let rate = peft.config.lora_dropout;
        if saved.sampler == Sampler::Mean && saved.info.run.draws > 0 && rate > 0.0 {
            saved.model.visit_layers_mut(&mut |_, layer| {
                layer.edit(|adapter| adapter.dropout = rate);
            });
            saved.sampler = Sampler::Dropout;
        }
        saved.warnings.extend(changed);
        let stated = adapter.files.description.as_ref().and_then(Description::classifier);
        let (stated, most) =
            (stated.map_or(0, |info| info.run.max_length), saved.info.run.max_length);
        if stated > most {
            saved.warnings.push(format!(
                "the description says that texts have up to {stated} tokens, but the model has positions for {most}: longer \
                 texts are cut there"
            ));
        }
        Ok(saved)
    }

    /// The whole model in `folder`, of which `info` is the description.
    pub(crate) fn merged(folder: &Path, info: &ClassifierInfo, device: &Device) -> Result<Self> {
        let backbone = Backbone::open(ModelLocation::of_folder(folder))?;
        let task = info.reader(&backbone)?.prepare(info.goal.clone(), &[], &[])?;
        let (model, fresh) = load_model(&backbone, &task, false, 0, device, DType::F32)?;
        if !fresh.is_empty() {
            return Err(no_head(folder, fresh));
        }
        Ok(Self::bare(info.clone(), folder, backbone, model, device))
    }

    /// Logits at the mean (`draws = 0`) or at draws that `seed` addresses, as in the evaluation at the end
    /// of training.
    pub(super) fn logits(
        &self,
        examples: &TokenExamples<'_>,
        draws: usize,
        seed: u64,
    ) -> Burn<Logits> {
        let (batch_size, kind) = (self.info.run.batch_size, self.info.prediction_draws);
        let inputs =
            Inputs { batch_size, seed, kind, policy: self.policy, ..Inputs::new(examples) };
        match self.sampler {
            Sampler::Mean | Sampler::Posterior => inputs.predict(&self.model, draws),
            Sampler::Dropout => inputs
                .predict_with(&self.model, draws, |key| Pass::mean().with_adapter_dropout(key)),
        }
    }

    /// Whether what is drawn for an answer of `draws` draws is the same whatever else is asked in the same call. Dropout,
    /// weights resampled for every batch and noise on activations are addressed by places in it.
    pub fn is_batch_free(&self, draws: usize) -> bool {
        let weights = self.info.prediction_draws == PredictionDraws::Weights;
        draws == 0 || (self.sampler == Sampler::Posterior && weights)
    }

    /// `logits` of `draws` draws under the temperature that was fitted for so many, if any was.
    pub(super) fn calibrated(&self, logits: Logits, draws: usize) -> Burn<Logits> {
        match self.info.temperatures.get(&draws) {
            Some(&temperature) => softened(logits, temperature),
            None => Ok(logits),
        }
    }

    pub fn draws(&self, asked: Option<usize>) -> Result<usize> {
        let draws = self.possible_draws(asked, self.info.run.draws)?;
        let fitted = &self.info.temperatures;
        if !fitted.is_empty() && !fitted.contains_key(&draws) {
            let (dir, known) = (self.dir.display(), quoted(fitted.keys().map(usize::to_string)));
            bail!(
                "no temperature was fitted for {draws} draws in `{dir}`: pass `--draws` with one of {known}"
            );
        }
        Ok(draws)
    }

    /// The columns that the classifier was trained on, or the usual ones: `text` and `label`, and `pair`
    /// where it was trained on pairs.
    pub fn columns(&self) -> TextColumns {
        let pair = (self.info.pairs == Some(true)).then(|| "pair".to_owned());
        let usual = || TextColumns { pair, ..TextColumns::default() };
        self.info.columns.clone().unwrap_or_else(usual)
    }

    /// Answers `inputs` at the posterior mean (`draws = 0`) or averaged over draws, which `seed`
    /// addresses and which are of the kind that the classifier was evaluated with: by default a draw
    /// from a posterior is the same model for every input and every call, and one of dropout drops the
    /// same places of every batch.
    ///
    /// `first` is the number of inputs before these, for errors.
    pub fn predict(
        &self,
        inputs: &[Input],
        draws: usize,
        seed: u64,
        first: usize,
    ) -> Result<Vec<Prediction>> {
        let reader = self.info.reader(&self.backbone)?;
        let examples = self.encode(&reader, inputs, first)?;
        self.answers(self.logits(&self.batches(&reader, &examples), draws, seed)?, draws)
    }

    /// What `logits` of `draws` draws say, under the temperature that was fitted for so many.
    pub(super) fn answers(&self, logits: Logits, draws: usize) -> Result<Vec<Prediction>> {
        if self.info.goal.is_regression() {
            let score =
                |a: ScoreAnswer| Prediction::Score { score: a.score, deviation: a.deviation };
            return Ok(logits.scores()?.into_iter().map(score).collect());
        }
        // What the draws disagree about is theirs, whatever the temperature.
        let information: Vec<Option<f64>> =
            logits.classes()?.into_iter().map(|answer| answer.mutual_information).collect();
        let logits = self.calibrated(logits, draws)?;
        let made = |row: usize| logits.made.as_ref().map_or(draws, |made| made[row]);
        let answer = |(row, a): (usize, ClassAnswer)| Prediction::Class {
            probabilities: a.probabilities,
            class: a.class,
            entropy: a.entropy,
            mutual_information: information[row].filter(|_| made(row) > 0),
            draws: made(row),
        };
        Ok(logits.classes()?.into_iter().enumerate().map(answer).collect())
    }

    /// How many inputs [`predict`](Self::predict) should get at once, where there are many: enough to find texts of like length
    /// for every batch. One batch, in the order given, where what is drawn for an answer depends on its batch.
    pub fn window(&self, draws: usize) -> usize {
        let batch = self.info.run.batch_size;
        if !self.is_batch_free(draws) {
            return batch;
        }
        // Every draw's logits are kept until the answers are taken from them.
        let most = KEPT_LOGITS / (draws.max(1) * self.info.goal.n_labels().max(1));
        (WINDOW * batch).min(most).max(batch)
    }

    pub(crate) fn mean_logits(&self, inputs: &[Input]) -> Result<Vec<f64>> {
        let reader = self.info.reader(&self.backbone)?;
        let examples = self.encode(&reader, inputs, 0)?;
        Ok(self.logits(&self.batches(&reader, &examples), 0, 0)?.values)
    }

    pub(super) fn batches<'a>(
        &'a self,
        reader: &TextReader<'_>,
        examples: &'a [TokenisedExample],
    ) -> TokenExamples<'a> {
        TokenExamples {
            examples,
            pad_id: reader.pad_id(),
            labels: self.info.goal.n_labels(),
            smoothing: 0.0,
            device: &self.device,
            dtype: DType::F32,
        }
    }

    pub(super) fn encode(
        &self,
        reader: &TextReader<'_>,
        inputs: &[Input],
        first: usize,
    ) -> Result<Vec<TokenisedExample>> {
        let kind = |pair: bool| if pair { "a pair (`text` and `pair`)" } else { "a single text" };
        let encode = |(i, input): (usize, &Input)| {
            let (pair, found) = (input.pair.is_some(), input.choices.len());
            let most = self.info.goal.n_labels();
            let (found, expected) = match (self.info.pairs, self.info.has_choices()) {
                (Some(expected), _) if expected != pair => {
                    (format!("is {}", kind(pair)), kind(expected).to_owned())
                }
                (_, true) if !(2..=most).contains(&found) => {
                    (format!("has {found} choices"), format!("questions with 2 to {most}"))
                }
                (_, false) if found > 0 => {
                    (format!("has {found} choices"), "texts without choices".to_owned())
                }
                // Without a target: the label is not read in prediction.
                _ => return Ok(reader.encode(input, Label::Class(0))?.0),
            };
            let number = first + i + 1;
            Err(Kind::Input
                .mark(anyhow!("input {number} {found}, the classifier was trained on {expected}")))
        };
        inputs.iter().enumerate().map(encode).collect()
    }

    pub fn abstention(&self, draws: usize) -> Result<Option<Abstention>> {
        let fitted = &self.info.abstentions;
        let spared = self.policy.asked().is_some();
        match fitted.get(&draws).filter(|_| !spared) {
            Some(found) => Ok(Some(*found)),
            None if fitted.is_empty() => Ok(None),
            None => {
                let known = quoted(fitted.keys().map(usize::to_string));
                Err(anyhow!(
                    "no threshold was fitted for the answers of {draws} draws with these options in `{dir}`, \
                     only for {known} draws: pass `--draws`, run `lrvd abstain fit` with these options, or pass \
                     `--abstain-above` (`inf` always answers)",
                    dir = self.folder().display()
                ))
            }
        }
    }
}
