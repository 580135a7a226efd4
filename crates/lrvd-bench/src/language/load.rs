//! From an adapter folder to a model that continues texts, and its measurement.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use burn::module::Module;
use burn::tensor::Device;
use lrvd_burn::peft::{PeftAdapter, PeftPosterior, attach_peft, attach_posterior};
use lrvd_burn::train::{PassWatch, TokenAnswers, token_answers};
use lrvd_core::metrics::mean;
use lrvd_models::llama::LlamaForCausalLm;
use serde::Serialize;

use super::data::{LanguageExamples, encoded};
use super::encode::LanguageReader;
use super::settings::{LANGUAGE_FILE, LanguageInfo};
use super::train::{AtCheckpoint, Rebuilt, rebuild};
use crate::backbone::{Backbone, load_language_model, locate_model};
use crate::data::{LanguageColumns, TextRow};
use crate::error::{Error, Result};
use crate::io::{create_dir, write_json_lines};
use crate::record::{Metrics, Reliability};
use crate::run::{ADAPTER_DIR, SETTINGS_FILE};
use crate::saved::{
    Allowed, CHECKPOINT_VALUES, Place, check_draws, check_hashes, no_posterior, open_base_model,
    read_adapter,
};
use crate::settings::BasePrecision;

const TASK_TYPE: &str = "CAUSAL_LM";
/// Default number of texts per batch.
const BATCH_SIZE: usize = 8;
/// Default length of the longest text.
const MAX_LENGTH: usize = 1024;

#[derive(Clone, Debug, Default)]
pub struct LanguageLoadOptions {
    pub model: Option<String>,
    pub allow_other_base: bool,
    /// Whether files may have changed since the adapter was saved.
    pub allow_changed: bool,
}

pub struct SavedLanguageModel {
    pub info: Option<LanguageInfo>,
    /// What a reader must know of the model: that its run is not finished, or a file of it has changed.
    pub warnings: Vec<String>,
    /// The folder that was loaded: the adapter's, or the base model's.
    dir: PathBuf,
    pub(super) has_posterior: bool,
    pub(super) model: LlamaForCausalLm,
    pub(super) backbone: Backbone,
    pub(super) device: Device,
}

struct Found {
    folder: PathBuf,
    adapter: PeftAdapter,
    posterior: Option<PeftPosterior>,
    info: Option<LanguageInfo>,
    warnings: Vec<String>,
}

impl SavedLanguageModel {
    /// Whether `dir` holds an adapter of a language model that was trained here on texts, or a run of one.
    pub fn is_at(dir: &Path) -> Result<bool> {
        for folder in [dir, &dir.join(ADAPTER_DIR)] {
            if LanguageInfo::read(folder)?.is_some() {
                return Ok(true);
            }
        }
        let out = if dir.join(CHECKPOINT_VALUES).is_file() {
            dir.parent().and_then(Path::parent).unwrap_or(dir)
        } else {
            dir
        };
        let settings = out.join(SETTINGS_FILE);
        Ok(settings.is_file() && super::train::is_language_run(&settings)?)
    }

    /// Loads the adapter in `dir`: the output of a training run on texts, one of its checkpoints, or any PEFT folder of the
    /// task `CAUSAL_LM`.
    pub fn load(dir: &Path, options: &LanguageLoadOptions, device: &Device) -> Result<Self> {
        let &LanguageLoadOptions { ref model, allow_other_base, allow_changed } = options;
        let Found { folder, adapter, posterior, info, mut warnings } =
            Found::open(dir, device, allow_changed)?;
        let described = info.as_ref().map(LanguageInfo::base);
        let allowed = Allowed { other_base: allow_other_base, changed: allow_changed };
        let (backbone, changed) =
            open_base_model(&folder, &adapter, model.as_deref(), described, allowed)?;
        warnings.extend(changed);
        let precision = info.as_ref().map_or(BasePrecision::F32, |info| info.base_precision);
        let dtype = backbone.stored_as(precision)?;
        let mut model = load_language_model(&backbone, false, device, dtype)?;
        attach_peft(&mut model, &adapter, false)?;
        if let Some(posterior) = &posterior {
            attach_posterior(&mut model, posterior)?;
        }
        let (has_posterior, model, device) = (posterior.is_some(), model.valid(), device.clone());
        Ok(Self { info, warnings, dir: folder, has_posterior, model, backbone, device })
    }

