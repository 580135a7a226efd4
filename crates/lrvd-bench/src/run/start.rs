//! One fine-tuning run of a classifier: a fresh start or a checkpoint, the loop, the evaluation at its end.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::module::Module;
use burn::tensor::{DType, Device};
use lrvd_burn::model::AdapterTargets;
use lrvd_burn::train::{
    self, BestModel, Checkpoints, DrawPolicy, Evaluation, Examples, Inputs, LabelledExamples,
    Observer, Ordered, Outcome, PassWatch, TrainState, calibrated_losses, latest_checkpoint,
    load_checkpoint,
};
use lrvd_models::AutoClassifier;

use super::outcome::record;
use super::{Finished, RunLabel};
use crate::backbone::{Backbone, load_model};
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::data::{PreparedTask, in_order};
use crate::error::{Burn, Error, Kind, Result, kind_of};
use crate::eval::{PeakMemory, RunContext, score_draws};
use crate::method::Tuning;
use crate::progress::{Event, ProgressSink};
use crate::settings::{MethodName, RankRequest, ValidConfig};

pub(crate) type RunState = train::Run<AutoClassifier, dyn Tuning>;

#[derive(Clone, Copy)]
pub(crate) struct RunStart<'a> {
    pub config: &'a ValidConfig,
    pub backbone: &'a Backbone,
    pub task: &'a PreparedTask,
    pub method: MethodName,
    pub request: RankRequest,
    pub seed: u64,
    pub device: &'a Device,
}

pub(crate) struct Run<'a> {
    pub start: RunStart<'a>,
    task: Cow<'a, PreparedTask>,
    memory: PeakMemory,
    stop: &'a AtomicBool,
    label: String,
    /// Position among all runs, from 1, and their number.
    position: (usize, usize),
}

