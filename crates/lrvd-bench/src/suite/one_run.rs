//! A run of the experiment: where it is, whether it is complete, its record; an ensemble of runs; answers to another set.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use burn::module::Module;
use burn::tensor::Device;
use lrvd_burn::train::Logits;
use lrvd_core::metrics::auroc;
use lrvd_models::AutoClassifier;

use super::plan::PlannedRun;
use super::prepare::Loaded;
use super::task::{ReadyTask, wording};
use crate::adapter::keep;
use crate::backbone::Backbone;
use crate::data::batch::TokenExamples;
use crate::data::{
    Dataset, InputForm, PreparedTask, QuestionForm, SplitName, TextColumns, TextReader,
};
use crate::error::{Error, Result};
use crate::eval::{RunContext, Scored, score_draws, selective_records};
use crate::io::{JsonLayout, read_lines, write_json};
use crate::method::{RankRequest, Temperatures};
use crate::progress::ProgressSink;
use crate::record::{
    CheckpointRecord, Checkpoints, OodRecord, ParameterCounts, PredictionLine, RunRecord,
};
use crate::run::{
    ADAPTER_DIR, ClassSettings, Finished, LAST_PREDICTIONS, RECORD_FILE, RowSettings, Run,
    RunLabel, RunPlace, RunStart, RunState, TrainSettings,
};
use crate::settings::Config;
use crate::task::{Goal, Task};
use crate::text::quoted;

pub(super) struct Shared<'a> {
    pub config: &'a Config,
    pub backbone: &'a Backbone,
    pub device: &'a Device,
    pub device_name: &'a str,
    pub out: &'a Path,
    pub matches: bool,
    pub stop: &'a AtomicBool,
    pub keep: bool,
}

/// Makes the run; `None` if a stop request ended it after a checkpoint.
pub(super) fn run_one(
    shared: &Shared<'_>,
    Loaded { ready: task, ood }: &Loaded,
    run: &PlannedRun,
    request: RankRequest,
    position: (usize, usize),
    sink: &mut dyn ProgressSink,
) -> Result<Option<RunRecord>> {
    let folder = shared.out.join(run.folder());
    let Shared { config, backbone, device, .. } = *shared;
    let (method, seed, rows) = (run.method, run.seed, &task.prepared);
    let start = RunStart { config, backbone, task: rows, method, request, seed, device };
    let training = Run::new(start, shared.stop, run.label(), position);
    let begun = training.open(&folder)?;
    let place = RunPlace {
        out: shared.out,
        folder: &folder,
        label: label(run, request, shared.config, shared.matches),
        layout: JsonLayout::Compact,
    };
    training.complete(begun, &place, sink, |trained, finished, sink| {
        let Finished { record, answers, temperatures } = finished;
        if !ood.is_empty() {
            let draws = answers.keys().map(|&draws| draws.max(1) as usize).sum::<usize>();
            let total = draws * ood.iter().map(OodSet::rows).sum::<usize>();
            let ask = |context: &RunContext<'_>| {
                ood_answers(context, (&trained, temperatures), answers, ood, &folder)
            };
            let Some(found) = training.watched(sink, total, ask)? else { return Ok(None) };
            record.ood = found;
        }
        if let Some(settings) = kept(shared, task, run)? {
            keep(&settings, trained, temperatures, &folder.join(ADAPTER_DIR))?;
        }
        Ok(Some(()))
    })
}

/// What the adapter of a run is described by; `None` where none is kept.
fn kept(shared: &Shared<'_>, task: &ReadyTask, run: &PlannedRun) -> Result<Option<TrainSettings>> {
    let config = shared.config;
    if !shared.keep || !run.method.can().saved {
        return Ok(None);
    }
    let (backbone, goal) = (shared.backbone, task.prepared.goal.clone());
    let architecture = &backbone.architecture;
    let (columns, wording, questions) = if run.task.is_question() {
        let Some(form) = QuestionForm::of(run.task, config.prompt) else { return Ok(None) };
        let wording = architecture.question_wording(form, goal.n_labels(), false);
        (Some(TextColumns::usual_questions()), wording, form)
    } else {
        (None, wording(run.task, architecture, config)?, QuestionForm::default())
    };
    let (train, validation) = (&task.data.train.files, &task.data.validation.files);
    let is_in_train = |path: &String| train.iter().any(|file| file.path == *path);
    let validation_files = validation.iter().map(|file| file.path.clone());
    let files = train.iter().chain(validation);
    let rows = RowSettings::Classes(ClassSettings {
        validation_files: validation_files.filter(|path| !is_in_train(path)).collect(),
        validation_split: None,
        columns,
        wording,
        questions,
        pairs: run.task.is_pair(),
        goal,
    });
    let data = files.map(|file| (file.path.clone(), file.sha256.clone())).collect();
    let (method, device) = ((run.method, None), shared.device_name);
    let config = config.clone();
    Ok(Some(TrainSettings::new(backbone, (rows, data), method, run.seed, device, config)))
}