    pub fn base(name: &str, device: &Device) -> Result<Self> {
        let backbone = Backbone::open(locate_model(name)?)?;
        let dtype = backbone.stored_as(BasePrecision::F32)?;
        let model = load_language_model(&backbone, false, device, dtype)?.valid();
        let (dir, device) = (backbone.location.folder.clone(), device.clone());
        let (info, warnings) = (None, Vec::new());
        Ok(Self { info, warnings, dir, has_posterior: false, model, backbone, device })
    }

    pub fn folder(&self) -> &Path {
        &self.dir
    }

    pub fn base_name(&self) -> &str {
        &self.backbone.location.name
    }

    /// Draws of a measurement: those asked for, or as many as in training.
    pub fn draws(&self, asked: Option<usize>) -> Result<usize> {
        let own = self.info.as_ref().filter(|_| self.has_posterior).map_or(0, |info| info.draws);
        let draws = asked.unwrap_or(own);
        if draws > 0 && !self.has_posterior {
            return Err(no_posterior(draws, &self.dir));
        }
        check_draws(draws)?;
        Ok(draws)
    }

    pub(super) fn reader(&self) -> Result<LanguageReader<'_>> {
        let Backbone { location, architecture, tokenizer, .. } = &self.backbone;
        let length = self.info.as_ref().map_or(MAX_LENGTH, |info| info.max_length);
        LanguageReader::new(location, architecture, tokenizer, length)
    }

    pub fn has_posterior(&self) -> bool {
        self.has_posterior
    }

    /// Whether conversations can be continued: the base model has a form for them.
    pub fn has_chat(&self) -> Result<bool> {
        Ok(self.reader()?.has_chat())
    }

    /// Tokens that a prompt and its continuation may have together.
    pub fn context(&self) -> usize {
        self.model.config().max_position_embeddings
    }

    pub fn columns(&self) -> Option<&LanguageColumns> {
        self.info.as_ref().map(|info| &info.columns)
    }

    pub fn seed(&self) -> u64 {
        self.info.as_ref().map_or(0, |info| info.seed)
    }

    /// Measures the model on `rows`, at its mean and, unless that is 0, at `draws` draws that `seed` addresses; and what
    /// is to be known of the rows, one sentence each.
    pub fn evaluate(
        &self,
        rows: &[TextRow],
        draws: usize,
        seed: u64,
    ) -> Result<(LanguageEvaluation, Vec<String>)> {
        let (reader, mut notes) = (self.reader()?, Vec::new());
        let length = self.info.as_ref().map_or(MAX_LENGTH, |info| info.max_length);
        let batch = self.info.as_ref().map_or(BATCH_SIZE, |info| info.batch_size);
        let (ids, texts): (Vec<_>, Vec<_>) =
            encoded("data", rows, &reader, length, &mut notes)?.into_iter().unzip();
        let examples =
            LanguageExamples { texts: &texts, pad_id: reader.pad_id, device: &self.device };
        let numbers: &[usize] = if draws > 0 { &[draws] } else { &[] };
        let found = LanguageEvaluation::new(
            &self.model,
            &examples,
            ids,
            batch,
            seed,
            numbers,
            PassWatch::default(),
        )?;
        Ok((found, notes))
    }
}

impl Found {
    fn open(dir: &Path, device: &Device, allow_changed: bool) -> Result<Self> {
        match Place::find(dir)? {
            Some(Place::Adapter(folder) | Place::Run(folder)) => Self::read(folder, allow_changed),
            Some(Place::Checkpoint { out, folder, or_newer }) => {
                match rebuild(&out, &folder, or_newer, device) {
                    // The run ended meanwhile and removed its checkpoints.
                    Err(_) if or_newer && folder.parent().is_some_and(|all| !all.exists()) => {
                        Self::open(dir, device, allow_changed)
                    }
                    rebuilt => {
                        let AtCheckpoint { folder, warning, model } =
                            rebuilt?.ok_or_else(|| nothing(dir))?;
                        let Rebuilt { adapter, posterior, info } = model;
                        let (info, warnings) = (Some(info), vec![warning]);
                        Ok(Self { folder, adapter, posterior, info, warnings })
                    }
                }
            }
            None => Err(nothing(dir)),
        }
    }

    fn read(folder: PathBuf, allow_changed: bool) -> Result<Self> {
        let info = LanguageInfo::read(&folder)?;
        let hashes = info.as_ref().and_then(|info| info.hashes.as_ref());
        let warnings = check_hashes(hashes, &folder, LANGUAGE_FILE, allow_changed)?;
        let (adapter, posterior) = read_adapter(&folder)?;
        if info.is_none() && adapter.config.task_type.as_deref() != Some(TASK_TYPE) {
            return Err(nothing(&folder));
        }
        Ok(Self { folder, adapter, posterior, info, warnings })
    }
}