impl RunStart<'_> {
    pub(crate) fn fresh(&self) -> Result<RunState> {
        self.attached(self.load()?)
    }

    pub(crate) fn load(&self) -> Result<AutoClassifier> {
        let dtype = self.backbone.stored_as(self.config.base_precision)?;
        let dropout = self.config.backbone_dropout;
        Ok(load_model(self.backbone, self.task, dropout, self.seed, self.device, dtype)?.0)
    }

    /// [`fresh`](Self::fresh) around the `model` that [`load`](Self::load) returned.
    pub(crate) fn attached(&self, model: AutoClassifier) -> Result<RunState> {
        let config = self.config;
        let method = self.method.build(config, self.request)?;
        let mut targets = config.target_modules.clone();
        if matches!(model, AutoClassifier::LlamaScore(_)) && targets.len() > 1 {
            // A model that predicts a number has no head over the vocabulary.
            targets.retain(|name| name != "lm_head");
        }
        let targets = AdapterTargets::Names(targets);
        let run = train::Run::with(model, method, &targets, &config.training(self.seed))?;
        self.check_policy(&run)?;
        Ok(run)
    }

    /// Rejects a policy of draws that the method or the task has no use for, by one question.
    ///
    /// Whoever follows a policy answers a cascade that decides everything without a draw, and says so.
    fn check_policy(&self, run: &RunState) -> Burn<()> {
        let (config, policy) = (self.config, self.config.prediction);
        let (draws, first) = (self.method.draws(config), self.task.validation.first());
        let (Some(setting), Some(first)) = (policy.asked(), first) else { return Ok(()) };
        let Some(&draws) = draws.iter().max() else { return Ok(()) };
        let examples = TokenExamples {
            examples: std::slice::from_ref(first),
            pad_id: self.task.pad_id,
            labels: self.task.labels,
            device: self.device,
            dtype: DType::F32,
        };
        let cascade = if self.task.goal.is_regression() { policy.cascade } else { Some(0.0) };
        let policy = DrawPolicy { cascade, ..policy };
        let kind = config.prediction_draws;
        let inputs = Inputs { policy, kind, ..Inputs::new(&examples) };
        let model = run.state.model.clone().valid();
        let answer = run.method.predict(&model, &inputs, draws)?;
        if cascade.is_some() && answer.made.is_none() {
            return Err(lrvd_burn::Error::Argument(format!(
                "`{setting}` is for draws that a seed addresses one by one, and the method has others"
            )));
        }
        Ok(())
    }

    pub(crate) fn resumed(&self, path: &Path) -> Result<RunState> {
        let mut run = self.fresh()?;
        load_checkpoint(path, &mut run.state, &mut *run.method)?;
        Ok(run)
    }
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        start: RunStart<'a>,
        stop: &'a AtomicBool,
        label: String,
        position: (usize, usize),
    ) -> Result<Self> {
        let method = start.method.build(start.config, start.request)?;
        let share = method.holdout();
        let searches = method.search().is_some();
        let drawn = start.config.drawn_share(searches, start.task.train.len());
        let task = if drawn > 0.0 {
            Cow::Owned(start.task.holding_out_drawn(drawn, start.seed))
        } else if share > 0.0 {
            Cow::Owned(start.task.holding_out(share))
        } else {
            Cow::Borrowed(start.task)
        };
        Ok(Self { start, task, memory: PeakMemory::start(), stop, label, position })
    }

    pub(crate) fn context(&self) -> RunContext<'_> {
        RunContext {
            config: self.start.config,
            task: &self.task,
            seed: self.start.seed,
            device: self.start.device,
            dtype: DType::F32,
            memory: self.memory,
            watch: PassWatch::default(),
        }
    }

    /// Evaluates the trained `run` and writes its predictions into `folder`; `None` if a stop request ended that.
    pub(crate) fn record(
        &self,
        run: &mut RunState,
        label: &RunLabel<'_>,
        folder: &Path,
        sink: &mut dyn ProgressSink,
    ) -> Result<Option<Finished>> {
        let total = self.answers(run, label.method);
        self.watched(sink, total, |context| record(context, run, label, folder))
    }

    /// What `answer` returns after about `total` answers under this run's watch; `None` if a stop request ended it.
    pub(crate) fn watched<T>(
        &self,
        sink: &mut dyn ProgressSink,
        total: usize,
        answer: impl FnOnce(&RunContext<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let watch = FinalWatch::new(self.stop, sink, total);
        let passed = |answers| watch.passed(answers);
        let context = RunContext { watch: PassWatch::new(&passed), ..self.context() };
        match answer(&context) {
            Err(error) if kind_of(&error) == Some(Kind::Stopped) => Ok(None),
            found => found.map(Some),
        }
    }

    /// About how many answers [`record`](Self::record) takes.
    fn answers(&self, run: &RunState, method: MethodName) -> usize {
        let draws = method.draws(self.start.config);
        let (all, most) = (1 + draws.iter().sum::<usize>(), 1 + draws.iter().max().unwrap_or(&0));
        let rows = self.task.validation.len();
        if method.can().post_hoc {
            return (rows + self.task.holdout.len()) * all;
        }
        let is_other = |best: &BestModel<AutoClassifier>| best.info.step != run.state.done;
        let models = 1 + usize::from(run.state.best.as_ref().is_some_and(is_other));
        rows * models * if run.method.draws_nest() { most } else { all }
    }

    /// Where the run stands: at the newest checkpoint in `folder`, or at its start. Writes nothing,
    /// and finds whatever could keep the first step from being taken.
    pub(crate) fn open(&self, folder: &Path) -> Result<RunState> {
        batches(&self.context(), &self.task.train, 0)?;
        match latest_checkpoint(folder)? {
            Some(path) => self.start.resumed(&path),
            None => self.start.fresh(),
        }
    }

    /// Trains `run` to the end; `None` if a stop request ended it after a checkpoint.
    pub(crate) fn train(
        &self,
        mut run: RunState,
        checkpoints: &Checkpoints,
        sink: &mut dyn ProgressSink,
    ) -> Result<Option<RunState>> {
        sink.event(&Event::RunStarted {
            index: self.position.0,
            runs: self.position.1,
            label: self.label.clone(),
            steps: run.steps(),
            done: run.state.done,
        });
        let context = self.context();
        let (state, method) = (&mut run.state, &mut *run.method);
        let outcome = fit(&context, state, method, Some(checkpoints), self.stop, sink)?;
        Ok((outcome == Outcome::Finished).then_some(run))
    }
}

