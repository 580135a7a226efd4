//! Training of a language model into a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use lrvd_burn::device;
use lrvd_burn::files::AtomicDir;
use lrvd_burn::model::{AdaptedModel, AdapterTargets, ranks};
use lrvd_burn::peft::{ExportLayout, PeftAdapter, PeftPosterior};
use lrvd_burn::train::{
    self, Checkpoints, Evaluation, Observer, Ordered, Outcome, PassWatch, TrainState,
    latest_checkpoint, load_checkpoint, token_answers,
};
use lrvd_models::llama::LlamaForCausalLm;

use super::data::{LanguageExample, LanguageExamples, LanguageTask};
use super::encode::LanguageReader;
use super::load::LanguageEvaluation;
use super::settings::{LanguageInfo, LanguageOptions, LanguageSettings, TASK};
use crate::backbone::{Backbone, load_language_model, locate_model};
use crate::data::{TextSet, held_out, in_order};
use crate::error::{Error, Kind, Result, kind_of};
use crate::eval::PeakMemory;
use crate::io::{JsonLayout, read_json, read_versioned, write_json};
use crate::method::LanguageMethod;
use crate::progress::{Event, ProgressSink};
use crate::record::{CheckpointRecord, RunRecord};
use crate::run::{
    ADAPTER_DIR, AdapterFiles, CHECKPOINT_DIR, Candidate, FinalWatch, OutputFolder, RECORD_FILE,
    RunLabel, SETTINGS_FILE, adapter_files, rank_record, reported, run_record,
};
use crate::saved::{load_checkpoint_from, unfinished};
use crate::settings::CheckpointChoice;

type LanguageRun = train::Run<LlamaForCausalLm, LanguageMethod>;

#[derive(Clone, Debug)]
pub struct LanguageOutcome {
    /// The record; `None` if a stop request ended the run after a checkpoint.
    pub record: Option<RunRecord>,
    pub adapter: PathBuf,
}

pub(crate) struct AtCheckpoint {
    pub folder: PathBuf,
    /// That its run is not finished.
    pub warning: String,
    pub model: Rebuilt,
}

pub(crate) struct Rebuilt {
    pub adapter: PeftAdapter,
    pub posterior: Option<PeftPosterior>,
    pub info: LanguageInfo,
}

