//! What the end of a training keeps: the adapter of the model that its settings choose, and what is fitted to further rows.

use std::path::Path;

use burn::module::Module as _;
use lrvd_burn::peft::ExportLayout;
use lrvd_models::AutoModel;

use super::certify::EndFit;
use super::description::RiskTarget;
use super::open::{AdapterFiles, kl_weight};
use super::seen::{RowUse, SeenRows};
use crate::answers::AnswerSpace;
use crate::error::Result;
use crate::eval::{RunContext, mean_scores, presence, present, targets};
use crate::method::{DynMethod, FittedRows, Intervals, LabelThresholds};
use crate::run::{Finished, RunState, TrainSettings};
use crate::settings::CheckpointChoice;

/// Values beside the weights that are fitted to rows which did not choose the model.
#[derive(Default)]
pub(crate) struct Kept {
    pub intervals: Intervals,
    pub thresholds: LabelThresholds,
    /// Threshold above which no class is given, and the detector of other texts.
    pub end: EndFit,
}

/// Intervals of predicted numbers or thresholds of labels, for every number of draws of the run: from the validation rows, or where
/// these chose the model from rows that were held out. Nothing of another model, and where no rows are left for them.
fn fit_kept(
    context: &RunContext<'_>,
    method: &DynMethod,
    model: &AutoModel,
    finished: &Finished,
) -> Result<Kept> {
    let is_held_out = context.config.chooses_model();
    let has_none = is_held_out && context.fitted != FittedRows::Holdout;
    let answers = &context.task.goal.answers;
    if has_none || !matches!(answers, AnswerSpace::Score | AnswerSpace::Labels { .. }) {
        return Ok(Kept::default());
    }
    let rows = if is_held_out { &context.task.holdout } else { &context.task.validation };
    let examples = context.examples(rows);
    let mut outputs = Vec::new();
    for (&draws, known) in &finished.answers {
        let draws = draws as usize;
        if !is_held_out {
            outputs.push((draws, known.outputs.clone()));
            continue;
        }
        let logits = method.predict(model, &context.inputs(&examples).drawn(draws))?;
        outputs.push((
            draws,
            match answers {
                AnswerSpace::Score => mean_scores(&logits),
                _ => presence(&finished.kept().soften(answers.class_logits(logits), draws)?)?,
            },
        ));
    }
    if *answers != AnswerSpace::Score {
        let labels = context.task.labels;
        let thresholds = LabelThresholds::fit(labels, &present(rows, labels), outputs)?;
        return Ok(Kept { thresholds, ..Kept::default() });
    }
    let residuals = outputs.into_iter().map(|(draws, scores)| {
        (draws, targets(rows).zip(scores).map(|(y, p)| y - p).collect::<Vec<f64>>())
    });
    Ok(Kept { intervals: Intervals::of(rows.len(), residuals)?, ..Kept::default() })
}

/// Writes the adapter of the finished run `trained` into `folder`: the best model or the last one, as its settings say, and with a
/// `target` for the error rate what [`EndFit`] fits. Returns the intervals of numbers or the thresholds of labels, and that.
pub(crate) fn keep(
    settings: &TrainSettings,
    trained: RunState,
    finished: &Finished,
    context: &RunContext<'_>,
    folder: &Path,
    target: Option<RiskTarget>,
) -> Result<Kept> {
    let config = &settings.experiment;
    let kl_weight = kl_weight(&trained)?;
    let RunState { state, method, .. } = trained;
    let (model, which, step) = match (config.checkpoint, state.best) {
        (CheckpointChoice::Best, Some(best)) => {
            (best.model, CheckpointChoice::Best, best.info.step)
        }
        _ => (state.model, CheckpointChoice::Last, state.done),
    };
    let answering = model.clone().valid();
    let mut kept = fit_kept(context, &*method, &answering, finished)?;
    if let Some(target) = target {
        let run = folder.parent().unwrap_or(folder);
        let answering = (&*method, &answering);
        kept.end = EndFit::new(settings, context, answering, finished, target, run)?;
    }
    let mut description = settings.description(step, which);
    description.temperatures.clone_from(finished.kept());
    description.intervals.clone_from(&kept.intervals);
    description.thresholds.clone_from(&kept.thresholds);
    let files = AdapterFiles::of(&model, config, kl_weight, description)?;
    files.write(folder, ExportLayout::Ragged, |_| Ok(None))?;
    kept.end.write(folder)?;
    let mut seen = SeenRows::of(context.task, context.fitted, (settings.method, config));
    seen.add(RowUse::Certificate, kept.end.rows.iter().copied());
    seen.write(folder)?;
    Ok(kept)
}
