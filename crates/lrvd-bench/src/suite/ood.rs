//! What a model answers to questions of another set (out of distribution), and whether its uncertainty tells them apart.
//!
//! They are asked twice. With the labels of the trained set, so that uncertainties are of the same number of classes:
//! the areas under the ROC curve. With the other set's own labels, as published (five letters of ARC for a model trained
//! on the four of `OpenBookQA`): accuracy, likelihood and calibration.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use burn::module::Module;
use lrvd_core::metrics::auroc;
use lrvd_models::AutoModel;

use crate::backbone::Backbone;
use crate::data::batch::TokenExamples;
use crate::data::{Dataset, InputForm, PreparedTask, QuestionForm, SplitName};
use crate::error::{Error, Result};
use crate::eval::{RunContext, Scored, score_draws};
use crate::method::Temperatures;
use crate::record::OodRecord;
use crate::run::{ByDraws, RunState};
use crate::settings::Config;
use crate::task::{Goal, Task};
use crate::text::quoted;

/// Mutual information, nats, up to which members are the same model: what rounding leaves of 0.
const SAME: f64 = 1e-12;

/// What is recorded of the answers to other sets, by set.
pub(super) type OodRecords = BTreeMap<String, ByDraws<OodRecord>>;

/// Questions of another set, answered with the labels of the trained one.
pub(super) struct OodSet {
    set: Task,
    /// The trained task with the other set's questions for its validation split.
    questions: PreparedTask,
    /// The same questions with their set's labels, if those differ and are tokens.
    letters: Option<PreparedTask>,
    same_labels: bool,
    /// What a reader of the results must know.
    pub notes: Vec<String>,
}

impl OodSet {
    /// The sets that models of `task` are shown besides their own: the two of ARC for `OpenBookQA`, the
    /// pair of the published experiment.
    pub(super) const fn of(task: Task) -> &'static [Task] {
        match task {
            Task::Obqa => &[Task::ArcE, Task::ArcC],
            _ => &[],
        }
    }

    /// The first `rows` validation questions of another set: in the form of `task` and with its labels, and with those of the
    /// other set (five letters for a model trained on four) if those are others and tokens.
    pub(super) fn new(
        (task, prepared): (Task, &PreparedTask),
        (set, mut other): (Task, Dataset),
        backbone: &Backbone,
        config: &Config,
        rows: Option<usize>,
    ) -> Result<Self> {
        other.validation.examples.truncate(rows.unwrap_or(usize::MAX));
        let (architecture, prompt) = (&backbone.architecture, config.prompt);
        let (own, theirs) = (prompt.labels(task), prompt.labels(set));
        if own.iter().zip(theirs).any(|(own, other)| own != other) {
            bail!(
                "a model of `{task}` answers with {}, which are no labels of `{set}` ({})",
                quoted(own),
                quoted(theirs)
            );
        }
        let form = QuestionForm { task: set, prompt };
        let reader = |labels| {
            architecture.task_questions(&backbone.tokenizer, form, labels, config.max_length)
        };
        let questions = reader(own)?;
        let examples = &other.validation.examples;
        let encoded = questions.encode_all(SplitName::Validation, examples)?;
        let same_labels = own == theirs;
        let letters = if same_labels || architecture.input_form() == InputForm::Encoder {
            None
        } else {
            let goal = Goal::questions(set.name(), theirs);
            Some(reader(theirs)?.prepare(goal, &[], examples)?)
        };
        let notes = questions.notes(&encoded, set.display_name());
        let questions = PreparedTask {
            train: Vec::new(),
            holdout: Vec::new(),
            validation: encoded.examples,
            validation_ids: encoded.ids,
            ..prepared.clone()
        };
        Ok(Self { set, questions, letters, same_labels, notes })
    }

    /// Questions that a model answers, those with other labels twice.
    pub(super) fn rows(&self) -> usize {
        let lettered = self.letters.as_ref().map_or(0, |letters| letters.validation.len());
        self.questions.validation.len() + lettered
    }

    /// Writes what `ask` answers to the questions, and to those with other labels where it does, into `folder`; returns
    /// what is recorded of it beside the run's `own` answers. `ask` receives the name of the file as well, and whether
    /// the labels are the other set's.
    fn answered(
        &self,
        own: &ByDraws<Scored>,
        folder: &Path,
        mut ask: impl FnMut(&PreparedTask, &str, bool) -> Result<Option<ByDraws<Scored>>>,
    ) -> Result<ByDraws<OodRecord>> {
        let mut answers = |questions: &PreparedTask, ending: &str| {
            let file = format!("predictions-last-{}{ending}.jsonl", self.set.name());
            let found = ask(questions, &file, !ending.is_empty())?;
            if let Some(found) = &found {
                questions.write_predictions(found, &folder.join(file))?;
            }
            Ok::<_, Error>(found.unwrap_or_default())
        };
        let theirs = answers(&self.questions, "")?;
        let lettered = match &self.letters {
            Some(letters) => answers(letters, "-letters")?,
            None => BTreeMap::new(),
        };
        self.records(own, &theirs, &lettered)
    }

    /// For every number of draws: how well entropy and mutual information separate these questions (the
    /// positive class), answered as `theirs`, from the run's own ones, answered as `own`; and how good the answers by the
    /// other set's labels are, `lettered` where they are others.
    fn records(
        &self,
        own: &ByDraws<Scored>,
        theirs: &ByDraws<Scored>,
        lettered: &ByDraws<Scored>,
    ) -> Result<ByDraws<OodRecord>> {
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

/// What is recorded of every set, whose questions are answered by `ask` as in [`OodSet::answered`].
pub(super) fn ood_records(
    sets: &[OodSet],
    own: &ByDraws<Scored>,
    folder: &Path,
    mut ask: impl FnMut(&PreparedTask, &str, bool) -> Result<Option<ByDraws<Scored>>>,
) -> Result<OodRecords> {
    let of =
        |other: &OodSet| Ok((other.set.name().to_owned(), other.answered(own, folder, &mut ask)?));
    sets.iter().map(of).collect()
}

/// Shows every other set to a trained run whose own answers are `own`.
pub(super) fn ood_answers(
    context: &RunContext<'_>,
    (run, temperatures): (&RunState, &Temperatures),
    own: &ByDraws<Scored>,
    sets: &[OodSet],
    folder: &Path,
) -> Result<OodRecords> {
    let model = run.state.model.clone().valid();
    ood_records(sets, own, folder, |questions, _, lettered| {
        let with_letters;
        let model = match &model {
            model if !lettered => model,
            AutoModel::Llama(choice) if run.method.takes_other_answers() => {
                let choice = choice.clone().answering(questions.answers.clone())?;
                with_letters = AutoModel::Llama(choice);
                &with_letters
            }
            _ => return Ok(None),
        };
        let examples = context.examples(&questions.validation);
        let examples = TokenExamples { labels: questions.labels, ..examples };
        let inputs = context.inputs(&examples);
        let mut answers = BTreeMap::new();
        for &draws in own.keys() {
            let logits = run.method.predict(model, &inputs, draws as usize)?;
            let logits = temperatures.soften(logits, draws as usize)?;
            answers.insert(draws, score_draws(&logits, questions)?);
        }
        Ok(Some(answers))
    })
}
