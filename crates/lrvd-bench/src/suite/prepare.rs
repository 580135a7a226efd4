//! From options to a plan: a dry run from sizes alone, or a plan on disk, for which settings are resolved and data read and hashed
//! before the first run. An error leaves no output folder.

use std::collections::BTreeMap;

use burn::tensor::Device;
use minijinja::context;
use minijinja::value::Serde;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::arms::Arms;
use super::data::{ReadyTask, Tasks, data_files, generated_data, is_saved, load};
use super::grid::{Profile, Suite, SuiteOptions};
use super::plan::{Experiment, Plan, SCHEMA, experiments};
use super::runs::{PlannedRun, experiment_runs, matching, needed, number};
use crate::backbone::{self, Architecture, Backbone, locate_config, locate_model, public_place};
use crate::data::Wording;
use crate::error::Result;
use crate::memory::{PlannedMemory, Sizes};
use crate::method::{MethodName, RankRequest};
use crate::progress::Event;
use crate::record::ModelRecord;
use crate::report::Published;
use crate::run::{OutputFolder, RunStart};
use crate::settings::Config;
use crate::task::Task;
use crate::text::{grouped, templates};

/// A plan in its output folder, with the model and the data that were read to make it.
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
        own.check_data(options.profile).map_err(|error| own.in_arm(error))?;
    }
    options.compare.as_deref().map(Published::read).transpose()?;
    let profile = all[0].profile;
    let model = all[0].model.clone();
    let backbone = open_backbone(options.suite, profile, model.as_deref())?;
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
    for (place, (own, config)) in all.iter_mut().zip(configs).enumerate() {
        if own.arm.is_some() {
            own.data_dir = Some(data_dir.clone());
        }
        let own = &*own;
        let in_arm = |error| own.in_arm(error);
        if let Some(note) = without_adapter(own, &config) {
            sink(&Event::Note(note));
        }
        let read = |&task: &Task| {
            let load = || load(task, &data_dir, &backbone, &config, own.profile);
            tasks.get(place, task, load).map_err(in_arm)
        };
        let loaded = own.tasks.iter().map(read).collect::<Result<Vec<_>>>()?;
        for (task, note) in loaded.iter().map(|found| (found.task, &found.data.note)) {
            if !note.is_empty() {
                sink(&Event::Note(format!("{}: {note}", task.display_name())));
            }
        }
        let mut own_runs = experiment_runs(own)?;
        if let (Some(device), Some(task)) = (device, loaded.first()) {
            check_methods(&config, &backbone, device, task, &own_runs).map_err(in_arm)?;
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
        let experiment = Experiment {
            arm: own.arm.clone(),
            preset: own.preset.name().to_owned(),
            matching: matching(own)?,
            settings,
            data: data.collect(),
            config,
        };
        let sizes = Sizes::new(&backbone.architecture, &experiment.config);
        experiment.complete(&mut own_runs, place, &sizes).map_err(in_arm)?;
        runs.extend(own_runs);
        experiments.push(experiment);
    }
    number(&mut runs);
    top.begin(&whole)?;
    top.warnings().into_iter().for_each(|text| sink(&Event::Note(text)));
    let mut places = folders.iter_mut().zip(&experiments);
    places.try_for_each(|(folder, experiment)| folder.begin(&experiment.settings))?;
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
    let mut seen: Vec<MethodName> = Vec::new();
    let mut model = None;
    for run in runs.iter().filter(|run| !run.is_combined()) {
        if seen.contains(&run.method) {
            continue;
        }
        seen.push(run.method);
        let start = RunStart {
            config,
            backbone,
            task: &task.prepared,
            method: run.method,
            request: RankRequest::Initial,
            seed: run.seed,
            device,
        };
        let loaded = match model.take() {
            Some(loaded) => loaded,
            None => start.load()?,
        };
        model = Some(loaded.clone());
        start.attached(loaded)?;
    }
    Ok(())
}

