//! Orders of ranks: the energy that they capture, and the held-out loss of what they keep.

use std::collections::BTreeMap;

use lrvd_burn::error::AdapterError;
use lrvd_burn::gauge::turn;
use lrvd_burn::host::{HostAdapter, values};
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::prune::statistics;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{
    Direction, LabelledExamples, Model, TrainError, directions, negative_log_likelihood, rank_path,
};
use lrvd_core::energy::{AucRule, Capture, UpdateEnergy};
use lrvd_core::gauge::{Gauge, push_forward};
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use lrvd_core::prune::PathTolerance;
use lrvd_models::AutoClassifier;

use crate::record::Measurement;
use crate::suite::{Analysis, SuiteError, Trained};

/// Shares of all ranks that a model is cut to.
const SHARES: [f64; 11] = [
    0.0,
    1.0 / 24.0,
    1.0 / 12.0,
    1.0 / 8.0,
    1.0 / 6.0,
    1.0 / 4.0,
    1.0 / 3.0,
    1.0 / 2.0,
    2.0 / 3.0,
    5.0 / 6.0,
    1.0,
];
/// Training rows that a sensitivity is measured on, and how many of them at a time.
const SENSITIVITY: (usize, usize) = (512, 8);

/// Ranks of a model of `total` ranks at `share`.
pub(super) fn ranks_at(total: f64, share: f64) -> f64 {
    (share * total).round()
}

/// What an order of ranks goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The posterior's own statistic.
    Statistic,
    /// `‖a‖·‖b‖`.
    Magnitude,
    /// Mean square of the loss's gradient by a gate on the rank.
    Sensitivity,
    /// Nothing.
    Random,
    /// Singular values, of adapters turned to their singular directions.
    Singular,
}

impl Order {
    /// Name of the held-out loss over ranks kept.
    pub(super) const fn loss(self) -> &'static str {
        match self {
            Self::Statistic => "nll by own statistic",
            Self::Magnitude => "nll by magnitude",
            Self::Sensitivity => "nll by sensitivity",
            Self::Random => "nll at random",
            Self::Singular => "nll by singular value",
        }
    }

    /// Name of the fewest ranks within one standard error of the best.
    const fn enough(self) -> &'static str {
        match self {
            Self::Statistic => "enough by own statistic",
            Self::Magnitude => "enough by magnitude",
            Self::Sensitivity => "enough by sensitivity",
            Self::Random => "enough at random",
            Self::Singular => "enough by singular value",
        }
    }
}

