//! A Gaussian over one multiplier per rank.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use lrvd_burn::model::ranks;
use lrvd_burn::prune::statistics;
use lrvd_burn::train::GateGradients;
use lrvd_core::gates::{GateForm, GatePosterior, gate_probit, gauss_newton};
use lrvd_core::metrics::softmax;
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use lrvd_core::numeric::minimise_on_log;
use lrvd_models::AutoClassifier;

use super::{Fits, Form};
use crate::data::batch::TokenisedExample;
use crate::method::MethodError;

/// Mixed into the run's seed for the rows that the curvature is taken of.
const SALT: u64 = 0x434f_4e46_4944_454e;
/// Variances of a logit difference, on the average over held-out rows, that are looked at.
const SPREADS: (f64, f64) = (1e-3, 1e4);
/// Prior precisions that are looked at, in units of the mean curvature of a gate.
const PRECISIONS: (f64, f64) = (1e-4, 1e4);
/// Points of either range.
const POINTS: usize = 17;
/// Golden-section steps.
const STEPS: usize = 12;

/// Which numbers of a posterior are fitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fitted {
    /// The scale of the covariance.
    Scale,
    /// The prior's precision; the scale is that of Laplace's approximation.
    Precision,
    /// Both.
    Both,
}

/// Gradients of one group of gates: of the rows held out, then of every set that is asked about.
struct Group {
    sets: Vec<GateGradients>,
    /// `[gates, gates]`, of the mean loss over training rows.
    gauss_newton: Vec<f64>,
}

impl Group {
    fn only(&self, range: &Range<usize>) -> Self {
        let gates = self.sets[0].gates;
        let rows = self.gauss_newton.chunks_exact(gates).skip(range.start).take(range.len());
        Self {
            sets: self.sets.iter().map(|set| set.only(range.clone())).collect(),
            gauss_newton: rows.flat_map(|row| row[range.clone()].to_vec()).collect(),
        }
    }

    fn gates(&self) -> usize {
        self.sets[0].gates
    }
}

/// Every posterior over gates; none where no rank is left, or where no gate changes an answer.
pub(super) fn add(
    fits: &mut Fits<'_>,
    model: &AutoClassifier,
    noise_size: usize,
) -> Result<(), MethodError> {
    if ranks(model).iter().all(|(_, rank)| *rank == 0) {
        return Ok(());
    }
    let sets = fits.each(|inputs| Ok(GateGradients::new(model, inputs)?))?;
    if sets[0].jacobians.iter().all(|value| *value == 0.0) {
        return Ok(());
    }
    let rows = curvature_rows(fits);
    let train = fits.ask(&rows, |inputs| Ok(GateGradients::new(model, inputs)?))?;
    let p = softmax(&train.logits, train.width)?;
    let gauss_newton = gauss_newton(&train.jacobians, &p, train.width, train.gates)?;
    let whole = Group { sets, gauss_newton };
    let gates = whole.gates();
    let triangle = |gates: usize| gates * (gates + 1) / 2;
    let last = whole.sets[0].modules.values().max_by_key(|range| range.start).cloned();
    let last = last.map(|range| whole.only(&range));
    let form = |form, group: &Group| GatePosterior::new(form, &group.gauss_newton, group.gates());
    let isotropic = form(GateForm::Isotropic, &whole)?;
    fit(fits, "gates", 1, Fitted::Scale, &isotropic, &whole)?;
    if let (Form::Posterior, Some(own)) = (Form::of(model), own(fits, model, &whole.sets[0])?) {
        fit(fits, "gates-own", noise_size + 1, Fitted::Scale, &own, &whole)?;
    }
    let diagonal = form(GateForm::Diagonal, &whole)?;
    fit(fits, "gates-diagonal", gates + 1, Fitted::Precision, &diagonal, &whole)?;
    fit(fits, "gates-diagonal-scaled", gates + 2, Fitted::Both, &diagonal, &whole)?;
    if gates <= fits.effort.full_gates {
        let full = form(GateForm::Full, &whole)?;
        let size = triangle(gates);
        fit(fits, "gates-full", size + 1, Fitted::Precision, &full, &whole)?;
        fit(fits, "gates-full-scaled", size + 2, Fitted::Both, &full, &whole)?;
    }
    if let Some(last) = last.filter(|last| last.sets[0].jacobians.iter().any(|v| *v != 0.0)) {
        let isotropic = form(GateForm::Isotropic, &last)?;
        fit(fits, "gates-last", 1, Fitted::Scale, &isotropic, &last)?;
        let (full, size) = (form(GateForm::Full, &last)?, triangle(last.gates()));
        fit(fits, "gates-last-full", size + 2, Fitted::Both, &full, &last)?;
    }
    Ok(())
}