pub fn fit(
    context: &RunContext<'_>,
    state: &mut TrainState<AutoClassifier>,
    method: &mut (dyn Tuning + 'static),
    checkpoints: Option<&Checkpoints>,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<Outcome> {
    let plan = context.config.training(context.seed).check()?;
    let (config, task) = (context.config, context.task);
    let is_fitted_to = method.holdout() > 0.0 || config.holdout > 0.0;
    let (rows, waiting) = in_order(&task.train, &task.holdout, is_fitted_to);
    let mut batches = batches(context, &rows, waiting)?;
    train::fit(
        &plan,
        state,
        method,
        &mut batches,
        &mut Watched { context, checkpoints, stop, sink },
    )
}

/// `rows` in their order, the last of them `kept_back` until they have cut the ranks.
fn batches<'a>(
    context: &RunContext<'a>,
    rows: &'a [TokenisedExample],
    kept_back: usize,
) -> Burn<Ordered<TokenExamples<'a>>> {
    let config = context.config;
    Ordered::new(context.examples(rows), config.order(), context.seed)?
        .accumulating(config.accumulation)?
        .holding_out(kept_back)
}

struct Watched<'a> {
    context: &'a RunContext<'a>,
    checkpoints: Option<&'a Checkpoints>,
    stop: &'a AtomicBool,
    sink: &'a mut dyn ProgressSink,
}

impl Observer<AutoClassifier, dyn Tuning> for Watched<'_> {
    type Error = Error;

    fn event(&mut self, event: &Event) {
        self.sink.event(event);
    }

    fn evaluate(
        &mut self,
        model: &AutoClassifier,
        method: &(dyn Tuning + 'static),
    ) -> Result<Option<Evaluation>> {
        let task = self.context.task;
        let examples = self.context.examples(&task.validation);
        let logits = method.predict(model, &self.context.inputs(&examples), 0)?;
        let metrics = score_draws(&logits, task)?.metrics;
        let standard = metrics.standard.values().next().copied();
        let found = [("accuracy", metrics.accuracy), ("standard", standard), ("nll", metrics.nll)];
        let finite = found.into_iter().filter_map(|(name, value)| {
            Some((name.to_owned(), value.filter(|value| value.is_finite())?))
        });
        Ok(Some(Evaluation {
            metric: task.selection_metric().to_owned(),
            score: Some(task.score(&metrics)).filter(|score| score.is_finite()),
            metrics: finite.collect::<BTreeMap<_, _>>(),
        }))
    }

    fn held_out(
        &mut self,
        model: &AutoClassifier,
        method: &(dyn Tuning + 'static),
    ) -> Result<Option<Vec<f64>>> {
        let examples = self.context.examples(&self.context.task.holdout);
        if examples.is_empty() {
            return Ok(None);
        }
        let logits = method.predict(model, &self.context.inputs(&examples), 0)?;
        let all: Vec<usize> = (0..examples.len()).collect();
        Ok(Some(calibrated_losses(&logits, &examples.targets(&all)?)?))
    }

    fn checkpoint(
        &mut self,
        state: &TrainState<AutoClassifier>,
        method: &(dyn Tuning + 'static),
    ) -> Result<()> {
        if let Some(checkpoints) = self.checkpoints {
            checkpoints.save(state, method)?;
        }
        Ok(())
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

pub(crate) struct FinalWatch<'a> {
    stop: &'a AtomicBool,
    sink: RefCell<&'a mut dyn ProgressSink>,
    done: Cell<usize>,
    total: usize,
}

impl<'a> FinalWatch<'a> {
    /// An evaluation of about `total` answers, which `stop` ends.
    pub(crate) fn new(stop: &'a AtomicBool, sink: &'a mut dyn ProgressSink, total: usize) -> Self {
        sink.event(&Event::Evaluating { done: 0, total });
        Self { stop, sink: RefCell::new(sink), done: Cell::new(0), total }
    }

    pub(crate) fn passed(&self, answers: usize) -> bool {
        // What a method spares or adds is not known before.
        let done = (self.done.get() + answers).min(self.total);
        self.done.set(done);
        self.sink.borrow_mut().event(&Event::Evaluating { done, total: self.total });
        !self.stop.load(Ordering::Relaxed)
    }
}
