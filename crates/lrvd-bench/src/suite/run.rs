//! All runs of an experiment, and the files that sum them up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lrvd_burn::device;
use lrvd_burn::files::AtomicDir;

use super::clock::now;
use super::one_run::{Position, Shared, completed, run_one};
use super::options::GlueOptions;
use super::plan::{Plan, PlannedRun};
use super::settings;
use crate::backbone::{Backbone, locate_model};
use crate::classify::open_settings;
use crate::data::generate::{GenerateConfig, write_all};
use crate::data::{Dataset, Split, load};
use crate::error::BenchError;
use crate::eval::PreparedTask;
use crate::experiment::ExperimentConfig;
use crate::method::{MethodName, RankRequest};
use crate::progress::{Event, ProgressSink};
use crate::report::{
    CheckpointChoice, Comparison, DataFile, DataOrigin, JsonLines, ModelRecord, Published,
    RankLine, Results, RunRecord, SCHEMA_VERSION, SplitRecord, Summary, TaskData, Tool, compare,
    headline_metrics, render_csv, render_markdown, render_text, write_html, write_results,
    write_text,
};
use crate::task::GlueTask;

/// How an experiment ended.
#[derive(Clone, Debug)]
pub struct GlueOutcome {
    /// Whether every run is complete; otherwise `--resume` goes on.
    pub complete: bool,
    /// The headline table as text.
    pub table: String,
    /// The comparison with published numbers as text.
    pub comparison: Option<String>,
    /// The report page.
    pub report: PathBuf,
}

/// Resolved settings of `options`.
///
/// # Errors
///
/// [`BenchError`] for settings out of range.
pub fn resolve_config(options: &GlueOptions) -> Result<ExperimentConfig, BenchError> {
    let mut config = options.profile.shorten(options.preset.config());
    if let Some(steps) = options.steps {
        config.evaluate_every = config.evaluate_every.min(steps);
        config.steps = steps;
    }
    config.check()?;
    Ok(config)
}

/// Opens the model that `options` name.
///
/// # Errors
///
/// [`BenchError`] naming what is missing.
pub fn open_backbone(options: &GlueOptions) -> Result<Backbone, BenchError> {
    Backbone::open(match &options.model {
        Some(name) => locate_model(name)?,
        None => options.profile.model()?,
    })
}

