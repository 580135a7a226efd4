//! From options to a plan on disk: settings resolved, data read and hashed, all of it before the first run. What cannot
//! be used leaves no output folder.

use std::path::Path;
use std::rc::Rc;

use burn::tensor::Device;

use super::arms::{Arms, of_arm};
use super::dry_run::Sizes;
use super::kind::{Profile, Suite};
use super::options::SuiteOptions;
use super::plan::{ArmsOfPlan, Experiment, Plan, PlannedRun, add_runs, matches_ranks};
use super::prepare::{Loaded, Tasks, generated_data, load};
use super::settings::{data_files, resolve_config, resolved};
use super::summary::now;
use super::task::is_kept;
use crate::backbone::{Backbone, locate_model};
use crate::error::Result;
use crate::method::{MethodName, RankRequest};
use crate::progress::{Event, ProgressSink};
use crate::record::ModelRecord;
use crate::report::Published;
use crate::run::{OutputFolder, RunStart};
use crate::settings::Config;
use crate::text::quoted;

/// A plan in its output folder, with what was read to make it.
pub(super) struct Started {
    pub plan: Plan,
    pub backbone: Backbone,
    pub tasks: Tasks,
    /// Locked as long as this lives.
    pub folder: OutputFolder,
}

/// An experiment with its resolved settings.
struct Draft {
    arm: Option<String>,
    options: SuiteOptions,
    config: Config,
}

pub(super) fn open_backbone(
    suite: Suite,
    profile: Profile,
    model: Option<&str>,
) -> Result<Backbone> {
    Backbone::open(match model {
        Some(name) => locate_model(name)?,
        None => suite.model(profile)?,
    })
}

