//! One fine-tuning run of a classifier: a fresh start or a checkpoint, then the loop.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use burn::tensor::{DType, Device};
use lrvd_burn::model::{AdaptedModel, AdapterTargets, check_scheme};
use lrvd_burn::optimizer::AdamW;
use lrvd_burn::parameters::Role;
use lrvd_core::noise::NoiseKey;

use super::RunError;
use crate::backbone::{Backbone, TaskModel, load_model};
use crate::data::PreparedTask;
use crate::data::batch::OrderState;
use crate::eval::{PeakMemory, RunContext};
use crate::method::Method;
use crate::progress::{Event, ProgressSink};
use crate::settings::{MethodName, PoolerMode, RankRequest, ValidConfig};
use crate::train::{
    FitOutcome, Journal, TrainState, fit, latest_checkpoint, load_checkpoint, order,
    save_checkpoint,
};

/// What decides how a run starts.
#[derive(Clone, Copy)]
pub(crate) struct RunStart<'a> {
    /// Settings.
    pub config: &'a ValidConfig,
    /// Pretrained model.
    pub backbone: &'a Backbone,
    /// What the head answers.
    pub task: &'a PreparedTask,
    /// Method.
    pub method: MethodName,
    /// Rank asked for.
    pub request: RankRequest,
    /// Seed.
    pub seed: u64,
    /// Where to compute.
    pub device: &'a Device,
}

/// A start with what the loop needs beside it.
pub(crate) struct Run<'a> {
    /// The start.
    pub start: RunStart<'a>,
    /// Tokenised data, what the method holds out apart.
    task: Cow<'a, PreparedTask>,
    /// Resident memory since it began.
    memory: PeakMemory,
    /// Stop request.
    stop: &'a AtomicBool,
    /// Name in progress.
    label: String,
    /// Position among all runs, from 1, and their number.
    position: (usize, usize),
}

/// A model with what trains it.
pub(crate) struct RunState {
    pub state: TrainState,
    pub method: Method,
}

impl RunStart<'_> {
    /// Pretrained encoder, fresh head, fresh adapters, empty optimiser.
    pub(crate) fn fresh(&self) -> Result<RunState, RunError> {
        self.attached(self.load()?)
    }

    /// Pretrained encoder and fresh head.
    pub(crate) fn load(&self) -> Result<TaskModel, RunError> {
        let dtype = self.backbone.stored_as(self.config.base_precision)?;
        let dropout = self.config.backbone_dropout;
        Ok(load_model(self.backbone, self.task, dropout, self.seed, self.device, dtype)?)
    }

    /// [`fresh`](Self::fresh) around the `model` that [`load`](Self::load) returned.
    pub(crate) fn attached(&self, mut model: TaskModel) -> Result<RunState, RunError> {
        let config = self.config;
        let method = self.method.build(config, self.request)?;
        let targets = AdapterTargets::Names(config.target_modules.clone());
        method.attach(&mut model, &targets, NoiseKey::new(self.seed))?;
        check_scheme(&model, method.training_scheme())?;
        model.visit_parameters_mut(&mut |p| {
            let trained = match p.role {
                Role::Head => true,
                Role::Pooler => config.pooler == PoolerMode::Trained,
                _ => return,
            };
            p.value.set_trainable(trained);
        });
        let groups = method.groups(config);
        let state = TrainState {
            model,
            optimizer: AdamW::new(config.optimizer, groups),
            done: 0,
            order: OrderState::default(),
            best: None,
            journal: Journal::default(),
        };
        Ok(RunState { state, method })
    }

    /// The state in the checkpoint at `path`.
    pub(crate) fn resumed(&self, path: &Path) -> Result<RunState, RunError> {
        let mut run = self.fresh()?;
        load_checkpoint(path, &mut run.state, &mut run.method)?;
        Ok(run)
    }
}

impl<'a> Run<'a> {
    /// A run of `start` on `start.task`, less what its method holds out.
    pub(crate) fn new(
        start: RunStart<'a>,
        stop: &'a AtomicBool,
        label: String,
        position: (usize, usize),
    ) -> Result<Self, RunError> {
        let share = start.method.build(start.config, start.request)?.holdout();
        let task = if share > 0.0 {
            Cow::Owned(start.task.holding_out(share))
        } else {
            Cow::Borrowed(start.task)
        };
        Ok(Self { start, task, memory: PeakMemory::start(), stop, label, position })
    }

    /// What evaluation needs.
    pub(crate) fn context(&self) -> RunContext<'_> {
        RunContext {
            config: self.start.config,
            task: &self.task,
            seed: self.start.seed,
            device: self.start.device,
            dtype: DType::F32,
            memory: self.memory,
        }
    }

    /// Where the run stands: at the newest checkpoint in `checkpoints`, or at its start. Writes
    /// nothing, and finds whatever could keep the first step from being taken.
    pub(crate) fn open(&self, checkpoints: &Path) -> Result<RunState, RunError> {
        order(&self.context())?;
        match latest_checkpoint(checkpoints)? {
            Some(path) => self.start.resumed(&path),
            None => self.start.fresh(),
        }
    }

    /// Trains `run` to the end; `None` if a stop request ended it after a checkpoint.
    pub(crate) fn train(
        &self,
        mut run: RunState,
        checkpoints: &Path,
        sink: &mut dyn ProgressSink,
    ) -> Result<Option<RunState>, RunError> {
        let config = self.start.config;
        sink.event(&Event::RunStarted {
            index: self.position.0,
            runs: self.position.1,
            label: self.label.clone(),
            steps: config.steps,
            done: run.state.done,
        });
        let every = config.evaluate_every;
        let RunState { state, method } = &mut run;
        let outcome =
            fit(&self.context(), state, method, self.stop, sink, &mut |state, method, must| {
                if must || state.done.is_multiple_of(every) {
                    save_checkpoint(checkpoints, state, method)?;
                }
                Ok(())
            })?;
        Ok((outcome == FitOutcome::Finished).then_some(run))
    }
}
