//! From a plan to records: a plan on disk, for which settings are resolved and data read and hashed before the first run (an
//! error leaves no output folder); the data of a task; and one run, trained or made from the answers of other runs.
//!
//! Questions of other sets (out of distribution) are evaluated twice. With the labels of the trained set, so that uncertainties
//! have the same number of classes: the areas under the ROC curve. With the labels of the other set, as published (five letters
//! of ARC for a model trained on the four of `OpenBookQA`): accuracy, likelihood and calibration.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use burn::module::Module;
use burn::tensor::Device;
use lrvd_burn::files::AtomicDir;
use lrvd_burn::train::Prediction;
use lrvd_core::adalora::matched_target_rank;
use lrvd_core::metrics::auroc;
use lrvd_models::AutoModel;
use lrvd_models::deberta::Pooling;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::grid::{
    Arms, Experiment, Matching, Plan, PlannedRun, Profile, SCHEMA, Suite, SuiteOptions,
    experiments, wording,
};
use crate::adapter::keep;
use crate::answers::{AnswerSpace, LETTERS, Readout};
use crate::backbone::{Architecture, Backbone, locate_model, public_place};
use crate::data::batch::TokenExamples;
use crate::data::{
    self, AnswerToken, Columns, Dataset, InputForm, InputLayout, LLAMA_2_LABELS, Origin,
    PreparedTask, QuestionForm, Split, SplitName, TextColumns, check_known, require_single,
    shipped,
};
use crate::error::{Error, Kind, Result, kind_of};
use crate::eval::{Scored, measures, score_draws, selective_records};
use crate::io::{JsonLayout, read_lines, write_json};
use crate::memory::Sizes;
use crate::method::RankRequest;
use crate::progress::Event;
use crate::record::{
    CheckpointRecord, Checkpoints, DataFile, DataOrigin, ModelRecord, OodRecord, ParameterCounts,
    PredictionLine, RankBudget, RunRecord, SplitRecord, TaskData,
};
use crate::report::Published;
use crate::run::{
    ADAPTER_DIR, ByDraws, Finished, LAST_PREDICTIONS, OutputFolder, RECORD_FILE, RowSettings, Run,
    RunPlace, RunStart, TrainSettings,
};
use crate::settings::{Config, LastBatch};
use crate::task::{Goal, Task};
use crate::text::quoted;

/// A plan in its output folder, with the model and the data that were read to make it.
pub(super) struct Started {
    pub plan: Plan,
    pub backbone: Backbone,
    pub tasks: Tasks,
    /// Locked as long as this lives.
    pub folder: OutputFolder,
}

pub(super) fn open_backbone(options: &SuiteOptions) -> Result<Backbone> {
    Backbone::open(match &options.model {
        Some(name) => locate_model(name)?,
        None => options.suite.model(options.profile)?,
    })
}

