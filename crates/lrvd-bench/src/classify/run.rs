//! One fine-tuning run of a classifier: a fresh start or a checkpoint, then the loop.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use burn::tensor::{DType, Device};
use lrvd_burn::model::{AdapterTargets, attach_adapters};
use lrvd_burn::optimizer::AdamW;
use lrvd_burn::parameters::{NamedParameters, Role};
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::DebertaClassifier;

use crate::backbone::{Backbone, load_classifier};
use crate::data::batch::OrderState;
use crate::error::BenchError;
use crate::eval::PreparedTask;
use crate::experiment::{ExperimentConfig, PoolerMode};
use crate::method::{Method, MethodName, RankRequest};
use crate::progress::{Event, ProgressSink};
use crate::train::{
    FitContext, FitOutcome, Journal, TrainState, fit, latest_checkpoint, load_checkpoint,
    save_checkpoint,
};

/// What decides how a run starts.
#[derive(Clone, Copy)]
pub(crate) struct RunStart<'a> {
    /// Settings.
    pub config: &'a ExperimentConfig,
    /// Pretrained model.
    pub backbone: &'a Backbone,
    /// Width of the output.
    pub labels: usize,
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
    /// Tokenised data.
    pub task: &'a PreparedTask,
    /// Stop request.
    pub stop: &'a AtomicBool,
    /// Name in progress.
    pub label: String,
    /// Position among all runs, from 1, and their number.
    pub position: (usize, usize),
}

/// A model with what trains it.
pub(crate) struct RunState {
    pub state: TrainState<DebertaClassifier>,
    pub method: Method<DebertaClassifier>,
}

impl RunStart<'_> {
    /// Pretrained encoder, fresh head, fresh adapters, empty optimiser.
    pub(crate) fn fresh(&self) -> Result<RunState, BenchError> {
        let config = self.config;
        let method: Method<DebertaClassifier> = self.method.build(config, self.request)?;
        let mut model = load_classifier(
            self.backbone,
            self.labels,
            config.backbone_dropout,
            self.seed,
            self.device,
            DType::F32,
        )?;
        let targets = AdapterTargets::Names(config.target_modules.clone());
        attach_adapters(&mut model, &targets, &method.adapter(), NoiseKey::new(self.seed))?;
        model.visit_parameters(&mut |mut p| {
            let trained = match p.role {
                Role::Head => true,
                Role::Pooler => config.pooler == PoolerMode::Trained,
                _ => return,
            };
            p.value.set_trainable(trained);
        });
        let groups = config.groups(method.is_variational());
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
    pub(crate) fn resumed(&self, path: &Path) -> Result<RunState, BenchError> {
        let mut run = self.fresh()?;
        load_checkpoint(path, &mut run.state, &mut run.method)?;
        Ok(run)
    }
}

impl Run<'_> {
    /// What evaluation needs.
    pub(crate) fn context(&self) -> FitContext<'_> {
        FitContext {
            config: self.start.config,
            task: self.task,
            seed: self.start.seed,
            device: self.start.device,
            dtype: DType::F32,
            stop: self.stop,
        }
    }

    /// Trains to the end, from the newest checkpoint in `checkpoints` if there is one; `None` if a
    /// stop request ended it after a checkpoint.
    pub(crate) fn train(
        &self,
        checkpoints: &Path,
        sink: &mut dyn ProgressSink,
    ) -> Result<Option<RunState>, BenchError> {
        let config = self.start.config;
        let mut run = match latest_checkpoint(checkpoints)? {
            Some(path) => self.start.resumed(&path)?,
            None => self.start.fresh()?,
        };
        sink.event(&Event::RunStarted {
            index: self.position.0,
            runs: self.position.1,
            label: self.label.clone(),
            steps: config.steps,
            done: run.state.done,
        });
        let every = config.evaluate_every;
        let RunState { state, method } = &mut run;
        let outcome = fit(&self.context(), state, method, sink, &mut |state, method, must| {
            if must || state.done.is_multiple_of(every) {
                save_checkpoint(checkpoints, state, method)?;
            }
            Ok(())
        })?;
        Ok((outcome == FitOutcome::Finished).then_some(run))
    }
}
