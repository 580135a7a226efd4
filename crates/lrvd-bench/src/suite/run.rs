//! All runs of an experiment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lrvd_burn::device;
use lrvd_burn::files::AtomicDir;
use lrvd_burn::parameters::trainable_counts;

use super::clock::now;
use super::elsewhere::Elsewhere;
use super::ensemble::combine;
use super::kind::Suite;
use super::one_run::{Position, Shared, completed, run_one};
use super::options::SuiteOptions;
use super::plan::{Plan, PlannedRun};
use super::settings;
use super::summary::write_summary;
use super::task::ReadyTask;
use crate::backbone::{Backbone, locate_model};
use crate::classify::{RunStart, open_settings};
use crate::data::generate::{GenerateConfig, write_all};
use crate::error::BenchError;
use crate::eval::PreparedTask;
use crate::experiment::ExperimentConfig;
use crate::method::{Build, MethodName, RankRequest};
use crate::progress::{Event, ProgressSink};
use crate::reasoning;
use crate::reasoning::generate::ReasoningGenerateConfig;
use crate::report::{ModelRecord, Published, Results, RunRecord, SCHEMA_VERSION, Tool};

/// How an experiment ended.
#[derive(Clone, Debug)]
pub struct SuiteOutcome {
    /// Whether every run is complete; otherwise `--resume` goes on.
    pub complete: bool,
    /// The headline table as text.
    pub table: String,
    /// The comparison with published numbers as text.
    pub comparison: Option<String>,
    /// The report page.
    pub report: PathBuf,
}

/// Resolved settings of `options` for a model.
///
/// # Errors
///
/// [`BenchError`] for settings out of range.
pub fn resolve_config(
    options: &SuiteOptions,
    backbone: &Backbone,
) -> Result<ExperimentConfig, BenchError> {
    let mut config = options.profile.shorten(options.suite, options.preset.config());
    if let Some(steps) = options.steps {
        config.evaluate_every = config.evaluate_every.min(steps);
        config.steps = steps;
    }
    if let Some(draws) = &options.draws {
        config.draws.clone_from(draws);
    }
    // A preset is written for one architecture; on the other its targets have other names.
    config.target_modules = backbone.target_modules(&config.target_modules);
    config.check()?;
    Ok(config)
}

/// Opens the model that `options` name.
///
/// # Errors
///
/// [`BenchError`] naming what is missing.
pub fn open_backbone(options: &SuiteOptions) -> Result<Backbone, BenchError> {
    Backbone::open(match &options.model {
        Some(name) => locate_model(name)?,
        None => options.suite.model(options.profile)?,
    })
}

