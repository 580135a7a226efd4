//! Confidence of one trained adapter, fitted afterwards on held-out rows with few numbers.
//!
//! | Candidate | Answer | Numbers kept beside the means |
//! |---|---|---|
//! | `mean` | the posterior mean | 0 |
//! | `draws` | `k` draws of the posterior as trained | the posterior's |
//! | `noise` | `k` draws of it with all standard deviations times one number; on a plain LoRA, of noise on A in the basis of TFB, all of one size | the posterior's (0 for LoRA) and 1 |
//! | `noise-module` | the same with a number per module | the posterior's and one per module |
//! | `gates` | one multiplier per rank, `N(1, v·I)`, linearised | 1 |
//! | `gates-own` | the same with `α/(1 + α)` in place of 1, `α` the posterior's noise-to-signal ratio of the rank | the posterior's and 1 |
//! | `gates-diagonal`, `gates-full` | Laplace's approximation over the gates: `(n·G + δ·I)⁻¹`, `δ` fitted | that part of `G` and 1 |
//! | `gates-diagonal-scaled`, `gates-full-scaled` | `v·(G + λ·I)⁻¹`, both fitted | that part of `G` and 2 |
//! | `gates-last`, `gates-last-full` | `gates` and `gates-full-scaled` of the adapter nearest to the output | as above, of one module |
//! | any of them with `+ts` | a temperature on the answer | 1 more |
//!
//! Everything is fitted by the negative log-likelihood of the rows that were held out, and by nothing else but the
//! Gauss-Newton matrix `G`, which is that of training rows. Gates answer by the probit of every pair of classes
//! ([`lrvd_core::gates::gate_probit`]): no draw, the same answer every time.

mod gates;
mod measures;
mod noise;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use burn::module::Module;
use lrvd_burn::adapter::Extension;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::parameters::Role;
use lrvd_burn::train::Logits;
use lrvd_core::baselines::temperature_scaling;
use lrvd_core::metrics::{Predictions, log_softmax, mean_probability};
use lrvd_models::AutoClassifier;

pub use measures::{Measures, row_losses};

use crate::data::batch::TokenisedExample;
use crate::eval::RunContext;
use crate::method::{Inputs, MethodError, Tuning};

/// What stands behind a candidate's name for a temperature on top.
pub const TEMPERED: &str = "+ts";

/// How much is spent on the fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Draws of an answer that is made of draws.
    pub draws: usize,
    /// Whether the noise is fitted, of all modules together and of each: one or two answers to the held-out rows for every
    /// scale that is looked at.
    pub noise: bool,
    /// Most training rows that the Gauss-Newton matrix is taken of, whichever the seed picks.
    pub curvature_rows: usize,
    /// Most gates whose full matrix is taken apart; beyond it the candidates that need it are left out.
    pub full_gates: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { draws: 10, noise: true, curvature_rows: 2_000, full_gates: 600 }
    }
}

impl Effort {
    /// A few minutes where every answer takes one: of a model with many modules.
    pub fn small() -> Self {
        Self { noise: false, curvature_rows: 400, ..Self::default() }
    }
}

/// One way of answering, fitted, with its answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name.
    pub name: String,
    /// Numbers that it keeps beside the adapter's means.
    pub stored: usize,
    /// What was fitted.
    pub fitted: BTreeMap<String, f64>,
    /// Seconds that the fit and the answers took, without what candidates share.
    pub seconds: f64,
    /// Mean negative log-likelihood of the rows that it was fitted to, nats.
    pub held_out_nll: f64,
    /// Probabilities of every set that was asked about, `[rows, classes]` each.
    pub answers: Vec<Vec<f64>>,
}

/// What a trained model's adapters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Plain factors.
    Plain,
    /// Factors that are the means of a posterior per rank.
    Posterior,
    /// Anything else; it answers at its mean and by its own draws.
    Other,
}

impl Form {
    fn of(model: &AutoClassifier) -> Self {
        let mut form = Self::Plain;
        model.visit_layers(&mut |_, layer| match layer.extension() {
            Some(Extension::Posterior(_)) if form != Self::Other => form = Self::Posterior,
            None if layer.members().is_none() => {}
            _ => form = Self::Other,
        });
        form
    }
}

