//! Data of a task: from files to token ids, the record of its files, and the questions of other sets (out of distribution).
//!
//! Questions of other sets are evaluated twice. With the labels of the trained set, so that uncertainties have the same number
//! of classes: the areas under the ROC curve. With the labels of the other set, as published (five letters of ARC for a model
//! trained on the four of `OpenBookQA`): accuracy, likelihood and calibration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::bail;
use burn::module::Module;
use lrvd_burn::files::AtomicDir;
use lrvd_core::metrics::auroc;
use lrvd_models::AutoModel;
use serde_json::{Map, Value, json};

use super::grid::{Profile, Suite, wording};
use crate::answers::{AnswerSpace, LETTERS, Readout};
use crate::backbone::{Architecture, Backbone};
use crate::data::batch::TokenExamples;
use crate::data::{
    self, AnswerToken, Dataset, InputForm, InputLayout, LLAMA_2_LABELS, Origin, PreparedTask,
    QuestionForm, Split, SplitName, Wording, check_known, require_single, shipped,
};
use crate::error::{Error, Kind, Result, kind_of};
use crate::eval::{RunContext, Scored, score_draws};
use crate::method::{MethodName, Temperatures};
use crate::progress::Event;
use crate::record::{DataFile, DataOrigin, OodRecord, SplitRecord, TaskData};
use crate::run::{ByDraws, OutputFolder, RunState};
use crate::settings::{Config, LastBatch};
use crate::task::{Goal, Task};
use crate::text::quoted;

pub(super) struct ReadyTask {
    pub task: Task,
    pub prepared: PreparedTask,
    pub data: TaskData,
    pub ood: Vec<OodSet>,
}

/// The tasks of one experiment at a time: each is read once.
#[derive(Default)]
pub(super) struct Tasks {
    experiment: usize,
    ready: Vec<Rc<ReadyTask>>,
}

impl Tasks {
    /// The data of `task` in `experiment`, read by `load` the first time.
    pub(super) fn get(
        &mut self,
        experiment: usize,
        task: Task,
        load: impl FnOnce() -> Result<ReadyTask>,
    ) -> Result<Rc<ReadyTask>> {
        if self.experiment != experiment {
            *self = Self { experiment, ready: Vec::new() };
        }
        if let Some(found) = self.ready.iter().find(|ready| ready.task == task) {
            return Ok(Rc::clone(found));
        }
        let ready = Rc::new(load()?);
        self.ready.push(Rc::clone(&ready));
        Ok(ready)
    }
}

/// Layout of a task's rows as a saved model of this kind reads them; `None` where it reads none of this shape.
pub(super) fn layout(
    task: Task,
    architecture: &Architecture,
    config: &Config,
) -> Result<Option<InputLayout>> {
    if !task.is_question() {
        let wording = wording(task, architecture, config)?;
        return Ok(Some(wording.map_or(InputLayout::Segments, InputLayout::Prompt)));
    }
    let readout = match architecture.input_form() {
        InputForm::Encoder => Readout::Head,
        InputForm::Decoder => Readout::Letters,
    };
    let form = QuestionForm::of(task, config.prompt);
    Ok(form.map(|form| InputLayout::Question(QuestionForm { readout, ..form })))
}

/// `true` if a saved classifier can read its input: a text, a pair, or a question with choices.
pub(super) fn is_saved(task: Task, config: &Config) -> bool {
    !task.is_question() || QuestionForm::of(task, config.prompt).is_some()
}

/// Goal of a model that answers the questions of a task by `labels`: letters of options, or words for classes.
fn question_goal(task: Task, labels: &[&str]) -> Goal {
    let answers = if LETTERS.starts_with(labels) {
        AnswerSpace::Choice { max_options: labels.len() }
    } else {
        AnswerSpace::Classes { names: labels.iter().map(ToString::to_string).collect() }
    };
    Goal { standard_metrics: Vec::new(), ..Goal::new(task.name(), answers) }
}

