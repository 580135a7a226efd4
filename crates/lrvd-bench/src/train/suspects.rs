//! Rows whose label is probably wrong, by answers of regressions that have not seen them.

use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use lrvd_burn::device;
use lrvd_burn::train::Prediction;
use lrvd_core::metrics::softmax;

use super::{Prepared, TrainOptions};
use crate::adapter::{Suspects, suspects};
use crate::answers::AnswerSpace;
use crate::backbone::{Head, load_model};
use crate::data::Data;
use crate::error::Result;
use crate::method::Temperatures;
use crate::method::linear::{Regression, cross_fitted, host, rows};
use crate::progress::Event;
use crate::run;

/// Rows of `data`, validation rows included, to whose label a regression on the frozen encoder gives a probability below `below`.
/// Each is answered by the regression of the fold that has left it out, at the temperature of all of these answers; the folds
/// follow from the seed of the options, whose method is `linear`. The only row of a class is in no fold, and not judged.
///
/// Source of the idea: Northcutt et al. 2021, Confident Learning, arXiv:1911.00068.
pub fn cross_fitted_suspects(
    options: &TrainOptions,
    data: Data,
    below: f64,
    stop: &AtomicBool,
    sink: &mut dyn FnMut(&Event),
) -> Result<Suspects> {
    let Data::Labelled(mut data) = data else {
        bail!("rows of texts have no labels that could be wrong");
    };
    let AnswerSpace::Classes { names } = &data.kind.goal.answers else {
        bail!(
            "labels are judged of rows with one class; these have several labels, numbers, choices or typed questions"
        );
    };
    let names = names.clone();
    let mut examples = std::mem::take(&mut data.validation.examples);
    examples.splice(0..0, std::mem::take(&mut data.train.examples));
    data.train.examples.clone_from(&examples);
    let device = device::open(&options.device)?;
    let Prepared { backbone, settings, task, .. } = Prepared::new(options, Data::Labelled(data))?;
    backbone.encoder_for("a regression on frozen features")?;
    let head = (backbone.embedding_pooling()?, &Head::New);
    let precision = backbone.stored_as(settings.experiment.base_precision)?;
    let (model, _) = load_model(&backbone, &task, head, false, options.seed, &device, precision)?;
    let run = run::Run::new(settings.start(&backbone, &task, &device), stop, String::new(), (1, 1));
    let fitted = run.watched(sink, examples.len(), |context| {
        let rows = rows(&model, &context.inputs(&context.examples(&task.train)))?;
        let found = Regression::fit(&rows, options.seed, &host(device.clone()), context.watch)?;
        let temperature = cross_fitted(&rows, &found)?;
        Ok::<_, crate::Error>((found, temperature))
    });
    let (found, temperature) = fitted?;
    let temperatures = temperature.map(Temperatures::from).unwrap_or_default();
    let logits = Prediction::new(found.logits, found.left_out.len(), names.len());
    let logits = temperatures.soften(logits, 0)?;
    let probabilities = softmax(&logits.values, names.len())?;
    let judged = found
        .left_out
        .iter()
        .map(|&row| examples.get(row).context("a row that is left out is none of the rows"))
        .collect::<Result<Vec<_>>>()?;
    suspects(&judged, &probabilities, &names, below, examples.len())
}