/// Trains, measures and saves an adapter of a language model on `data`.
///
/// Everything is read and checked before the first byte is written: a start that is rejected leaves nothing behind. The
/// output folder then gets `settings.json`, `predictions-last.jsonl` and `predictions-best.jsonl` of the validation texts,
/// the folder `adapter` with the PEFT files, the posterior and the description, and last of all `record.json`. Checkpoints
/// are in `checkpoints` until then.
pub fn train_language(
    options: &LanguageOptions,
    data: TextSet,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<LanguageOutcome> {
    options.check()?;
    let device = device::open(&options.device)?;
    let backbone = Backbone::open(locate_model(&options.model)?)?;
    let (files, columns, name) = (data.files(), data.kind.clone(), data.name.clone());
    let validation_split = data.validation_split;
    let Backbone { location, architecture, tokenizer, .. } = &backbone;
    let config = &options.config;
    let reader = LanguageReader::new(location, architecture, tokenizer, config.max_length)?;
    let mut task = LanguageTask::new(data, &reader, config)?;
    let settings = LanguageSettings {
        schema_version: LanguageSettings::SCHEMA,
        task: TASK.to_owned(),
        model: backbone.location.lasting_name(),
        weights: backbone.hashes.clone(),
        base_files: backbone.files.clone(),
        data: files,
        validation_split,
        columns,
        method: options.method,
        target_rank: options.target_rank,
        seed: options.seed,
        device: options.device.clone(),
        experiment: options.config.clone(),
    };
    let mut out = OutputFolder::look(&options.out, options.resume)?;
    let (adapter, (value, finished)) = (out.file(ADAPTER_DIR), out.finished(&settings)?);
    let label = format!("{name} / {} / seed {}", settings.method, settings.seed);
    if let Some(record) = finished {
        // A kill at the end of the run leaves checkpoints, and no last line of its metrics.
        out.clear()?;
        let (summary, seconds) = (summary(&record), record.train_seconds);
        sink.event(&Event::RunFinished { label, summary, seconds });
        return Ok(LanguageOutcome { record: Some(record), adapter });
    }
    let config = &settings.experiment;
    let method = settings.method.build_for_language(config, settings.request())?;
    let share = config.drawn_share(method.search().is_some(), task.train.len());
    if share > 0.0 {
        (task.train, task.holdout) = held_out(task.train, share, settings.seed);
    }
    task.notes.drain(..).for_each(|note| sink.event(&Event::Note(note)));

    let memory = PeakMemory::start();
    let (rows, waiting) = in_order(&task.train, &task.holdout, config.holdout > 0.0);
    let texts = LanguageExamples { texts: &rows, pad_id: task.pad_id, device: &device };
    let mut batches = Ordered::new(texts, config.order(), settings.seed)?
        .accumulating(config.accumulation)?
        .holding_out(waiting)?;
    let folder = out.file(CHECKPOINT_DIR);
    let mut run = settings.fresh(&backbone, &device)?;
    if let Some(path) = latest_checkpoint(&folder)? {
        load_checkpoint(&path, &mut run.state, &mut *run.method)?;
    }
    // Whatever can be rejected is rejected by now: nothing was written before.
    out.begin(&value)?;
    let checkpoints = Checkpoints::open(&folder)?;
    sink.event(&Event::RunStarted {
        index: 1,
        runs: 1,
        label: label.clone(),
        steps: run.steps(),
        done: run.state.done,
    });
    let mut watched = Watched {
        task: &task,
        device: &device,
        batch_size: config.evaluation_batch_size,
        checkpoints: &checkpoints,
        stop,
        sink,
    };
    if run.fit(&mut batches, &mut watched)? == Outcome::Stopped {
        return Ok(LanguageOutcome { record: None, adapter });
    }
    let finishing = Instant::now();
    out.still_there()?;
    let place = (name.as_str(), options.out.as_path());
    let Some(mut record) = settings.record(&mut run, &task, &device, place, stop, sink)? else {
        return Ok(LanguageOutcome { record: None, adapter });
    };
    record.evaluate_seconds += finishing.elapsed().as_secs_f64();
    record.peak_memory_bytes = memory.bytes();
    let kl_weight = run.kl_weight();
    let (model, which, step) = reported(run.state, config.checkpoint);
    settings.take(&model, kl_weight, settings.info(step, which))?.write(&adapter)?;
    write_json(&out.file(RECORD_FILE), &record, JsonLayout::Pretty)?;
    out.still_there()?;
    checkpoints.remove()?;
    let (summary, seconds) = (summary(&record), record.train_seconds);
    sink.event(&Event::RunFinished { label, summary, seconds });
    Ok(LanguageOutcome { record: Some(record), adapter })
}

fn summary(record: &RunRecord) -> String {
    let last = record.checkpoints.last.as_ref();
    let nll = last.and_then(|last| last.metrics.get(&0)?.nll);
    let rank = last.map_or(0.0, |last| last.average_rank);
    format!("nll {} a token, rank {rank:.2}", nll.map_or("-".to_owned(), |nll| format!("{nll:.4}")))
}

/// Whether the settings in `file` are those of a language model on texts.
pub(super) fn is_language_run(file: &Path) -> Result<bool> {
    let value: serde_json::Value = read_json(file)?;
    Ok(value["task"] == TASK)
}

/// The model at `checkpoint` of the run in `out`, or with `or_newer` at a newer one that has taken its place; `None` if that is
/// no run of a language model.
pub(crate) fn rebuild(
    out: &Path,
    checkpoint: &Path,
    or_newer: bool,
    device: &Device,
) -> Result<Option<AtCheckpoint>> {
    let file = out.join(SETTINGS_FILE);
    if !is_language_run(&file)? {
        return Ok(None);
    }
    let settings: LanguageSettings = read_versioned(&file, LanguageSettings::SCHEMA)?;
    let backbone = Backbone::open(locate_model(&settings.model)?)?;
    let mut run = settings.fresh(&backbone, device)?;
    let (state, method) = (&mut run.state, &mut *run.method);
    let folder = load_checkpoint_from(checkpoint, or_newer, state, method)?;
    run.method.compact(&mut run.state.model);
    let info = settings.info(run.state.done, CheckpointChoice::Last);
    let model = settings.take(&run.state.model, run.kl_weight(), info)?;
    let warning = unfinished(out, (run.state.done, settings.experiment.steps), false);
    Ok(Some(AtCheckpoint { folder, warning, model }))
}

impl LanguageSettings {
    fn fresh(&self, backbone: &Backbone, device: &Device) -> Result<LanguageRun> {
        let config = &self.experiment;
        let dtype = backbone.stored_as(config.base_precision)?;
        let model = load_language_model(backbone, config.backbone_dropout, device, dtype)?;
        let method = self.method.build_for_language(config, self.request())?;
        let targets = AdapterTargets::Names(config.target_modules.clone());
        Ok(train::Run::with(model, method, &targets, &config.training(self.seed))?)
    }

    /// Reads the adapters and the posterior of `model` back.
    fn take(
        &self,
        model: &impl AdaptedModel,
        kl_weight: f64,
        mut info: LanguageInfo,
    ) -> Result<Rebuilt> {
        info.ranks = ranks(model).into_iter().collect();
        let files = AdapterFiles {
            config: &self.experiment,
            kl_weight,
            seed: self.seed,
            base_model: &self.model,
            task_type: "CAUSAL_LM",
            whole: &[],
        };
        let (adapter, posterior) = adapter_files(model, &files)?;
        Ok(Rebuilt { adapter, posterior, info })
    }

    /// Measures the models of a run and writes their predictions into a folder; `None` if a stop request ended that.
    fn record(
        &self,
        run: &mut LanguageRun,
        task: &LanguageTask,
        device: &Device,
        place: (&str, &Path),
        stop: &AtomicBool,
        sink: &mut dyn ProgressSink,
    ) -> Result<Option<RunRecord>> {
        let watch = FinalWatch::new(stop, sink, self.answers(run, task));
        let passed = |answers| watch.passed(answers);
        match self.recorded(run, task, device, place, PassWatch::new(&passed)) {
            Err(error) if kind_of(&error) == Some(Kind::Stopped) => Ok(None),
            recorded => recorded.map(Some),
        }
    }

    /// How many answers [`record`](Self::record) takes.
    fn answers(&self, run: &LanguageRun, task: &LanguageTask) -> usize {
        let best = run.state.best.as_ref().filter(|best| best.info.step != run.state.done);
        let models = 1 + usize::from(best.is_some());
        task.validation.len() * models * (1 + self.draws().iter().sum::<usize>())
    }

    /// Measures the last model, cut to its ranks in use, and the best one, and writes their predictions into `folder`.
    fn recorded(
        &self,
        run: &mut LanguageRun,
        task: &LanguageTask,
        device: &Device,
        (name, folder): (&str, &Path),
        watch: PassWatch<'_>,
    ) -> Result<RunRecord> {
        let ranks = run.method.ranks(&run.state.model);
        run.method.compact(&mut run.state.model);
        let measured = |candidate: &Candidate<'_, LlamaForCausalLm>, file: &str| {
            self.measured(candidate, task, device, &folder.join(file), watch)
        };
        let (state, removed) = (&run.state, &run.state.journal.removed);
        let last = Candidate { model: &state.model, step: state.done, ranks, removed };
        let (last, answers) = measured(&last, "predictions-last.jsonl")?;
        let best = match &state.best {
            // The best model is the last one: its answers are known.
            Some(best) if best.info.step == state.done => {
                answers.write_predictions(&folder.join("predictions-best.jsonl"))?;
                Some(last.clone())
            }
            Some(best) => {
                let (model, step) = (&best.model, best.info.step);
                let (ranks, removed) = (best.info.ranks.clone(), &best.info.removed);
                let best = Candidate { model, step, ranks, removed };
                Some(measured(&best, "predictions-best.jsonl")?.0)
            }
            None => None,
        };
        let asked = (self.method, self.request());
        let label = RunLabel::own(name, asked, self.seed, &self.experiment);
        let checkpoints = crate::record::Checkpoints { last: Some(last), best };
        Ok(run_record(&self.experiment, &mut run.state, &label, checkpoints))
    }

    fn measured(
        &self,
        candidate: &Candidate<'_, LlamaForCausalLm>,
        task: &LanguageTask,
        device: &Device,
        file: &Path,
        watch: PassWatch<'_>,
    ) -> Result<(CheckpointRecord, LanguageEvaluation)> {
        let config = &self.experiment;
        let examples = LanguageExamples { texts: &task.validation, pad_id: task.pad_id, device };
        let evaluation = LanguageEvaluation::new(
            &candidate.model.clone().valid(),
            &examples,
            task.validation_ids.clone(),
            config.evaluation_batch_size,
            self.seed,
            &self.draws(),
            watch,
        )?;
        evaluation.write_predictions(file)?;
        let record = CheckpointRecord {
            metrics: evaluation.metrics()?,
            reliability: evaluation.reliability()?,
            predict_seconds: evaluation.seconds.clone(),
            ..rank_record(config, self.method, candidate)?
        };
        Ok((record, evaluation))
    }
}

