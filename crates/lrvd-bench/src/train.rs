//! Training into a folder: classes, scores, questions with choices, texts.

mod suspects;

use std::cmp::Ordering;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use lrvd_burn::Selection;
use lrvd_burn::device;
use lrvd_models::deberta::Pooling;
use serde::Serialize;
use serde_json::Value;

use crate::adapter::{Kept, RiskTarget, keep, low_scale};
use crate::answers::AnswerSpace;
use crate::backbone::{Architecture, Backbone, locate_model};
use crate::data::batch::{LabelUnit, TokenisedExample};
use crate::data::{Columns, Data, Dataset, InputLayout, PreparedTask, Wording};
use crate::data_check::LengthStats;
use crate::error::Result;
use crate::eval::class_report;
use crate::io::{JsonLayout, write_json};
use crate::language;
use crate::memory::PlannedMemory;
use crate::method::linear::SETTINGS;
use crate::method::{EvaluationWork, FittedRows, Holdout, MethodName, RankRequest};
use crate::progress::Event;
use crate::record::{RankBudget, RunRecord};
use crate::run::{self, RowSettings, TrainSettings, summary};
use crate::settings::{
    CheckpointChoice, Config, Facts, LastBatch, Layers, Origin, Resolved, Training, steps_of,
};
use crate::task::Goal;
use crate::unused::Unused;

pub use suspects::cross_fitted_suspects;

#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    pub model: String,
    pub method: MethodName,
    /// Average rank that AdaLoRA ends with; half the initial rank if `None`.
    pub target_rank: Option<usize>,
    /// Settings by preset, file and options; the rest follows from data and model.
    pub settings: Layers,
    pub seed: u64,
    pub device: String,
    pub out: PathBuf,
    pub resume: bool,
    /// `true` if a regression on the frozen encoder is fitted beside a classifier, where it takes less than a tenth of the run.
    pub baseline: bool,
    /// Error rate of the answers that a classifier gives, for the threshold that is fitted where rows are left for it; `None`
    /// fits neither this nor the detector of other texts.
    pub target: Option<RiskTarget>,
    /// `true` if something that is read and not used is an error ([`Unused`](crate::Unused)).
    pub strict: bool,
}

#[derive(Clone, Debug)]
pub struct TrainOutcome {
    /// The record; `None` if a stop request ended the run after a checkpoint.
    pub record: Option<RunRecord>,
    pub adapter: PathBuf,
    /// Checkpoint that the adapter is.
    pub checkpoint: CheckpointChoice,
}

/// A run before its first step: settings with their origins, and rows as the model reads them.
struct Prepared {
    backbone: Backbone,
    resolved: Resolved,
    settings: TrainSettings,
    task: PreparedTask,
    /// Steps that follow from epochs, and what is given and not used.
    notes: Vec<String>,
}

