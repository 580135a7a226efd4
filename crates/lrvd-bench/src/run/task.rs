//! What a run must know of the kind of its task: classes and scores (`classes`), or texts (`texts`).

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use lrvd_burn::model::AdapterTargets;
use lrvd_burn::train::{Evaluation, LabelledExamples, Method, Model};
use serde::de::DeserializeOwned;

use super::settings::TrainSettings;
use crate::backbone::Backbone;
use crate::error::{Burn, Result};
use crate::eval::RunContext;
use crate::method::{MethodName, RankRequest, Temperatures};
use crate::record::{Metrics, Reliability, SelectiveRecord};
use crate::settings::{Config, TargetModules};

/// Something of every number of draws; 0 is the mean.
pub(crate) type ByDraws<T> = BTreeMap<u32, T>;

/// What starts a run.
pub(crate) struct RunStart<'a, T> {
    pub config: &'a Config,
    pub backbone: &'a Backbone,
    pub task: &'a T,
    pub method: MethodName,
    pub request: RankRequest,
    pub seed: u64,
    pub device: &'a Device,
}

impl<T> Clone for RunStart<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RunStart<'_, T> {}

/// Answers with the seconds that they took.
pub(crate) type Timed<T> = (ByDraws<T>, ByDraws<f64>);

/// A model of a run that is asked, its method, and the run.
pub(crate) type Answering<'a, T> =
    (&'a RunContext<'a, T>, &'a <T as TrainTask>::Model, &'a <T as TrainTask>::Method);

/// What is measured of the answers to the validation rows.
#[derive(Default)]
pub(crate) struct Measures {
    pub metrics: ByDraws<Metrics>,
    pub reliability: ByDraws<Reliability>,
    pub selective: ByDraws<SelectiveRecord>,
}

/// Prepared rows: training, held out, validation. The kind of the rows decides the model, the methods, what is measured.
pub(crate) trait TrainTask: Clone {
    /// What the settings of its runs have beside those of every run.
    type Kind: DeserializeOwned;
    type Model: Model;
    type Method: Method<Self::Model> + ?Sized;
    type Row: Clone;
    type Rows<'a>: LabelledExamples<Input = <Self::Model as Model>::Input>
    where
        Self: 'a;
    type Answers: Clone;

    /// A task without rows, for a run that is not continued.
    fn without_rows(settings: &TrainSettings<Self::Kind>, backbone: &Backbone) -> Result<Self>;

    /// The training rows, those held out of training, the validation rows.
    fn splits(&self) -> [&[Self::Row]; 3];

    /// The same task with a `share` of the training rows held out: drawn by a seed, or without one the last.
    #[must_use]
    fn holding_out(&self, share: f64, drawn_by: Option<u64>) -> Self;

    /// `rows` as the model of the run reads them.
    fn rows<'a>(context: &RunContext<'a, Self>, rows: &'a [Self::Row]) -> Self::Rows<'a>;

    fn load(start: &RunStart<'_, Self>) -> Result<Self::Model>;

    fn build(
        method: MethodName,
        config: &Config,
        request: RankRequest,
    ) -> Result<Box<Self::Method>>;

    /// Measures the validation rows at the mean, between steps.
    fn evaluate(model: Answering<'_, Self>) -> Result<Evaluation>;

    /// The loss of every held-out row at the mean.
    fn held_out(model: Answering<'_, Self>) -> Result<Vec<f64>>;

    /// Answers to the validation rows at the mean and at every number of `draws`, and the seconds that each took.
    fn answers(
        model: Answering<'_, Self>,
        temperatures: &Temperatures,
        draws: &[usize],
    ) -> Result<Timed<Self::Answers>>;

    fn measures(&self, answers: &ByDraws<Self::Answers>) -> Result<Measures>;

    /// Writes one line for every validation row.
    fn write_predictions(&self, answers: &ByDraws<Self::Answers>, path: &Path) -> Result<()>;

    /// Whether one pass with the most draws answers for all numbers of draws.
    fn draws_nest(_method: &Self::Method) -> bool {
        false
    }

    /// The layers of `model` that get an adapter, of those that the settings name.
    fn targets(_model: &Self::Model, targets: &TargetModules) -> AdapterTargets {
        targets.layers()
    }

    /// Checks what only the model with its adapters can say.
    fn check(
        _start: &RunStart<'_, Self>,
        _model: &Self::Model,
        _method: &Self::Method,
    ) -> Burn<()> {
        Ok(())
    }

    /// Fits what the method fits to the trained model, then the temperatures of `name`, if it has some.
    fn finish(
        _context: &RunContext<'_, Self>,
        _model: &mut Self::Model,
        _method: &mut Self::Method,
        _name: MethodName,
    ) -> Result<Temperatures> {
        Ok(Temperatures::default())
    }
}