/// All candidates that `model`, as `method` trained it, has: fitted to the rows that the run of `context` held out,
/// asked about each of `asked`.
///
/// # Errors
///
/// [`MethodError`] where nothing was held out, for scores in place of classes, and where the model cannot be asked.
pub fn candidates(
    context: &RunContext<'_>,
    model: &AutoClassifier,
    method: &dyn Tuning,
    asked: &[&[TokenisedExample]],
    effort: Effort,
) -> Result<Vec<Candidate>, MethodError> {
    let refused = |what: &str| MethodError::Method { method: "confidence", what: what.to_owned() };
    if context.task.goal.is_regression() {
        return Err(refused("is of classes, and the task has scores"));
    }
    if context.task.holdout.is_empty() {
        return Err(refused("is fitted to rows that training has not seen: hold some out"));
    }
    let model = model.clone().valid();
    let form = Form::of(&model);
    let mut noise_size = 0;
    model.visit_parameters(&mut |p| {
        noise_size += if p.role == Role::LogVariance { p.value.len() } else { 0 };
    });
    let mut fits = Fits::new(context, asked, effort);
    for (name, stored, draws) in [("mean", 0, 0), ("draws", noise_size, effort.draws)] {
        if draws == 0 || form != Form::Plain {
            let begun = Instant::now();
            let answers = fits.each(|inputs| averaged(&method.predict(&model, inputs, draws)?))?;
            fits.add(name, stored, BTreeMap::new(), begun, answers)?;
        }
    }
    if form != Form::Other {
        if effort.draws > 0 && effort.noise {
            noise::add(&mut fits, &model, noise_size)?;
        }
        gates::add(&mut fits, &model, noise_size)?;
    }
    Ok(fits.found)
}

/// What every fit is given, and those that are done.
struct Fits<'a> {
    context: &'a RunContext<'a>,
    /// The rows that were held out, then those that are asked about.
    sets: Vec<&'a [TokenisedExample]>,
    /// Classes of the rows that were held out.
    classes: Vec<usize>,
    effort: Effort,
    found: Vec<Candidate>,
}

impl<'a> Fits<'a> {
    fn new(context: &'a RunContext<'a>, asked: &[&'a [TokenisedExample]], effort: Effort) -> Self {
        let holdout = context.task.holdout.as_slice();
        let sets = std::iter::once(holdout).chain(asked.iter().copied()).collect();
        let classes = holdout.iter().filter_map(|example| example.label.class()).collect();
        Self { context, sets, classes, effort, found: Vec::new() }
    }

    fn width(&self) -> usize {
        self.context.task.labels
    }

    /// `answer` to one set.
    fn ask<T>(
        &self,
        set: &[TokenisedExample],
        answer: impl FnOnce(&Inputs<'_>) -> Result<T, MethodError>,
    ) -> Result<T, MethodError> {
        let examples = self.context.examples(set);
        answer(&self.context.inputs(&examples))
    }

    /// `answer` to every set.
    fn each<T>(
        &self,
        answer: impl Fn(&Inputs<'_>) -> Result<T, MethodError>,
    ) -> Result<Vec<T>, MethodError> {
        self.sets.iter().map(|set| self.ask(set, &answer)).collect()
    }

    /// Mean negative log-likelihood of the rows that were held out, answered by `probabilities`.
    fn nll(&self, probabilities: &[f64]) -> Result<f64, MethodError> {
        Ok(Predictions::new(probabilities, self.width(), &self.classes)?.nll())
    }

    /// Keeps a candidate with its `answers` to every set, as it is and with a temperature on top.
    fn add(
        &mut self,
        name: &str,
        stored: usize,
        fitted: BTreeMap<String, f64>,
        begun: Instant,
        answers: Vec<Vec<f64>>,
    ) -> Result<(), MethodError> {
        // A probability that underflowed has no logarithm to scale.
        let logs =
            |p: &[f64]| p.iter().map(|p| p.max(f64::MIN_POSITIVE).ln()).collect::<Vec<f64>>();
        let fit = temperature_scaling(&logs(&answers[0]), self.width(), &self.classes)?;
        let soften = |p: &Vec<f64>| -> Result<Vec<f64>, MethodError> {
            let scaled: Vec<f64> = logs(p).iter().map(|z| z / fit.temperature).collect();
            Ok(log_softmax(&scaled, self.width())?.into_iter().map(f64::exp).collect())
        };
        let tempered = answers.iter().map(soften).collect::<Result<Vec<_>, _>>()?;
        let mut with_temperature = fitted.clone();
        with_temperature.insert("temperature".to_owned(), fit.temperature);
        let seconds = begun.elapsed().as_secs_f64();
        let both = [
            (name.to_owned(), stored, fitted, answers),
            (format!("{name}{TEMPERED}"), stored + 1, with_temperature, tempered),
        ];
        for (name, stored, fitted, mut answers) in both {
            let held_out_nll = self.nll(&answers.remove(0))?;
            self.found.push(Candidate { name, stored, fitted, seconds, held_out_nll, answers });
        }
        Ok(())
    }
}

/// Probabilities averaged over the members of `logits`, `[rows, classes]`.
fn averaged(logits: &Logits) -> Result<Vec<f64>, MethodError> {
    let logs = log_softmax(&logits.values, logits.width)?;
    Ok(mean_probability(&logs, logits.members().max(1), logits.width)?)
}