impl Rebuilt {
    /// Writes the folder `target`, whole or not at all, in place of one that may be there.
    fn write(&self, target: &Path) -> Result<()> {
        let building = AtomicDir::create(target)?;
        let summary = self.adapter.write(building.path(), ExportLayout::Ragged)?;
        let posterior = self.posterior.as_ref().filter(|_| summary.zero_module.is_none());
        if let Some(posterior) = posterior {
            posterior.write(building.path(), &self.adapter)?;
        }
        let info = self.info.clone();
        let mut info = if posterior.is_some() { info } else { info.at_the_mean() };
        info.hashes.get_or_insert_default().take(building.path())?;
        info.write(building.path())?;
        building.commit_replacing()?;
        Ok(())
    }
}

/// Measures the validation texts, keeps checkpoints, ends on a stop request.
pub(super) struct Watched<'a> {
    pub task: &'a LanguageTask,
    pub device: &'a Device,
    pub batch_size: usize,
    pub checkpoints: &'a Checkpoints,
    pub stop: &'a AtomicBool,
    pub sink: &'a mut dyn ProgressSink,
}

impl<'a> Watched<'a> {
    fn examples(&self, texts: &'a [LanguageExample]) -> LanguageExamples<'a> {
        LanguageExamples { texts, pad_id: self.task.pad_id, device: self.device }
    }
}

impl Observer<LlamaForCausalLm, LanguageMethod> for Watched<'_> {
    type Error = Error;

