//! From an adapter folder to a classifier that predicts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use burn::tensor::Device;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::peft::{attach_peft, attach_posterior};
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{DrawPolicy, Inputs, Logits};
use lrvd_models::AutoClassifier;

use super::info::{AdapterInfo, AdapterSource, ClassifierInfo};
use crate::backbone::{Backbone, load_model};
use crate::data::QuestionForm;
use crate::data::batch::TokenExamples;
use crate::error::{Error, Result};
use crate::method::softened;
use crate::saved::{Allowed, check_draws, no_posterior, open_base_model};
use crate::settings::{BasePrecision, CheckpointChoice, PredictionDraws};
use crate::task::Goal;
use crate::text::quoted;

/// Longest input of an adapter that does not say what it was trained on.
const MAX_LENGTH: usize = 128;
const BATCH_SIZE: usize = 32;

#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Base model, instead of the one that the adapter names.
    pub model: Option<String>,
    pub allow_other_base: bool,
    /// Whether files may have changed since the adapter was saved.
    pub allow_changed: bool,
    /// How draws are made, and when fewer of them will do.
    pub policy: DrawPolicy,
    pub precision: Option<BasePrecision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampler {
    Mean,
    Posterior,
    Dropout,
}

pub struct SavedClassifier {
    pub info: ClassifierInfo,
    /// What a reader must know of the model: that its run is not finished, or a file of it has changed.
    pub warnings: Vec<String>,
    pub(super) dir: PathBuf,
    pub(super) sampler: Sampler,
    pub(super) policy: DrawPolicy,
    /// Tokens that its description names, where the model has fewer positions.
    pub(super) stated_length: Option<usize>,
    pub(super) model: AutoClassifier,
    pub(super) backbone: Backbone,
    pub(super) device: Device,
}

impl SavedClassifier {
    /// Loads the adapter in `dir`: a PEFT folder, the output of a training run, or one of its
    /// checkpoints.
    ///
    /// Adapters that were not made here have no description; their labels are `LABEL_0`,
    /// `LABEL_1`, ... by the width of the head.
    pub fn load(dir: &Path, options: &LoadOptions, device: &Device) -> Result<Self> {
        options.policy.check()?;
        let source = AdapterSource::open(dir, device, options.allow_changed)?;
        let (info, backbone, changed) =
            open_base(&source, options.model.as_deref(), options.allow_other_base)?;
        let stated = source.saved.info.as_ref().and_then(AdapterInfo::classifier);
        let stated_length =
            stated.map(|stated| stated.max_length).filter(|&length| length > info.max_length);
        let task = info.reader(&backbone)?.prepare(info.goal.clone(), &[], &[])?;
        let dtype = backbone.stored_as(options.precision.unwrap_or(info.base_precision))?;
        let (mut model, fresh) = load_model(&backbone, &task, false, info.seed, device, dtype)?;
        let absent: Vec<&String> =
            fresh.iter().filter(|name| !source.saved.adapter.saved.contains_key(*name)).collect();
        if !absent.is_empty() {
            return Err(no_head(&source.folder, absent));
        }
        attach_peft(&mut model, &source.saved.adapter, false)?;
        let rate = source.saved.adapter.config.lora_dropout;
        let sampler = match &source.saved.posterior {
            Some(posterior) => {
                attach_posterior(&mut model, posterior)?;
                Sampler::Posterior
            }
            None if info.draws > 0 && rate > 0.0 => {
                model.visit_layers_mut(&mut |_, layer| {
                    if let Some(adapter) = layer.low_rank_mut() {
                        adapter.dropout = rate;
                    }
                });
                Sampler::Dropout
            }
            None => Sampler::Mean,
        };
        let (dir, device, policy) = (source.folder, device.clone(), options.policy);
        let warnings = source.warnings.into_iter().chain(changed).collect();
        Ok(Self { info, warnings, dir, sampler, policy, stated_length, model, backbone, device })
    }