pub(super) fn load(
    task: Task,
    data_dir: &Path,
    backbone: &Backbone,
    config: &Config,
    profile: Profile,
) -> Result<ReadyTask> {
    let Backbone { architecture, tokenizer, .. } = backbone;
    let mut data = data::load(data_dir, task, config.validation_rows)?;
    let drawn = data.sample(config.train_rows);
    let cut = data.limit(config.validation_rows);
    data.notes.extend(drawn.into_iter().chain(cut));
    let wording = wording(task, architecture, config)?;
    let asked = wording.as_ref().map(Wording::describe);
    let layout = wording.map_or(InputLayout::Segments, InputLayout::Prompt);
    let length = config.max_length;
    let task_goal = task.goal();
    let (reader, goal) = if task.is_question() {
        // The protocol drops an incomplete batch from both splits.
        let dropped = match config.last_batch {
            LastBatch::Keep => 0,
            LastBatch::Drop => data.validation.rows() % config.batch_size,
        };
        let origin = data.validation.origin;
        let cut = data.limit(Some(data.validation.rows() - dropped));
        data.notes.extend(cut);
        data.validation.origin = origin;
        let labels = config.prompt.labels(task);
        let form = QuestionForm { task, prompt: config.prompt, readout: Readout::Letters };
        let reader = architecture.task_questions(tokenizer, form, labels, length)?;
        check_labels(&reader.answers, backbone, profile)?;
        (reader, question_goal(task, labels))
    } else {
        let reader = architecture.reader(tokenizer, &task_goal, &layout, length)?;
        (reader, task_goal.clone())
    };
    let prepared = reader.prepare(goal, &data.train.examples, &data.validation.examples)?;
    data.notes.extend(asked);
    data.notes.extend(prepared.notes.clone());
    let (ood, notes) = ood_sets((task, &prepared), data_dir, backbone, config, profile)?;
    data.notes.extend(notes);
    data.notes.retain(|note| !note.is_empty());
    Ok(ReadyTask { task, prepared, data: task_data(&data, task), ood })
}

