//! Linear: a regression on the features of the frozen encoder, in place of steps.
//!
//! Objective: that of [`regression`], over the pooled state of every training row. The head is the whole of what is fitted:
//! `width·(features + 1)` values, no adapter. One forward pass over the rows is most of the time.
//!
//! A pooler that the checkpoint does not have, or has from pretraining, is no map of features, so none is read: the head's
//! input is the mean over all tokens or the first token as the encoder leaves it ([`MethodName::pooling`](super::MethodName)).
//!
//! The temperature is fitted to answers to the training rows by the fits of the cross-validation, each of which has left out
//! the rows that it answers: no row is held out for it. There are no draws.

mod regression;

use std::collections::BTreeMap;

use burn::tensor::{Device, TensorData};
use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::model::{NamedModule, adapters};
use lrvd_burn::parameters::{Group, values};
use lrvd_burn::prune::{PruneEvent, apply};
use lrvd_burn::train::{
    CrossFitted, Fitted, Method, Setup, Targets, TrainConfig, evaluation_batches, report_progress,
    restore_order,
};
use lrvd_burn::{Error, device};
use lrvd_core::baselines::shrunk_temperature;
use lrvd_models::AutoModel;

use super::setup::plain_lora;
use super::{Fitting, Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::Config;
pub(crate) use regression::{Answers, Regression, Rows};

/// Settings that the regression reads; it takes no steps, and has no adapter, no noise and no draws.
pub(crate) const SETTINGS: [&str; 7] = [
    "train_rows",
    "validation_rows",
    "holdout",
    "evaluation_batch_size",
    "max_length",
    "base_precision",
    "pooling",
];

/// The regression as a method.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    adapter: AdapterConfig,
}

impl Linear {
    /// With adapters that [`without_adapters`] takes off again: files of adapters name the layers of one.
    pub(super) fn new(config: &Config, _request: RankRequest) -> Result<Self> {
        Ok(Self { adapter: plain_lora(config, RankRequest::Average(1)) })
    }
}

impl Method<AutoModel> for Linear {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        Ok(Setup::new(self.adapter, config))
    }

    fn finish(&mut self, model: &mut AutoModel, data: &Fitting<'_>) -> Burn<Fitted> {
        without_adapters(model);
        let inputs = data.inputs(data.train);
        let rows = rows(model, &inputs)?;
        let seed = inputs.draws.seed;
        let found = Regression::fit(
            &rows,
            seed,
            &host(inputs.examples.input(&[0])?.ids.device()),
            inputs.watch,
        )?;
        set_head(model, &found);
        let temperature = cross_fitted(&rows, &found)?;
        let mut values = BTreeMap::from([("linear-strength".to_owned(), found.strength)]);
        values.extend(found.loss.map(|loss| ("linear-left-out-loss".to_owned(), loss)));
        Ok(Fitted { values, temperature, ..Fitted::default() })
    }
}

/// The device of the regressions: the CPU, which has double precision, where it is built in.
pub(crate) fn host(run: Device) -> Device {
    device::open(device::CPU).unwrap_or(run)
}

/// Cuts every adapter of `model` to rank 0.
pub(crate) fn without_adapters(model: &mut AutoModel) {
    let mut event = PruneEvent::default();
    for attached in adapters(model).into_iter().filter(|attached| attached.adapter.is_some()) {
        event.kept.insert(attached.path.to_string(), Vec::new());
        event.changed.insert(attached.path.to_string());
    }
    apply(model, &event, None, None);
}

/// The rows of `inputs`: what the head of `model` reads of them, and their answers.
pub(crate) fn rows(model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Rows> {
    if !matches!(model, AutoModel::Deberta(_)) {
        let what = "`linear` reads the pooled state of an encoder, and this is a language model: train it by `lora`";
        return Err(Error::other(what));
    }
    let targets = inputs.examples.all_targets()?;
    let (answers, expected) = match &targets {
        Targets::Classes(shares) => (Answers::Classes, shares),
        Targets::Labels(present) => (Answers::Labels, present),
        Targets::Scores(scores) => (Answers::Score, scores),
        Targets::Tokens { .. } => {
            return Err(Error::other(
                "`linear` answers by classes, labels or a number, and these rows are texts",
            ));
        }
    };
    let [_, width] = expected.dims();
    let expected = values(expected.clone());
    Ok(Rows { answers, expected, width, features: features(model, inputs)? })
}

/// Inputs of the head of `model` for every example, `[rows, features]`, row-major.
pub(crate) fn features(model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Vec<f64>> {
    let examples = inputs.examples;
    let batches = evaluation_batches(&examples.sizes(), inputs.batch_size)?;
    let mut found = Vec::with_capacity(examples.len());
    for indices in &batches {
        let features = model.features(&examples.input(indices)?);
        let [_, wide] = features.dims();
        found.extend(values(features).chunks(wide.max(1)).map(<[f64]>::to_vec));
        report_progress(inputs.watch, indices.len())?;
    }
    Ok(restore_order(&batches, found)?.concat())
}

/// Puts `found` into the head of `model`.
fn set_head(model: &mut AutoModel, found: &Regression) {
    let wide = found.weight.len() / found.bias.len().max(1);
    model.visit_parameters_mut(&mut |p| {
        if p.group != Group::Head {
            return;
        }
        let shape = p.value.shape();
        let values = match (shape.len(), p.transposed) {
            (1, _) => found.bias.clone(),
            (_, false) => found.weight.clone(),
            (_, true) => {
                (0..wide).flat_map(|i| found.weight.iter().skip(i).step_by(wide)).copied().collect()
            }
        };
        p.value.set_data(TensorData::new(values, shape));
    });
}

/// The temperature of the logits that the cross-validation left; `None` of numbers.
pub(crate) fn cross_fitted(rows: &Rows, found: &Regression) -> Burn<Option<CrossFitted>> {
    let of = |&row: &usize| &rows.expected[row * rows.width..(row + 1) * rows.width];
    let expected = found.left_out.iter().flat_map(of);
    let (logits, width, shares) = match rows.answers {
        Answers::Score => return Ok(None),
        Answers::Classes => {
            (found.logits.clone(), rows.width, expected.copied().collect::<Vec<_>>())
        }
        // Every label of every row is a case of two classes, present and absent.
        Answers::Labels => (
            found.logits.iter().flat_map(|&z| [z, 0.0]).collect(),
            2,
            expected.flat_map(|&y| [y, 1.0 - y]).collect(),
        ),
    };
    let count = found.left_out.len();
    let temperature =
        (count > 0).then(|| shrunk_temperature(&logits, width, &shares)).transpose()?;
    let own = CrossFitted { temperature: temperature.flatten(), rows: count, folds: found.folds };
    Ok(Some(own))
}