/// Resolves and writes the plan of `options`, or of `arms`. With a `device` every method is attached once on it: settings
/// that one of them rejects must not end hours of the others' training.
pub(super) fn start(
    options: &SuiteOptions,
    arms: Option<&Arms>,
    device: Option<&Device>,
    sink: &mut dyn ProgressSink,
) -> Result<Started> {
    let all = match arms {
        Some(arms) => arms.experiments(options)?,
        None => vec![(String::new(), options.clone())],
    };
    let mut resolved_options = Vec::new();
    for (name, own) in all {
        let arm = arms.map(|_| name);
        let own = own.resolved().map_err(in_arm(arm.as_deref()))?;
        // An arm has the profile `paper`, and generated data all the same.
        let with_data = SuiteOptions { profile: options.profile, ..own.clone() };
        with_data.check_data().map_err(in_arm(arm.as_deref()))?;
        resolved_options.push((arm, own));
    }
    let compare = options.compare.as_deref();
    compare.map(Published::read).transpose()?;
    let one = &resolved_options[0].1;
    let backbone = open_backbone(one.suite, one.profile, one.model.as_deref())?;
    let (profile, model) = (one.profile, one.model.clone());
    let draft = |(arm, options): (Option<String>, SuiteOptions)| {
        let config =
            resolve_config(&options, &backbone.architecture).map_err(in_arm(arm.as_deref()))?;
        Ok(Draft { arm, options, config })
    };
    let mut drafts = resolved_options.into_iter().map(draft).collect::<Result<Vec<_>>>()?;

    let mut whole = match arms {
        Some(arms) => arms.settings(options),
        None => resolved(&drafts[0].options, &drafts[0].config, &backbone)?,
    };
    let mut top = OutputFolder::look(&options.out, options.resume)?;
    top.check(&whole)?;
    let started_at = now();
    if let Some(note) = ignored(&backbone) {
        sink.event(&Event::Note(note));
    }
    let data_dir = match &options.data_dir {
        Some(folder) => folder.clone(),
        None => generated_data(options.suite, &mut top, sink)?,
    };
    let (mut tasks, mut runs) = (Tasks::default(), Vec::new());
    let (mut experiments, mut folders, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for (place, draft) in drafts.iter_mut().enumerate() {
        if draft.arm.is_some() {
            draft.options.data_dir = Some(data_dir.clone());
        }
        let Draft { arm, options, config } = &*draft;
        let of_arm = || in_arm(arm.as_deref());
        let first = runs.len();
        add_runs(&mut runs, place, arm.as_deref(), options);
        let loaded = draft.load(place, &data_dir, &backbone, &mut tasks, sink).map_err(of_arm())?;
        if let (Some(device), Some(task)) = (device, loaded.first()) {
            check_methods(config, &backbone, device, task, &runs[first..]).map_err(of_arm())?;
        }
        let mut settings = resolved(options, config, &backbone)?;
        settings["data_files"] = data_files(loaded.iter().map(|loaded| &loaded.ready));
        if arm.is_some() {
            let folder = OutputFolder::look(&options.out, options.resume)?;
            folder.check(&settings).map_err(of_arm())?;
            folders.push(folder);
        } else {
            whole = settings.clone();
        }
        let data = loaded.iter().map(|loaded| &loaded.ready);
        let data = data.map(|ready| (ready.task.name().to_owned(), ready.data.clone()));
        sizes.push(Sizes::new(&backbone.architecture, config));
        experiments.push(Experiment {
            arm: arm.clone(),
            preset: options.preset.name().to_owned(),
            matches: matches_ranks(options),
            settings,
            config: config.clone(),
            data: data.collect(),
        });
    }
    top.begin(&whole)?;
    for (folder, experiment) in folders.iter_mut().zip(&experiments) {
        folder.begin(&experiment.settings)?;
    }
    let common = SuiteOptions { profile, model, ..options.clone() };
    let mut plan = Plan::new(&common, started_at, model_record(&backbone), experiments, runs);
    plan.arms = arms.map(|file| ArmsOfPlan {
        file: file.clone(),
        preset: file.preset(options).to_owned(),
        settings: whole,
    });
    plan.write(&options.out, &sizes)?;
    Ok(Started { plan, backbone, tasks, folder: top })
}

/// Adds the name of an arm to an error.
fn in_arm(arm: Option<&str>) -> impl FnOnce(crate::Error) -> crate::Error {
    let arm = arm.map(str::to_owned);
    move |error| match arm {
        Some(arm) => of_arm(&arm)(error),
        None => error,
    }
}

impl Draft {
    fn load(
        &self,
        place: usize,
        data_dir: &Path,
        backbone: &Backbone,
        tasks: &mut Tasks,
        sink: &mut dyn ProgressSink,
    ) -> Result<Vec<Rc<Loaded>>> {
        let Self { options, config, .. } = self;
        if let Some(note) = lost(options, config) {
            sink.event(&Event::Note(note));
        }
        let mut all = Vec::new();
        for &task in &options.tasks {
            let load = || load(task, data_dir, backbone, config, options.profile);
            let loaded = tasks.get(place, task, load)?;
            let note = &loaded.ready.data.note;
            if !note.is_empty() {
                sink.event(&Event::Note(format!("{}: {note}", task.display_name())));
            }
            all.push(loaded);
        }
        Ok(all)
    }
}

/// Attaches every method of `runs` once to one copy of the model.
fn check_methods(
    config: &Config,
    backbone: &Backbone,
    device: &Device,
    task: &Loaded,
    runs: &[PlannedRun],
) -> Result<()> {
    let mut seen: Vec<MethodName> = Vec::new();
    let mut model = None;
    for run in runs.iter().filter(|run| !run.is_combined()) {
        if seen.contains(&run.method) {
            continue;
        }
        seen.push(run.method);
        let (task, method) = (&task.ready.prepared, run.method);
        let (request, seed) = (RankRequest::Initial, run.seed);
        let start = RunStart { config, backbone, task, method, request, seed, device };
        let loaded = match model.take() {
            Some(loaded) => loaded,
            None => start.load()?,
        };
        model = Some(loaded.clone());
        start.attached(loaded)?;
    }
    Ok(())
}

/// Which methods and tasks leave numbers and no adapter, though adapters are kept.
fn lost(options: &SuiteOptions, config: &Config) -> Option<String> {
    let methods = options.methods.iter().filter(|method| !method.can().saved);
    let tasks = options.tasks.iter().filter(|task| !is_kept(**task, config));
    let names =
        methods.map(ToString::to_string).chain(tasks.map(|task| task.display_name().to_owned()));
    let lost: Vec<String> = names.collect();
    (options.keep && !lost.is_empty())
        .then(|| format!("kept as numbers and answers, without an adapter: {}", lost.join(", ")))
}

/// Keys of the model's `config.json` that mean nothing here.
fn ignored(backbone: &Backbone) -> Option<String> {
    let keys = backbone.architecture.unrecognised();
    (!keys.is_empty())
        .then(|| format!("`config.json` keys without a meaning here: {}", quoted(keys)))
}

fn model_record(backbone: &Backbone) -> ModelRecord {
    let mut notes =
        vec!["parameters: embeddings and layers, without a head of the task".to_owned()];
    notes.extend(ignored(backbone));
    ModelRecord {
        name: backbone.location.name.clone(),
        path: backbone.location.folder.display().to_string(),
        weights: backbone.hashes.clone(),
        parameters: backbone.architecture.parameters(),
        notes,
    }
}
