//! A task of either suite: from files to token ids, with what a record says of its data, and the questions of other sets.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use lrvd_burn::files::AtomicDir;
use serde_json::{Map, Value, json};

use super::kind::{Profile, Suite};
use super::ood::OodSet;
use crate::backbone::{Architecture, Backbone};
use crate::data::{
    self, AnswerToken, Dataset, LLAMA_2_LABELS, Origin, PreparedTask, QuestionForm, Split, Wording,
    check_known, quick, require_single,
};
use crate::error::{Kind, Result, kind_of};
use crate::progress::{Event, ProgressSink};
use crate::record::{DataFile, DataOrigin, SplitRecord, TaskData};
use crate::run::OutputFolder;
use crate::settings::{Config, LastBatch};
use crate::task::{Goal, Task};

pub(super) struct ReadyTask {
    pub task: Task,
    pub prepared: PreparedTask,
    pub data: TaskData,
    /// Other sets that its models are shown.
    pub ood: Vec<OodSet>,
}

/// The tasks of one experiment at a time: each is read once.
#[derive(Default)]
pub(super) struct Tasks {
    experiment: usize,
    ready: Vec<Rc<ReadyTask>>,
}

impl Tasks {
    /// `task` as `experiment` has it, loaded by `load` if it is not there.
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

/// How a model of this kind is asked for the classes of a GLUE task; questions have their prompts.
pub(super) fn wording(
    task: Task,
    architecture: &Architecture,
    config: &Config,
) -> Result<Option<Wording>> {
    if task.is_question() {
        return Ok(None);
    }
    architecture.wording(&config.wording, &task.goal(), Some(task), task.is_pair())
}

/// Whether its input is one of a saved classifier: a text, a pair, or a question with choices.
pub(super) fn is_kept(task: Task, config: &Config) -> bool {
    !task.is_question() || QuestionForm::of(task, config.prompt).is_some()
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
    let (length, task_goal) = (config.max_length, task.goal());
    let (reader, goal) = if task.is_question() {
        // The protocol drops an incomplete batch from both splits.
        let dropped = match config.last_batch {
            LastBatch::Keep => 0,
            LastBatch::Drop => data.validation.rows() % config.batch_size,
        };
        let (whole, origin) = (data.validation.rows() - dropped, data.validation.origin);
        let cut = data.limit(Some(whole));
        data.notes.extend(cut);
        data.validation.origin = origin;
        let labels = config.prompt.labels(task);
        let form = QuestionForm { task, prompt: config.prompt };
        let reader = architecture.task_questions(tokenizer, form, labels, length)?;
        check_labels(&reader.answers, backbone, profile)?;
        (reader, Goal::questions(task.name(), labels))
    } else {
        let wording = wording.as_ref();
        let reader = architecture.reader(tokenizer, &task_goal, None, wording, length)?;
        (reader, task_goal.clone())
    };
    let prepared = reader.prepare(goal, &data.train.examples, &data.validation.examples)?;
    data.notes.extend(wording.as_ref().map(Wording::describe));
    data.notes.extend(prepared.notes.clone());
    let (ood, notes) = ood_sets((task, &prepared), data_dir, backbone, config, profile)?;
    data.notes.extend(notes);
    data.notes.retain(|note| !note.is_empty());
    Ok(ReadyTask { task, prepared, data: task_data(&data, task), ood })
}

/// The other sets that models of a task are shown, and what a reader must know of them, also that the files of one are
/// not there.
fn ood_sets(
    task: (Task, &PreparedTask),
    data_dir: &Path,
    backbone: &Backbone,
    config: &Config,
    profile: Profile,
) -> Result<(Vec<OodSet>, Vec<String>)> {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for &set in OodSet::of(task.0) {
        match data::load(data_dir, set, None) {
            Ok(data) => {
                let mut other =
                    OodSet::new(task, (set, data), backbone, config, profile.other_rows())?;
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

/// Rejects what would make a run incomparable with published ones: under the paper's profile a label
/// of several tokens, and of a model that is called Llama-2 any token but Llama-2's.
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

/// Writes the generated tasks once into the output folder, which is ours by then.
pub(super) fn generated_data(
    suite: Suite,
    out: &mut OutputFolder,
    sink: &mut dyn ProgressSink,
) -> Result<PathBuf> {
    out.claim()?;
    let folder = out.data();
    if !folder.is_dir() {
        sink.event(&Event::Note(format!("writing generated tasks to {}", folder.display())));
        let building = AtomicDir::create(&folder)?;
        match suite {
            Suite::Glue => quick::GLUE.write(building.path())?,
            Suite::Reasoning => quick::REASONING.write(building.path())?,
        }
        building.commit()?;
    }
    Ok(folder)
}

/// SHA-256 of every data file, by task.
pub(super) fn data_files<'a>(tasks: impl Iterator<Item = &'a ReadyTask>) -> Value {
    let files = |task: &ReadyTask| -> Value {
        let splits = [&task.data.train, &task.data.validation];
        let files = splits.into_iter().flat_map(|split| &split.files);
        files.map(|file| (file.path.clone(), json!(file.sha256))).collect::<Map<_, _>>().into()
    };
    tasks.map(|task| (task.task.name().to_owned(), files(task))).collect::<Map<_, _>>().into()
}
