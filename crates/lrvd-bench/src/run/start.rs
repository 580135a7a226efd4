//! One fine-tuning run: a fresh start or a checkpoint, the loop, the evaluation at its end.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{bail, ensure};
use burn::module::Module as _;
use burn::tensor::{DType, Device};
use lrvd_burn::Selection;
use lrvd_burn::device;
use lrvd_burn::train::{
    self, Checkpoints, DrawPolicy, Evaluation, HeldOutLosses, Inputs, Observer, OrderConfig,
    Ordered, Outcome, TrainState, latest_checkpoint, load_checkpoint,
};
use lrvd_core::baselines::temperature::FEWEST_ROWS;
use lrvd_models::{AutoModel, TokenBatch};

use super::folder::{CHECKPOINT_DIR, RECORD_FILE, still_there};
use super::outcome::{Finished, evaluate, held_out, record, summary};
use crate::answers::AnswerSpace;
use crate::backbone::{Backbone, Head, load_model};
use crate::data::PreparedTask;
use crate::data::batch::{LabelUnit, TokenExamples, TokenisedExample, balanced};
use crate::error::{Burn, Error, Kind, Result, kind_of};
use crate::eval::{PeakMemory, RunContext};
use crate::io::{JsonLayout, write_json};
use crate::memory::{PlannedMemory, Sizes};
use crate::method::linear::without_adapters;
use crate::method::{DynMethod, FittedRows, Holdout, MethodName, RankRequest};
use crate::progress::Event;
use crate::record::{RankBudget, RunRecord};
use crate::settings::{ClassWeight, Config};

#[derive(Clone, Copy)]
pub(crate) struct RunStart<'a> {
    pub config: &'a Config,
    pub backbone: &'a Backbone,
    pub task: &'a PreparedTask,
    pub method: MethodName,
    pub request: RankRequest,
    pub seed: u64,
    pub device: &'a Device,
}

/// The error of a cascade over several labels.
pub(crate) const NO_CASCADE: &str = "`cascade` compares the two most probable classes, and the answers are labels that are independent of each other";

pub type RunState = train::Run<AutoModel, DynMethod>;

pub(crate) struct Run<'a> {
    pub(super) start: RunStart<'a>,
    task: Cow<'a, PreparedTask>,
    fitted: FittedRows,
    memory: PeakMemory,
    stop: &'a AtomicBool,
    label: String,
    /// Position among all runs, from 1, and their number.
    position: (usize, usize),
}

/// Folders of the results of a run, and the requested ranks.
pub(crate) struct RunPlace<'a> {
    /// The output folder, of this run or of all.
    pub out: &'a Path,
    pub folder: &'a Path,
    /// Its number of modules is filled in at the end.
    pub budget: RankBudget,
    pub layout: JsonLayout,
}

