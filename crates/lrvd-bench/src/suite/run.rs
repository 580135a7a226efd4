//! All runs of an experiment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use lrvd_burn::device;
use lrvd_burn::files::AtomicDir;

use super::kind::{Profile, Suite};
use super::one_run::{OodSet, Rows, Shared, completed, folder as run_folder, run_one};
use super::options::SuiteOptions;
use super::plan::{DryRun, Plan, PlannedRun};
use super::summary::{data_files, now, resolved, write_summary};
use super::task::{ReadyTask, is_kept, prepare};
use crate::backbone::{Architecture, Backbone, locate_config, locate_model};
use crate::data::{PreparedTask, load, quick};
use crate::error::{Kind, Result, kind_of};
use crate::method::{MethodName, RankRequest};
use crate::progress::{Event, ProgressSink};
use crate::record::{ModelRecord, Results, RunRecord, SCHEMA_VERSION, Tool};
use crate::report::{Published, RowScores};
use crate::run::{OutputFolder, still_there, summary};
use crate::settings::{BasePrecision, Config, Layers};
use crate::text::quoted;

#[derive(Clone, Debug)]
pub struct SuiteOutcome {
    /// Whether every run is complete; otherwise `--resume` continues.
    pub complete: bool,
    pub finished: usize,
    pub planned: usize,
    /// The headline table as text; `None` before the first row.
    pub table: Option<String>,
    pub comparison: Option<String>,
    /// What the runs showed, in words: a sentence or two for every task.
    pub verdict: Vec<String>,
    pub report: PathBuf,
    pub results: Results,
    pub(super) rows: RowScores,
}

/// Resolved settings of `options` for a model: preset, profile, what the model's kind asks for, then the
/// user's own.
fn resolve_config(options: &SuiteOptions, architecture: &Architecture) -> Result<Config> {
    let mut config = options.profile.shorten(options.suite, options.preset.config());
    if let Some(steps) = options.steps {
        config.evaluate_every = config.evaluate_every.min(steps);
        config.steps = steps;
    }
    if let Some(draws) = &options.draws {
        config.draws.clone_from(draws);
    }
    // A preset is written for one architecture; on the other its targets have other names, and an
    // encoder is held in single precision.
    config.target_modules = architecture.target_modules(&config.target_modules);
    match (options.suite, architecture) {
        (_, Architecture::Deberta(_)) => config.base_precision = BasePrecision::F32,
        (Suite::Glue, Architecture::Llama(_)) => {
            // A profile's rate and length are those of a tiny encoder and of texts without a question.
            let preset = options.preset.config();
            config.learning_rate = preset.learning_rate;
            config.max_length = preset.max_length;
        }
        (Suite::Reasoning, Architecture::Llama(_)) => {}
    }
    let layers = Layers::over(&config)?;
    let config =
        layers.apply(&options.patches, options.config.as_deref(), &options.set)?.finish()?;
    if let Some(key) = config.wording.given() {
        let several = options.tasks.len() > 1;
        let reason = match options.suite {
            Suite::Glue if several => "it words one task, and several are run",
            Suite::Glue => return Ok(config),
            Suite::Reasoning => "reasoning sets are asked by the prompts of `prompt`",
        };
        bail!("setting `{key}` is set: {reason}");
    }
    Ok(config)
}

fn open_backbone(options: &SuiteOptions) -> Result<Backbone> {
    let location = match &options.model {
        Some(name) => locate_model(name)?,
        None => options.suite.model(options.profile)?,
    };
    Backbone::open(location)
}

