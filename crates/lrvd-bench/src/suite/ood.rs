//! What a model answers to questions of another set, and whether its uncertainty tells them apart.
//!
//! They are asked twice. With the labels of the trained set, so that uncertainties are of the same number of classes:
//! the areas under the ROC curve. With the other set's own labels, as published (five letters of ARC for a model trained
//! on the four of `OpenBookQA`): accuracy, likelihood and calibration.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use lrvd_core::metrics::auroc;
use lrvd_models::AutoClassifier;

use super::task::ReadyTask;
use crate::backbone::Backbone;
use crate::data::PreparedTask;
use crate::data::batch::TokenExamples;
use crate::error::{Error, Result};
use crate::eval::{RunContext, Scored, score_draws};
use crate::reasoning::{ReasoningData, ReasoningSet};
use crate::record::OodRecord;
use crate::run::{RunState, write_predictions};

/// Mutual information, nats, up to which members are the same model: what rounding leaves of 0.
const SAME: f64 = 1e-12;

/// What is recorded of the answers to other sets: by set, then by number of draws.
pub(super) type OodRecords = BTreeMap<String, BTreeMap<u32, OodRecord>>;

/// Questions of another set, answered with the labels of the trained one.
pub(super) struct OodSet {
    set: ReasoningSet,
    /// The trained task with the other set's questions for its validation split.
    pub questions: PreparedTask,
    /// The same questions with their set's labels, if those differ and are tokens.
    letters: Option<PreparedTask>,
    same_labels: bool,
    /// What a reader of the results must know.
    pub notes: Vec<String>,
}

impl OodSet {
    /// The sets that models of `set` are shown besides their own: the two of ARC for `OpenBookQA`, the
    /// pair of the published experiment.
    pub(super) const fn of(set: ReasoningSet) -> &'static [ReasoningSet] {
        match set {
            ReasoningSet::Obqa => &[ReasoningSet::ArcE, ReasoningSet::ArcC],
            _ => &[],
        }
    }

    /// The first `rows` validation questions of `other` in the form of `task`; none for a task that is
    /// no reasoning set.
    pub(super) fn new(
        task: &ReadyTask,
        mut other: ReasoningData,
        backbone: &Backbone,
        rows: Option<usize>,
    ) -> Result<Option<Self>> {
        let Some((own, _)) = &task.items else { return Ok(None) };
        other.validation.examples.truncate(rows.unwrap_or(usize::MAX));
        let encoded = own.encode_for(&other, &backbone.tokenizer)?;
        let letters = own.with_letters_of(&other, &backbone.tokenizer)?;
        let same_labels = own.config.prompt.labels(other.set) == own.labels;
        let name = other.set.display_name();
        let notes = own.notes_on(&encoded, name);
        let questions = PreparedTask {
            train: Vec::new(),
            holdout: Vec::new(),
            validation: encoded.examples,
            validation_ids: encoded.ids,
            ..task.prepared.clone()
        };
        Ok(Some(Self { set: other.set, questions, letters, same_labels, notes }))
    }

    pub(super) fn key(&self) -> &'static str {
        self.set.name()
    }

    pub(super) fn file(&self) -> String {
        format!("predictions-last-{}.jsonl", self.key())
    }

    /// The questions with their set's labels, and the name of the file with the answers.
    pub(super) fn letters(&self) -> Option<(&PreparedTask, String)> {
        let name = || format!("predictions-last-{}-letters.jsonl", self.key());
        self.letters.as_ref().map(|letters| (letters, name()))
    }

    /// For every number of draws: how well entropy and mutual information separate these questions (the
    /// positive class), answered as `theirs`, from the run's own ones, answered as `own`; and how good the answers by the
    /// other set's labels are, `lettered` where they are others.
    pub(super) fn records(
        &self,
        own: &BTreeMap<u32, Scored>,
        theirs: &BTreeMap<u32, Scored>,
        lettered: &BTreeMap<u32, Scored>,
    ) -> Result<BTreeMap<u32, OodRecord>> {
        let mut found = BTreeMap::new();
        for (&draws, theirs) in theirs {
            let has_information = |scored: &Scored| scored.metrics.mutual_information.is_some();
            let all_drawn = own.get(&draws).is_some_and(has_information) && has_information(theirs);
            let own = own.get(&draws).and_then(|scored| scored.uncertainty.as_ref());
            let lettered = if self.same_labels { Some(theirs) } else { lettered.get(&draws) };
            let answers = lettered.map(|scored| &scored.metrics);
            let (Some(own), Some(theirs)) = (own, &theirs.uncertainty) else { continue };
            let several = all_drawn && own.mutual_information.iter().any(|&value| value > SAME);
            let by_information =
                several.then(|| auroc(&own.mutual_information, &theirs.mutual_information));
            let record = OodRecord {
                n: theirs.predictive_entropy.len() as u64,
                auroc_entropy: auroc(&own.predictive_entropy, &theirs.predictive_entropy)?,
                auroc_mutual_information: by_information.transpose()?,
                accuracy: answers.and_then(|metrics| metrics.accuracy),
                nll: answers.and_then(|metrics| metrics.nll),
                ece: answers.and_then(|metrics| metrics.ece),
            };
            found.insert(draws, record);
        }
        Ok(found)
    }
}

/// Shows every other set to a trained run whose own answers are `scored`, and writes its answers into
/// `folder`.
pub(super) fn ood_answers(
    context: &RunContext<'_>,
    run: &RunState,
    scored: &BTreeMap<u32, Scored>,
    ood: &[OodSet],
    folder: &Path,
) -> Result<OodRecords> {
    let model = run.state.model.clone().valid();
    let mut found = BTreeMap::new();
    for other in ood {
        let asked = |model: &AutoClassifier, questions: &PreparedTask, file: &str| {
            let examples = context.examples(&questions.validation);
            let examples = TokenExamples { labels: questions.labels, ..examples };
            let inputs = context.inputs(&examples);
            let mut answers = BTreeMap::new();
            for &draws in scored.keys() {
                let logits = run.method.predict(model, &inputs, draws as usize)?;
                answers.insert(draws, score_draws(&logits, questions)?);
            }
            write_predictions(questions, &answers, &folder.join(file))?;
            Ok::<_, Error>(answers)
        };
        let theirs = asked(&model, &other.questions, &other.file())?;
        let lettered = match (other.letters(), &model) {
            (Some((letters, file)), AutoClassifier::Llama(choice))
                if run.method.takes_other_answers() =>
            {
                let choice = choice.clone().answering(letters.answers.clone());
                let model = AutoClassifier::Llama(choice?);
                asked(&model, letters, &file)?
            }
            _ => BTreeMap::new(),
        };
        found.insert(other.key().to_owned(), other.records(scored, &theirs, &lettered)?);
    }
    Ok(found)
}