impl RunStart<'_> {
    pub(crate) fn fresh(&self) -> Result<RunState> {
        self.attached(self.load()?)
    }

    pub(crate) fn load(&self) -> Result<AutoModel> {
        let Self { config, backbone, task, method, seed, device, .. } = *self;
        let precision = backbone.stored_as(config.base_precision)?;
        let dropout = config.backbone_dropout;
        let pooling = method.pooling(config);
        if !method.can().steps {
            let key = method.key();
            backbone.encoder_for(&format!("`--method {key}`"))?;
            if config.keep_head {
                bail!(
                    "`--keep-head` keeps a classifier, and `--method {key}` fits a new one: leave out either"
                );
            }
        }
        let head = backbone.head_of(config, &task.goal)?;
        let (mut model, _) =
            load_model(backbone, task, (pooling, &head), dropout, seed, device, precision)?;
        if matches!(head, Head::Kept(_)) {
            LabelUnit::default().convert(task.unit, &mut model);
        }
        model.recompute(config.gradient_checkpointing);
        Ok(model)
    }

    pub(crate) fn attached(&self, model: AutoModel) -> Result<RunState> {
        let config = self.config;
        if self.task.goal.answers == AnswerSpace::Tokens && !self.method.is_for_language() {
            bail!("{}: it is not for language modelling", self.method.key());
        }
        check_class_weight(config, &self.task.goal.answers)?;
        let method = self.method.build(config, self.request)?;
        let mut targets = config.target_modules.layers();
        if let (AutoModel::LlamaScore(_), Selection::Names(names)) = (&model, &mut targets)
            && names.len() > 1
        {
            // A model with a separate head has none over the vocabulary.
            names.retain(|name| name != "lm_head");
        }
        let run = train::Run::new(model, method, &targets, &config.training(self.seed))?;
        let run = match self.method.search(config) {
            Some(search) => run.searching(search)?,
            None => run,
        };
        let run = if self.method.can().steps { run } else { frozen(run) };
        self.check_policy(&run.state.model, &*run.method)?;
        Ok(run)
    }

    /// Rejects a policy of draws that the method or the task has no use for, by one question under a cascade that decides
    /// everything: a method that follows the policy answers without a draw, and its logits say so.
    fn check_policy(&self, model: &AutoModel, method: &DynMethod) -> Burn<()> {
        let Self { config, task, .. } = *self;
        let policy = config.prediction;
        let draws = self.method.draws(config);
        let first = task.validation.first();
        if policy.cascade.is_some()
            && let AnswerSpace::Labels { .. } = task.goal.answers
        {
            return Err(lrvd_burn::Error::other(NO_CASCADE));
        }
        let (Some(setting), Some(first)) = (policy.needs_draws(), first) else { return Ok(()) };
        let Some(&draws) = draws.iter().max() else { return Ok(()) };
        let examples = task.examples(std::slice::from_ref(first), self.device);
        let cascade =
            if task.goal.answers == AnswerSpace::Score { policy.cascade } else { Some(0.0) };
        let policy = DrawPolicy { cascade, ..policy };
        let kind = config.prediction_draws;
        let inputs = Inputs {
            policy,
            scheme: kind.scheme(),
            fresh: kind.is_fresh(),
            ..Inputs::new(&examples)
        };
        let inputs = inputs.drawn(draws);
        let answer = method.predict(&model.clone().valid(), &inputs)?;
        if cascade.is_some() && answer.draws_per_example.is_none() {
            return Err(lrvd_burn::Error::other(format!(
                "`{setting}` is for draws that a seed addresses one by one, and the method has others"
            )));
        }
        Ok(())
    }
}