pub fn run_suite(
    options: SuiteOptions,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<SuiteOutcome> {
    let options = options.resolved()?;
    options.check_data()?;
    let device = device::open(&options.device)?;
    let published = options.compare.as_deref().map(Published::read).transpose()?;
    let backbone = open_backbone(&options)?;
    let config = resolve_config(&options, &backbone.architecture)?;
    let mut settings = resolved(&options, &config, &backbone)?;
    let mut folder = OutputFolder::look(&options.out, options.resume)?;
    folder.check(&settings)?;
    let started_at = now();
    for note in ignored(&backbone).into_iter().chain(lost(&options, &config)) {
        sink.event(&Event::Note(note));
    }

    let data_dir = match &options.data_dir {
        Some(folder) => folder.clone(),
        None => generated_data(options.suite, &mut folder, sink)?,
    };
    // All before the first run: a file that cannot be used must not end hours of training.
    let ready = options
        .tasks
        .iter()
        .map(|task| {
            let mut ready = prepare(*task, &data_dir, &backbone, &config, options.profile)?;
            let ood = ood_sets(&mut ready, &data_dir, &backbone, &config, options.profile)?;
            if !ready.data.note.is_empty() {
                let note = format!("{}: {}", task.display_name(), ready.data.note);
                sink.event(&Event::Note(note));
            }
            Ok((ready, ood))
        })
        .collect::<Result<Vec<_>>>()?;
    settings["data_files"] = data_files(ready.iter().map(|(ready, _)| ready));
    let plan = Plan::new(&options);
    // Matching belongs to the paper's first table; beside other methods everything has one rank.
    let first_table = |m: &MethodName| MethodName::FIRST_TABLE.contains(m);
    let matches = options.suite.matches_ranks() && options.methods.iter().all(first_table);
    let out = options.out.as_path();
    let shared = Shared {
        config: &config,
        backbone: &backbone,
        device: &device,
        device_name: &options.device,
        out,
        matches,
        stop,
        keep: options.keep,
    };
    if let Some((first, _)) = ready.first() {
        check_methods(&shared, &first.prepared, &plan)?;
    }
    folder.begin(&settings)?;
    let (mut records, mut rows, mut data) = (Vec::new(), RowScores::default(), BTreeMap::new());
    let mut finished = true;
    for (ready, ood) in ready {
        data.insert(ready.task.name().to_owned(), ready.data.clone());
        let mut runs =
            TaskRuns { shared: &shared, plan: &plan, ready: &ready, ood, done: Vec::new() };
        finished = runs.run(sink)?;
        for (run, record) in runs.done.into_iter().filter(|(run, _)| !run.is_member) {
            rows.read(&run_folder(out, &run), &record.task, &record.method, record.seed)?;
            records.push(record);
        }
        if !finished {
            break;
        }
    }
    let planned = plan.runs.iter().filter(|r| !r.is_member).count();
    let complete = finished && records.len() == planned;
    let results = Results {
        schema_version: SCHEMA_VERSION,
        suite: options.suite.name().to_owned(),
        tool: Tool {
            name: "lrvd".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git_revision: options.git_revision.clone(),
        },
        profile: options.profile.name().to_owned(),
        preset: options.preset.name().to_owned(),
        command: options.command.clone(),
        device: options.device.clone(),
        started_at,
        finished_at: now(),
        config: settings,
        model: model_record(&backbone),
        data,
        runs: records,
        notes: notes(complete),
    };
    folder.still_there()?;
    let written = write_summary(&options.out, &results, &rows, published.as_ref(), None)?;
    Ok(SuiteOutcome {
        complete,
        finished: results.runs.len(),
        planned,
        table: written.table,
        comparison: written.comparison,
        verdict: written.verdict,
        report: written.report,
        results,
        rows,
    })
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

/// The runs of one task while they are made.
struct TaskRuns<'a> {
    shared: &'a Shared<'a>,
    plan: &'a Plan,
    ready: &'a ReadyTask,
    ood: Vec<OodSet>,
    done: Vec<(PlannedRun, RunRecord)>,
}

impl TaskRuns<'_> {
    fn run(&mut self, sink: &mut dyn ProgressSink) -> Result<bool> {
        let runs = self.plan.runs.len();
        let own: Vec<(usize, PlannedRun)> = self
            .plan
            .runs
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, run)| run.task == self.ready.task)
            .collect();
        for (index, run) in &own {
            let position = (index + 1, runs);
            still_there(self.shared.out)?;
            let record = match completed(self.shared.out, run)? {
                Some(record) => {
                    // A kill at the end of a run leaves no last line of its metrics. A row made of others has no lines.
                    if run.parts().is_empty() {
                        let summary = summary(&record, &self.ready.prepared.goal);
                        let (label, seconds) = (run.label(), record.train_seconds);
                        sink.event(&Event::RunFinished { label, summary, seconds });
                    }
                    record
                }
                None if !run.parts().is_empty() => self.combined(run)?,
                None => {
                    let request = self.request(run);
                    let (shared, ready) = (self.shared, self.ready);
                    match run_one(shared, ready, &self.ood, run, request, position, sink)? {
                        Some(record) => record,
                        None => return Ok(false),
                    }
                }
            };
            self.done.push((*run, record));
            if self.shared.stop.load(Ordering::Relaxed) && index + 1 < runs {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A row made of the runs before it.
    fn combined(&self, run: &PlannedRun) -> Result<RunRecord> {
        let parts: Vec<(PlannedRun, RunRecord)> = run
            .parts()
            .iter()
            .filter_map(|part| self.done.iter().find(|(done, _)| done == part).cloned())
            .collect();
        let rows = Rows { out: self.shared.out, task: self.ready, ood: &self.ood };
        rows.combine(run, &parts)
    }

    /// The rank that a run is asked for, given the finished runs before it.
    ///
    /// AdaLoRA takes each BayesLoRA seed's average rank; LoRA takes the lower median of those, one
    /// uniform rank for all seeds.
    fn request(&self, run: &PlannedRun) -> RankRequest {
        let half = RankRequest::Average((self.shared.config.initial_rank / 2).max(1));
        let can = run.method.can();
        if !self.shared.matches {
            return if can.budget { half } else { RankRequest::Initial };
        }
        let matched = |seed: Option<u64>| -> Vec<usize> {
            self.done
                .iter()
                .filter(|(done, _)| {
                    let can = done.method.can();
                    can.prunes && !can.budget && seed.is_none_or(|s| done.seed == s)
                })
                .filter_map(|(_, record)| {
                    let last = record.checkpoints.last.as_ref()?;
                    let modules = record.rank_budget.n_modules as usize;
                    match MethodName::matched_to(last.total_rank as usize, modules) {
                        RankRequest::Average(rank) => Some(rank),
                        RankRequest::Initial => None,
                    }
                })
                .collect()
        };
        if can.budget {
            // Nothing to match: the customary half of the initial rank.
            return matched(Some(run.seed)).first().map_or(half, |&r| RankRequest::Average(r));
        }
        if !can.prunes {
            let mut all = matched(None);
            all.sort_unstable();
            let median = all.get(all.len().saturating_sub(1) / 2);
            return median.map_or(RankRequest::Initial, |&r| RankRequest::Average(r));
        }
        RankRequest::Initial
    }
}

/// Attaches every method of `plan` once to one copy of the model: settings that one of them rejects
/// must not end hours of the others' training.
fn check_methods(shared: &Shared<'_>, task: &PreparedTask, plan: &Plan) -> Result<()> {
    let mut seen: Vec<MethodName> = Vec::new();
    let mut model = None;
    for run in plan.runs.iter().filter(|run| run.parts().is_empty()) {
        if seen.contains(&run.method) {
            continue;
        }
        seen.push(run.method);
        let start = shared.start(task, run.method, run.seed);
        let loaded = match model.take() {
            Some(loaded) => loaded,
            None => start.load()?,
        };
        model = Some(loaded.clone());
        start.attached(loaded)?;
    }
    Ok(())
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
        let notes = match load(data_dir, set, None) {
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

fn notes(complete: bool) -> Vec<String> {
    let mut notes = vec![
        "k = 0 is a method's deterministic answer (the posterior mean where there is one); k draws \
         average probabilities over fixed keyed draws"
            .to_owned(),
        "last and best checkpoint are separate; each one's ranks and metrics belong together"
            .to_owned(),
    ];
    if !complete {
        notes.push("the experiment was interrupted; `--resume` continues it".to_owned());
    }
    notes
}

/// What `options` would train. Reads the model's `config.json` at most, and nothing where the paper's
/// own model is meant.
pub fn planned(options: SuiteOptions) -> Result<DryRun> {
    let options = options.resolved()?;
    let (name, architecture) = match (&options.model, options.profile) {
        (Some(name), _) => {
            let location = locate_config(name)?;
            (location.name, Architecture::read(&location.folder)?)
        }
        (None, Profile::Paper) => options.suite.published_sizes()?,
        (None, Profile::Quick) => {
            let location = options.suite.model(options.profile)?;
            (location.name, Architecture::read(&location.folder)?)
        }
    };
    let config = resolve_config(&options, &architecture)?;
    DryRun::new(&options, config, name, &architecture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_has_a_key_of_its_own() {
        let tasks = [Suite::Glue, Suite::Reasoning].map(|s| s.tasks(Profile::Paper, true));
        let mut keys: Vec<&str> = tasks.iter().flatten().map(|t| t.name()).collect();
        let n = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), n);
    }
}