/// Description of a run that is not started.
#[derive(Clone, Debug, Serialize)]
pub struct TrainPlan {
    pub model: String,
    pub method: MethodName,
    pub seed: u64,
    pub device: String,
    /// Rows that every step draws from.
    pub train_rows: usize,
    pub held_out_rows: usize,
    pub validation_rows: usize,
    /// Names of the classes; none of scores and texts.
    pub classes: Vec<String>,
    /// Tokens of a training row as the model reads it.
    pub tokens: Option<LengthStats>,
    pub steps: usize,
    /// Passes over the training rows.
    pub epochs: f64,
    /// Trained values in adapters and posterior at the start.
    pub adapter_parameters: usize,
    /// Estimated memory, GiB.
    pub memory: PlannedMemory,
    /// Estimated memory at the peak, GiB.
    pub peak_memory: f64,
    pub settings: Vec<PlannedSetting>,
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A setting of a run that is not started.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedSetting {
    pub key: String,
    pub value: Value,
    pub origin: Origin,
}

/// Describes the run that [`train()`] would start; nothing is trained or written.
pub fn plan_training(options: &TrainOptions, data: Data) -> Result<TrainPlan> {
    options.check(&data)?;
    let device = device::open(&options.device)?;
    let Prepared { backbone, resolved, settings, task, notes: given } =
        Prepared::new(options, data)?;
    let stop = AtomicBool::new(false);
    let run =
        run::Run::new(settings.start(&backbone, &task, &device), &stop, String::new(), (1, 1));
    let (adapter_parameters, memory) = run.memory()?;
    let held = run.task();
    let Config { steps, batch_size, .. } = settings.experiment;
    let steps = if options.method.can().steps { steps } else { 0 };
    let train_rows = held.train.len();
    let notes = task.notes.iter().cloned().chain(task.shared_rows()).chain(run.note());
    let notes = given.into_iter().chain(notes).chain(run.memory_note()?).collect();
    let lengths = held.train.iter().map(TokenisedExample::tokens).collect();
    let setting = |(key, value, origin)| PlannedSetting { key, value, origin };
    Ok(TrainPlan {
        model: settings.model.clone(),
        method: options.method,
        seed: options.seed,
        device: options.device.clone(),
        train_rows,
        held_out_rows: held.holdout.len(),
        validation_rows: held.validation.len(),
        classes: settings.rows.goal.answers.names(),
        tokens: LengthStats::of(lengths),
        steps,
        epochs: (steps * batch_size) as f64 / train_rows.max(1) as f64,
        adapter_parameters,
        memory,
        peak_memory: memory.total(),
        settings: resolved.settings.into_iter().map(setting).collect(),
        notes,
    })
}

/// Trains, evaluates and saves.
/// Everything is read and checked before the first byte is written. The output folder then gets `settings.json`, of classes
/// `labels.json`, `predictions-last.jsonl` and `predictions-best.jsonl` of the validation rows, the folder `adapter`, and last of
/// all `record.json`. Checkpoints are in `checkpoints` until then. What a kill left of a finished run is removed by `resume`.
pub fn train(
    options: &TrainOptions,
    data: Data,
    stop: &AtomicBool,
    sink: &mut dyn FnMut(&Event),
) -> Result<TrainOutcome> {
    options.check(&data)?;
    let device = device::open(&options.device)?;
    let mut out = run::OutputFolder::look(&options.out, options.resume)?;
    out.check_results()?;
    let Prepared { backbone, resolved, settings, task, notes: given } =
        Prepared::new(options, data)?;
    backbone.location.note.iter().for_each(|note| sink(&Event::Note(note.clone())));
    let goal = settings.rows.goal.clone();
    let checkpoint = settings.experiment.checkpoint;
    let (adapter, (value, finished)) = (out.file(run::ADAPTER_DIR), out.finished(&settings)?);
    let label = format!("{} / {} / seed {}", goal.name, settings.method, settings.seed);
    if let Some(record) = finished {
        // A kill at the end of the run leaves checkpoints, and no last line of its metrics.
        run::clear(&options.out)?;
        let summary = summary(&record, &goal);
        let seconds = record.train_seconds;
        sink(&Event::RunFinished { label, summary, seconds });
        return Ok(TrainOutcome { record: Some(record), adapter, checkpoint });
    }
    if let Some(text) = pooling_note(&resolved, &settings, &backbone)? {
        sink(&Event::Note(text));
    }
    let run = run::Run::new(settings.start(&backbone, &task, &device), stop, label, (1, 1));
    let notes = task.notes.iter().cloned().chain(task.shared_rows());
    let notes = notes.chain(run.note()).chain(run.memory_note()?);
    let own = backbone.notes(&settings.experiment);
    given.into_iter().chain(own).chain(notes).for_each(|note| sink(&Event::Note(note)));
    let begun = run.open(&options.out)?;
    sink(&Event::Note(run::trained(&begun.state.model)));
    if let Some(text) = low_scale(&begun.state.model) {
        sink(&Event::Note(text));
    }
    // Whatever can be rejected is rejected by now: nothing was written before.
    out.begin(&value)?;
    out.warnings().into_iter().for_each(|text| sink(&Event::Note(text)));
    if goal.answers != AnswerSpace::Tokens {
        write_json(&out.file(run::LABELS_FILE), &goal.answers.names(), JsonLayout::Pretty)?;
    }
    let (requested, note) = match settings.request() {
        RankRequest::Average(rank) => (Some(rank), "asked for"),
        RankRequest::Initial if settings.method.can().prunes => (None, "learnt"),
        RankRequest::Initial => (None, "fixed"),
    };
    let budget = RankBudget::new(settings.experiment.initial_rank, requested, note);
    let out = options.out.as_path();
    let layout = JsonLayout::Pretty;
    let place = run::RunPlace { out, folder: out, budget, layout };
    let baseline_rows = run.baseline_rows().filter(|_| options.baseline);
    let record = run.complete(begun, &place, sink, |trained, finished, context, sink| {
        let calibrated = finished.kept().describe();
        if let Some(text) = calibrated {
            sink(&Event::Note(text));
        }
        let Kept { intervals, thresholds, end } =
            keep(&settings, trained, finished, context, &adapter, options.target)?;
        end.notes.into_iter().for_each(|text| sink(&Event::Note(text)));
        let has_none = goal.answers == AnswerSpace::Score && intervals.is_empty();
        let absent = || {
            "no interval: the validation rows chose the model, and its errors on them are smaller than on new rows; `--set \
             holdout=0.1` keeps other rows for it"
                .to_owned()
        };
        let lacks = matches!(goal.answers, AnswerSpace::Labels { .. }) && thresholds.is_empty();
        let usual = || {
            "no thresholds: the validation rows chose the model, and every label is given from a probability of .5 on; `--set \
             holdout=0.1` keeps other rows for thresholds"
                .to_owned()
        };
        let fitted = intervals.describe().or_else(|| has_none.then(absent));
        let fitted = fitted.or_else(|| thresholds.describe()).or_else(|| lacks.then(usual));
        if let Some(text) = fitted {
            sink(&Event::Note(text));
        }
        finished.record.fitted.extend(intervals.fitted());
        let at_mean = finished.kept_answers().get(&0);
        let thresholds = thresholds.of(0, context.task.labels);
        let classes = at_mean.map(|scored| class_report(scored, context.task, &thresholds));
        finished.record.classes = classes.transpose()?.flatten();
        if let (Some(total), Some(own)) = (baseline_rows, finished.kept_answers().get(&0)) {
            let found = run.watched(sink, total, |context| run.baseline(context, own))?;
            sink(&Event::Note(found.describe()));
            finished.record.baseline = Some(found);
        }
        Ok(())
    })?;
    Ok(TrainOutcome { record, adapter, checkpoint })
}

/// Input of the head, where the model decides it and it is not that of most encoders.
fn pooling_note(
    resolved: &Resolved,
    settings: &TrainSettings,
    backbone: &Backbone,
) -> Result<Option<String>> {
    if resolved.origin("pooling") != Some(Origin::Model) {
        return Ok(None);
    }
    let (read, other, instead) = match settings.method.pooling(&settings.experiment) {
        Pooling::First => return Ok(None),
        Pooling::FirstToken => ("the first token", "mean", "reads the mean over all tokens"),
        Pooling::Mean | Pooling::PooledMean => {
            ("the mean over all tokens", "first", "reads the first token")
        }
        Pooling::Last if settings.rows.goal.answers == AnswerSpace::Tokens => return Ok(None),
        Pooling::Last => ("the last token", "first", "asks in words"),
    };
    let stated = Pooling::of_embedding(&backbone.location.folder)?;
    let source = match (stated, settings.experiment.pooling) {
        (Some(_), _) => format!(", as `{}` of the model says", Pooling::FILE),
        (None, Pooling::PooledMean) => ", as `config.json` of the model says".to_owned(),
        (None, _) => String::new(),
    };
    Ok(Some(format!("the head reads {read}{source}; `--set pooling={other}` {instead}")))
}

/// The rows of `data` as the model reads them, with notes for a reader of the results.
fn prepare(data: Data, settings: &TrainSettings, backbone: &Backbone) -> Result<PreparedTask> {
    let config = &settings.experiment;
    let own = &settings.rows;
    match data {
        Data::Labelled(mut data) => {
            let drawn = data.sample(config.train_rows);
            let untrained = data.untrained();
            data.permute_options(settings.seed);
            let (train, validation) = (&data.train.examples, &data.validation.examples);
            let reader = own.reader(backbone, config.max_length)?;
            let mut task = reader.prepare(own.goal.clone(), train, validation)?;
            // Of typed questions each has its own.
            let asked = match &own.goal.answers {
                AnswerSpace::Questions { .. } => None,
                answers => own.layout.wording(answers, own.pairs),
            };
            let asked = asked.as_ref().map(Wording::describe);
            let notes = data.notes.into_iter().filter(|_| data.kind.task.is_none());
            task.notes =
                notes.chain(drawn).chain(untrained).chain(asked).chain(task.notes).collect();
            task.drawn_validation = data.validation_split.is_some();
            let has_bias = !matches!(backbone.architecture, Architecture::Llama(_));
            let targets = config.target_modules.layers();
            let heads = ["classifier", "classifier.out_proj", "score"];
            let adapts_head = !matches!(targets, Selection::AllLinear)
                && heads.iter().any(|head| targets.contains(head));
            // Rank directions of the head itself would have to be converted with their noise.
            if !adapts_head {
                task.unit = LabelUnit::of(&task.train, has_bias);
            }
            Ok(task)
        }
        Data::Texts(data) => {
            let drawn_validation = data.validation_split.is_some();
            let task = language::prepare(data, backbone, config)?;
            Ok(PreparedTask { drawn_validation, ..task })
        }
    }
}

/// Cuts the validation rows of `task` to those of the settings, by default to so many that most of a run is training, and notes
/// that.
fn limit_validation(method: MethodName, config: &Config, task: &mut PreparedTask) {
    let work = EvaluationWork::new(method, config);
    let all = task.validation.len();
    // A regression is evaluated once.
    let usual = || if method.can().steps { work.rows(task.drawn_validation) } else { all };
    let most = config.validation_rows.unwrap_or_else(usual);
    if most >= all {
        return;
    }
    task.limit_validation(most);
    let rows = task.validation.len();
    let drawn = match task.goal.answers {
        AnswerSpace::Labels { .. } | AnswerSpace::Score | AnswerSpace::Tokens => "at random",
        _ => "by class",
    };
    let reason = || {
        let [own, whole] = [rows, all].map(|rows| 100.0 * work.share(rows));
        format!(
            ": evaluations take about {own:.0} % of the run, of all rows it would be {whole:.0} %; `validation_rows` sets \
             another number"
        )
    };
    let reason = config.validation_rows.is_none().then(reason).unwrap_or_default();
    task.notes.push(format!("evaluated on {rows} of {all} validation rows, drawn {drawn}{reason}"));
}

/// Steps that follow from epochs of so many batches, and why they are others.
fn described_steps(config: &Config, batches: usize) -> Option<String> {
    let Config { epochs, steps, .. } = *config;
    let asked = epochs?;
    let exact = steps_of(asked, batches);
    let epochs = |epochs: f64| {
        let number = ((100.0 * epochs).round() / 100.0).to_string();
        if number == "1" { "1 epoch".to_owned() } else { format!("{number} epochs") }
    };
    let reason = match steps.cmp(&exact) {
        Ordering::Equal => String::new(),
        Ordering::Greater => {
            format!(", the fewest by default: {} are {exact} steps", epochs(asked))
        }
        Ordering::Less => format!(", the most by default: {} are {exact} steps", epochs(asked)),
    };
    let own = epochs(steps as f64 / batches as f64);
    let other =
        if reason.is_empty() { "" } else { "; `--epochs` and `--steps` are taken as they are" };
    Some(format!("{steps} steps, {own}{reason}{other}"))
}

impl Prepared {
    fn new(options: &TrainOptions, mut data: Data) -> Result<Self> {
        let backbone = Backbone::open(locate_model(&options.model)?)?;
        let is_frozen = !options.method.can().steps;
        let pooling = if is_frozen {
            backbone.encoder_for(&format!("`--method {}`", options.method.key()))?;
            Some(backbone.embedding_pooling()?)
        } else {
            None
        };
        let on_cpu = options.device == device::CPU;
        let facts = Facts { pooling, on_cpu, ..data.facts(Some(&backbone.architecture)) };
        let layers = || options.settings.clone();
        let mut resolved = layers().resolve(&facts)?;
        let mut settings = options.settings(&mut data, &backbone, resolved.config.clone())?;
        let mut task = prepare(data, &settings, &backbone)?;
        let mut length = None;
        if !is_frozen {
            let facts = options.facts(&settings.experiment, &task, facts);
            resolved = layers().resolve(&facts)?;
            settings.experiment = resolved.config.clone();
            length = described_steps(&settings.experiment, facts.batches.unwrap_or(1));
        }
        limit_validation(options.method, &settings.experiment, &mut task);
        let notes = length.into_iter().chain(options.unused(&resolved)?).collect();
        Ok(Self { backbone, resolved, settings, task, notes })
    }
}

impl TrainOptions {
    /// Returns an error for what cannot be trained, before a model is opened.
    fn check(&self, data: &Data) -> Result<()> {
        let config = self.settings.clone().finish()?;
        match data {
            Data::Labelled(data) => self.check_labelled(data, &config)?,
            Data::Texts(_) => self.check_for_texts(&config)?,
        }
        run::check_seed(self.seed)?;
        if self.target_rank.is_some() && !self.method.can().budget {
            bail!("a target rank is for the method `adalora` only");
        }
        Ok(())
    }