/// `run` without adapters, of which none is trained.
fn frozen(mut run: RunState) -> RunState {
    without_adapters(&mut run.state.model);
    run
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        start: RunStart<'a>,
        stop: &'a AtomicBool,
        label: String,
        position: (usize, usize),
    ) -> Self {
        let RunStart { config, method, seed, .. } = start;
        let PreparedTask { train, drawn_validation, goal, .. } = start.task;
        let Holdout { share, fitted } =
            Holdout::new(method, config, train.len(), *drawn_validation, &goal.answers);
        let task = if share > 0.0 {
            Cow::Owned(start.task.holding_out(share, seed))
        } else {
            Cow::Borrowed(start.task)
        };
        Self { start, task, fitted, memory: PeakMemory::start(), stop, label, position }
    }

    /// Rows that are held out of training, or fit something beside that, for a reader of the results.
    pub(crate) fn note(&self) -> Option<String> {
        let PreparedTask { train, holdout, validation, .. } = &*self.task;
        let held = holdout.len();
        let all = train.len() + holdout.len();
        // Numbers and texts have no class.
        let drawn = match self.task.goal.answers {
            AnswerSpace::Labels { .. } | AnswerSpace::Score | AnswerSpace::Tokens => "at random",
            _ => "by class",
        };
        let searched = || {
            format!(
                "{held} of {all} training rows, drawn {drawn}, are held out: they choose the ranks"
            )
        };
        match self.fitted {
            FittedRows::None => (held > 0).then(searched),
            FittedRows::Holdout => Some(format!(
                "{held} of {all} training rows, drawn {drawn}, are held out for what is fitted after training"
            )),
            FittedRows::Validation => {
                let searched = if held > 0 { format!("; {}", searched()) } else { String::new() };
                let rows = validation.len();
                let fits = if rows < FEWEST_ROWS {
                    format!(
                        "are too few for a temperature, which needs {FEWEST_ROWS}: pass more rows, or a larger `--validation-split`"
                    )
                } else {
                    "also fit the temperature: `lrvd eval` on other rows measures it".to_owned()
                };
                Some(format!("the {rows} validation rows {fits}{searched}"))
            }
        }
    }

    /// A note on memory where the run may need too much of it. A device other than the CPU has its own, of which nothing is known.
    pub(crate) fn memory_note(&self) -> Result<Option<String>> {
        if !device::open(device::CPU).is_ok_and(|cpu| cpu == *self.start.device) {
            return Ok(None);
        }
        Ok(self.memory()?.1.note(Path::new("/")))
    }

    /// Rows that the run trains on, with those that it holds out and validates on.
    pub(crate) fn task(&self) -> &PreparedTask {
        &self.task
    }

    /// Trained parameters of the adapters before pruning, and the estimated memory of the run.
    pub(crate) fn memory(&self) -> Result<(usize, PlannedMemory)> {
        let RunStart { config, backbone, method, .. } = self.start;
        let sizes = Sizes::new(&backbone.architecture, config);
        let trained = sizes.trained(method, None)?;
        // A later run of a process takes the pages that an earlier one has left.
        let resident = self.memory.start.filter(|_| self.position == (1, 1)).unwrap_or(0);
        let PreparedTask { train, validation, .. } = &*self.task;
        Ok((trained, sizes.memory_of(trained, resident, [&train[..], &validation[..]])))
    }

    pub(crate) fn context(&self) -> RunContext<'_> {
        let RunStart { config, seed, .. } = self.start;
        RunContext {
            config,
            task: &self.task,
            seed,
            fitted: self.fitted,
            device: self.start.device,
            dtype: DType::F32,
            memory: self.memory,
            watch: None,
        }
    }

    /// Trains `begun` to the end, evaluates it, and leaves predictions, what `keep` writes, and last of all the record in the
    /// run's folder; `None` if a stop request ended that after a checkpoint.
    pub(crate) fn complete(
        &self,
        mut begun: RunState,
        place: &RunPlace<'_>,
        sink: &mut dyn FnMut(&Event),
        keep: impl FnOnce(
            RunState,
            &mut Finished,
            &RunContext<'_>,
            &mut dyn FnMut(&Event),
        ) -> Result<()>,
    ) -> Result<Option<RunRecord>> {
        let &RunPlace { out, folder, ref budget, layout } = place;
        let checkpoints = Checkpoints::open(folder.join(CHECKPOINT_DIR))?;
        let (index, runs) = self.position;
        let takes_steps = self.start.method.can().steps;
        sink(&Event::RunStarted {
            index,
            runs,
            label: self.label.clone(),
            steps: if takes_steps { begun.steps() } else { 0 },
            done: begun.state.done,
        });
        if takes_steps {
            let ended = fit(&self.context(), &mut begun, Some(&checkpoints), self.stop, sink)?;
            if ended == Outcome::Stopped {
                return Ok(None);
            }
        }
        still_there(out)?;
        let total = self.answers(&begun);
        let mut trained = begun;
        let continues = |_: usize| !self.stop.load(Ordering::Relaxed);
        let context = RunContext { watch: Some(&continues), ..self.context() };
        let recorded = self.watched(sink, total, |context| {
            record(context, self.start.method, &mut trained, budget, folder)
        });
        let kept = recorded.and_then(|mut finished| {
            keep(trained, &mut finished, &context, sink)?;
            Ok(finished.record)
        });
        let record = match kept {
            Err(error) if kind_of(&error) == Some(Kind::Stopped) => return Ok(None),
            kept => kept?,
        };
        write_json(&folder.join(RECORD_FILE), &record, layout)?;
        still_there(out)?;
        checkpoints.remove()?;
        sink(&Event::RunFinished {
            label: self.label.clone(),
            summary: summary(&record, &self.task.goal),
            seconds: record.train_seconds,
        });
        Ok(Some(record))
    }

    /// The result of `answer`, which makes about `total` answers under this run's watch; a stop request ends it.
    pub(crate) fn watched<R>(
        &self,
        sink: &mut dyn FnMut(&Event),
        total: usize,
        answer: impl FnOnce(&RunContext<'_>) -> Result<R>,
    ) -> Result<R> {
        sink(&Event::Evaluating { done: 0, total });
        let sink = RefCell::new(sink);
        let done = Cell::new(0);
        let passed = |answers: usize| {
            // What a method spares or adds is not known before.
            done.set((done.get() + answers).min(total));
            (sink.borrow_mut())(&Event::Evaluating { done: done.get(), total });
            !self.stop.load(Ordering::Relaxed)
        };
        answer(&RunContext { watch: Some(&passed), ..self.context() })
    }

    fn answers(&self, run: &RunState) -> usize {
        let RunStart { config, method, .. } = self.start;
        let draws = method.draws(config);
        let all = 1 + draws.iter().sum::<usize>();
        let most = 1 + draws.iter().max().unwrap_or(&0);
        let validation = self.task.validation.len();
        if !method.can().steps {
            return self.task.train.len() + validation;
        }
        if method.can().post_hoc {
            return (validation + self.fitted.of(&self.task).len()) * all;
        }
        let best = run.state.best.as_ref().filter(|best| best.info.step != run.state.done);
        let models = 1 + usize::from(best.is_some());
        let nest = self.task.goal.answers != AnswerSpace::Tokens;
        validation * models * if nest { most } else { all }
    }

    /// The run in `folder` at its newest checkpoint or its start, with whatever could fail at the first step checked.
    pub(crate) fn open(&self, folder: &Path) -> Result<RunState> {
        let context = self.context();
        batches(&context, &training(&context, &self.task.train, &[]))?;
        let mut run = self.start.fresh()?;
        if let Some(path) = latest_checkpoint(&folder.join(CHECKPOINT_DIR))? {
            load_checkpoint(&path, &mut run.state, &mut *run.method)?;
        }
        Ok(run)
    }
}