/// Runs the experiment, writing everything below `options.out`.
///
/// # Errors
///
/// [`BenchError`]; what was finished before stays on disk and `--resume` goes on from there.
pub fn run_suite(
    options: SuiteOptions,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<SuiteOutcome, BenchError> {
    let options = options.resolved()?;
    let device = device::open(&options.device)?;
    let published = options.compare.as_deref().map(Published::read).transpose()?;
    let backbone = open_backbone(&options)?;
    let config = resolve_config(&options, &backbone)?;
    let settings = settings::resolved(&options, &config, &backbone);
    open_settings(&options.out, options.resume, &settings)?;
    let started_at = now();

    let data_dir = match &options.data_dir {
        Some(folder) => folder.clone(),
        None => generated_data(&options, sink)?,
    };
    let plan = Plan::new(&options);
    // Matching belongs to the paper's first table; beside other methods everything has one rank.
    let first_table = |m: &MethodName| MethodName::FIRST_TABLE.contains(m);
    let matches = options.suite.matches_ranks() && options.methods.iter().all(first_table);
    let shared =
        Shared { config: &config, backbone: &backbone, device: &device, out: &options.out, stop };
    let (mut records, mut data) = (Vec::new(), BTreeMap::new());
    let rows = options.profile.validation_rows(options.suite);
    let mut finished = true;
    for &task in &options.tasks {
        let ready = task.prepare(&data_dir, &backbone, &config, rows)?;
        data.insert(task.key().to_owned(), ready.data.clone());
        let elsewhere = elsewhere(&ready, &data_dir, &backbone, rows, sink)?;
        let mut runs = TaskRuns {
            shared: &shared,
            plan: &plan,
            matches,
            ready: &ready,
            elsewhere,
            done: Vec::new(),
        };
        finished = runs.run(sink)?;
        let rows = runs.done.into_iter().filter(|(run, _)| !run.is_member);
        records.extend(rows.map(|(_, record)| record));
        if !finished {
            break;
        }
    }
    let complete = finished && records.len() == plan.runs.iter().filter(|r| !r.is_member).count();
    let results = Results {
        schema_version: SCHEMA_VERSION,
        suite: options.suite.name().to_owned(),
        tool: Tool {
            name: "lrvd".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git_revision: std::env::var("LRVD_GIT_REVISION").ok().filter(|r| !r.is_empty()),
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
    let written = write_summary(&options.out, &results, published.as_ref())?;
    Ok(SuiteOutcome {
        complete,
        table: written.table,
        comparison: written.comparison,
        report: written.report,
    })
}

/// The runs of one task while they are made.
struct TaskRuns<'a> {
    shared: &'a Shared<'a>,
    plan: &'a Plan,
    /// Whether LoRA and AdaLoRA get BayesLoRA's rank.
    matches: bool,
    ready: &'a ReadyTask,
    elsewhere: Vec<Elsewhere>,
    done: Vec<(PlannedRun, RunRecord)>,
}

impl TaskRuns<'_> {
    /// Makes all of them; `false` if stopped before the last.
    fn run(&mut self, sink: &mut dyn ProgressSink) -> Result<bool, BenchError> {
        let runs = self.plan.runs.len();
        let own: Vec<(usize, PlannedRun)> = self
            .plan
            .runs
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, run)| run.task == self.ready.task)
            .collect();
        for (at, (index, run)) in own.iter().enumerate() {
            let position = Position { index: index + 1, runs };
            let record = match completed(self.shared.out, run)? {
                Some(record) => record,
                None if !run.parts().is_empty() => self.combined(run)?,
                None => {
                    let request = self.request(run);
                    let (shared, ready) = (self.shared, self.ready);
                    match run_one(shared, ready, &self.elsewhere, run, request, position, sink)? {
                        Some(record) => record,
                        None => return Ok(false),
                    }
                }
            };
            self.done.push((*run, record));
            if self.shared.stop.load(Ordering::Relaxed) && at + 1 < own.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A row made of the runs before it.
    fn combined(&self, run: &PlannedRun) -> Result<RunRecord, BenchError> {
        let parts: Vec<(PlannedRun, RunRecord)> = run
            .parts()
            .iter()
            .filter_map(|part| self.done.iter().find(|(done, _)| done == part).cloned())
            .collect();
        let target = match run.method.entry().build {
            Build::Matched { like, .. } => Some(self.parameters_of(like, run.seed)?),
            _ => None,
        };
        combine(self.shared.out, self.ready, run, &parts, target)
    }

    /// Adapter parameters of the method called `key`, by attaching it.
    fn parameters_of(&self, key: &str, seed: u64) -> Result<u64, BenchError> {
        let method = MethodName::from_name(key)
            .ok_or_else(|| BenchError::NotOneRun { method: key.to_owned() })?;
        let start = start(self.shared, &self.ready.prepared, method, seed);
        let counts = trainable_counts(&mut start.fresh()?.state.model);
        Ok((counts.adapter + counts.posterior) as u64)
    }

    /// The rank that a run is asked for, given the finished runs before it.
    ///
    /// AdaLoRA takes each BayesLoRA seed's average rank; LoRA takes the lower median of those, one
    /// uniform rank for all seeds.
    fn request(&self, run: &PlannedRun) -> RankRequest {
        let half = RankRequest::Average((self.shared.config.initial_rank / 2).max(1));
        if !self.matches {
            return if run.method == MethodName::ADALORA { half } else { RankRequest::Initial };
        }
        let matched = |seed: Option<u64>| -> Vec<usize> {
            self.done
                .iter()
                .filter(|(done, _)| {
                    done.method == MethodName::BAYES_LORA && seed.is_none_or(|s| done.seed == s)
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
        if run.method == MethodName::ADALORA {
            // Nothing to match: the customary half of the initial rank.
            return matched(Some(run.seed)).first().map_or(half, |&r| RankRequest::Average(r));
        }
        if run.method == MethodName::LORA {
            let mut all = matched(None);
            all.sort_unstable();
            let median = all.get(all.len().saturating_sub(1) / 2);
            return median.map_or(RankRequest::Initial, |&r| RankRequest::Average(r));
        }
        RankRequest::Initial
    }
}

fn start<'a>(
    shared: &Shared<'a>,
    task: &'a PreparedTask,
    method: MethodName,
    seed: u64,
) -> RunStart<'a> {
    RunStart {
        config: shared.config,
        backbone: shared.backbone,
        task,
        method,
        request: RankRequest::Initial,
        seed,
        device: shared.device,
    }
}

/// The other sets that models of `ready` are shown; a set that is not there is left out, and said so.
fn elsewhere(
    ready: &ReadyTask,
    data_dir: &Path,
    backbone: &Backbone,
    rows: Option<usize>,
    sink: &mut dyn ProgressSink,
) -> Result<Vec<Elsewhere>, BenchError> {
    let mut found = Vec::new();
    for &set in Elsewhere::sets(ready) {
        match reasoning::load(data_dir, set) {
            Ok(data) => found.extend(Elsewhere::new(ready, &data, backbone, rows)?),
            Err(error) => {
                let name = set.display_name();
                sink.event(&Event::Note(format!("no answers to {name} questions: {error}")));
            }
        }
    }
    Ok(found)
}

/// Writes the generated tasks once into the output folder.
fn generated_data(
    options: &SuiteOptions,
    sink: &mut dyn ProgressSink,
) -> Result<PathBuf, BenchError> {
    if options.profile == super::Profile::Paper {
        let wanted = match options.suite {
            Suite::Glue => "CoLA, MNLI, MRPC, QNLI, QQP, RTE and SST-2",
            Suite::Reasoning => "WinoGrande, ARC, OpenBookQA and BoolQ",
        };
        return Err(BenchError::Model {
            model: "--data-dir".to_owned(),
            reason: format!(
                "the paper profile needs the data: pass the folder that holds {wanted} in their \
                 original layouts"
            ),
        });
    }
    let folder = options.out.join("data");
    if !folder.is_dir() {
        sink.event(&Event::Note(format!("writing generated tasks to {}", folder.display())));
        let building = AtomicDir::create(&folder)?;
        match options.suite {
            Suite::Glue => drop(write_all(building.path(), &GenerateConfig::default())?),
            Suite::Reasoning => {
                let config = ReasoningGenerateConfig::default();
                reasoning::generate::write_all(building.path(), &config)?;
            }
        }
        building.commit()?;
    }
    Ok(folder)
}

fn model_record(backbone: &Backbone) -> ModelRecord {
    ModelRecord {
        name: backbone.location.name.clone(),
        path: backbone.location.folder.display().to_string(),
        weights: backbone.hashes.clone(),
        parameters: backbone.parameters(),
        notes: vec!["parameters: embeddings and layers, without a head of the task".to_owned()],
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
        notes.push("the experiment was interrupted; `--resume` goes on".to_owned());
    }
    notes
}

/// The plan of an experiment, as text, without training anything.
///
/// # Errors
///
/// [`BenchError`] for settings out of range or a model that cannot be opened.
pub fn planned(options: SuiteOptions) -> Result<String, BenchError> {
    let options = options.resolved()?;
    let backbone = open_backbone(&options)?;
    let config = resolve_config(&options, &backbone)?;
    Ok(super::dry_run::describe(&options, &config, &backbone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_has_a_key_of_its_own() {
        let tasks =
            [Suite::Glue, Suite::Reasoning].map(|s| s.tasks(super::super::Profile::Paper, true));
        let mut keys: Vec<&str> = tasks.iter().flatten().map(|t| t.key()).collect();
        let n = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), n);
    }
}