/// Resolves and writes the plan of `options`, or of `arms`. With a `device` every method is attached once on it: settings
/// that one of them rejects must not end hours of the others' training.
pub(super) fn start(
    options: &SuiteOptions,
    arms: Option<&Arms>,
    device: Option<&Device>,
    sink: &mut dyn FnMut(&Event),
) -> Result<Started> {
    let all = experiments(options, arms)?;
    for own in &all {
        own.check_data(options.profile).map_err(|error| own.in_arm(error))?;
    }
    options.compare.as_deref().map(Published::read).transpose()?;
    let backbone = open_backbone(&all[0])?;
    let config =
        |own: &SuiteOptions| own.config(&backbone.architecture).map_err(|error| own.in_arm(error));
    let configs = all.iter().map(config).collect::<Result<Vec<_>>>()?;

    let mut whole = match arms {
        Some(arms) => arms.settings(options.suite),
        None => all[0].settings(&configs[0], &backbone)?,
    };
    let mut top = OutputFolder::look(&options.out, options.resume)?;
    top.check(&whole)?;
    let started_at = now();
    for note in backbone.notes(&configs[0]).into_iter().chain(backbone.location.note.clone()) {
        sink(&Event::Note(note));
    }
    let data_dir = match &options.data_dir {
        Some(folder) => folder.clone(),
        None => generated_data(options.suite, &mut top, sink)?,
    };
    let mut tasks = Tasks::default();
    let mut runs = Vec::new();
    let mut experiments = Vec::new();
    let mut folders = Vec::new();
    for (place, (options, config)) in all.into_iter().zip(configs).enumerate() {
        let in_arm = |error| options.in_arm(error);
        let read = |&task: &Task| {
            tasks.get(place, task, &data_dir, &backbone, &config, options.profile).map_err(in_arm)
        };
        let loaded = options.tasks.iter().map(read).collect::<Result<Vec<_>>>()?;
        let unsaved = options.methods.iter().filter(|method| !method.can().saved);
        let unread = loaded.iter().filter(|found| found.layout.is_none()).map(|found| found.task);
        let names = unsaved.map(ToString::to_string);
        let names: Vec<_> = names.chain(unread.map(|task| task.display_name().into())).collect();
        if options.keep && !names.is_empty() {
            let names = names.join(", ");
            sink(&Event::Note(format!("results only, no adapter is saved: {names}")));
        }
        for ReadyTask { task, data, .. } in loaded.iter().map(AsRef::as_ref) {
            if !data.note.is_empty() {
                sink(&Event::Note(format!("{}: {}", task.display_name(), data.note)));
            }
        }
        let mut settings = options.settings(&config, &backbone)?;
        let data = loaded.iter().map(|task| (task.task.name().to_owned(), task.data.clone()));
        let data: BTreeMap<String, TaskData> = data.collect();
        for (task, data) in &data {
            let files = data.files().map(|file| (file.path.clone(), json!(file.sha256)));
            settings["data_files"][task] = Value::Object(files.collect());
        }
        let experiment = Experiment { options, settings, config, data };
        let in_arm = |error| experiment.options.in_arm(error);
        let sizes = Sizes::new(&backbone.architecture, &experiment.config);
        let own_runs = experiment.runs(place, runs.len(), &sizes).map_err(in_arm)?;
        if let (Some(device), Some(task)) = (device, loaded.first()) {
            let config = &experiment.config;
            check_methods(config, &backbone, device, task, &own_runs).map_err(in_arm)?;
        }
        if experiment.options.arm.is_some() {
            let folder = OutputFolder::look(&experiment.options.out, experiment.options.resume)?;
            folder.check(&experiment.settings).map_err(in_arm)?;
            folders.push(folder);
        } else {
            whole = experiment.settings.clone();
        }
        runs.extend(own_runs);
        experiments.push(experiment);
    }
    top.begin(&whole)?;
    top.warnings().into_iter().for_each(|text| sink(&Event::Note(text)));
    let mut places = folders.iter_mut().zip(&experiments);
    places.try_for_each(|(folder, experiment)| folder.begin(&experiment.settings))?;
    let plan = Plan {
        schema_version: SCHEMA,
        started_at,
        backbone: model_record(&backbone, &experiments[0].config),
        arms: arms.cloned(),
        experiments,
        runs,
    };
    plan.write(&options.out)?;
    Ok(Started { plan, backbone, tasks, folder: top })
}

/// Writes the plan of the suite, or of its `arms`, for workers.
pub fn write_plan(
    options: &SuiteOptions,
    arms: Option<&Arms>,
    sink: &mut dyn FnMut(&Event),
) -> Result<Plan> {
    Ok(start(options, arms, None, sink)?.plan)
}

/// Attaches every method of `runs` once to one copy of the model.
fn check_methods(
    config: &Config,
    backbone: &Backbone,
    device: &Device,
    task: &ReadyTask,
    runs: &[PlannedRun],
) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut model = None;
    for run in runs.iter().filter(|run| !run.is_combined() && seen.insert(run.method)) {
        let start = RunStart {
            config,
            backbone,
            task: &task.prepared,
            method: run.method,
            request: RankRequest::Initial,
            seed: run.seed,
            device,
        };
        let loaded = match model {
            Some(loaded) => loaded,
            None => start.load()?,
        };
        start.attached(loaded.clone())?;
        model = Some(loaded);
    }
    Ok(())
}

