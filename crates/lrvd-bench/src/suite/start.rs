//! From options to a plan on disk: settings resolved, data read and hashed, all of it before the first run. What cannot
//! be used leaves no output folder.

use std::rc::Rc;

use burn::tensor::Device;

use super::arms::Arms;
use super::kind::{Profile, Suite};
use super::options::SuiteOptions;
use super::plan::{Experiment, Plan, SCHEMA, experiments, id, now};
use super::runs::{PlannedRun, add_runs, matching};
use super::task::{ReadyTask, Tasks, data_files, generated_data, is_kept, load};
use crate::backbone::{Backbone, locate_model, public_place};
use crate::error::Result;
use crate::memory::Sizes;
use crate::method::{MethodName, RankRequest};
use crate::progress::Event;
use crate::record::ModelRecord;
use crate::report::Published;
use crate::run::{OutputFolder, RunStart};
use crate::settings::Config;

/// A plan in its output folder, with what was read to make it.
pub(super) struct Started {
    pub plan: Plan,
    pub backbone: Backbone,
    pub tasks: Tasks,
    /// Locked as long as this lives.
    pub folder: OutputFolder,
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
    sink: &mut dyn FnMut(&Event),
) -> Result<Started> {
    let mut all = experiments(options, arms)?;
    for own in &all {
        // An arm has the profile `paper`, and generated data all the same.
        let with_data = SuiteOptions { profile: options.profile, ..own.clone() };
        with_data.check_data().map_err(|error| own.in_arm(error))?;
    }
    let compare = options.compare.as_deref();
    compare.map(Published::read).transpose()?;
    let (profile, model) = (all[0].profile, all[0].model.clone());
    let backbone = open_backbone(options.suite, profile, model.as_deref())?;
    let config =
        |own: &SuiteOptions| own.config(&backbone.architecture).map_err(|error| own.in_arm(error));
    let configs = all.iter().map(config).collect::<Result<Vec<_>>>()?;

    let arms = arms.map(|arms| arms.of_plan(options));
    let mut whole = match &arms {
        Some(arms) => arms.settings.clone(),
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
    let (mut tasks, mut runs) = (Tasks::default(), Vec::new());
    let (mut experiments, mut folders, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (own, config)) in all.iter_mut().zip(configs).enumerate() {
        if own.arm.is_some() {
            own.data_dir = Some(data_dir.clone());
        }
        let own = &*own;
        let in_arm = |error| own.in_arm(error);
        let first = runs.len();
        add_runs(&mut runs, place, own)?;
        if let Some(note) = lost(own, &config) {
            sink(&Event::Note(note));
        }
        let mut loaded: Vec<Rc<ReadyTask>> = Vec::new();
        for &task in &own.tasks {
            let load = || load(task, &data_dir, &backbone, &config, own.profile);
            let found = tasks.get(place, task, load).map_err(in_arm)?;
            let note = &found.data.note;
            if !note.is_empty() {
                sink(&Event::Note(format!("{}: {note}", task.display_name())));
            }
            loaded.push(found);
        }
        if let (Some(device), Some(task)) = (device, loaded.first()) {
            check_methods(&config, &backbone, device, task, &runs[first..]).map_err(in_arm)?;
        }
        let mut settings = own.settings(&config, &backbone)?;
        settings["data_files"] = data_files(loaded.iter().map(AsRef::as_ref));
        if own.arm.is_some() {
            let folder = OutputFolder::look(&own.out, own.resume)?;
            folder.check(&settings).map_err(in_arm)?;
            folders.push(folder);
        } else {
            whole = settings.clone();
        }
        let data = loaded.iter().map(|task| (task.task.name().to_owned(), task.data.clone()));
        sizes.push(Sizes::new(&backbone.architecture, &config));
        experiments.push(Experiment {
            arm: own.arm.clone(),
            preset: own.preset.name().to_owned(),
            matching: matching(own)?,
            settings,
            data: data.collect(),
            config,
        });
    }
    top.begin(&whole)?;
    top.warnings().into_iter().for_each(|text| sink(&Event::Note(text)));
    for (folder, experiment) in folders.iter_mut().zip(&experiments) {
        folder.begin(&experiment.settings)?;
    }
    for run in &mut runs {
        run.id = id(&experiments[run.experiment], run);
    }
    let plan = Plan {
        schema_version: SCHEMA,
        suite: options.suite,
        profile,
        device: options.device.clone(),
        model,
        data_dir: options.data_dir.clone(),
        keep: options.keep,
        compare: options.compare.clone(),
        command: options.command.clone(),
        git_revision: options.git_revision.clone(),
        started_at,
        backbone: model_record(&backbone, &experiments[0].config),
        arms,
        experiments,
        runs,
    };
    plan.write(&options.out, &sizes)?;
    Ok(Started { plan, backbone, tasks, folder: top })
}

/// Attaches every method of `runs` once to one copy of the model.
fn check_methods(
    config: &Config,
    backbone: &Backbone,
    device: &Device,
    task: &ReadyTask,
    runs: &[PlannedRun],
) -> Result<()> {
    let mut seen: Vec<MethodName> = Vec::new();
    let mut model = None;
    for run in runs.iter().filter(|run| !run.is_combined()) {
        if seen.contains(&run.method) {
            continue;
        }
        seen.push(run.method);
        let (task, method) = (&task.prepared, run.method);
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
