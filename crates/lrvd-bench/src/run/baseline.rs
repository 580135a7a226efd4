//! The regression on the frozen encoder, beside the adapter that a run has trained.

use std::time::Instant;

use lrvd_core::metrics::{argmax_rows, mean, sample_sd};
use lrvd_models::AutoModel;

use super::start::{Run, RunStart};
use crate::answers::AnswerSpace;
use crate::backbone::{Architecture, Head, load_model};
use crate::data::batch::TokenisedExample;
use crate::error::Result;
use crate::eval::{RunContext, Scored, score_draws};
use crate::method::linear::{Regression, cross_fitted, features, host, rows};
use crate::method::{EvaluationWork, Temperatures};
use crate::record::BaselineRecord;
use lrvd_burn::train::Prediction;

/// Largest share of a run that the regression may take.
const MOST: f64 = 0.1;

impl Run<'_> {
    /// Rows that the regression would answer or be fitted to; `None` of a run that has none: one without steps, on a language
    /// model, with other answers than one class, or of which the rows would take more than a tenth.
    pub(crate) fn baseline_rows(&self) -> Option<usize> {
        let RunStart { config, backbone, method, .. } = self.start;
        let task = self.task();
        let is_classifier = matches!(task.goal.answers, AnswerSpace::Classes { .. })
            && matches!(backbone.architecture, Architecture::Deberta(_));
        let validation = task.validation.len();
        let all = task.train.len() + task.holdout.len() + validation;
        let share = EvaluationWork::new(method, config).share_of_pass(all, validation);
        (is_classifier && method.can().steps && validation > 0 && share <= MOST).then_some(all)
    }

    /// Fits a regression to the features that the frozen encoder has of all rows for training, those that were held out included,
    /// and compares its answers to the validation rows with the adapter's `own`.
    ///
    /// It has a separate model and separate random numbers: nothing of the run depends on it.
    pub(crate) fn baseline(
        &self,
        context: &RunContext<'_>,
        own: &Scored,
    ) -> Result<BaselineRecord> {
        let begun = Instant::now();
        let RunStart { config, backbone, seed, device, .. } = self.start;
        let task = self.task();
        let head = (backbone.embedding_pooling()?, &Head::New);
        let precision = backbone.stored_as(config.base_precision)?;
        let (model, _) = load_model(backbone, task, head, false, seed, device, precision)?;
        let of = |examples: &[TokenisedExample], model: &AutoModel| {
            rows(model, &context.inputs(&context.examples(examples)))
        };
        let mut fitted = of(&task.train, &model)?;
        if !task.holdout.is_empty() {
            let more = of(&task.holdout, &model)?;
            fitted.features.extend(more.features);
            fitted.expected.extend(more.expected);
        }
        let host = host(device.clone());
        let found = Regression::fit(&fitted, seed, &host, context.watch)?;
        let validation = context.examples(&task.validation);
        let answers = found.answers(&features(&model, &context.inputs(&validation))?, &host);
        let logits = Prediction::new(answers, task.validation.len(), fitted.width);
        let temperatures = cross_fitted(&fitted, &found)?.map(Temperatures::from);
        let temperatures = temperatures.unwrap_or_default();
        let scored = score_draws(&temperatures.soften(logits, 0)?, task)?;
        let right = |scored: &Scored| -> Result<Vec<f64>> {
            let classes = argmax_rows(&scored.outputs, task.labels)?;
            let labels = task.validation.iter().map(|row| row.answer.label()?.class());
            Ok(classes.into_iter().zip(labels).map(|(c, y)| f64::from(Some(c) == y)).collect())
        };
        let own_right = right(own)?;
        let right = right(&scored)?;
        let differences: Vec<f64> = own_right.iter().zip(&right).map(|(a, b)| a - b).collect();
        let count = differences.len();
        let error = (count > 1).then(|| sample_sd(&differences)).transpose()?;
        Ok(BaselineRecord {
            train_rows: (fitted.expected.len() / fitted.width.max(1)) as u64,
            rows: count as u64,
            accuracy: mean(&right)?,
            nll: scored.metrics.nll,
            strength: found.strength,
            temperature: temperatures.by_draws.get(&0).copied(),
            difference: mean(&differences)?,
            error: error.map(|deviation| deviation / (count as f64).sqrt()),
            seconds: begun.elapsed().as_secs_f64(),
        })
    }
}
