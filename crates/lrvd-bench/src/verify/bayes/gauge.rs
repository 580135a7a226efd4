//! Changes of basis of rank space: what each leaves alone.

use lrvd_burn::files::TensorFile;
use lrvd_core::gauge::Gauge;
use lrvd_core::moments::{CrossTerm, Moments, moments};
use lrvd_core::numeric::dense::transposed_times;
use lrvd_core::posterior::{Entries, Posterior};

use super::super::{Comparison, Entry, Limit, Values, VerifyError, bound, read_finite};
use super::factors::{Factors, noise, views};
use super::{FORMULA, each_item};

/// Rounding of a residual that is 0 in exact arithmetic; the fixture keeps real ones above 1e-3.
const RESIDUAL_FLOOR: f64 = 1e-9;

/// A statement or a number with its name in `expected.json`.
struct Outcome {
    booleans: Vec<(String, bool)>,
    residuals: Vec<(String, f64)>,
}

pub(in super::super) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let tolerance = bound(&folder.get("boolean_tolerance")?)?;
    each_item(comparison, |comparison, file, item| check_item(comparison, file, item, tolerance))
}

fn check_item(
    comparison: &mut Comparison<'_>,
    file: &TensorFile,
    item: &Entry<'_>,
    tolerance: f64,
) -> Result<(), VerifyError> {
    let name = item.get("name")?.text()?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    let factors = Factors::read(file, &key("A"), &key("B"))?;
    let rank = factors.rank;
    if let Some(entry) = item.find("r") {
        comparison.numbers(&entry, &[rank as f64], Limit::EXACT)?;
    }
    let diagonal = read_finite(file, &key("D"))?.wanted(file.path(), &key("D"), &[rank])?.values;
    let matrix = read_finite(file, &key("R"))?.wanted(file.path(), &key("R"), &[rank, rank])?;
    let x = factors.input(file, &key("x"))?.values;
    let gauge = Gauge::new(&matrix.values, rank)?;
    let (a, b) = factors.views()?;
    let after = gauge.apply(a, b)?;
    let action = gauge.diagonal_action(&diagonal)?;
    let transformed = [
        ("A_transformed", Values::new([rank, factors.d_in], after.a.clone())),
        ("B_transformed", Values::new([rank, factors.d_out], after.b.clone()).transposed()),
        ("D_transformed", Values::list(action.transformed.clone())),
    ];
    for (suffix, found) in transformed {
        let limit = Limit::Absolute(FORMULA * found.largest().max(f64::MIN_POSITIVE));
        comparison.required(&key(suffix), &found, limit)?;
    }

    let update = |a: &[f64], b: &[f64]| transposed_times(b, a, rank, factors.d_out, factors.d_in);
    let delta = change(&update(&factors.a, &factors.b), &update(&after.a, &after.b));
    let (orthogonality, integers) = (gauge.orthogonality_residual(), gauge.integer_residual());
    let orthogonal = orthogonality <= tolerance;
    let mut outcome = Outcome {
        booleans: vec![
            ("is_orthogonal".to_owned(), orthogonal),
            ("preserves_delta_w".to_owned(), delta <= tolerance),
            ("commutes_with_D".to_owned(), action.commutator <= tolerance),
            ("RDRt_is_diagonal".to_owned(), action.off_diagonal <= tolerance),
            ("is_signed_permutation".to_owned(), orthogonal && integers <= tolerance),
            ("is_residual_gauge".to_owned(), gauge.is_residual(&diagonal, tolerance)?),
        ],
        residuals: vec![
            ("orthogonality".to_owned(), orthogonality),
            ("delta_w".to_owned(), delta),
            ("commutator".to_owned(), action.commutator),
            ("RDRt_off_diagonal".to_owned(), action.off_diagonal),
            ("signed_permutation".to_owned(), integers),
        ],
    };
    for family in ["additive", "multiplicative"] {
        let before = Entries { a: factors.a.clone(), b: factors.b.clone() };
        let old = output_moments(&factors, family, &before, &diagonal, &x)?;
        for (which, parameters) in [("same_D", &diagonal), ("transformed_D", &action.transformed)] {
            let new = output_moments(&factors, family, &after, parameters, &x)?;
            let variance = change(&old.variance, &new.variance);
            let moved = variance.max(change(&old.mean, &new.mean));
            let name = format!("{family}_output_moments_invariant_{which}");
            outcome.booleans.push((name, moved <= tolerance));
            outcome.residuals.push((format!("{family}_v_y_exact_change_{which}"), variance));
        }
    }
    compare(comparison, item, &outcome)
}

fn compare(
    comparison: &mut Comparison<'_>,
    item: &Entry<'_>,
    outcome: &Outcome,
) -> Result<(), VerifyError> {
    for (name, entry) in item.get("booleans")?.entries()? {
        let stated = entry.flag()?;
        let found = *entry.among(name, &outcome.booleans)?;
        comparison.exact(entry.path(), found == stated, None);
    }
    let Some(residuals) = item.find("residuals") else { return Ok(()) };
    for (name, entry) in residuals.entries()? {
        comparison.rounded(&entry, *entry.among(name, &outcome.residuals)?, RESIDUAL_FLOOR)?;
    }
    Ok(())
}

fn output_moments(
    like: &Factors,
    family: &str,
    factors: &Entries,
    parameters: &[f64],
    x: &[f64],
) -> Result<Moments, VerifyError> {
    let (a, b) = views(&factors.a, &factors.b, like)?;
    let posterior = Posterior::new(a, b, noise(family, parameters))?;
    Ok(moments(&posterior, x, CrossTerm::Exact)?)
}

fn change(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
