//! Changes of basis of rank space: what each leaves alone.

use anyhow::Result;
use lrvd_burn::files::WeightStore;
use lrvd_burn::host::HostAdapter;
use lrvd_core::gauge::Gauge;
use lrvd_core::linalg::transposed_times;
use lrvd_core::moments::{CrossTerm, Moments, moments};
use serde_json::Value;

use crate::case::{Case, Limit, Values};
use crate::factors::{FAMILIES, FORMULA, posterior, read, with_noise};
use crate::json::Json;

/// Rounding of a residual that is 0 in exact arithmetic; the folder keeps real ones above 1e-3.
const RESIDUAL_FLOOR: f64 = 1e-9;

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    let file = case.inputs(&[])?;
    let tolerance = case.json.at(&["boolean_tolerance"])?.number()?;
    let items = case.json.at(&["items"])?.list()?.clone();
    items.iter().try_for_each(|item| check(case, &file, item, tolerance))
}

fn check(case: &mut Case, file: &WeightStore, item: &Value, tolerance: f64) -> Result<()> {
    let name = item.at(&["name"])?.text()?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    let before = read(file, &key("A"), &key("B"))?;
    let HostAdapter { rank, d_input, d_output, .. } = before;
    let [diagonal, matrix, x] =
        ["D", "R", "x"].map(|suffix| Values::read(file, &key(suffix)).map(|tensor| tensor.values));
    let (diagonal, matrix, x) = (diagonal?, matrix?, x?);
    case.numbers(&key("r"), item.at(&["r"])?, &[rank as f64], Limit::EXACT)?;
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
        case.tensor(&key(suffix), &found, limit)?;
    }

    let update = |f: &HostAdapter| transposed_times(&f.b, &f.a, rank, d_output, d_input);
    let delta = change(&update(&before), &update(&after));
    let (orthogonality, integers) = (gauge.orthogonality_residual(), gauge.integer_residual());
    let orthogonal = orthogonality <= tolerance;
    let mut booleans = vec![
        ("is_orthogonal".to_owned(), orthogonal),
        ("preserves_delta_w".to_owned(), delta <= tolerance),
        ("commutes_with_D".to_owned(), action.commutator <= tolerance),
        ("RDRt_is_diagonal".to_owned(), action.off_diagonal <= tolerance),
        ("is_signed_permutation".to_owned(), orthogonal && integers <= tolerance),
        ("is_residual_gauge".to_owned(), gauge.is_residual(&diagonal, tolerance)?),
    ];
    let mut residuals = vec![
        ("orthogonality".to_owned(), orthogonality),
        ("delta_w".to_owned(), delta),
        ("commutator".to_owned(), action.commutator),
        ("RDRt_off_diagonal".to_owned(), action.off_diagonal),
        ("signed_permutation".to_owned(), integers),
    ];
    for family in FAMILIES {
        let old = output_moments(&before, family, &diagonal, &x)?;
        for (which, parameters) in [("same_D", &diagonal), ("transformed_D", &action.transformed)] {
            let new = output_moments(&after, family, parameters, &x)?;
            let variance = change(&old.variance, &new.variance);
            let moved = variance.max(change(&old.mean, &new.mean));
            let name = format!("{family}_output_moments_invariant_{which}");
            booleans.push((name, moved <= tolerance));
            residuals.push((format!("{family}_v_y_exact_change_{which}"), variance));
        }
    }
    for (stated, entry) in item.at(&["booleans"])?.entries()? {
        let found = booleans.iter().find(|(known, _)| known == stated).map(|(_, found)| *found);
        let holds = found == Some(entry.flag()?);
        case.statement(&key(&format!("booleans.{stated}")), holds, String::new());
    }
    for (stated, entry) in item.at(&["residuals"])?.entries()? {
        let found = residuals.iter().find(|(known, _)| known == stated);
        let found = found.map_or(f64::NAN, |(_, found)| *found);
        case.rounded(&key(&format!("residuals.{stated}")), entry, found, RESIDUAL_FLOOR)?;
    }
    Ok(())
}

fn output_moments(f: &HostAdapter, family: &str, parameters: &[f64], x: &[f64]) -> Result<Moments> {
    let adapter = with_noise(f, family, parameters);
    Ok(moments(&posterior(&adapter)?, x, CrossTerm::Exact)?)
}

fn change(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