    /// Settings that are given and that a method without steps does not read.
    fn unused(&self, resolved: &Resolved) -> Result<Vec<String>> {
        let mut unused = Unused::default();
        if !self.method.can().steps {
            let place = format!("a run of `{}`, which takes no steps", self.method.key());
            let is_given = |origin: Origin| matches!(origin, Origin::File | Origin::Option);
            let given = resolved
                .settings
                .iter()
                .filter(|(key, _, origin)| is_given(*origin) && !SETTINGS.contains(&key.as_str()));
            let names: Vec<&String> = given.map(|(key, ..)| key).collect();
            unused.add_names("setting", &names, &place);
        }
        unused.notes(self.strict)
    }

    fn check_labelled(&self, data: &Dataset, config: &Config) -> Result<()> {
        self.method.check_temperature()?;
        if !self.method.can().saved {
            bail!("the method's outcome is more than an adapter: use `lrvd bench`");
        }
        if let AnswerSpace::Labels { .. } = data.kind.goal.answers
            && !self.method.is_for_labels()
        {
            bail!(
                "`{}` answers by one class, and rows have several labels: train by lora, adalora, bayeslora, a variant of \
                 one (`+ts` fits a temperature) or linear",
                self.method.key()
            );
        }
        run::check_class_weight(config, &data.kind.goal.answers)?;
        let all = data.train.rows();
        let rows = config.train_rows.map_or(all, |most| most.min(all));
        let is_drawn = data.validation_split.is_some();
        let goal = &data.kind.goal;
        let Holdout { share, fitted } =
            Holdout::new(self.method, config, rows, is_drawn, &goal.answers);
        let is_fitted = self.method.is_tempered() && fitted == FittedRows::Holdout;
        if is_fitted && share * (rows as f64) < 0.5 {
            bail!(
                "a share of {share} of {rows} training rows is held out for the temperature, which is not one row: \
                 pass more rows, a larger share (`--set holdout=0.5`), or a method without a temperature (`--method \
                 lora`)"
            );
        }
        Ok(())
    }