pub fn fit(
    context: &RunContext<'_>,
    run: &mut RunState,
    checkpoints: Option<&Checkpoints>,
    stop: &AtomicBool,
    sink: &mut dyn FnMut(&Event),
) -> Result<Outcome> {
    let weights = class_weights(context);
    let rows = training(context, &context.task.train, &weights);
    let mut batches = batches(context, &rows)?;
    let mut observer = Watched { context, checkpoints, stop, sink };
    run.fit(&mut batches, &mut observer)
}

/// Returns an error for weights of classes where rows have no class, or more than one.
pub(crate) fn check_class_weight(config: &Config, answers: &AnswerSpace) -> Result<()> {
    let found = match answers {
        AnswerSpace::Classes { .. } => return Ok(()),
        AnswerSpace::Labels { .. } => "several labels",
        AnswerSpace::Score => "numbers",
        AnswerSpace::Tokens => "texts",
        AnswerSpace::Choice { .. }
        | AnswerSpace::Question { .. }
        | AnswerSpace::Questions { .. } => "questions",
    };
    ensure!(
        config.class_weight.is_none(),
        "setting `class_weight` is balanced: it is for rows of one class each, and these have {found}"
    );
    Ok(())
}

/// Weights of the classes by the rows that are trained on; none if all rows count alike.
fn class_weights(context: &RunContext<'_>) -> Vec<f64> {
    let task = context.task;
    let weights =
        context.config.class_weight.map(|ClassWeight::Balanced| balanced(&task.train, task.labels));
    weights.unwrap_or_default()
}

fn training<'a>(
    context: &RunContext<'a>,
    rows: &'a [TokenisedExample],
    weights: &'a [f64],
) -> TokenExamples<'a> {
    TokenExamples {
        weights,
        smoothing: context.config.label_smoothing,
        unit: context.task.unit,
        ..context.examples(rows)
    }
}

fn batches<'a>(
    context: &RunContext<'_>,
    rows: &'a TokenExamples<'_>,
) -> Burn<Ordered<'a, TokenBatch>> {
    let config = context.config;
    let Config { batch_size, bucketing, last_batch, accumulation, .. } = *config;
    let order = OrderConfig { batch_size, bucketing, last_batch, accumulation };
    Ordered::new(rows, order, context.seed)
}

/// Measures the validation rows, keeps checkpoints, ends on a stop request.
struct Watched<'a> {
    context: &'a RunContext<'a>,
    checkpoints: Option<&'a Checkpoints>,
    stop: &'a AtomicBool,
    sink: &'a mut dyn FnMut(&Event),
}

impl Watched<'_> {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Observer<AutoModel, DynMethod> for Watched<'_> {
    type Error = Error;

    fn is_stop(error: &Error) -> bool {
        kind_of(error) == Some(Kind::Stopped)
    }

    fn event(&mut self, event: &Event) -> ControlFlow<()> {
        (self.sink)(event);
        if self.stops() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn evaluate(&mut self, model: &AutoModel, method: &DynMethod) -> Result<Option<Evaluation>> {
        let continues = |_: usize| !self.stops();
        let context = RunContext { watch: Some(&continues), ..*self.context };
        evaluate(&context, model, method).map(Some)
    }

    fn held_out(&mut self, model: &AutoModel, method: &DynMethod) -> Result<HeldOutLosses> {
        if self.context.task.holdout.is_empty() {
            return Ok(HeldOutLosses::default());
        }
        let continues = |_: usize| !self.stops();
        held_out(&RunContext { watch: Some(&continues), ..*self.context }, model, method)
    }

    fn checkpoint(&mut self, state: &TrainState<AutoModel>, method: &DynMethod) -> Result<()> {
        self.checkpoints.map_or(Ok(()), |kept| kept.save(state, method).map(drop))?;
        Ok(())
    }
}