    /// Logits at the mean (`draws = 0`) or at draws that `seed` addresses, as in the evaluation at the end
    /// of training.
    pub(super) fn logits(
        &self,
        examples: &TokenExamples<'_>,
        draws: usize,
        seed: u64,
    ) -> Result<Logits, lrvd_burn::Error> {
        let (batch_size, kind) = (self.info.batch_size, self.info.prediction_draws);
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
    pub(super) fn calibrated(
        &self,
        logits: Logits,
        draws: usize,
    ) -> Result<Logits, lrvd_burn::Error> {
        match self.info.temperatures.get(&draws) {
            Some(&temperature) => softened(logits, temperature),
            None => Ok(logits),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.dir
    }

    pub fn length_note(&self) -> Option<String> {
        let (stated, most) = (self.stated_length?, self.info.max_length);
        Some(format!(
            "the description says that texts have up to {stated} tokens, but the model has positions for {most}: longer texts \
             are cut there"
        ))
    }

    pub fn draws(&self, asked: Option<usize>) -> Result<usize> {
        let draws = match (asked, self.sampler) {
            (Some(draws), _) => draws,
            (None, Sampler::Mean) => 0,
            (None, _) => self.info.draws,
        };
        if draws > 0 && self.sampler == Sampler::Mean {
            return Err(no_posterior(draws, &self.dir));
        }
        if let (0, Some(setting)) = (draws, self.policy.asked()) {
            let what = format!("`{setting}` needs draws: pass `--draws K`");
            return Err(lrvd_burn::Error::Argument(what).into());
        }
        check_draws(draws)?;
        let fitted = &self.info.temperatures;
        if !fitted.is_empty() && !fitted.contains_key(&draws) {
            let (dir, known) = (self.dir.display(), quoted(fitted.keys().map(usize::to_string)));
            bail!(
                "no temperature was fitted for {draws} draws in `{dir}`: pass `--draws` with one of {known}"
            );
        }
        Ok(draws)
    }
}

/// `names` are tensors of the head that nothing has.
pub(super) fn no_head<T: AsRef<str>>(adapter: &Path, names: impl IntoIterator<Item = T>) -> Error {
    let (dir, names) = (adapter.display(), quoted(names));
    anyhow!("neither the adapter `{dir}` nor the base model has {names}")
}

/// The base model that an adapter names, or `model`, the adapter's description or what can be known of it, and warnings of
/// files that have changed.
pub(super) fn open_base(
    source: &AdapterSource,
    model: Option<&str>,
    allow_other: bool,
) -> Result<(ClassifierInfo, Backbone, Vec<String>)> {
    let (info, backbone, changed) = open_any_base(source, model, allow_other)?;
    let info = info.ok_or_else(|| {
        let dir = source.folder.display();
        anyhow!(
            "`{dir}` holds a language model, which has no classes: `lrvd generate {dir}` continues \
             texts, `lrvd eval {dir} --data FILE` measures it"
        )
    })?;
    Ok((info, backbone, changed))
}

/// As [`open_base`], of a language model's adapter as well, which has no description of a classifier.
pub(super) fn open_any_base(
    source: &AdapterSource,
    model: Option<&str>,
    other_base: bool,
) -> Result<(Option<ClassifierInfo>, Backbone, Vec<String>)> {
    let info = source.saved.info.as_ref();
    let described = info.map(AdapterInfo::base);
    let (folder, adapter) = (&source.folder, &source.saved.adapter);
    let allowed = Allowed { other_base, changed: source.allow_changed };
    let (backbone, changed) = open_base_model(folder, adapter, model, described, allowed)?;
    let mut info = match info {
        Some(info) => info.classifier().cloned(),
        None => Some(foreign(source, &backbone)?),
    };
    if let (Some(info), Some(most)) = (&mut info, backbone.architecture.positions()) {
        info.max_length = info.max_length.min(most);
    }
    Ok((info, backbone, changed))
}

/// What can be known of an adapter that was made elsewhere.
fn foreign(source: &AdapterSource, backbone: &Backbone) -> Result<ClassifierInfo> {
    let encoder = backbone.encoder_for("an adapter without `lrvd_classifier.json`")?;
    let head =
        source.saved.adapter.saved.iter().find(|(name, _)| name.ends_with("classifier.weight"));
    let width = head.and_then(|(_, tensor)| tensor.shape().first().copied());
    let goal = match width.unwrap_or_else(|| encoder.num_labels()) {
        1 => Goal::regression("adapter"),
        n if n == encoder.num_labels() => Goal::classification("adapter", encoder.id2label.clone()),
        n => {
            let names = (0..n).map(|i| format!("LABEL_{i}")).collect();
            Goal::classification("adapter", names)
        }
    };
    Ok(ClassifierInfo {
        schema_version: ClassifierInfo::SCHEMA,
        base_model: backbone.location.name.clone(),
        weights: backbone.hashes.clone(),
        hashes: None,
        seen: BTreeSet::new(),
        goal,
        columns: None,
        wording: None,
        questions: QuestionForm::default(),
        base_precision: BasePrecision::F32,
        pairs: None,
        max_length: backbone.tokenizer.model_max_length().unwrap_or(MAX_LENGTH).min(MAX_LENGTH),
        batch_size: BATCH_SIZE,
        method: source.saved.adapter.config.method.name().to_owned(),
        seed: source.saved.posterior.as_ref().map_or(0, |p| p.header.seed),
        initial_rank: None,
        ranks: source.saved.adapter.modules.iter().map(|(p, m)| (p.clone(), m.rank)).collect(),
        checkpoint: CheckpointChoice::Last,
        step: 0,
        log_alpha_threshold: source.saved.posterior.as_ref().map(|p| p.header.log_alpha_threshold),
        fan_in_correction: false,
        draws: if source.saved.posterior.is_some() { 10 } else { 0 },
        prediction_draws: PredictionDraws::default(),
        temperatures: BTreeMap::new(),
        abstentions: BTreeMap::new(),
    })
}