fn model_record(backbone: &Backbone, config: &Config) -> ModelRecord {
    let mut notes =
        vec!["parameters: embeddings and layers, without a head of the task".to_owned()];
    notes.extend(backbone.notes(config));
    ModelRecord {
        name: backbone.location.name.clone(),
        path: public_place(&backbone.location),
        weights: backbone.hashes.clone(),
        parameters: backbone.architecture.parameters(),
        notes,
    }
}

pub(super) fn now() -> String {
    let now = OffsetDateTime::now_utc().truncate_to_second();
    // Fails for years beyond 9999 only.
    now.format(&Rfc3339).unwrap_or_default()
}

pub(super) struct ReadyTask {
    pub task: Task,
    /// Layout of its rows as a saved model reads them; `None` where it reads none of this shape.
    layout: Option<InputLayout>,
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
    /// The data of `task` in `experiment`, which are read the first time.
    pub(super) fn get(
        &mut self,
        experiment: usize,
        task: Task,
        data_dir: &Path,
        backbone: &Backbone,
        config: &Config,
        profile: Profile,
    ) -> Result<Rc<ReadyTask>> {
        if self.experiment != experiment {
            *self = Self { experiment, ready: Vec::new() };
        }
        if let Some(found) = self.ready.iter().find(|ready| ready.task == task) {
            return Ok(Rc::clone(found));
        }
        let ready = Rc::new(load(task, data_dir, backbone, config, profile)?);
        self.ready.push(Rc::clone(&ready));
        Ok(ready)
    }
}