    fn event(&mut self, event: &Event) {
        self.sink.event(event);
    }

    fn evaluate(
        &mut self,
        model: &LlamaForCausalLm,
        _method: &(dyn train::Method<LlamaForCausalLm> + 'static),
    ) -> Result<Option<Evaluation>> {
        let examples = self.examples(&self.task.validation);
        let answers = token_answers(model, &examples, self.batch_size, 0, 0, PassWatch::default())?;
        let nll = answers.nll()?;
        let found = [("accuracy", answers.accuracy()?), ("standard", nll.exp()), ("nll", nll)];
        let finite = found.into_iter().filter(|(_, value)| value.is_finite());
        Ok(Some(Evaluation {
            metric: "nll".to_owned(),
            score: Some(-nll).filter(|score| score.is_finite()),
            metrics: finite
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<BTreeMap<_, _>>(),
        }))
    }

    fn held_out(
        &mut self,
        model: &LlamaForCausalLm,
        _method: &(dyn train::Method<LlamaForCausalLm> + 'static),
    ) -> Result<Option<Vec<f64>>> {
        let examples = self.examples(&self.task.holdout);
        if self.task.holdout.is_empty() {
            return Ok(None);
        }
        let answers = token_answers(model, &examples, self.batch_size, 0, 0, PassWatch::default())?;
        Ok(Some(answers.row_losses()))
    }

    fn checkpoint(
        &mut self,
        state: &TrainState<LlamaForCausalLm>,
        method: &(dyn train::Method<LlamaForCausalLm> + 'static),
    ) -> Result<()> {
        Ok(self.checkpoints.save(state, method)?)
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
