//! Energy of an update along an order of its ranks.

use lrvd_burn::files::TensorFile;
use lrvd_core::energy::{AucRule, Capture, UpdateEnergy};
use lrvd_core::factor::FactorView;
use lrvd_core::numeric::dense::norm;

use super::super::{Comparison, Entry, Limit, Values, VerifyError, bound, read_indices};
use super::each_item;
use super::factors::Factors;

/// Slack of comparisons between values of one curve.
const ROUNDING: f64 = 1e-12;

pub(in super::super) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let all = folder.get("tolerances")?.get("all")?.get("atol_f64")?;
    let limit = Limit::Absolute(bound(&all)?);
    each_item(comparison, |comparison, file, item| check_item(comparison, file, item, limit))
}

fn check_item(
    comparison: &mut Comparison<'_>,
    file: &TensorFile,
    item: &Entry<'_>,
    limit: Limit,
) -> Result<(), VerifyError> {
    let name = item.get("name")?.text()?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    let factors = Factors::read(file, &key("A"), &key("B"))?;
    let rank = factors.rank;
    let (a, b) = factors.views()?;
    let update = UpdateEnergy::new(a, b)?;
    let (order_shape, order) = read_indices(file, &key("order"), rank)?;
    let (shape, permutations) = read_indices(file, &key("permutations"), rank)?;
    if order_shape != [rank] || rank == 0 {
        let wanted = format!("[{rank}], above 0");
        return Err(VerifyError::shape(file.path(), &key("order"), wanted, &order_shape));
    }
    if shape.len() != 2 || shape[1] != rank || shape[0] == 0 {
        let wanted = format!("[number, {rank}]");
        return Err(VerifyError::shape(file.path(), &key("permutations"), wanted, &shape));
    }
    comparison.exact(&key("order"), is_descending(a, b, &order), None);

    let svd = update.singular_value_curve();
    let mut found = vec![
        ("singular_values".to_owned(), Values::list(update.singular_values())),
        ("E_svd".to_owned(), Values::list(svd.clone())),
    ];
    let mut scalars =
        vec![("r".to_owned(), rank as f64), ("auc_svd".to_owned(), AucRule::Mean.area(&svd)?)];
    let mut monotone = true;
    for (letter, capture) in [("E", Capture::Residual), ("F", Capture::PartialNorm)] {
        let curve = update.curve(capture, &order)?;
        let (mut all, mut areas) = (Vec::new(), 0.0);
        for order in permutations.chunks(rank) {
            let curve = update.curve(capture, order)?;
            areas += AucRule::Mean.area(&curve)?;
            all.extend(curve);
        }
        scalars.push((format!("auc_{letter}_order"), AucRule::Mean.area(&curve)?));
        scalars.push((format!("mean_auc_{letter}_permutations"), areas / shape[0] as f64));
        let every = curve.iter().chain(&all).copied();
        if capture == Capture::Residual {
            monotone = curve.windows(2).all(|pair| pair[1] >= pair[0] - ROUNDING);
            scalars.push(("smallest_E".to_owned(), every.fold(f64::INFINITY, f64::min)));
        } else {
            scalars.push(("largest_F".to_owned(), every.fold(0.0, f64::max)));
        }
        found.push((format!("{letter}_order"), Values::list(curve)));
        found.push((format!("{letter}_permutations"), Values::new(shape.clone(), all)));
    }
    for (suffix, values) in &found {
        comparison.required(&key(suffix), values, limit)?;
    }
    for (name, entry) in item.entries()? {
        match name {
            "name" | "note" | "notes" => {}
            "order_is_monotone_in_E" => {
                comparison.exact(entry.path(), entry.flag()? == monotone, None);
            }
            _ => {
                comparison.numbers(&entry, &[*entry.among(name, &scalars)?], limit)?;
            }
        }
    }
    Ok(())
}

/// Whether `‖A_i‖·‖B_i‖` falls along `order`; equal ones may stand in any order.
fn is_descending(a: FactorView<'_>, b: FactorView<'_>, order: &[usize]) -> bool {
    let product = |i: usize| norm(a.row(i)) * norm(b.row(i));
    order.windows(2).all(|pair| product(pair[1]) <= product(pair[0]) * (1.0 + ROUNDING))
}