/// Runs the experiment, writing everything below `options.out`.
///
/// # Errors
///
/// [`BenchError`]; what was finished before stays on disk and `--resume` goes on from there.
pub fn run_glue(
    options: GlueOptions,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<GlueOutcome, BenchError> {
    let options = options.resolved()?;
    let device = device::open(&options.device)?;
    let config = resolve_config(&options)?;
    let published = options.compare.as_deref().map(Published::read).transpose()?;
    let backbone = open_backbone(&options)?;
    let settings = settings::resolved(&options, &config, &backbone);
    open_settings(&options.out, options.resume, &settings)?;
    let started_at = now();

    let data_dir = match &options.data_dir {
        Some(folder) => folder.clone(),
        None => generated_data(&options, sink)?,
    };
    let plan = Plan::new(&options);
    let shared =
        Shared { config: &config, backbone: &backbone, device: &device, out: &options.out, stop };
    let (mut records, mut data) = (Vec::new(), BTreeMap::new());
    let mut complete = true;
    for &task in &options.tasks {
        let mut dataset = load(&data_dir, task)?;
        let note = limit(&mut dataset, options.profile.validation_rows());
        data.insert(task.spec().name.to_owned(), task_data(&dataset, note));
        let prepared = PreparedTask::new(&dataset, &backbone.tokenizer, config.max_length)?;
        complete &= run_task(&shared, &plan, task, &prepared, &mut records, sink)?;
        if !complete || stop.load(Ordering::Relaxed) {
            complete = records.len() == plan.runs.len();
            break;
        }
    }
    let results = Results {
        schema_version: SCHEMA_VERSION,
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
    summarise(&options.out, &results, published.as_ref(), complete)
}

/// All runs of one task, in the order that rank matching needs; `false` if stopped.
fn run_task(
    shared: &Shared<'_>,
    plan: &Plan,
    task: GlueTask,
    prepared: &PreparedTask,
    records: &mut Vec<RunRecord>,
    sink: &mut dyn ProgressSink,
) -> Result<bool, BenchError> {
    let runs = plan.runs.len();
    for (i, run) in plan.runs.iter().enumerate().filter(|(_, r)| r.task == task) {
        let record = match completed(shared.out, run)? {
            Some(record) => record,
            None => {
                let request = request(run, shared.config, records);
                let position = Position { index: i + 1, runs };
                match run_one(shared, prepared, run, request, position, sink)? {
                    Some(record) => record,
                    None => return Ok(false),
                }
            }
        };
        records.push(record);
        if shared.stop.load(Ordering::Relaxed) {
            return Ok(i + 1 == runs);
        }
    }
    Ok(true)
}

/// The rank that a run is asked for, given the finished runs before it.
///
/// AdaLoRA takes each BayesLoRA seed's average rank; LoRA takes the lower median of those, one
/// uniform rank for all seeds.
fn request(run: &PlannedRun, config: &ExperimentConfig, records: &[RunRecord]) -> RankRequest {
    let matched = |seed: Option<u64>| -> Vec<usize> {
        records
            .iter()
            .filter(|r| {
                r.task == run.task.spec().name
                    && r.method == MethodName::BayesLora.name()
                    && seed.is_none_or(|s| r.seed == s)
            })
            .filter_map(|r| {
                let last = r.checkpoints.last.as_ref()?;
                let modules = r.rank_budget.n_modules as usize;
                match MethodName::matched_to(last.total_rank as usize, modules) {
                    RankRequest::Average(rank) => Some(rank),
                    RankRequest::Initial => None,
                }
            })
            .collect()
    };
    match run.method {
        MethodName::BayesLora => RankRequest::Initial,
        MethodName::AdaLora => match matched(Some(run.seed)).first() {
            Some(&rank) => RankRequest::Average(rank),
            // Nothing to match: the customary half of the initial rank.
            None => RankRequest::Average((config.initial_rank / 2).max(1)),
        },
        MethodName::Lora => {
            let mut all = matched(None);
            all.sort_unstable();
            match all.get(all.len().saturating_sub(1) / 2) {
                Some(&rank) => RankRequest::Average(rank),
                None => RankRequest::Initial,
            }
        }
    }
}

/// Writes the generated tasks once into the output folder.
fn generated_data(
    options: &GlueOptions,
    sink: &mut dyn ProgressSink,
) -> Result<PathBuf, BenchError> {
    if options.profile == super::Profile::Paper {
        return Err(BenchError::Model {
            model: "--data-dir".to_owned(),
            reason: "the paper profile needs the GLUE data: pass the folder that holds CoLA, \
                     MNLI, MRPC, QNLI, QQP, RTE and SST-2 in their original layouts"
                .to_owned(),
        });
    }
    let folder = options.out.join("data");
    if !folder.is_dir() {
        sink.event(&Event::Note(format!("writing generated tasks to {}", folder.display())));
        let building = AtomicDir::create(&folder)?;
        write_all(building.path(), &GenerateConfig::default())?;
        building.commit()?;
    }
    Ok(folder)
}

/// Cuts the validation split to its first `rows` rows and says so.
fn limit(dataset: &mut Dataset, rows: Option<usize>) -> Option<String> {
    let rows = rows.filter(|&n| n < dataset.validation.examples.len())?;
    let all = dataset.validation.examples.len();
    dataset.validation.examples.truncate(rows);
    Some(format!("evaluated on the first {rows} of {all} validation rows"))
}

fn task_data(dataset: &Dataset, note: Option<String>) -> TaskData {
    use crate::data::Origin;
    let cut = note.is_some();
    let split = |split: &Split, cut: bool| SplitRecord {
        files: split
            .files
            .iter()
            .map(|f| DataFile { path: f.path.display().to_string(), sha256: f.sha256.clone() })
            .collect(),
        rows: split.rows() as u64,
        origin: match split.origin {
            Origin::Official if cut => DataOrigin::Subset,
            Origin::Official => DataOrigin::Official,
            Origin::LocalSplit => DataOrigin::LocalDev,
            Origin::Generated => DataOrigin::Generated,
            Origin::Subset | Origin::Unverified => DataOrigin::Subset,
        },
    };
    let mut notes = dataset.notes.clone();
    notes.extend(note);
    let standard = dataset.task.spec().standard_metrics.first().map_or("", |m| m.name());
    TaskData {
        train: split(&dataset.train, false),
        validation: split(&dataset.validation, cut),
        standard_metric: standard.to_owned(),
        note: notes.join("; "),
    }
}

fn model_record(backbone: &Backbone) -> ModelRecord {
    let c = &backbone.config;
    let d = c.hidden_size as u64;
    let layer = 4 * (d * d + d)
        + 2 * d * c.intermediate_size as u64
        + c.intermediate_size as u64
        + d
        + 4 * d;
    ModelRecord {
        name: backbone.location.name.clone(),
        path: backbone.location.folder.display().to_string(),
        weights: backbone.hashes.clone(),
        parameters: c.vocab_size as u64 * d + c.num_hidden_layers as u64 * layer,
        notes: vec!["parameters: word embeddings and encoder layers".to_owned()],
    }
}

fn notes(complete: bool) -> Vec<String> {
    let mut notes = vec![
        "k = 0 is the posterior mean; k draws average probabilities over fixed keyed weight draws"
            .to_owned(),
        "last and best checkpoint are separate; each one's ranks and metrics belong together"
            .to_owned(),
    ];
    if !complete {
        notes.push("the experiment was interrupted; `--resume` goes on".to_owned());
    }
    notes
}

/// Writes `results.json`, `ranks.jsonl`, the tables and the page.
fn summarise(
    out: &Path,
    results: &Results,
    published: Option<&Published>,
    complete: bool,
) -> Result<GlueOutcome, BenchError> {
    write_results(&out.join("results.json"), results)?;
    let mut lines = JsonLines::create(&out.join("ranks.jsonl"))?;
    for run in &results.runs {
        for event in &run.rank_events {
            lines.write(&RankLine {
                task: run.task.clone(),
                method: run.method.clone(),
                seed: run.seed,
                step: event.step,
                cause: event.cause,
                ranks: event.ranks.clone(),
                total_rank: event.total_rank,
            })?;
        }
    }
    lines.flush()?;
    let metrics = headline_metrics(results);
    let mut markdown = String::new();
    for choice in CheckpointChoice::BOTH {
        let summary = Summary::new(results, choice, &metrics);
        write_text(&out.join(format!("table-{}.csv", choice.name())), &render_csv(&summary))?;
        markdown.push_str(&render_markdown(&summary));
        markdown.push('\n');
    }
    let comparison: Option<Comparison> =
        published.map(|published| compare(results, published, CheckpointChoice::Last));
    if let Some(comparison) = &comparison {
        markdown.push_str(&comparison.render_markdown());
    }
    write_text(&out.join("table.md"), &markdown)?;
    let report = out.join("report.html");
    write_html(&report, results, comparison.as_ref())?;
    let summary = Summary::new(results, CheckpointChoice::Last, &metrics);
    Ok(GlueOutcome {
        complete,
        table: render_text(&summary),
        comparison: comparison.map(|c| c.render_text()),
        report,
    })
}

/// The plan of an experiment, as text, without training anything.
///
/// # Errors
///
/// [`BenchError`] for settings out of range or a model that cannot be opened.
pub fn planned(options: GlueOptions) -> Result<String, BenchError> {
    let options = options.resolved()?;
    let config = resolve_config(&options)?;
    let backbone = open_backbone(&options)?;
    let plan = Plan::new(&options);
    Ok(plan.describe(&options, &config, &backbone))
}