fn layout(task: Task, architecture: &Architecture, config: &Config) -> Result<Option<InputLayout>> {
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

/// Goal of a model that answers the questions of a task by `labels`: letters of options, or words for classes.
fn question_goal(task: Task, labels: &[&str]) -> Goal {
    let answers = if LETTERS.starts_with(labels) {
        AnswerSpace::Choice { max_options: labels.len() }
    } else {
        AnswerSpace::Classes { names: labels.iter().map(ToString::to_string).collect() }
    };
    Goal { standard_metrics: Vec::new(), ..Goal::new(task.name(), answers) }
}

fn load(
    task: Task,
    data_dir: &Path,
    backbone: &Backbone,
    config: &Config,
    profile: Profile,
) -> Result<ReadyTask> {
    let Backbone { architecture, tokenizer, .. } = backbone;
    if config.pooling == Pooling::Last {
        bail!("`pooling` = `last` is for `lrvd train`: a language model answers a suite in words");
    }
    let mut data = data::load(data_dir, task, config.validation_rows)?;
    let drawn = data.sample(config.train_rows);
    let cut = data.limit(config.validation_rows);
    data.notes.extend(drawn.into_iter().chain(cut));
    let layout = layout(task, architecture, config)?;
    let length = config.max_length;
    let goal = task.goal();
    let (reader, goal) = if let Some(layout) = layout.as_ref().filter(|_| !task.is_question()) {
        (architecture.reader(tokenizer, &goal, layout, length)?, goal.clone())
    } else {
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
    };
    let prepared = reader.prepare(goal, &data.train.examples, &data.validation.examples)?;
    if let Some(InputLayout::Prompt(wording)) = &layout {
        data.notes.push(wording.describe());
    }
    data.notes.extend(prepared.notes.clone());
    let (ood, notes) = ood_sets((task, &prepared), data_dir, backbone, config, profile)?;
    data.notes.extend(notes);
    data.notes.retain(|note| !note.is_empty());
    let standard = task.row().standard_metrics.first().map_or("accuracy", |metric| metric.name());
    let data = TaskData {
        train: split_record(&data.train),
        validation: split_record(&data.validation),
        standard_metric: standard.to_owned(),
        note: data.notes.join("; "),
    };
    Ok(ReadyTask { task, layout, prepared, data, ood })
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
                let (other, on_rows) = OodSet::new(task, (set, data), backbone, config, rows)?;
                notes.extend(on_rows);
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

fn generated_data(
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

/// Mutual information, nats, up to which members are the same model: rounding errors of 0.
const SAME: f64 = 1e-12;

/// Largest number of questions of another set in the quick profile.
const QUICK_ROWS: usize = 100;

/// Questions of another set, answered with the labels of the trained one.
pub(super) struct OodSet {
    set: Task,
    /// The trained task with the other set's questions as validation split.
    questions: PreparedTask,
    /// These questions with the labels of their set, if those differ and are tokens.
    letters: Option<PreparedTask>,
    same_labels: bool,
}

impl OodSet {
    /// The first `rows` validation questions of another set: in the form of `task` and with its labels, and with those of the
    /// other set (five letters for a model trained on four) if these differ and are tokens. With notes on the rows.
    fn new(
        (task, prepared): (Task, &PreparedTask),
        (set, mut other): (Task, Dataset),
        backbone: &Backbone,
        config: &Config,
        rows: usize,
    ) -> Result<(Self, Vec<String>)> {
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
        Ok((Self { set, questions, letters, same_labels }, notes))
    }

    /// Number of questions that a model answers, those with other labels twice.
    fn rows(&self) -> usize {
        let lettered = self.letters.as_ref().map_or(0, |letters| letters.validation.len());
        self.questions.validation.len() + lettered
    }
}

/// Writes the answers of `ask` to the questions of every set, and to those with other labels if it has any, into `folder`;
/// returns their records. `own` are the answers of the run to its task. `ask` also receives the name of the file, and `true` for
/// the labels of the other set.
fn ood_records(
    sets: &[OodSet],
    own: &ByDraws<Scored>,
    folder: &Path,
    mut ask: impl FnMut(&PreparedTask, &str, bool) -> Result<Option<ByDraws<Scored>>>,
) -> Result<BTreeMap<String, ByDraws<OodRecord>>> {
    let mut all = BTreeMap::new();
    for OodSet { set, questions, letters, same_labels } in sets {
        let mut answers = |questions: &PreparedTask, ending: &str| {
            let file = format!("predictions-last-{set}{ending}.jsonl");
            let found = ask(questions, &file, !ending.is_empty())?;
            if let Some(found) = &found {
                questions.write_predictions(found, &folder.join(file))?;
            }
            Ok::<_, Error>(found.unwrap_or_default())
        };
        let theirs = answers(questions, "")?;
        let letters = letters.as_ref().map(|letters| answers(letters, "-letters"));
        let lettered = letters.transpose()?.unwrap_or_default();
        let mut records = BTreeMap::new();
        for (draws, theirs) in theirs {
            let lettered = if *same_labels { Some(&theirs) } else { lettered.get(&draws) };
            let record = own.get(&draws).map(|own| ood_record(own, &theirs, lettered));
            if let Some(record) = record.transpose()?.flatten() {
                records.insert(draws, record);
            }
        }
        all.insert(set.name().to_owned(), records);
    }
    Ok(all)
}

/// Areas under the ROC curve of entropy and mutual information, which separate the questions of another set (the positive
/// class), answered by `theirs`, from the task's, answered by `own`; and metrics of the answers with the other set's labels.
fn ood_record(
    own: &Scored,
    theirs: &Scored,
    lettered: Option<&Scored>,
) -> Result<Option<OodRecord>> {
    let all_drawn = [own, theirs].iter().all(|scored| scored.metrics.mutual_information.is_some());
    let (Some(own), Some(theirs)) = (&own.uncertainty, &theirs.uncertainty) else {
        return Ok(None);
    };
    let several = all_drawn && own.mutual_information.iter().any(|&value| value > SAME);
    let by_information =
        several.then(|| auroc(&own.mutual_information, &theirs.mutual_information));
    let answers = lettered.map(|scored| &scored.metrics);
    Ok(Some(OodRecord {
        n_areas: theirs.predictive_entropy.len() as u64,
        auroc_entropy: auroc(&own.predictive_entropy, &theirs.predictive_entropy)?,
        auroc_mutual_information: by_information.transpose()?,
        n: answers.map(|metrics| metrics.n),
        accuracy: answers.and_then(|metrics| metrics.accuracy),
        nll: answers.and_then(|metrics| metrics.nll),
        ece: answers.and_then(|metrics| metrics.ece),
    }))
}

/// A run and what it is made from.
pub(super) struct RunInput<'a> {
    pub run: &'a PlannedRun,
    /// The runs that it needs, with their records.
    pub needed: Vec<(&'a PlannedRun, RunRecord)>,
    pub plan: &'a Plan,
    pub backbone: &'a Backbone,
    pub device: &'a Device,
    pub task: &'a ReadyTask,
    /// Output folder of the plan.
    pub out: &'a Path,
    pub stop: &'a AtomicBool,
}

impl RunInput<'_> {
    fn experiment(&self) -> &Experiment {
        &self.plan.experiments[self.run.experiment]
    }

    fn folder(&self) -> PathBuf {
        self.out.join(&self.run.folder)
    }

    /// Trains it; `None` if a stop request ended it after a checkpoint. `position` is that among all runs, from 1.
    pub(super) fn train(
        &self,
        position: (usize, usize),
        sink: &mut dyn FnMut(&Event),
    ) -> Result<Option<RunRecord>> {
        let &Self { run, backbone, device, .. } = self;
        let ReadyTask { prepared: task, ood, .. } = self.task;
        let folder = self.folder();
        let (request, budget) = self.request()?;
        let start = RunStart {
            config: &self.experiment().config,
            backbone,
            task,
            method: run.method,
            request,
            seed: run.seed,
            device,
        };
        let training = Run::new(start, self.stop, run.label(), position);
        training.memory_note()?.into_iter().for_each(|note| sink(&Event::Note(note)));
        let begun = training.open(&folder)?;
        let place = RunPlace {
            out: &run.experiment_folder(self.out),
            folder: &folder,
            budget,
            layout: JsonLayout::Compact,
        };
        training.complete(begun, &place, sink, |trained, finished, context, sink| {
            let Finished { record, answers, temperatures, .. } = &mut *finished;
            if !ood.is_empty() {
                let draws = answers.keys().map(|&draws| draws.max(1) as usize).sum::<usize>();
                let total = draws * ood.iter().map(OodSet::rows).sum::<usize>();
                let model = trained.state.model.clone().valid();
                record.ood = training.watched(sink, total, |context| {
                    ood_records(ood, answers, &folder, |questions, _, lettered| {
                        let Some(model) = self.answering(&model, questions, lettered)? else {
                            return Ok(None);
                        };
                        let examples = context.examples(&questions.validation);
                        let examples = TokenExamples { labels: questions.labels, ..examples };
                        let inputs = context.inputs(&examples);
                        let answered = |&draws: &u32| {
                            let inputs = inputs.drawn(draws as usize);
                            let logits = trained.method.predict(&model, &inputs)?;
                            let logits = temperatures.soften(logits, draws as usize)?;
                            Ok((draws, score_draws(&logits, questions)?))
                        };
                        answers.keys().map(answered).collect::<Result<_>>().map(Some)
                    })
                })?;
            }
            if let Some(settings) = self.saved_settings() {
                let folder = folder.join(ADAPTER_DIR);
                keep(&settings, trained, finished, context, &folder, None)?;
            }
            Ok(())
        })
    }

    /// The model that answers `questions`, which are `lettered` if their labels are not those of the trained task; `None` if it
    /// cannot.
    fn answering<'a>(
        &self,
        model: &'a AutoModel,
        questions: &PreparedTask,
        lettered: bool,
    ) -> Result<Option<Cow<'a, AutoModel>>> {
        Ok(match model {
            model if !lettered => Some(Cow::Borrowed(model)),
            AutoModel::Llama(choice) if self.run.method.can().other_answers => {
                let choice = choice.clone().answering(questions.answers.clone())?;
                Some(Cow::Owned(AutoModel::Llama(choice)))
            }
            _ => None,
        })
    }

    /// The requested rank, by the [`Matching`] to the runs that this one needs, and its record.
    fn request(&self) -> Result<(RankRequest, RankBudget)> {
        let Experiment { config, options, .. } = self.experiment();
        let method = self.run.method;
        let can = method.can();
        let (request, note) = match (options.matching, self.needed.first()) {
            (Some(Matching::Parameters), Some((other, first))) => {
                let mut sizes = Sizes::new(&self.backbone.architecture, config);
                // A model of scores has no `lm_head`, which is the last layer.
                sizes.layers.truncate(first.rank_budget.n_modules as usize);
                let of_one = sizes.trained(method, Some(1))?;
                let rank = nearest_rank(first.trainable_parameters.trained(), of_one);
                (RankRequest::Average(rank), format!("parameters matched to {}", other.method))
            }
            (Some(Matching::MedianRank), Some((other, first))) => {
                let records = self.needed.iter().map(|(_, record)| &record.checkpoints.last);
                let totals = records.flatten().map(|last| last.total_rank as usize).collect();
                let rank = median_rank(totals, first.rank_budget.n_modules as usize);
                (RankRequest::Average(rank), format!("rank matched to {}", other.method))
            }
            // Without matching: the usual half of the initial rank.
            _ => match method.request(config.initial_rank, None) {
                request @ RankRequest::Average(_) => (request, "half the settings' rank".into()),
                request if can.prunes && !can.budget => (request, "learnt".into()),
                request => (request, "the settings' rank".into()),
            },
        };
        let requested = match request {
            RankRequest::Average(rank) => Some(rank),
            RankRequest::Initial => None,
        };
        let initial = requested.filter(|_| !can.prunes).unwrap_or(config.initial_rank);
        Ok((request, RankBudget::new(initial, requested, &note)))
    }

    /// Settings that describe the adapter of the run; `None` if it is not saved.
    fn saved_settings(&self) -> Option<TrainSettings> {
        let &Self { run, backbone, .. } = self;
        let task = self.task;
        let Experiment { config, options, .. } = self.experiment();
        if !options.keep || !run.method.can().saved {
            return None;
        }
        let goal = task.prepared.goal.clone();
        let layout = task.layout.clone()?;
        let columns = TextColumns::usual_questions;
        let columns = run.task.is_question().then(|| Columns::Labelled(columns()));
        let pairs = run.task.is_pair();
        let rows = RowSettings { validation_split: None, columns, layout, pairs, goal };
        let hashes = |split: &SplitRecord| {
            split.files.iter().map(|file| (file.path.clone(), file.sha256.clone())).collect()
        };
        let splits =
            [(SplitName::Train, &task.data.train), (SplitName::Validation, &task.data.validation)];
        let data = splits.map(|(name, split)| (name.to_string(), hashes(split))).into();
        Some(TrainSettings::new(
            backbone,
            (rows, data),
            (run.method, None),
            run.seed,
            &options.device,
            config.clone(),
        ))
    }

    /// Makes the row from its members, which are the runs that it needs: averages their answers to the task and to other
    /// sets.
    ///
    /// With draws, a member's answer is the average of its draws: mutual information is that between
    /// members.
    pub(super) fn combine(&self) -> Result<()> {
        let ReadyTask { prepared, ood, .. } = self.task;
        let folder = self.folder();
        let scored = self.averaged(LAST_PREDICTIONS, prepared)?;
        prepared.write_predictions(&scored, &folder.join(LAST_PREDICTIONS))?;
        let ask = |task: &PreparedTask, file: &str, _| self.averaged(file, task).map(Some);
        let ood = ood_records(ood, &scored, &folder, ask)?;
        let records = || self.needed.iter().map(|(_, record)| record);
        let Some(first) = records().next() else {
            bail!("{}: no member has finished", self.run.method.entry().name);
        };
        let largest = records().max_by_key(|record| record.peak_memory_bytes).unwrap_or(first);
        let selective = selective_records(&scored, prepared)?;
        let (metrics, reliability) = measures(&scored);
        let last = first.checkpoints.last.as_ref();
        let last = last.map(|last| CheckpointRecord {
            reliability,
            selective,
            metrics,
            predict_seconds: sum_seconds(records()),
            statistics: None,
            energy: BTreeMap::new(),
            ..last.clone()
        });
        let record = RunRecord {
            checkpoints: Checkpoints { last, best: None, candidates: 0 },
            train_seconds: records().map(|r| r.train_seconds).sum(),
            evaluate_seconds: records().map(|r| r.evaluate_seconds).sum(),
            trainable_parameters: records()
                .map(|record| record.trainable_parameters)
                .fold(ParameterCounts::default(), std::ops::Add::add),
            // Members are trained one after another.
            peak_memory_bytes: largest.peak_memory_bytes,
            start_memory_bytes: largest.start_memory_bytes,
            ood,
            fitted: BTreeMap::new(),
            history: Vec::new(),
            rank_events: Vec::new(),
            choice: None,
            classes: None,
            method: self.run.method.name(),
            seed: self.run.seed,
            ..first.clone()
        };
        write_json(&folder.join(RECORD_FILE), &record, JsonLayout::Compact)
    }

    /// The members' answers in their files `name`, averaged, by number of draws.
    ///
    /// The files have probabilities. Their logarithms differ from the logits by a constant of each example, which changes no
    /// probability. A score is averaged unchanged.
    fn averaged(&self, name: &str, task: &PreparedTask) -> Result<ByDraws<Scored>> {
        let regression = task.goal.answers == AnswerSpace::Score;
        let value = |p: f64| if regression { p } else { p.max(f64::MIN_POSITIVE).ln() };
        // Members one after another, each row by row.
        let mut members: ByDraws<Vec<f64>> = BTreeMap::new();
        for (part, _) in &self.needed {
            for line in read_lines::<PredictionLine>(&self.out.join(&part.folder).join(name))? {
                for (draws, answer) in line.probs {
                    members.entry(draws).or_default().extend(answer.into_iter().map(value));
                }
            }
        }
        let score = |(draws, all)| {
            let answers = Prediction::new(all, task.validation.len(), task.labels);
            Ok((draws, score_draws(&answers, task)?))
        };
        members.into_iter().map(score).collect()
    }
}

