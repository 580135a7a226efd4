//! Folders of `items`: changes of basis of rank space, energy along an order of ranks, calibration.

use anyhow::{Context, Result, ensure};
use lrvd_burn::files::WeightStore;
use lrvd_burn::host::HostAdapter;
use lrvd_core::energy::{AucRule, Capture, UpdateEnergy};
use lrvd_core::gauge::Gauge;
use lrvd_core::linalg::transposed_times;
use lrvd_core::metrics::{Binning, DEFAULT_BINS, Predictions, ReliabilityBin};
use lrvd_core::moments::{CrossTerm, Moments, moments};
use serde_json::Value;

use crate::bayes::{FAMILIES, FORMULA, factors, posterior, with_noise};
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

/// What each change of basis leaves alone.
pub(crate) fn gauge(case: &mut Case) -> Result<()> {
    let tolerance: f64 = case.json.read("boolean_tolerance")?;
    each(case, |mut item| {
        let before = factors(item.file, &item.key("A"), &item.key("B"))?;
        let HostAdapter { rank, d_input, d_output, .. } = before;
        let [diagonal, matrix, x] = ["D", "R", "x"].map(|name| item.input(name));
        let (diagonal, matrix, x) = (diagonal?.values, matrix?.values, x?.values);
        let gauge = Gauge::new(&matrix, rank)?;
        let moved = gauge.apply(&before.a, &before.b)?;
        let after = HostAdapter { a: moved.a, b: moved.b, ..before.clone() };
        let action = gauge.diagonal_action(&diagonal)?;
        for (suffix, found) in [
            ("A_transformed", Values::new(&[rank, d_input], after.a.clone())),
            ("B_transformed", Values::new(&[rank, d_output], after.b.clone()).transposed()),
            ("D_transformed", Values::list(action.transformed.clone())),
        ] {
            let limit = Limit::Absolute(FORMULA * found.largest().max(f64::MIN_POSITIVE));
            item.tensor(suffix, &found, limit)?;
        }

        let update = |f: &HostAdapter| transposed_times(&f.b, &f.a, rank, d_output, d_input);
        let delta = change(&update(&before), &update(&after));
        let (orthogonality, integers) = (gauge.orthogonality_residual(), gauge.integer_residual());
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
            let of = |factors: &HostAdapter, parameters: &[f64]| -> Result<Moments> {
                let adapter = with_noise(factors, family, parameters);
                Ok(moments(&posterior(&adapter)?, &x, CrossTerm::Exact)?)
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

fn change(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Energy of an update along an order of its ranks.
pub(crate) fn energy(case: &mut Case) -> Result<()> {
    let limit = Limit::Absolute(case.json.read("tolerances/all/atol_f64")?);
    each(case, |mut item| {
        let factors = factors(item.file, &item.key("A"), &item.key("B"))?;
        let rank = factors.rank;
        let update = UpdateEnergy::new(&factors.a, &factors.b, rank)?;
        let (order, permutations) = (item.indices("order")?, item.indices("permutations")?);
        let n = permutations.len() / rank;
        ensure!(order.len() == rank && n > 0, "`{}`: an order of {} ranks", item.name, order.len());
        let is_falling = update.order_by_norm_product() == order;
        let key = item.key("order");
        item.case.statement(&key, is_falling, "by falling product of norms".to_owned());

        let curves = |capture| -> Result<_> {
            let order = update.curve(capture, &order)?;
            let all: Vec<Vec<f64>> = permutations
                .chunks(rank)
                .map(|order| update.curve(capture, order))
                .collect::<Result<_, _>>()?;
            let areas = all.iter().map(|c| AucRule::Mean.area(c)).sum::<Result<f64, _>>()?;
            let area = AucRule::Mean.area(&order)?;
            Ok((order, all.concat(), area, areas / n as f64))
        };
        let svd = update.singular_value_curve();
        let (e, all_e, area_e, areas_e) = curves(Capture::Residual)?;
        let (f, all_f, area_f, areas_f) = curves(Capture::PartialNorm)?;
        let monotone = e.windows(2).all(|pair| pair[1] >= pair[0] - ROUNDING);
        let scalars = [
            ("r", rank as f64),
            ("auc_svd", AucRule::Mean.area(&svd)?),
            ("auc_E_order", area_e),
            ("mean_auc_E_permutations", areas_e),
            ("auc_F_order", area_f),
            ("mean_auc_F_permutations", areas_f),
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

/// Accuracy, likelihood, calibration error and Brier score of recorded probabilities.
pub(crate) fn calibration(case: &mut Case) -> Result<()> {
    let limit = Limit::Absolute(case.json.read("tolerances/atol_f64")?);
    each(case, |mut item| {
        let (probabilities, labels) = (item.input("probs")?, item.indices("labels")?);
        let classes = probabilities.shape[1];
        let predictions = Predictions::new(&probabilities.values, classes, &labels)?;
        let diagram = predictions.reliability(DEFAULT_BINS, Binning::RightClosed)?;
        let scalars = [
            ("n", labels.len() as f64),
            ("classes", classes as f64),
            ("accuracy", predictions.accuracy()),
            ("nll", predictions.nll_unclamped()),
            ("nll_clamped_1e-12", predictions.nll()),
            ("ece_15", diagram.ece()),
            ("brier_sum_over_classes", predictions.brier()),
            ("brier_mean_over_classes", predictions.brier() / classes as f64),
        ];
        item.stated("", &scalars, limit)?;
        let bins =
            |of: fn(&ReliabilityBin) -> f64| Values::list(diagram.bins.iter().map(of).collect());
        let predicted = predictions.predicted().into_iter().map(|class| class as f64).collect();
        for (suffix, found, limit) in [
            ("prediction", Values::list(predicted), Limit::EXACT),
            ("confidence", Values::list(predictions.confidence()), limit),
            ("bin_count", bins(|bin| bin.count as f64), Limit::EXACT),
            ("bin_correct", bins(|bin| bin.correct), Limit::EXACT),
            ("bin_confidence_sum", bins(|bin| bin.confidence_sum), limit),
        ] {
            item.tensor(suffix, &found, limit)?;
        }
        Ok(())
    })
}