fn label(
    run: &PlannedRun,
    request: RankRequest,
    config: &Config,
    matches: bool,
) -> RunLabel<'static> {
    let can = run.method.can();
    let (requested, note) = match request {
        RankRequest::Average(rank) if matches => (Some(rank), "matched to BayesLoRA"),
        RankRequest::Average(rank) => (Some(rank), "half the settings' rank"),
        RankRequest::Initial if can.prunes && !can.budget => (None, "learnt"),
        RankRequest::Initial => (None, "the settings' rank"),
    };
    let initial_rank = match request {
        RankRequest::Average(rank) if !can.prunes => rank,
        _ => config.initial_rank,
    };
    let (method, seed) = (run.method, run.seed);
    RunLabel { task: run.task.name(), method, seed, initial_rank, requested, note }
}

/// What the rows of one task are made with.
pub(super) struct Rows<'a> {
    pub out: &'a Path,
    pub task: &'a ReadyTask,
    pub ood: &'a [OodSet],
}

impl Rows<'_> {
    /// Makes the row `run` from its members `parts`: averages their answers, to the task and to what they were shown besides.
    ///
    /// With draws, a member's answer is the average of its draws: mutual information is that between
    /// members.
    pub(super) fn combine(
        &self,
        run: &PlannedRun,
        parts: &[(PlannedRun, RunRecord)],
    ) -> Result<RunRecord> {
        let prepared = &self.task.prepared;
        let folder = self.out.join(run.folder());
        let scored = self.averaged(parts, LAST_PREDICTIONS, prepared)?;
        prepared.write_predictions(&scored, &folder.join(LAST_PREDICTIONS))?;
        let mut ood = BTreeMap::new();
        for other in self.ood {
            let theirs = self.averaged(parts, &other.file(), &other.questions)?;
            other.questions.write_predictions(&theirs, &folder.join(other.file()))?;
            let lettered = match other.letters() {
                Some((letters, file)) => {
                    let answers = self.averaged(parts, &file, letters)?;
                    letters.write_predictions(&answers, &folder.join(file))?;
                    answers
                }
                None => BTreeMap::new(),
            };
            ood.insert(other.key().to_owned(), other.records(&scored, &theirs, &lettered)?);
        }
        let selective = selective_records(&scored, prepared)?;
        let Some((_, first)) = parts.first() else {
            bail!("{}: no member has finished", run.method.entry().name);
        };
        let last = first.checkpoints.last.as_ref();
        let last = last.map(|last| CheckpointRecord {
            reliability: scored
                .iter()
                .filter_map(|(&k, s)| s.reliability.clone().map(|r| (k, r)))
                .collect(),
            selective,
            metrics: scored.iter().map(|(&k, s)| (k, s.metrics.clone())).collect(),
            predict_seconds: sum_seconds(parts),
            statistics: None,
            energy: BTreeMap::new(),
            ..last.clone()
        });
        let record = RunRecord {
            checkpoints: Checkpoints { last, best: None },
            train_seconds: parts.iter().map(|(_, r)| r.train_seconds).sum(),
            evaluate_seconds: parts.iter().map(|(_, r)| r.evaluate_seconds).sum(),
            trainable_parameters: parts
                .iter()
                .map(|(_, record)| record.trainable_parameters)
                .fold(ParameterCounts::default(), std::ops::Add::add),
            // One after another: the largest.
            peak_memory_bytes: parts.iter().map(|(_, r)| r.peak_memory_bytes).max().flatten(),
            ood,
            fitted: BTreeMap::new(),
            history: Vec::new(),
            rank_events: Vec::new(),
            choice: None,
            method: run.method.name(),
            seed: run.seed,
            ..first.clone()
        };
        write_json(&folder.join(RECORD_FILE), &record, JsonLayout::Compact)?;
        Ok(record)
    }

    /// The members' answers in their files `name`, averaged, by number of draws.
    ///
    /// Members give logarithms of probabilities, which differ from their logits by a constant of each example: the
    /// probabilities are the same. A score is averaged as it is.
    fn averaged(
        &self,
        parts: &[(PlannedRun, RunRecord)],
        name: &str,
        task: &PreparedTask,
    ) -> Result<BTreeMap<u32, Scored>> {
        let regression = task.goal.is_regression();
        let value = |p: f64| if regression { p } else { p.max(f64::MIN_POSITIVE).ln() };
        let mut members: BTreeMap<u32, Vec<Vec<f64>>> = BTreeMap::new();
        for (part, _) in parts {
            let mut answers: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
            for line in read_lines::<PredictionLine>(&self.out.join(part.folder()).join(name))? {
                for (draws, answer) in line.probs {
                    answers.entry(draws).or_default().extend(answer.into_iter().map(value));
                }
            }
            for (draws, values) in answers {
                members.entry(draws).or_default().push(values);
            }
        }
        let mut scored = BTreeMap::new();
        for (draws, members) in members {
            let (rows, width) = (task.validation.len(), task.labels);
            scored.insert(draws, score_draws(&Logits::new(members.concat(), rows, width), task)?);
        }
        Ok(scored)
    }
}

