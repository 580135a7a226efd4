//! What is looked at while a language model trains.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use lrvd_burn::train::{Checkpoints, Evaluation, Observer, PassWatch, TrainState, token_answers};
use lrvd_models::llama::LlamaForCausalLm;

use super::data::LanguageTask;
use super::examples::{LanguageExample, LanguageExamples};
use crate::error::{Error, Result};
use crate::method::LanguageMethod;
use crate::progress::{Event, ProgressSink};

/// Measures the validation texts, keeps checkpoints, ends on a stop request.
pub(super) struct Watched<'a> {
    pub task: &'a LanguageTask,
    pub device: &'a Device,
    pub batch_size: usize,
    pub checkpoints: &'a Checkpoints,
    pub stop: &'a AtomicBool,
    pub sink: &'a mut dyn ProgressSink,
}

impl<'a> Watched<'a> {
    fn examples(&self, texts: &'a [LanguageExample]) -> LanguageExamples<'a> {
        LanguageExamples { texts, pad_id: self.task.pad_id, device: self.device }
    }
}

impl Observer<LlamaForCausalLm, LanguageMethod> for Watched<'_> {
    type Error = Error;

    fn event(&mut self, event: &Event) {
        self.sink.event(event);
    }

    fn evaluate(
        &mut self,
        model: &LlamaForCausalLm,
        _method: &(dyn lrvd_burn::train::Method<LlamaForCausalLm> + 'static),
    ) -> Result<Option<Evaluation>> {
        let examples = self.examples(&self.task.validation);
        let answers = token_answers(model, &examples, self.batch_size, 0, 0, PassWatch::default())?;
        let nll = answers.nll()?;
        let found = [("accuracy", answers.accuracy()?), ("standard", nll.exp()), ("nll", nll)];
        let finite = found.into_iter().filter(|(_, value)| value.is_finite());
        Ok(Some(Evaluation {
            metric: "nll".to_owned(),
            score: Some(-nll).filter(|score| score.is_finite()),
            metrics: finite
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<BTreeMap<_, _>>(),
        }))
    }

    fn held_out(
        &mut self,
        model: &LlamaForCausalLm,
        _method: &(dyn lrvd_burn::train::Method<LlamaForCausalLm> + 'static),
    ) -> Result<Option<Vec<f64>>> {
        let examples = self.examples(&self.task.holdout);
        if self.task.holdout.is_empty() {
            return Ok(None);
        }
        let answers = token_answers(model, &examples, self.batch_size, 0, 0, PassWatch::default())?;
        Ok(Some(answers.row_losses()))
    }

    fn checkpoint(
        &mut self,
        state: &TrainState<LlamaForCausalLm>,
        method: &(dyn lrvd_burn::train::Method<LlamaForCausalLm> + 'static),
    ) -> Result<()> {
        Ok(self.checkpoints.save(state, method)?)
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