/// The other sets that models of a task answer (the two of ARC for `OpenBookQA`, the pair of the published experiment), and
/// notes on them, among these missing files.
fn ood_sets(
    task: (Task, &PreparedTask),
    data_dir: &Path,
    backbone: &Backbone,
    config: &Config,
    profile: Profile,
) -> Result<(Vec<OodSet>, Vec<String>)> {
    let mut found = Vec::new();
    let mut notes = Vec::new();
    let sets: &[Task] = if task.0 == Task::Obqa { &[Task::ArcE, Task::ArcC] } else { &[] };
    // They are answered twice at every number of draws, with the labels of either set.
    let rows = if profile == Profile::Quick { QUICK_ROWS } else { usize::MAX };
    for &set in sets {
        match data::load(data_dir, set, None) {
            Ok(data) => {
                let mut other = OodSet::new(task, (set, data), backbone, config, rows)?;
                notes.append(&mut other.notes);
                found.push(other);
            }
            Err(error) if kind_of(&error) == Some(Kind::NotFound) => {
                notes.push(format!("no answers to {} questions: {error}", set.display_name()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((found, notes))
}

/// Returns an error for labels with which a run could not be compared with published ones: in the paper's profile labels of
/// several tokens, and for a model called Llama-2 other tokens than Llama-2's.
fn check_labels(answers: &[AnswerToken], backbone: &Backbone, profile: Profile) -> Result<()> {
    if profile == Profile::Paper {
        require_single(&backbone.tokenizer, answers)?;
    }
    if backbone.location.name.to_lowercase().contains("llama-2") {
        check_known(&backbone.tokenizer, answers, &LLAMA_2_LABELS)?;
    }
    Ok(())
}

fn task_data(data: &Dataset, task: Task) -> TaskData {
    let standard = task.row().standard_metrics.first().map_or("accuracy", |metric| metric.name());
    TaskData {
        train: split_record(&data.train),
        validation: split_record(&data.validation),
        standard_metric: standard.to_owned(),
        note: data.notes.join("; "),
    }
}

fn split_record(split: &Split) -> SplitRecord {
    SplitRecord {
        files: split
            .files
            .iter()
            .map(|f| DataFile { path: f.path.display().to_string(), sha256: f.sha256.clone() })
            .collect(),
        rows: split.rows() as u64,
        origin: match split.origin {
            Origin::Official => DataOrigin::Official,
            Origin::LocalSplit => DataOrigin::LocalDev,
            Origin::Generated => DataOrigin::Generated,
            Origin::Subset | Origin::Unverified => DataOrigin::Subset,
        },
    }
}

pub(super) fn generated_data(
    suite: Suite,
    out: &mut OutputFolder,
    sink: &mut dyn FnMut(&Event),
) -> Result<PathBuf> {
    out.claim()?;
    let folder = out.data();
    if !folder.is_dir() {
        sink(&Event::Note(format!("writing generated tasks to {}", folder.display())));
        let building = AtomicDir::create(&folder)?;
        match suite {
            Suite::Glue => shipped::GLUE.write(building.path())?,
            Suite::Reasoning => shipped::REASONING.write(building.path())?,
        }
        building.commit()?;
    }
    Ok(folder)
}

pub(super) fn data_files<'a>(tasks: impl Iterator<Item = &'a ReadyTask>) -> Value {
    let files = |task: &ReadyTask| -> Value {
        let splits = [&task.data.train, &task.data.validation];
        let files = splits.into_iter().flat_map(|split| &split.files);
        files.map(|file| (file.path.clone(), json!(file.sha256))).collect::<Map<_, _>>().into()
    };
    tasks.map(|task| (task.task.name().to_owned(), files(task))).collect::<Map<_, _>>().into()
}

/// Mutual information, nats, up to which members are the same model: rounding errors of 0.
const SAME: f64 = 1e-12;

/// Largest number of questions of another set in the quick profile.
const QUICK_ROWS: usize = 100;

/// Records of the answers to other sets, by set.
pub(super) type OodRecords = BTreeMap<String, ByDraws<OodRecord>>;

/// Questions of another set, answered with the labels of the trained one.
pub(super) struct OodSet {
    set: Task,
    /// The trained task with the other set's questions as validation split.
    questions: PreparedTask,
    /// These questions with the labels of their set, if those differ and are tokens.
    letters: Option<PreparedTask>,
    same_labels: bool,
    notes: Vec<String>,
}

impl OodSet {
    /// The first `rows` validation questions of another set: in the form of `task` and with its labels, and with those of the
    /// other set (five letters for a model trained on four) if these differ and are tokens.
    pub(super) fn new(
        (task, prepared): (Task, &PreparedTask),
        (set, mut other): (Task, Dataset),
        backbone: &Backbone,
        config: &Config,
        rows: usize,
    ) -> Result<Self> {
        other.validation.examples.truncate(rows);
        let architecture = &backbone.architecture;
        let prompt = config.prompt;
        let own = prompt.labels(task);
        let theirs = prompt.labels(set);
        if own.iter().zip(theirs).any(|(own, other)| own != other) {
            bail!(
                "a model of `{task}` answers with {}, which are no labels of `{set}` ({})",
                quoted(own),
                quoted(theirs)
            );
        }
        let form = QuestionForm { task: set, prompt, readout: Readout::Letters };
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
            let goal = question_goal(set, theirs);
            Some(reader(theirs)?.prepare(goal, &[], examples)?)
        };
        let notes = questions.notes(&encoded, set.display_name(), true);
        let questions = PreparedTask {
            train: Vec::new(),
            holdout: Vec::new(),
            validation: encoded.examples,
            validation_ids: encoded.ids,
            validation_places: encoded.places,
            ..prepared.clone()
        };
        Ok(Self { set, questions, letters, same_labels, notes })
    }

    /// Number of questions that a model answers, those with other labels twice.
    pub(super) fn rows(&self) -> usize {
        let lettered = self.letters.as_ref().map_or(0, |letters| letters.validation.len());
        self.questions.validation.len() + lettered
    }

    /// Writes the answers of `ask` to the questions, and to those with other labels if it has any, into `folder`; returns
    /// their records. `own` are the answers of the run to its task. `ask` also receives the name of the file, and `true` for
    /// the labels of the other set.
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

    /// Records for every number of draws: areas under the ROC curve of entropy and mutual information, which separate these
    /// questions (the positive class), answered by `theirs`, from the task's, answered by `own`; and metrics of the answers
    /// with the other set's labels, which are `lettered` if those differ.
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
                n_areas: theirs.predictive_entropy.len() as u64,
                auroc_entropy: auroc(&own.predictive_entropy, &theirs.predictive_entropy)?,
                auroc_mutual_information: by_information.transpose()?,
                n: answers.map(|metrics| metrics.n),
                accuracy: answers.and_then(|metrics| metrics.accuracy),
                nll: answers.and_then(|metrics| metrics.nll),
                ece: answers.and_then(|metrics| metrics.ece),
            };
            found.insert(draws, record);
        }
        Ok(found)
    }
}

/// Records of every set, whose questions are answered by `ask` as in [`OodSet::answered`].
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

/// Answers of a trained run to every other set; `own` are its answers to its task.
pub(super) fn ood_answers(
    context: &RunContext<'_>,
    (name, run, temperatures): (MethodName, &RunState, &Temperatures),
    own: &ByDraws<Scored>,
    sets: &[OodSet],
    folder: &Path,
) -> Result<OodRecords> {
    let model = run.state.model.clone().valid();
    ood_records(sets, own, folder, |questions, _, lettered| {
        let with_letters;
        let model = match &model {
            model if !lettered => model,
            AutoModel::Llama(choice) if name.can().other_answers => {
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
            let logits = run.method.predict(model, &inputs.drawn(draws as usize))?;
            let logits = temperatures.soften(logits, draws as usize)?;
            answers.insert(draws, score_draws(&logits, questions)?);
        }
        Ok(Some(answers))
    })
}
