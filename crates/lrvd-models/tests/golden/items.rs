//! Folders of `items`: changes of basis of rank space, energy along an order of ranks, calibration.

use anyhow::{Context, Result, ensure};
use lrvd_burn::files::WeightStore;
use lrvd_core::Factors;
use lrvd_core::linalg::{Svd, dot, identity, svd, times, times_transposed, transposed_times};
use lrvd_core::metrics::Predictions;
use lrvd_core::moments::{CrossTerm, Moments, moments};
use lrvd_core::update::UpdateEnergy;
use serde_json::Value;

use crate::bayes::{FAMILIES, FORMULA, factors, posterior};
use crate::case::{Case, Json, Limit, Values};

/// Slack of comparisons between values of one curve.
const ROUNDING: f64 = 1e-12;

/// An entry of `items` while it is recomputed; its tensors have its name in front.
struct Item<'a> {
    case: &'a mut Case,
    file: &'a WeightStore,
    entry: &'a Value,
    name: &'a str,
}

impl Item<'_> {
    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.name)
    }

    fn input(&self, suffix: &str) -> Result<Values> {
        Values::read(self.file, &self.key(suffix))
    }

    fn indices(&self, suffix: &str) -> Result<Vec<usize>> {
        Ok(self.input(suffix)?.values.into_iter().map(|v| v as usize).collect())
    }

    fn tensor(&mut self, suffix: &str, found: &Values, limit: Limit) -> Result<()> {
        self.case.tensor(&self.key(suffix), found, limit)
    }

    /// Compares every number of the item, or of its entry `section`; one that is not among `found` is a miss.
    fn stated(&mut self, section: &str, found: &[(&str, f64)], limit: Limit) -> Result<()> {
        let stated = if section.is_empty() { self.entry } else { self.entry.at(section)? };
        for (key, entry) in stated.entries()? {
            let known = found.iter().find(|(known, _)| *known == key);
            if known.is_some() || entry.is_number() || entry.is_boolean() {
                let found = known.map_or(f64::NAN, |(_, found)| *found);
                let expected = Values::list(entry.numbers()?);
                self.case.pair(&self.key(key), &Values::list(vec![found]), &expected, limit);
            }
        }
        Ok(())
    }
}