    fn check_for_texts(&self, config: &Config) -> Result<()> {
        if !self.method.is_for_language() {
            bail!(
                "a language model is trained on texts by lora, adalora, bayeslora or a variant of it; a \
                 temperature (`+ts`) and what answers classes alone are for classifiers"
            );
        }
        config.check_use(Training::Language)
    }

    /// `facts` with those of the rows of `task`: batches of a pass over what is trained on, and what else validation rows are for.
    fn facts<'a>(&self, config: &Config, task: &PreparedTask, facts: Facts<'a>) -> Facts<'a> {
        let rows = task.train.len();
        let answers = &task.goal.answers;
        let holdout = Holdout::new(self.method, config, rows, task.drawn_validation, answers);
        let rows = rows - task.held_out_rows(holdout.share, self.seed);
        let batches = match config.last_batch {
            LastBatch::Keep => rows.div_ceil(config.batch_size),
            LastBatch::Drop => (rows / config.batch_size).max(1),
        };
        let chooses_model = holdout.leaves_choice(self.method, answers);
        Facts { batches: Some(batches), chooses_model, ..facts }
    }

    /// Settings of the run with its rows, which the model may read in another way.
    fn settings(
        &self,
        data: &mut Data,
        backbone: &Backbone,
        experiment: Config,
    ) -> Result<TrainSettings> {
        let (rows, files) = match data {
            Data::Labelled(data) => {
                let layout = {
                    let Config { wording, pooling, .. } = &experiment;
                    backbone.architecture.resolve(data, wording, *pooling)?
                };
                let goal = data.kind.goal.clone();
                let validation_split = data.validation_split;
                let columns = data.kind.columns.clone().map(Columns::Labelled);
                let pairs = data.pairs();
                let rows = RowSettings { validation_split, columns, layout, pairs, goal };
                (rows, data.split_files())
            }
            Data::Texts(data) => {
                backbone.decoder_for("language modelling")?;
                let rows = RowSettings {
                    validation_split: data.validation_split,
                    columns: Some(Columns::Texts(data.kind.clone())),
                    layout: InputLayout::Texts,
                    pairs: false,
                    goal: Goal::new(&data.name, AnswerSpace::Tokens),
                };
                (rows, data.split_files())
            }
        };
        let rows = (rows, files);
        let method = (self.method, self.target_rank);
        let seed = self.seed;
        let device = &self.device;
        Ok(TrainSettings::new(backbone, rows, method, seed, device, experiment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Label;
    use crate::settings::Preset;

    #[test]
    fn validation_rows_are_cut_by_class_and_the_run_says_so() {
        // Sorted by class, as a file may be: 1,200 rows, 799 and one.
        let class = |row: usize| usize::from(row >= 1_200) + usize::from(row == 1_999);
        let row = |row| TokenisedExample::single(vec![1], Label::Class(class(row)));
        let names = ["a", "b", "c"].map(String::from).to_vec();
        let all = PreparedTask {
            validation: (0..2_000).map(row).collect(),
            validation_ids: (0..2_000).map(|row| row.to_string()).collect(),
            ..PreparedTask::without_examples(Goal::classification("c", names))
        };
        let cut = |drawn_validation, validation_rows| {
            let mut task = PreparedTask { drawn_validation, ..all.clone() };
            let (steps, evaluate_every) = (20, 2);
            let config = Preset::Default.config();
            let config = Config { steps, validation_rows, evaluate_every, ..config };
            limit_validation(MethodName::LORA, &config, &mut task);
            let rows = task.validation_ids.iter().map(|id| id.parse().unwrap());
            let rows: Vec<usize> = rows.collect();
            let kept: Vec<_> = rows.iter().map(|&of| row(of)).collect();
            assert!(rows.is_sorted() && kept == task.validation);
            ([0, 1, 2].map(|of| rows.iter().filter(|&&row| class(row) == of).count()), task.notes)
        };
        // Those of a file are all used up to 10,000.
        assert_eq!(cut(false, None), ([1_200, 799, 1], Vec::new()));
        // 12 passes over 1,000 rows beside 3·20·32.
        let note = "evaluated on 1000 of 2000 validation rows, drawn by class: evaluations take about 86 % of the run, of all \
                    rows it would be 93 %; `validation_rows` sets another number";
        assert_eq!(cut(true, None), ([600, 399, 1], vec![note.to_owned()]));
        let note = "evaluated on 10 of 2000 validation rows, drawn by class";
        assert_eq!(cut(true, Some(10)), ([6, 3, 1], vec![note.to_owned()]));
        assert_eq!(cut(true, Some(2)).0.iter().sum::<usize>(), 2);
    }
}