/// A note on the methods and tasks whose runs leave no adapter although adapters are kept.
fn without_adapter(options: &SuiteOptions, config: &Config) -> Option<String> {
    let methods = options.methods.iter().filter(|method| !method.can().saved);
    let tasks = options.tasks.iter().filter(|task| !is_saved(**task, config));
    let names =
        methods.map(ToString::to_string).chain(tasks.map(|task| task.display_name().to_owned()));
    let names: Vec<String> = names.collect();
    (options.keep && !names.is_empty())
        .then(|| format!("results only, no adapter is saved: {}", names.join(", ")))
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

#[derive(Clone, Debug, Serialize)]
pub struct DryRun {
    pub suite: String,
    pub profile: String,
    pub device: String,
    pub model: PlannedModel,
    pub modules: usize,
    /// Every method once, in the order of the tables.
    pub methods: Vec<PlannedMethod>,
    /// Estimated memory at the peak of the largest method.
    pub memory: PlannedMemory,
    pub runs: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wording: BTreeMap<String, Wording>,
    pub settings: Config,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedModel {
    pub name: String,
    pub layers: usize,
    pub hidden: usize,
    pub parameters: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedMethod {
    pub method: String,
    /// Trained parameters before pruning; of an ensemble those of all members.
    pub parameters: usize,
    /// Trainings that no earlier row has made.
    pub trainings: usize,
    /// Optimizer steps of one of them, those of a refinement included.
    pub steps: usize,
}

impl DryRun {
    /// Plans `options` without data and weights. Reads the `config.json` of a named model, and nothing for the model of the
    /// paper's profile.
    pub fn new(options: SuiteOptions) -> Result<Self> {
        let options = options.resolved()?;
        let location = match (&options.model, options.profile) {
            (Some(name), _) => Some(locate_config(name)?),
            (None, Profile::Quick) => Some(options.suite.model(options.profile)?),
            (None, Profile::Paper) => None,
        };
        let published = |name: &str| format!("{name}, sizes as published");
        let (name, architecture) = match (location, options.suite) {
            (Some(location), _) => (location.name, Architecture::read(&location.folder)?),
            (None, Suite::Glue) => (published("DeBERTa-v3-base"), Architecture::deberta_v3_base()?),
            (None, Suite::Reasoning) => (published("Llama-2-7B"), Architecture::llama_2_7b()?),
        };
        let config = options.config(&architecture)?;
        let sizes = Sizes::new(&architecture, &config);
        let mut runs = experiment_runs(&options)?;
        for run in &mut runs {
            run.measure(&config, &sizes)?;
        }
        let mut methods: Vec<PlannedMethod> = Vec::new();
        let mut counted: Vec<&str> = Vec::new();
        // Of one run: members of an ensemble are trained one after another.
        let mut largest = 0;
        for run in runs.iter().filter(|run| !run.is_member) {
            let trained: Vec<&PlannedRun> =
                if run.is_combined() { needed(&runs, run).collect() } else { vec![run] };
            let parameters = trained.iter().map(|run| sizes.trained(run.method, None));
            let parameters: Vec<usize> = parameters.collect::<Result<_>>()?;
            largest = largest.max(parameters.iter().max().copied().unwrap_or(0));
            let steps = trained.first().map_or(0, |run| run.steps);
            let new = trained.iter().map(|run| run.id.as_str());
            let new: Vec<&str> = new.filter(|id| !counted.contains(id)).collect();
            let name = run.method.name();
            match methods.iter_mut().find(|row| row.method == name) {
                Some(row) => row.trainings += new.len(),
                None => methods.push(PlannedMethod {
                    method: name,
                    parameters: parameters.iter().sum(),
                    trainings: new.len(),
                    steps,
                }),
            }
            counted.extend(new);
        }
        let described = |run: &PlannedRun| {
            let note = match run {
                run if run.is_combined() => " (from other runs)",
                run if run.is_member => " (member)",
                _ => "",
            };
            run.label() + note
        };
        let backbone::Sizes { layers, hidden, .. } = architecture.sizes();
        Ok(Self {
            suite: options.suite.name().to_owned(),
            profile: options.profile.name().to_owned(),
            device: options.device.clone(),
            modules: sizes.layers.len(),
            methods,
            memory: sizes.memory(largest),
            runs: runs.iter().map(described).collect(),
            wording: options.wordings(&config, &architecture)?,
            model: PlannedModel { name, layers, hidden, parameters: architecture.parameters() },
            settings: config,
        })
    }

    pub fn render_text(&self) -> Result<String> {
        let width = self.methods.iter().map(|row| row.method.len()).max().unwrap_or(0).max(6);
        let head =
            format!("{:width$}  {:>19}  trainings  steps each", "method", "parameters, at most");
        let rows = self.methods.iter().map(|row| {
            let count = grouped(row.parameters as u64, ',');
            let steps = grouped(row.steps as u64, ',');
            format!("{:width$}  {count:>19}  {:>9}  {steps:>10}", row.method, row.trainings)
        });
        let wording = |(task, own): (&String, &Wording)| format!("{task}: {}\n", own.describe());
        let values = context! {
            plan => Serde(self),
            trainings => self.methods.iter().map(|row| row.trainings).sum::<usize>(),
            steps => self.methods.iter().map(|row| row.trainings * row.steps).sum::<usize>(),
            methods => std::iter::once(head).chain(rows).collect::<Vec<_>>(),
            wordings => self.wording.iter().map(wording).collect::<String>(),
        };
        Ok(templates()?.render_str(include_str!("dry_run.txt.jinja"), values)?)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct ArmsDryRun {
    pub arms: Vec<(String, DryRun)>,
}

impl ArmsDryRun {
    pub fn new(arms: &Arms, options: &SuiteOptions) -> Result<Self> {
        let plan = |options: SuiteOptions| {
            let plan = DryRun::new(options.clone()).map_err(|error| options.in_arm(error))?;
            Ok((options.arm.unwrap_or_default(), plan))
        };
        let plans = arms.experiments(options)?.into_iter().map(plan);
        Ok(Self { arms: plans.collect::<Result<_>>()? })
    }

    pub fn render_text(&self) -> String {
        let runs = |plan: &DryRun| plan.runs.iter().map(|run| format!("  {run}")).collect();
        let arm = |(name, plan): &(String, DryRun)| [vec![name.clone()], runs(plan)].concat();
        self.arms.iter().flat_map(arm).map(|line| line + "\n").collect()
    }
}