fn nothing(dir: &Path) -> Error {
    anyhow!(
        "`{}` holds no adapter of a language model; looked for the task `{TASK_TYPE}` in {}",
        dir.display(),
        Place::looked_for()
    )
}

#[derive(Clone, Debug)]
pub struct LanguageEvaluation {
    /// By number of draws; 0 is the posterior mean.
    pub scored: BTreeMap<u32, TokenAnswers>,
    pub seconds: BTreeMap<u32, f64>,
    ids: Vec<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    tokens: usize,
    nll: BTreeMap<u32, f64>,
    entropy: BTreeMap<u32, f64>,
    mutual_information: BTreeMap<u32, f64>,
}

impl LanguageEvaluation {
    /// The answers of `model` at its mean and at each number of `draws`; `watch` follows the passes.
    pub(super) fn new(
        model: &LlamaForCausalLm,
        examples: &LanguageExamples<'_>,
        ids: Vec<String>,
        batch_size: usize,
        seed: u64,
        draws: &[usize],
        watch: PassWatch<'_>,
    ) -> Result<Self> {
        let (mut scored, mut seconds) = (BTreeMap::new(), BTreeMap::new());
        for draws in std::iter::once(0).chain(draws.iter().copied()) {
            let begun = Instant::now();
            let answers = token_answers(model, examples, batch_size, seed, draws, watch)?;
            seconds.insert(draws as u32, begun.elapsed().as_secs_f64());
            scored.insert(draws as u32, answers);
        }
        Ok(Self { scored, seconds, ids })
    }

    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Metrics by number of draws, per token: `nll` in nats, its exponential as `perplexity`, the calibration of the most
    /// likely token.
    pub fn metrics(&self) -> Result<BTreeMap<u32, Metrics>> {
        self.scored.iter().map(|(&draws, answers)| Ok((draws, metrics(answers, draws)?))).collect()
    }

    /// Reliability of the most likely token by number of draws.
    pub fn reliability(&self) -> Result<BTreeMap<u32, Reliability>> {
        let of = |(&draws, answers): (&u32, &TokenAnswers)| {
            Ok((draws, Reliability::from(&answers.reliability()?)))
        };
        self.scored.iter().map(of).collect()
    }

    /// Writes one line for every text: its tokens and, by number of draws, their mean negative log-likelihood, entropy and
    /// mutual information.
    pub fn write_predictions(&self, path: &Path) -> Result<()> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            create_dir(parent)?;
        }
        let mut start = 0;
        let lines = self.ids.iter().enumerate().map(|(row, id)| {
            let tokens = self.scored.values().next().map_or(0, |answers| answers.per_row[row]);
            let of = |values: &dyn Fn(&TokenAnswers) -> &[f64]| -> BTreeMap<u32, f64> {
                let mean = |answers| mean(&values(answers)[start..start + tokens]).unwrap_or(0.0);
                self.scored.iter().map(|(&draws, answers)| (draws, mean(answers))).collect()
            };
            let nll = of(&|answers| &answers.log_probability);
            let mut mutual_information = of(&|answers| &answers.mutual_information);
            // A single model agrees with itself.
            mutual_information.retain(|&draws, _| draws > 1);
            let line = Line {
                id,
                tokens,
                nll: nll.into_iter().map(|(draws, log)| (draws, -log)).collect(),
                entropy: of(&|answers| &answers.entropy),
                mutual_information,
            };
            start += tokens;
            line
        });
        write_json_lines(path, lines)
    }
}

fn metrics(answers: &TokenAnswers, draws: u32) -> Result<Metrics> {
    let nll = answers.nll()?;
    Ok(Metrics {
        n: answers.log_probability.len() as u64,
        accuracy: Some(answers.accuracy()?),
        macro_f1: None,
        standard: BTreeMap::from([("perplexity".to_owned(), nll.exp())]),
        nll: Some(nll),
        ece: Some(answers.reliability()?.ece()),
        brier: None,
        entropy: Some(mean(&answers.entropy)?),
        mutual_information: if draws > 1 { Some(mean(&answers.mutual_information)?) } else { None },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn more_draws_than_the_most_are_an_error() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/stories260K");
        let mut model = SavedLanguageModel::base(folder, &Device::flex()).unwrap();
        model.has_posterior = true;
        assert_eq!(model.draws(Some(10_000)).unwrap(), 10_000);
        let error = model.draws(Some(10_001)).unwrap_err().to_string();
        assert_eq!(error, "`draws` is 10001, outside 0..=10000");
    }
}
