//! A language model that was trained on texts, or none: its measurement.

use std::path::Path;

use anyhow::anyhow;
use burn::module::Module as _;
use burn::tensor::{DType, Device};
use lrvd_burn::host::values;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{PassWatch, token_answers};
use lrvd_models::TokenBatch;
use lrvd_models::llama::LlamaForCausalLm;

use super::description::{Description, LanguageInfo};
use super::evaluate::{Evaluation, with_mean};
use super::open::{Adapter, OpenOptions};
use super::saved::SavedModel;
use crate::backbone::{Backbone, ModelLocation, load_language_model, locate_model};
use crate::data::{Content, LanguageColumns, PreparedTask, TextRow};
use crate::error::Result;
use crate::eval::score_tokens;
use crate::language::{LanguageReader, encoded};
use crate::settings::BasePrecision;
use crate::task::Goal;

const TASK_TYPE: &str = "CAUSAL_LM";
const BATCH_SIZE: usize = 8;
const MAX_LENGTH: usize = 1024;

pub type SavedLanguageModel = SavedModel<LlamaForCausalLm, Option<LanguageInfo>>;

impl SavedLanguageModel {
    /// Loads the adapter in `dir`: the output of a training run on texts, one of its checkpoints, or any PEFT folder of the
    /// task `CAUSAL_LM`.
    pub fn load(dir: &Path, options: &OpenOptions, device: &Device) -> Result<Self> {
        Self::on(&Adapter::open(dir, options, device)?, None, device)
    }

    pub(crate) fn on(
        adapter: &Adapter,
        precision: Option<BasePrecision>,
        device: &Device,
    ) -> Result<Self> {
        let info = match &adapter.files.description {
            Some(Description::Language(info)) => Some(info.clone()),
            _ if adapter.files.peft.config.task_type.as_deref() == Some(TASK_TYPE) => None,
            _ => {
                let dir = adapter.folder.display();
                return Err(anyhow!("`{dir}` holds no adapter of the task `{TASK_TYPE}`"));
            }
        };
        let (backbone, changed) = adapter.base()?;
        let usual = info.as_ref().map_or(BasePrecision::F32, |info| info.base_precision);
        let dtype = backbone.stored_as(precision.unwrap_or(usual))?;
        let model = load_language_model(&backbone, false, device, dtype)?;
        let mut saved = Self::of(info, adapter, backbone, model, device)?;
        saved.model = saved.model.valid();
        saved.warnings.extend(changed);
        Ok(saved)
    }

    pub fn base(name: &str, device: &Device) -> Result<Self> {
        Self::whole(locate_model(name)?, device)
    }

    pub(crate) fn whole(location: ModelLocation, device: &Device) -> Result<Self> {
        let (backbone, folder) = (Backbone::open(location.clone())?, location.folder);
        let dtype = backbone.stored_as(BasePrecision::F32)?;
        let model = load_language_model(&backbone, false, device, dtype)?.valid();
        Ok(Self::bare(None, &folder, backbone, model, device))
    }

    /// Draws of a measurement: those asked for, or as many as in training.
    pub fn draws(&self, asked: Option<usize>) -> Result<usize> {
        self.possible_draws(asked, self.info.as_ref().map_or(0, |info| info.run.draws))
    }

    pub(super) fn reader(&self) -> Result<LanguageReader<'_>> {
        LanguageReader::of(&self.backbone, self.max_length())
    }

    fn max_length(&self) -> usize {
        self.info.as_ref().map_or(MAX_LENGTH, |info| info.run.max_length)
    }

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
        self.info.as_ref().map_or(0, |info| info.run.seed)
    }

    pub(crate) fn mean_logits(&self, texts: &[&str]) -> Result<Vec<f64>> {
        let (reader, mut logits) = (self.reader()?, Vec::new());
        for &text in texts {
            let ids =
                reader.prompt(&Content::Text { prompt: text.to_owned(), completion: None })?;
            let ids = &ids[..ids.len().min(self.context())];
            let batch = TokenBatch::padded(&[(ids, &[])], 0, &self.device, DType::F32);
            let all = values(self.model.forward(&batch, &Pass::mean()));
            logits.extend(all.iter().skip(all.len() / ids.len() * (ids.len() - 1)));
        }
        Ok(logits)
    }

    /// Measures the model on `rows`, at its mean and, unless that is 0, at `draws` draws that `seed` addresses; and what
    /// is to be known of the rows, one sentence each.
    pub fn evaluate(
        &self,
        rows: &[TextRow],
        draws: usize,
        seed: u64,
    ) -> Result<(Evaluation, Vec<String>)> {
        let (reader, mut notes) = (self.reader()?, Vec::new());
        let batch_size = self.info.as_ref().map_or(BATCH_SIZE, |info| info.run.batch_size);
        let (validation_ids, validation) =
            encoded("data", rows, &reader, self.max_length(), &mut notes)?.into_iter().unzip();
        let (pad_id, task) = (reader.pad_id, PreparedTask::without_examples(Goal::texts("data")));
        let task = PreparedTask { validation, validation_ids, pad_id, ..task };
        let examples = task.examples(&task.validation, &self.device);
        let (model, watch) = (&self.model, PassWatch::default());
        let scored = with_mean(draws, |draws| {
            score_tokens(token_answers(model, &examples, batch_size, seed, draws, watch)?, draws)
        })?;
        Ok((Evaluation { scored, task }, notes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::saved::Sampler;
    use super::*;

    #[test]
    fn more_draws_than_the_most_are_an_error() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/stories260K");
        let mut model = SavedLanguageModel::base(folder, &Device::flex()).unwrap();
        model.sampler = Sampler::Posterior;
        assert_eq!(model.draws(Some(10_000)).unwrap(), 10_000);
        let error = model.draws(Some(10_001)).unwrap_err().to_string();
        assert_eq!(error, "`draws` is 10001, outside 0..=10000");
    }
}
