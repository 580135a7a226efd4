//! One fine-tuning run: a fresh start or a checkpoint, the loop, the evaluation at its end.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::DType;
use lrvd_burn::train::{
    self, Checkpoints, Evaluation, Observer, Ordered, Outcome, PassWatch, TrainState,
    latest_checkpoint, load_checkpoint,
};
use lrvd_models::AutoClassifier;

use super::outcome::record;
use super::task::{RunStart, TrainTask};
use super::{CHECKPOINT_DIR, Finished, RECORD_FILE, RunLabel, still_there};
use crate::data::{PreparedTask, in_order};
use crate::error::{Burn, Error, Kind, Result, kind_of};
use crate::eval::{PeakMemory, RunContext};
use crate::io::{JsonLayout, write_json};
use crate::method::{ClassifierMethod, MethodName};
use crate::progress::{Event, ProgressSink};
use crate::record::RunRecord;

/// A model of a task with its method.
pub(crate) type RunState<T = PreparedTask> =
    train::Run<<T as TrainTask>::Model, <T as TrainTask>::Method>;

pub(crate) struct Run<'a, T: TrainTask = PreparedTask> {
    start: RunStart<'a, T>,
    task: Cow<'a, T>,
    memory: PeakMemory,
    stop: &'a AtomicBool,
    label: String,
    /// Position among all runs, from 1, and their number.
    position: (usize, usize),
}

/// Where a run leaves its results, and what they are called.
pub(crate) struct RunPlace<'a> {
    /// The output folder, of this run or of all.
    pub out: &'a Path,
    /// The folder of the run.
    pub folder: &'a Path,
    pub label: RunLabel<'a>,
    pub layout: JsonLayout,
    /// One line of results for the terminal.
    pub summary: &'a dyn Fn(&RunRecord) -> String,
}

impl<T: TrainTask> RunStart<'_, T> {
    pub(crate) fn fresh(&self) -> Result<RunState<T>> {
        self.attached(self.load()?)
    }

    pub(crate) fn load(&self) -> Result<T::Model> {
        T::load(self)
    }

    /// [`fresh`](Self::fresh) around the `model` that [`load`](Self::load) returned.
    pub(crate) fn attached(&self, model: T::Model) -> Result<RunState<T>> {
        let config = self.config;
        let method = T::build(self.method, config, self.request)?;
        let targets = T::targets(&model, &config.target_modules);
        let run = train::Run::with(model, method, &targets, &config.training(self.seed))?;
        T::check(self, &run.state.model, &run.method)?;
        Ok(run)
    }
}

impl<'a, T: TrainTask> Run<'a, T> {
    pub(crate) fn new(
        start: RunStart<'a, T>,
        stop: &'a AtomicBool,
        label: String,
        position: (usize, usize),
    ) -> Self {
        let RunStart { config, method, seed, .. } = start;
        let [train, ..] = start.task.splits();
        let share = method.holdout(config);
        let drawn = config.drawn_share(method.searches(config), train.len());
        let task = if drawn > 0.0 {
            Cow::Owned(start.task.holding_out(drawn, Some(seed)))
        } else if share > 0.0 {
            Cow::Owned(start.task.holding_out(share, None))
        } else {
            Cow::Borrowed(start.task)
        };
        Self { start, task, memory: PeakMemory::start(), stop, label, position }
    }