/// The rank, at least 1, whose parameters are nearest to `parameters`: `of_one` for each.
fn nearest_rank(parameters: u64, of_one: usize) -> usize {
    ((parameters as f64 / of_one.max(1) as f64).round_ties_even() as usize).max(1)
}

/// The median of the average ranks of runs whose ranks sum to `totals`, of an even number the mean of the middle two; a whole
/// rank, at least 1.
fn median_rank(mut totals: Vec<usize>, modules: usize) -> usize {
    totals.sort_unstable();
    let middle = totals.len().saturating_sub(1) / 2;
    let twice: usize = [middle, totals.len() / 2].iter().filter_map(|&i| totals.get(i)).sum();
    matched_target_rank(twice, 2 * modules)
}

fn sum_seconds<'a>(records: impl Iterator<Item = &'a RunRecord>) -> ByDraws<f64> {
    let mut sums = BTreeMap::new();
    for last in records.filter_map(|record| record.checkpoints.last.as_ref()) {
        for (&draws, seconds) in &last.predict_seconds {
            *sums.entry(draws).or_insert(0.0) += seconds;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backbone::Architecture;
    use crate::method::MethodName;
    use crate::settings::Preset;

    /// DeBERTa-v3-base has 12·(4·(768 + 768) + 2·(768 + 3,072)) of one rank with LoRA; AdaLoRA and BayesLoRA have
    /// one more in each of the 72 modules.
    #[test]
    fn a_rank_has_the_same_size_whatever_the_method_starts_with() {
        let config = Preset::PaperGlue.config();
        let sizes = Sizes::new(&Architecture::deberta_v3_base().unwrap(), &config);
        let of_one = MethodName::FIRST_TABLE.map(|method| sizes.trained(method, Some(1)).unwrap());
        assert_eq!(of_one, [165_888, 165_960, 165_960]);
    }

    /// LoRA on the shipped encoder has 13,824 parameters a rank; the sizes are those of two runs of BayesLoRA.
    #[test]
    fn sizes_are_matched_by_the_nearest_whole_rank_and_medians_are_means_of_two() {
        for (parameters, expected) in [(20_766, 2), (62_113, 4), (41_440, 3), (6_000, 1), (0, 1)] {
            let rank = nearest_rank(parameters, 13_824);
            assert_eq!(rank, expected, "{parameters}");
            let apart = |rank: usize| (rank * 13_824).abs_diff(parameters as usize);
            assert!((1..9).all(|other| apart(rank) <= apart(other)), "{parameters}");
        }
        // Of 24 modules: average ranks 1 and 4, whose mean is 2.5 (halves to the even side), and 1, 2, 9.
        assert_eq!(
            [vec![24, 96], vec![216, 24, 48], vec![30], vec![]].map(|t| median_rank(t, 24)),
            [2, 2, 1, 1]
        );
    }
}