fn each(case: &mut Case, check: impl Fn(Item<'_>) -> Result<()>) -> Result<()> {
    let (file, json) = (case.inputs(&[])?, case.json.clone());
    for entry in json.at("items")?.as_array().context("`items` is no list")? {
        let name = entry.read("name")?;
        check(Item { case: &mut *case, file: &file, entry, name })?;
    }
    Ok(())
}

/// Invariants of each change of basis.
pub(crate) fn gauge(case: &mut Case) -> Result<()> {
    let tolerance: f64 = case.json.read("boolean_tolerance")?;
    each(case, |mut item| {
        let before = factors(item.file, &item.key("A"), &item.key("B"))?;
        let Factors { rank, d_input, d_output, .. } = before;
        let [diagonal, matrix, x] = ["D", "R", "x"].map(|name| item.input(name));
        let (diagonal, matrix, x) = (diagonal?.values, matrix?.values, x?.values);
        // A' = R·A, B' = B·R⁻¹.
        let a = times(&matrix, &before.a, rank, rank, d_input);
        let b =
            times_transposed(&before.b, &inverse_transpose(&matrix, rank), d_output, rank, rank);
        let after = Factors { a, b, ..before.clone() };
        let action = DiagonalAction::new(&matrix, &diagonal);
        for (suffix, found) in [
            ("A_transformed", Values::new(&[rank, d_input], after.a.clone())),
            ("B_transformed", Values::new(&[d_output, rank], after.b.clone())),
            ("D_transformed", Values::list(action.transformed.clone())),
        ] {
            let limit = Limit::Absolute(FORMULA * found.largest().max(f64::MIN_POSITIVE));
            item.tensor(suffix, &found, limit)?;
        }

        let update = |f: &Factors| times(&f.b, &f.a, d_output, rank, d_input);
        let delta = change(&update(&before), &update(&after));
        let gram = times_transposed(&matrix, &matrix, rank, rank, rank);
        let orthogonality = change(&gram, &identity(rank));
        let rounded: Vec<f64> = matrix.iter().map(|v| v.round()).collect();
        let integers = change(&matrix, &rounded);
        let flag = |holds: bool| f64::from(u8::from(holds));
        let small = |residual: f64| flag(residual <= tolerance);
        let names = FAMILIES.map(|family| {
            ["same_D", "transformed_D"]
                .map(|which| format!("{family}_output_moments_invariant_{which}"))
        });
        let mut booleans = vec![
            ("is_orthogonal", small(orthogonality)),
            ("preserves_delta_w", small(delta)),
            ("commutes_with_D", small(action.commutator)),
            ("RDRt_is_diagonal", small(action.off_diagonal)),
            ("is_signed_permutation", small(orthogonality.max(integers))),
            // Of the fixture: "orthogonal and commutes with D", the stabiliser of D.
            ("is_residual_gauge", small(orthogonality.max(action.commutator))),
        ];
        for (family, names) in FAMILIES.into_iter().zip(&names) {
            let of = |factors: &Factors, parameters: &[f64]| -> Result<Moments> {
                Ok(moments(&posterior(factors, family, parameters)?, &x, CrossTerm::Exact)?)
            };
            let old = of(&before, &diagonal)?;
            for (parameters, name) in [&diagonal, &action.transformed].into_iter().zip(names) {
                let new = of(&after, parameters)?;
                let moved = change(&old.variance, &new.variance).max(change(&old.mean, &new.mean));
                booleans.push((name, small(moved)));
            }
        }
        item.stated("", &[("r", rank as f64)], Limit::EXACT)?;
        item.stated("booleans", &booleans, Limit::EXACT)
    })
}

/// `R⁻ᵀ` of a matrix `R [size, size]`: with `R = Σ_k ς_k·u_k·v_kᵀ` it is `Σ_k u_k·v_kᵀ/ς_k`.
fn inverse_transpose(matrix: &[f64], size: usize) -> Vec<f64> {
    let Svd { mut left, values, right } = svd(matrix, size, size);
    for (at, u) in left.iter_mut().enumerate() {
        *u /= values[at / size];
    }
    transposed_times(&left, &right, size, size, size)
}

/// Action of a matrix `R` on a diagonal matrix `D`. An orthogonal `R` is in the residual group of Theorem 1 if `off_diagonal` is 0:
/// signed permutations, and rotations inside equal numbers.
struct DiagonalAction {
    /// `max |R·D − D·R|`: 0 of an orthogonal matrix that leaves `D` as it is, which not all of the residual group do.
    commutator: f64,
    /// `max` off-diagonal entry of `R·D·Rᵀ`.
    off_diagonal: f64,
    /// The diagonal of `R·D·Rᵀ`.
    transformed: Vec<f64>,
}

impl DiagonalAction {
    fn new(matrix: &[f64], diagonal: &[f64]) -> Self {
        let r = diagonal.len();
        let scaled: Vec<f64> = (0..r * r).map(|at| matrix[at] * diagonal[at % r]).collect();
        let swapped: Vec<f64> = (0..r * r).map(|at| matrix[at] * diagonal[at / r]).collect();
        let mut square = times_transposed(&scaled, matrix, r, r, r);
        let transformed: Vec<f64> = square.iter().copied().step_by(r + 1).collect();
        square.iter_mut().step_by(r + 1).for_each(|entry| *entry = 0.0);
        let off_diagonal = square.iter().fold(0.0, |most: f64, entry| most.max(entry.abs()));
        Self { commutator: change(&scaled, &swapped), off_diagonal, transformed }
    }
}

fn change(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Energy of an update along an order of its ranks.
pub(crate) fn energy(case: &mut Case) -> Result<()> {
    let limit = Limit::Absolute(case.json.read("tolerances/all/atol_f64")?);
    each(case, |mut item| {
        let factors = factors(item.file, &item.key("A"), &item.key("B"))?;
        let rank = factors.rank;
        let update = UpdateEnergy::new(&factors)?;
        let (order, permutations) = (item.indices("order")?, item.indices("permutations")?);
        let n = permutations.len() / rank;
        ensure!(order.len() == rank && n > 0, "`{}`: an order of {} ranks", item.name, order.len());
        let is_falling = update.order_by_norm_product() == order;
        let key = item.key("order");
        item.case.statement(&key, is_falling, "by falling product of norms".to_owned());

        let area = |curve: &[f64]| curve.iter().sum::<f64>() / curve.len() as f64;
        let permuted = |curve: &dyn Fn(&[usize]) -> Result<Vec<f64>>| -> Result<Vec<f64>> {
            Ok(permutations.chunks(rank).map(curve).collect::<Result<Vec<_>>>()?.concat())
        };
        let svd = update.singular_value_curve();
        let residual = |order: &[usize]| -> Result<Vec<f64>> { Ok(update.curve(order)?) };
        let partial = |order: &[usize]| partial_norms(&factors, order);
        let (e, all_e) = (residual(&order)?, permuted(&residual)?);
        let (f, all_f) = (partial(&order)?, permuted(&partial)?);
        let monotone = e.windows(2).all(|pair| pair[1] >= pair[0] - ROUNDING);
        let scalars = [
            ("r", rank as f64),
            ("auc_svd", area(&svd)),
            ("auc_E_order", area(&e)),
            ("mean_auc_E_permutations", area(&all_e)),
            ("auc_F_order", area(&f)),
            ("mean_auc_F_permutations", area(&all_f)),
            ("order_is_monotone_in_E", f64::from(u8::from(monotone))),
            ("smallest_E", e.iter().chain(&all_e).copied().fold(f64::INFINITY, f64::min)),
            ("largest_F", f.iter().chain(&all_f).copied().fold(0.0, f64::max)),
        ];
        item.stated("", &scalars, limit)?;
        for (suffix, values) in [
            ("singular_values", Values::list(update.singular_values().to_vec())),
            ("E_svd", Values::list(svd)),
            ("E_order", Values::list(e)),
            ("E_permutations", Values::new(&[n, rank], all_e)),
            ("F_order", Values::list(f)),
            ("F_permutations", Values::new(&[n, rank], all_f)),
        ] {
            item.tensor(suffix, &values, limit)?;
        }
        Ok(())
    })
}

/// `‖ΔW_k‖² / ‖ΔW‖²` of the first `k = 1..r` components in an order; it may exceed 1.
fn partial_norms(factors: &Factors, order: &[usize]) -> Result<Vec<f64>> {
    let square = |kept: &[usize]| -> Result<f64> {
        let Factors { rank, d_input, d_output, a, b } = factors.select(kept)?;
        let update = times(&b, &a, d_output, rank, d_input);
        Ok(dot(&update, &update))
    };
    (1..=order.len()).map(|k| Ok(square(&order[..k])? / square(order)?)).collect()
}

/// Accuracy, likelihood, calibration error and Brier score of recorded probabilities.
pub(crate) fn calibration(case: &mut Case) -> Result<()> {
    let limit = Limit::Absolute(case.json.read("tolerances/atol_f64")?);
    each(case, |mut item| {
        let (probabilities, labels) = (item.input("probs")?, item.indices("labels")?);
        let classes = probabilities.shape[1];
        let predictions = Predictions::new(&probabilities.values, classes, &labels)?;
        let confidence = predictions.confidence();
        // Count, right answers and sum of confidences of the bins `(b/15, (b + 1)/15]`.
        let mut bins = [[0.0; 15]; 3];
        for (&confidence, correct) in confidence.iter().zip(predictions.correct()) {
            let below = (1..15).filter(|&b| f64::from(b) / 15.0 < confidence).count();
            bins[0][below] += 1.0;
            bins[1][below] += f64::from(correct);
            bins[2][below] += confidence;
        }
        let ece = bins[1].iter().zip(&bins[2]).map(|(right, sum)| (right - sum).abs()).sum::<f64>()
            / labels.len() as f64;
        // Without the floor of `Predictions::nll`.
        let rows = probabilities.values.chunks(classes).zip(&labels);
        let nll = rows.map(|(row, &label)| -row[label].ln()).sum::<f64>() / labels.len() as f64;
        let scalars = [
            ("n", labels.len() as f64),
            ("classes", classes as f64),
            ("accuracy", predictions.accuracy()),
            ("nll", nll),
            ("nll_clamped_1e-12", predictions.nll()),
            ("ece_15", ece),
            ("brier_sum_over_classes", predictions.brier()),
            ("brier_mean_over_classes", predictions.brier() / classes as f64),
        ];
        item.stated("", &scalars, limit)?;
        let [counts, correct, sums] = bins.map(|values| Values::list(values.to_vec()));
        let predicted = predictions.predicted().into_iter().map(|class| class as f64).collect();
        for (suffix, found, limit) in [
            ("prediction", Values::list(predicted), Limit::EXACT),
            ("confidence", Values::list(confidence), limit),
            ("bin_count", counts, Limit::EXACT),
            ("bin_correct", correct, Limit::EXACT),
            ("bin_confidence_sum", sums, limit),
        ] {
            item.tensor(suffix, &found, limit)?;
        }
        Ok(())
    })
}