/// Members run one after another: their times add up.
fn sum_seconds(parts: &[(PlannedRun, RunRecord)]) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::new();
    for (_, record) in parts {
        for (&draws, seconds) in record.checkpoints.last.iter().flat_map(|c| &c.predict_seconds) {
            *sums.entry(draws).or_insert(0.0) += seconds;
        }
    }
    sums
}

// What a model answers to questions of another set, and whether its uncertainty tells them apart.
//
// They are asked twice. With the labels of the trained set, so that uncertainties are of the same number of classes:
// the areas under the ROC curve. With the other set's own labels, as published (five letters of ARC for a model trained
// on the four of `OpenBookQA`): accuracy, likelihood and calibration.

/// Mutual information, nats, up to which members are the same model: what rounding leaves of 0.
const SAME: f64 = 1e-12;

/// What is recorded of the answers to other sets: by set, then by number of draws.
pub(super) type OodRecords = BTreeMap<String, BTreeMap<u32, OodRecord>>;

/// Questions of another set, answered with the labels of the trained one.
pub(super) struct OodSet {
    set: Task,
    /// The trained task with the other set's questions for its validation split.
    pub questions: PreparedTask,
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
        task: &ReadyTask,
        (set, mut other): (Task, Dataset),
        backbone: &Backbone,
        config: &Config,
        rows: Option<usize>,
    ) -> Result<Self> {
        other.validation.examples.truncate(rows.unwrap_or(usize::MAX));
        let (architecture, prompt) = (&backbone.architecture, config.prompt);
        let (own, theirs) = (prompt.labels(task.task), prompt.labels(set));
        if own.iter().zip(theirs).any(|(own, other)| own != other) {
            bail!(
                "a model of `{task}` answers with {}, which are no labels of `{set}` ({})",
                quoted(own),
                quoted(theirs),
                task = task.task
            );
        }
        let form = QuestionForm { task: set, prompt };
        let reader = |labels| {
            let length = config.max_length;
            let reader = architecture.task_questions(&backbone.tokenizer, form, labels, length);
            Ok::<_, Error>(TextReader::Questions(reader?))
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
            ..task.prepared.clone()
        };
        Ok(Self { set, questions, letters, same_labels, notes })
    }

    pub(super) fn key(&self) -> &'static str {
        self.set.name()
    }

    /// Questions that a model answers, those with other labels twice.
    fn rows(&self) -> usize {
        let lettered = self.letters.as_ref().map_or(0, |letters| letters.validation.len());
        self.questions.validation.len() + lettered
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
    (run, temperatures): (&RunState, &Temperatures),
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
                let logits = temperatures.soften(logits, draws as usize)?;
                answers.insert(draws, score_draws(&logits, questions)?);
            }
            questions.write_predictions(&answers, &folder.join(file))?;
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
