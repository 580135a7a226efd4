//! Tasks as their runs need them: rows as token ids, and the questions of other sets.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use lrvd_burn::files::AtomicDir;
use serde_json::{Map, Value, json};

use super::kind::{Profile, Suite};
use super::ood::OodSet;
use super::task::{ReadyTask, prepare};
use crate::backbone::Backbone;
use crate::data::{self, quick};
use crate::error::{Kind, Result, kind_of};
use crate::progress::{Event, ProgressSink};
use crate::run::OutputFolder;
use crate::settings::Config;
use crate::task::Task;

pub(super) struct Loaded {
    pub ready: ReadyTask,
    pub ood: Vec<OodSet>,
}

/// The tasks of one experiment at a time: each is read once.
#[derive(Default)]
pub(super) struct Tasks {
    experiment: usize,
    loaded: Vec<Rc<Loaded>>,
}

impl Tasks {
    /// `task` as `experiment` has it, loaded by `load` if it is not there.
    pub(super) fn get(
        &mut self,
        experiment: usize,
        task: Task,
        load: impl FnOnce() -> Result<Loaded>,
    ) -> Result<Rc<Loaded>> {
        if self.experiment != experiment {
            *self = Self { experiment, loaded: Vec::new() };
        }
        if let Some(found) = self.loaded.iter().find(|loaded| loaded.ready.task == task) {
            return Ok(Rc::clone(found));
        }
        let loaded = Rc::new(load()?);
        self.loaded.push(Rc::clone(&loaded));
        Ok(loaded)
    }
}

pub(super) fn load(
    task: Task,
    data_dir: &Path,
    backbone: &Backbone,
    config: &Config,
    profile: Profile,
) -> Result<Loaded> {
    let mut ready = prepare(task, data_dir, backbone, config, profile)?;
    let ood = ood_sets(&mut ready, data_dir, backbone, config, profile)?;
    Ok(Loaded { ready, ood })
}

/// The other sets that models of `ready` are shown. What a reader must know of them is added to the
/// task's note, also that the files of one are not there.
fn ood_sets(
    ready: &mut ReadyTask,
    data_dir: &Path,
    backbone: &Backbone,
    config: &Config,
    profile: Profile,
) -> Result<Vec<OodSet>> {
    let rows = profile.other_rows();
    let mut found = Vec::new();
    for &set in OodSet::of(ready.task) {
        let notes = match data::load(data_dir, set, None) {
            Ok(data) => {
                let mut other = OodSet::new(ready, (set, data), backbone, config, rows)?;
                let notes = std::mem::take(&mut other.notes);
                found.push(other);
                notes
            }
            Err(error) if kind_of(&error) == Some(Kind::NotFound) => {
                vec![format!("no answers to {} questions: {error}", set.display_name())]
            }
            Err(error) => return Err(error),
        };
        let before = std::mem::take(&mut ready.data.note);
        let all = std::iter::once(before).filter(|note| !note.is_empty()).chain(notes);
        ready.data.note = all.collect::<Vec<_>>().join("; ");
    }
    Ok(found)
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