/// The training rows that the curvature is taken of.
fn curvature_rows(fits: &Fits<'_>) -> Vec<TokenisedExample> {
    let train = &fits.context.task.train;
    let key = NoiseKey::new(fits.context.seed ^ SALT).on_stream(Stream::DATA);
    let order = permutation(key, train.len());
    order.into_iter().take(fits.effort.curvature_rows.max(1)).map(|i| train[i].clone()).collect()
}

/// The posterior's own noise-to-signal ratio of every rank as the shape of the gates' variances; `None` where a rank
/// has none.
fn own(
    fits: &Fits<'_>,
    model: &AutoClassifier,
    gates: &GateGradients,
) -> Result<Option<GatePosterior>, MethodError> {
    let found = statistics(model, fits.context.config.statistic_options())?;
    let mut variances = vec![0.0; gates.gates];
    for (path, range) in &gates.modules {
        let Some(statistic) = found.get(path) else { return Ok(None) };
        for (variance, log_alpha) in variances[range.clone()].iter_mut().zip(statistic) {
            *variance = log_alpha.exp();
        }
    }
    Ok(Some(GatePosterior::of_variances(&variances)?))
}

/// Fits `posterior`, and keeps it as `name`.
fn fit(
    fits: &mut Fits<'_>,
    name: &str,
    stored: usize,
    what: Fitted,
    posterior: &GatePosterior,
    group: &Group,
) -> Result<(), MethodError> {
    let begun = Instant::now();
    let width = group.sets[0].width;
    let along = |set: &GateGradients| posterior.along_axes(&set.jacobians);
    let held_out = along(&group.sets[0])?;
    let n_train = fits.context.task.train.len().max(1) as f64;
    let unit = posterior.mean_curvature();
    let nll = |scale: f64, precision: f64| -> Result<f64, MethodError> {
        let variances = posterior.variances(scale, precision)?;
        fits.nll(&gate_probit(&group.sets[0].logits, &held_out, &variances, width)?)
    };
    // The best scale for a prior precision, in units of the spread that scale 1 gives.
    let with_scale = |precision: f64, steps: usize| -> Result<(f64, f64), MethodError> {
        let variances = posterior.variances(1.0, precision)?;
        let rows = held_out.chunks_exact(variances.len());
        let total: f64 =
            rows.map(|row| row.iter().zip(&variances).map(|(j, v)| v * j * j).sum::<f64>()).sum();
        let spread = total / group.sets[0].rows as f64;
        let range = (SPREADS.0 / spread, SPREADS.1 / spread);
        minimise_on_log(range, POINTS, steps, |scale| nll(scale, precision))
    };
    let range = (PRECISIONS.0 * unit, PRECISIONS.1 * unit);
    let (scale, precision) = match what {
        Fitted::Scale => (with_scale(1.0, STEPS)?.0, 1.0),
        Fitted::Precision => {
            let scale = 1.0 / n_train;
            (scale, minimise_on_log(range, POINTS, STEPS, |precision| nll(scale, precision))?.0)
        }
        Fitted::Both => {
            let (precision, _) = minimise_on_log(range, POINTS, 0, |precision| {
                Ok::<_, MethodError>(with_scale(precision, 3)?.1)
            })?;
            (with_scale(precision, STEPS)?.0, precision)
        }
    };
    let variances = posterior.variances(scale, precision)?;
    let answer = |set: &GateGradients| -> Result<Vec<f64>, MethodError> {
        Ok(gate_probit(&set.logits, &along(set)?, &variances, width)?)
    };
    let answers = group.sets.iter().map(answer).collect::<Result<Vec<_>, _>>()?;
    let mut fitted = BTreeMap::new();
    if what != Fitted::Precision {
        fitted.insert("scale".to_owned(), scale);
    }
    if what != Fitted::Scale {
        fitted.insert("prior-precision".to_owned(), precision * n_train);
    }
    fits.add(name, stored, fitted, begun, answers)
}