/// Held-out loss with the first ranks of every order.
pub(super) struct Orders(pub(super) &'static [Order]);

impl Analysis for Orders {
    fn measure(&self, trained: &Trained<'_>) -> Result<Vec<Measurement>, SuiteError> {
        let mut found = Vec::new();
        for &order in self.0 {
            found.extend(cut(trained, order)?);
        }
        Ok(found)
    }
}

/// The same, with the energy that orders capture and how far changes of basis leave the family.
pub(super) struct Symmetry;

impl Analysis for Symmetry {
    fn measure(&self, trained: &Trained<'_>) -> Result<Vec<Measurement>, SuiteError> {
        use Order::{Magnitude, Random, Sensitivity, Singular, Statistic};
        let orders = Orders(&[Statistic, Magnitude, Sensitivity, Random, Singular]);
        let mut found = orders.measure(trained)?;
        found.extend(energy(trained)?);
        found.extend(changes_of_basis(trained)?);
        Ok(found)
    }
}

/// Held-out loss of `trained` cut by one order; nothing where the model has no such order.
fn cut(trained: &Trained<'_>, order: Order) -> Result<Vec<Measurement>, SuiteError> {
    let Some((model, sorted)) = sorted(trained, order)? else { return Ok(Vec::new()) };
    let budget = &trained.record.rank_budget;
    let total = f64::from(budget.n_modules * budget.initial_rank);
    let mut ranks: Vec<usize> =
        SHARES.iter().map(|share| ranks_at(total, *share) as usize).collect();
    ranks.retain(|&rank| rank < sorted.len());
    ranks.push(sorted.len());
    ranks.dedup();
    let context = trained.context;
    let rows = context.examples(&context.task.validation);
    let (batch, tolerance) = (context.config.evaluation_batch_size, PathTolerance::default());
    let path = rank_path(&model, &sorted, &ranks, &rows, batch, tolerance)?;
    let point =
        |p: &lrvd_core::prune::PathPoint| Measurement::at(order.loss(), p.rank as f64, p.loss);
    let mut found: Vec<Measurement> = path.points.iter().map(point).collect();
    found.push(Measurement::new(order.enough(), path.rank() as f64));
    Ok(found)
}

/// The ranks of all modules in `order`, and the model whose ranks they are.
fn sorted(
    trained: &Trained<'_>,
    order: Order,
) -> Result<Option<(AutoClassifier, Vec<Direction>)>, SuiteError> {
    let mut model = trained.model.clone();
    if order == Order::Singular {
        match turn(&mut model, None) {
            Ok(_) => {}
            // Noise of another kind has no such basis.
            Err(AdapterError::Gauge { .. }) => return Ok(None),
            Err(error) => return Err(TrainError::from(error).into()),
        }
    }
    let mut found = directions(&model);
    let by = |found: &mut Vec<Direction>, importance: &BTreeMap<String, Vec<f64>>| {
        for direction in found.iter_mut() {
            direction.importance = importance[&direction.path][direction.index];
        }
        found.sort_by(|x, y| y.importance.total_cmp(&x.importance));
    };
    match order {
        Order::Magnitude | Order::Singular => {}
        Order::Statistic => {
            let options = trained.context.config.statistic_options();
            let mut own = statistics(&model, options).map_err(TrainError::from)?;
            if own.is_empty() && !found.is_empty() {
                return Ok(None);
            }
            // Small is relevant.
            own.values_mut().flatten().for_each(|value| *value = -*value);
            by(&mut found, &own);
        }
        Order::Sensitivity => by(&mut found, &sensitivity(trained)?),
        Order::Random => {
            let key = NoiseKey::new(trained.context.seed).on_stream(Stream::DATA).with_use(1);
            let mut old = found.clone();
            for (place, from) in permutation(key, found.len()).into_iter().enumerate() {
                std::mem::swap(&mut found[place], &mut old[from]);
            }
        }
    }
    Ok(Some((model, found)))
}

/// Mean over small batches of the squared gradient of the loss by a gate on each rank, by module.
///
/// ```text
/// ΔW = Σ_i g_i·b_i·a_iᵀ      ∂L/∂g_i at 1 = ⟨a_i, ∂L/∂a_i⟩
/// ```
fn sensitivity(trained: &Trained<'_>) -> Result<BTreeMap<String, Vec<f64>>, SuiteError> {
    let (context, model) = (trained.context, trained.model);
    let mut factors = BTreeMap::new();
    model.visit_layers(&mut |path, layer| {
        if let Some(adapter) = layer.low_rank() {
            factors.insert(path.to_owned(), (values(adapter.a.val()), adapter.rank()));
        }
    });
    let mut sums: BTreeMap<String, Vec<f64>> =
        factors.iter().map(|(path, (_, rank))| (path.clone(), vec![0.0; *rank])).collect();
    let rows = context.examples(&context.task.train);
    let all: Vec<usize> = (0..context.task.train.len().min(SENSITIVITY.0)).collect();
    for indices in all.chunks(SENSITIVITY.1) {
        let batch = rows.batch(indices)?;
        let logits = model.logits(&batch.input, &Pass::mean());
        let loss = negative_log_likelihood(logits, &batch.targets);
        if !loss.is_tracked() {
            continue; // nothing is left to learn
        }
        let gradients = NamedGradients::collect(model, &loss.backward());
        for (path, (a, rank)) in &factors {
            let Some(gradient) = gradients.get(&format!("{path}.lora_A")) else { continue };
            let mut gates = vec![0.0; *rank];
            // A is `[d_input, rank]`, row-major.
            for (place, (a, g)) in a.iter().zip(values(gradient.clone())).enumerate() {
                gates[place % rank] += a * g;
            }
            if let Some(sums) = sums.get_mut(path) {
                sums.iter_mut().zip(gates).for_each(|(sum, gate)| *sum += gate * gate);
            }
        }
    }
    Ok(sums)
}

/// Areas under the curves of energy captured, means over modules.
fn energy(trained: &Trained<'_>) -> Result<Vec<Measurement>, SuiteError> {
    let sensitivity = sensitivity(trained)?;
    let mut areas = Vec::new();
    let mut outcome = Ok(());
    trained.model.visit_layers(&mut |path, layer| {
        let Some(adapter) = layer.low_rank().filter(|adapter| adapter.rank() >= 2) else { return };
        let Some(values) = sensitivity.get(path) else { return };
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&i, &j| values[j].total_cmp(&values[i]));
        let host = HostAdapter::read(adapter);
        let area = || -> Result<Option<f64>, lrvd_core::Error> {
            let (a, b) = host.factors()?;
            // An update of norm 0 has no shares to speak of.
            let Ok(energy) = UpdateEnergy::new(a, b) else { return Ok(None) };
            Ok(Some(AucRule::Trapezoid.area(&energy.curve(Capture::Residual, &order)?)?))
        };
        match area() {
            Ok(area) => areas.extend(area),
            Err(error) => outcome = Err(TrainError::from(error)),
        }
    });
    outcome?;
    let mean = |values: Vec<f64>| {
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let last = trained.record.checkpoints.last.as_ref();
    let records = || last.into_iter().flat_map(|last| last.energy.values());
    let named = [
        ("energy: svd", mean(records().map(|e| e.auc.svd).collect())),
        ("energy: own statistic", mean(records().map(|e| e.auc.learned).collect())),
        ("energy: magnitude", mean(records().map(|e| e.auc.magnitude).collect())),
        ("energy: random", mean(records().map(|e| e.auc.random).collect())),
        ("energy: sensitivity", mean(areas)),
        ("energy: gap", mean(records().filter_map(|e| e.auc.normalised_gap).collect())),
    ];
    let found = named.into_iter().filter_map(|(name, value)| Some(Measurement::new(name, value?)));
    Ok(found.collect())
}

/// How far the posterior leaves its family under a signed permutation, a rotation by 45° in pairs of
/// ranks, and a scaling: the larger of cross covariance and broken tying, relative; means over modules.
fn changes_of_basis(trained: &Trained<'_>) -> Result<Vec<Measurement>, SuiteError> {
    let key = NoiseKey::new(trained.context.seed).on_stream(Stream::DATA).with_use(2);
    let mut sums = [0.0; 3];
    let (mut modules, mut outcome) = (0_usize, Ok(()));
    trained.model.visit_layers(&mut |_, layer| {
        let Some(adapter) = layer.low_rank().filter(|adapter| adapter.rank() >= 2) else { return };
        let host = HostAdapter::read(adapter);
        let leaves = || -> Result<Option<[f64; 3]>, lrvd_core::Error> {
            let Some(posterior) = host.posterior()? else { return Ok(None) };
            let mut found = [0.0; 3];
            for (place, matrix) in gauges(host.rank, key).iter().enumerate() {
                let pushed = push_forward(&posterior, &Gauge::new(matrix, host.rank)?)?;
                found[place] = pushed.cross_covariance.max(pushed.tying);
            }
            Ok(Some(found))
        };
        match leaves() {
            Ok(Some(found)) => {
                modules += 1;
                sums.iter_mut().zip(found).for_each(|(sum, value)| *sum += value);
            }
            Ok(None) => {}
            Err(error) => outcome = Err(TrainError::from(error)),
        }
    });
    outcome?;
    let names = ["leaves by permutation", "leaves by rotation", "leaves by scaling"];
    let means = names.into_iter().zip(sums.map(|sum| sum / modules.max(1) as f64));
    let found = means.filter(|_| modules > 0).map(|(name, mean)| Measurement::new(name, mean));
    Ok(found.collect())
}

/// A signed permutation, a rotation in pairs and a scaling of `n` ranks, row-major.
fn gauges(n: usize, key: NoiseKey) -> [Vec<f64>; 3] {
    let mut found = [(); 3].map(|()| vec![0.0; n * n]);
    for (row, column) in permutation(key, n).into_iter().enumerate() {
        found[0][row * n + column] = if row % 2 == 0 { 1.0 } else { -1.0 };
        let (partner, half) = (row ^ 1, std::f64::consts::FRAC_1_SQRT_2);
        if partner < n {
            found[1][row * n + row] = half;
            found[1][row * n + partner] = if row < partner { -half } else { half };
        } else {
            found[1][row * n + row] = 1.0;
        }
        found[2][row * n + row] = if row % 2 == 0 { 2.0 } else { 1.0 };
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_changes_of_basis_are_what_they_are_called() {
        for n in [2, 5, 8] {
            let all = gauges(n, NoiseKey::new(3));
            let [permuted, turned, scaled] = all.map(|matrix| Gauge::new(&matrix, n).unwrap());
            assert_eq!(
                (permuted.orthogonality_residual(), permuted.integer_residual()),
                (0.0, 0.0)
            );
            assert!(turned.orthogonality_residual() < 1e-12 && turned.integer_residual() > 0.25);
            assert_eq!((scaled.orthogonality_residual(), scaled.integer_residual()), (3.0, 0.0));
        }
    }
}
