//! Energy of an update along an order of its ranks.

use anyhow::{Result, ensure};
use lrvd_burn::files::WeightStore;
use lrvd_core::energy::{AucRule, Capture, UpdateEnergy};
use serde_json::Value;

use crate::case::{Case, Limit, Values};
use crate::factors::read;
use crate::json::Json;

/// Slack of comparisons between values of one curve.
const ROUNDING: f64 = 1e-12;

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    let file = case.inputs(&[])?;
    let limit = Limit::Absolute(case.json.at(&["tolerances", "all", "atol_f64"])?.number()?);
    let items = case.json.at(&["items"])?.list()?.clone();
    items.iter().try_for_each(|item| check(case, &file, item, limit))
}

fn check(case: &mut Case, file: &WeightStore, item: &Value, limit: Limit) -> Result<()> {
    let name = item.at(&["name"])?.text()?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    let factors = read(file, &key("A"), &key("B"))?;
    let rank = factors.rank;
    let update = UpdateEnergy::new(&factors.a, &factors.b, rank)?;
    let indices = |suffix: &str| -> Result<Vec<usize>> {
        let values = Values::read(file, &key(suffix))?.values;
        Ok(values.into_iter().map(|v| v as usize).collect())
    };
    let (order, permutations) = (indices("order")?, indices("permutations")?);
    let n = permutations.len() / rank;
    ensure!(order.len() == rank && n > 0, "`{name}`: an order of {} ranks", order.len());
    let is_falling = update.order_by_norm_product() == order;
    case.statement(&key("order"), is_falling, "by falling product of norms".to_owned());

    let svd = update.singular_value_curve();
    let mut found = vec![
        ("singular_values".to_owned(), Values::list(update.singular_values().to_vec())),
        ("E_svd".to_owned(), Values::list(svd.clone())),
    ];
    let mut scalars =
        vec![("r".to_owned(), rank as f64), ("auc_svd".to_owned(), AucRule::Mean.area(&svd)?)];
    for (letter, capture) in [("E", Capture::Residual), ("F", Capture::PartialNorm)] {
        let curve = update.curve(capture, &order)?;
        let (mut all, mut areas) = (Vec::new(), 0.0);
        for order in permutations.chunks(rank) {
            let curve = update.curve(capture, order)?;
            areas += AucRule::Mean.area(&curve)?;
            all.extend(curve);
        }
        scalars.push((format!("auc_{letter}_order"), AucRule::Mean.area(&curve)?));
        scalars.push((format!("mean_auc_{letter}_permutations"), areas / n as f64));
        let every = curve.iter().chain(&all).copied();
        if capture == Capture::Residual {
            let monotone = curve.windows(2).all(|pair| pair[1] >= pair[0] - ROUNDING);
            let stated = item.at(&["order_is_monotone_in_E"])?.flag()?;
            case.statement(&key("order_is_monotone_in_E"), stated == monotone, String::new());
            scalars.push(("smallest_E".to_owned(), every.fold(f64::INFINITY, f64::min)));
        } else {
            scalars.push(("largest_F".to_owned(), every.fold(0.0, f64::max)));
        }
        found.push((format!("{letter}_order"), Values::list(curve)));
        found.push((format!("{letter}_permutations"), Values::new(&[n, rank], all)));
    }
    for (suffix, values) in &found {
        case.tensor(&key(suffix), values, limit)?;
    }
    for (stated, entry) in item.entries()? {
        if !matches!(stated, "name" | "note" | "notes" | "order_is_monotone_in_E") {
            let found = scalars.iter().find(|(known, _)| known == stated);
            let found = found.map_or(f64::NAN, |(_, found)| *found);
            case.numbers(&key(stated), entry, &[found], limit)?;
        }
    }
    Ok(())
}