    pub(crate) fn context(&self) -> RunContext<'_, T> {
        let RunStart { config, method, seed, .. } = self.start;
        RunContext {
            config,
            task: &self.task,
            seed,
            fits_holdout: method.holdout(config) > 0.0 || config.holdout > 0.0,
            device: self.start.device,
            dtype: DType::F32,
            memory: self.memory,
            watch: PassWatch::default(),
        }
    }

    /// Trains `begun` to the end, evaluates it, and leaves predictions, what `keep` writes, and last of all the record in the
    /// run's folder; `None` if a stop request ended that after a checkpoint, or `keep` returns `None`.
    pub(crate) fn complete(
        &self,
        mut begun: RunState<T>,
        place: &RunPlace<'_>,
        sink: &mut dyn ProgressSink,
        keep: impl FnOnce(RunState<T>, &mut Finished<T>, &mut dyn ProgressSink) -> Result<Option<()>>,
    ) -> Result<Option<RunRecord>> {
        let &RunPlace { out, folder, ref label, layout, summary } = place;
        let checkpoints = Checkpoints::open(folder.join(CHECKPOINT_DIR))?;
        if self.train(&mut begun, &checkpoints, sink)? == Outcome::Stopped {
            return Ok(None);
        }
        still_there(out)?;
        let (total, mut trained) = (self.answers(&begun, label.method), begun);
        let recorded =
            self.watched(sink, total, |context| record(context, &mut trained, label, folder))?;
        let Some(mut finished) = recorded else { return Ok(None) };
        let Some(()) = keep(trained, &mut finished, sink)? else { return Ok(None) };
        let record = finished.record;
        write_json(&folder.join(RECORD_FILE), &record, layout)?;
        still_there(out)?;
        checkpoints.remove()?;
        let (label, summary) = (self.label.clone(), summary(&record));
        sink.event(&Event::RunFinished { label, summary, seconds: record.train_seconds });
        Ok(Some(record))
    }

    /// What `answer` returns after about `total` answers under this run's watch; `None` if a stop request ended it.
    pub(crate) fn watched<R>(
        &self,
        sink: &mut dyn ProgressSink,
        total: usize,
        answer: impl FnOnce(&RunContext<'_, T>) -> Result<R>,
    ) -> Result<Option<R>> {
        sink.event(&Event::Evaluating { done: 0, total });
        let (sink, done) = (RefCell::new(sink), Cell::new(0));
        let passed = |answers: usize| {
            // What a method spares or adds is not known before.
            done.set((done.get() + answers).min(total));
            sink.borrow_mut().event(&Event::Evaluating { done: done.get(), total });
            !self.stop.load(Ordering::Relaxed)
        };
        let context = RunContext { watch: PassWatch::new(&passed), ..self.context() };
        match answer(&context) {
            Err(error) if kind_of(&error) == Some(Kind::Stopped) => Ok(None),
            found => found.map(Some),
        }
    }

    /// About how many answers the record takes.
    fn answers(&self, run: &RunState<T>, method: MethodName) -> usize {
        let draws = method.draws(self.start.config);
        let (all, most) = (1 + draws.iter().sum::<usize>(), 1 + draws.iter().max().unwrap_or(&0));
        let [_, holdout, validation] = self.task.splits();
        if method.can().post_hoc {
            return (validation.len() + holdout.len()) * all;
        }
        let best = run.state.best.as_ref().filter(|best| best.info.step != run.state.done);
        let models = 1 + usize::from(best.is_some());
        validation.len() * models * if T::draws_nest(&run.method) { most } else { all }
    }

    /// Where the run in `folder` stands: at its newest checkpoint, or at its start. Writes nothing,
    /// and finds whatever could keep the first step from being taken.
    pub(crate) fn open(&self, folder: &Path) -> Result<RunState<T>> {
        let [train, ..] = self.task.splits();
        batches(&self.context(), train, 0)?;
        let mut run = self.start.fresh()?;
        if let Some(path) = latest_checkpoint(&folder.join(CHECKPOINT_DIR))? {
            load_checkpoint(&path, &mut run.state, &mut *run.method)?;
        }
        Ok(run)
    }

    fn train(
        &self,
        run: &mut RunState<T>,
        checkpoints: &Checkpoints,
        sink: &mut dyn ProgressSink,
    ) -> Result<Outcome> {
        sink.event(&Event::RunStarted {
            index: self.position.0,
            runs: self.position.1,
            label: self.label.clone(),
            steps: run.steps(),
            done: run.state.done,
        });
        let (context, checkpoints, stop) = (self.context(), Some(checkpoints), self.stop);
        let mut observer = Watched { context: &context, checkpoints, stop, sink };
        observer.fit(&mut run.state, &mut run.method)
    }
}

/// Trains a classifier to the last step.
pub fn fit(
    context: &RunContext<'_>,
    state: &mut TrainState<AutoClassifier>,
    method: &mut ClassifierMethod,
    checkpoints: Option<&Checkpoints>,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<Outcome> {
    let mut observer = Watched { context, checkpoints, stop, sink };
    observer.fit(state, method)
}

/// `rows` in their order, the last of them `kept_back` until they have cut the ranks.
fn batches<'a, T: TrainTask>(
    context: &RunContext<'a, T>,
    rows: &'a [T::Row],
    kept_back: usize,
) -> Burn<Ordered<T::Rows<'a>>> {
    let config = context.config;
    Ordered::new(T::rows(context, rows), config.order(), context.seed)?
        .accumulating(config.accumulation)?
        .holding_out(kept_back)
}

/// Measures the validation rows, keeps checkpoints, ends on a stop request.
struct Watched<'a, T> {
    context: &'a RunContext<'a, T>,
    checkpoints: Option<&'a Checkpoints>,
    stop: &'a AtomicBool,
    sink: &'a mut dyn ProgressSink,
}

impl<T: TrainTask> Watched<'_, T> {
    fn fit(&mut self, state: &mut TrainState<T::Model>, method: &mut T::Method) -> Result<Outcome> {
        let RunContext { config, task, seed, fits_holdout, .. } = *self.context;
        let [train, holdout, _] = task.splits();
        let (rows, waiting) = in_order(train, holdout, fits_holdout);
        let mut batches = batches(self.context, &rows, waiting)?;
        train::fit(&config.training(seed).check()?, state, method, &mut batches, self)
    }
}

impl<T: TrainTask> Observer<T::Model, T::Method> for Watched<'_, T> {
    type Error = Error;

    fn event(&mut self, event: &Event) {
        self.sink.event(event);
    }

    fn evaluate(&mut self, model: &T::Model, method: &T::Method) -> Result<Option<Evaluation>> {
        T::evaluate((self.context, model, method)).map(Some)
    }

    fn held_out(&mut self, model: &T::Model, method: &T::Method) -> Result<Option<Vec<f64>>> {
        let [_, holdout, _] = self.context.task.splits();
        let losses = (!holdout.is_empty()).then(|| T::held_out((self.context, model, method)));
        losses.transpose()
    }

    fn checkpoint(&mut self, state: &TrainState<T::Model>, method: &T::Method) -> Result<()> {
        if let Some(checkpoints) = self.checkpoints {
            checkpoints.save(state, method)?;
        }
        Ok(())
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
