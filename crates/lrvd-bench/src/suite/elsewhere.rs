//! What a model answers to questions of another set, and whether its doubt tells them apart.

use std::collections::BTreeMap;

use burn::module::Module;
use lrvd_core::metrics::{Uncertainty, auroc, log_softmax, uncertainty};

use super::task::ReadyTask;
use crate::backbone::Backbone;
use crate::classify::RunState;
use crate::data::batch::TokenisedExample;
use crate::error::BenchError;
use crate::eval::{Inputs, Scored};
use crate::reasoning::ReasoningSet;
use crate::report::ElsewhereRecord;
use crate::train::FitContext;

/// Questions of another set, answered with the labels of the trained one.
pub(super) struct Elsewhere {
    set: ReasoningSet,
    examples: Vec<TokenisedExample>,
}

impl Elsewhere {
    /// The sets that models of `task` are shown besides their own: the two of ARC for `OpenBookQA`,
    /// the pair of the published experiment.
    pub(super) fn sets(task: &ReadyTask) -> &'static [ReasoningSet] {
        match &task.items {
            Some((own, _)) if own.set == ReasoningSet::Obqa => {
                &[ReasoningSet::ArcE, ReasoningSet::ArcC]
            }
            _ => &[],
        }
    }

    /// The validation questions of `other` in the form of `task`.
    pub(super) fn new(
        task: &ReadyTask,
        other: &crate::reasoning::ReasoningData,
        backbone: &Backbone,
        rows: Option<usize>,
    ) -> Result<Option<Self>, BenchError> {
        let Some((own, _)) = &task.items else { return Ok(None) };
        let mut encoded = own.encode_for(other, &backbone.tokenizer)?;
        encoded.examples.truncate(rows.unwrap_or(usize::MAX));
        Ok(Some(Self { set: other.set, examples: encoded.examples }))
    }
}

/// Predictive entropy and mutual information of the answers to `examples`.
fn doubt(
    context: &FitContext<'_>,
    run: &RunState,
    examples: &[TokenisedExample],
    draws: usize,
) -> Result<Uncertainty, BenchError> {
    let labels = context.task.labels;
    let model = run.state.model.clone().valid();
    let logits = run.method.predict(&model, &Inputs::of(context, examples), draws)?;
    let members = logits.len() / (examples.len() * labels).max(1);
    Ok(uncertainty(&log_softmax(&logits, labels)?, members, labels)?)
}

/// For every other set and number of draws: how well entropy and mutual information separate its
/// questions (the positive class) from the run's own validation questions, whose answers are
/// `scored`.
pub(super) fn answers_elsewhere(
    context: &FitContext<'_>,
    run: &RunState,
    scored: &BTreeMap<u32, Scored>,
    elsewhere: &[Elsewhere],
) -> Result<BTreeMap<String, BTreeMap<u32, ElsewhereRecord>>, BenchError> {
    let mut found: BTreeMap<String, BTreeMap<u32, ElsewhereRecord>> = BTreeMap::new();
    for (&draws, scored) in scored {
        let Some(own) = &scored.uncertainty else { continue };
        for other in elsewhere {
            let theirs = doubt(context, run, &other.examples, draws as usize)?;
            let several = own.mutual_information.iter().any(|&value| value != 0.0);
            let by_information =
                several.then(|| auroc(&own.mutual_information, &theirs.mutual_information));
            let entry = ElsewhereRecord {
                n: other.examples.len() as u64,
                auroc_entropy: auroc(&own.predictive_entropy, &theirs.predictive_entropy)?,
                auroc_mutual_information: by_information.transpose()?,
            };
            found.entry(other.set.name().to_owned()).or_default().insert(draws, entry);
        }
    }
    Ok(found)
}
