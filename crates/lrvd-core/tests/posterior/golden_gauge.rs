use lrvd_core::factor::FactorView;
use lrvd_core::gauge::Gauge;
use lrvd_core::moments::{CrossTerm, Moments, moments};
use lrvd_core::numeric::dense::transposed_times;
use lrvd_core::posterior::{Entries, NoiseParameters, Posterior};
use serde_json::Value;

use crate::support::{Case, GOLDEN, assert_close};

/// The fixture's own margin: every residual is below 1e-10 or above 1e-3.
const TOLERANCE: f64 = 1e-6;

struct Item {
    rank: usize,
    d_in: usize,
    d_out: usize,
    diagonal: Vec<f64>,
    x: Vec<f64>,
}

impl Item {
    fn moments(&self, family: &str, factors: &Entries, parameters: &[f64]) -> Moments {
        let noise = if family == "additive" {
            NoiseParameters::RankVariance(parameters)
        } else {
            NoiseParameters::NoiseToSignal(parameters)
        };
        let a = FactorView::new("A", &factors.a, self.rank, self.d_in).unwrap();
        let b = FactorView::new("B", &factors.b, self.rank, self.d_out).unwrap();
        moments(&Posterior::new(a, b, noise).unwrap(), &self.x, CrossTerm::Exact).unwrap()
    }

    fn update(&self, factors: &Entries) -> Vec<f64> {
        transposed_times(&factors.b, &factors.a, self.rank, self.d_out, self.d_in)
    }
}

fn largest_change(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn check_item(case: &Case, item: &Value) {
    let name = item["name"].as_str().unwrap();
    let key = |suffix: &str| format!("{name}.{suffix}");
    let shape = case.input_shape(&key("A"));
    let this = Item {
        rank: shape[0],
        d_in: shape[1],
        d_out: case.input_shape(&key("B"))[0],
        diagonal: case.input(&key("D")),
        x: case.input(&key("x")),
    };
    let before = Entries { a: case.input(&key("A")), b: case.input_transposed(&key("B")) };
    let gauge = Gauge::new(&case.input(&key("R")), this.rank).unwrap();
    let after = gauge
        .apply(
            FactorView::new("A", &before.a, this.rank, this.d_in).unwrap(),
            FactorView::new("B", &before.b, this.rank, this.d_out).unwrap(),
        )
        .unwrap();
    let action = gauge.diagonal_action(&this.diagonal).unwrap();
    let wanted = |suffix: &str| case.expected(&key(suffix));
    assert_close(&key("A_transformed"), &after.a, &wanted("A_transformed"), GOLDEN);
    let b_wanted = case.expected_transposed(&key("B_transformed"));
    assert_close(&key("B_transformed"), &after.b, &b_wanted, GOLDEN);
    assert_close(&key("D_transformed"), &action.transformed, &wanted("D_transformed"), GOLDEN);

    let orthogonality = gauge.orthogonality_residual();
    let delta_w = largest_change(&this.update(&before), &this.update(&after));
    let mut booleans = vec![
        ("is_orthogonal".to_owned(), orthogonality <= TOLERANCE),
        ("preserves_delta_w".to_owned(), delta_w <= TOLERANCE),
        ("commutes_with_D".to_owned(), action.commutator <= TOLERANCE),
        ("RDRt_is_diagonal".to_owned(), action.off_diagonal <= TOLERANCE),
        (
            "is_signed_permutation".to_owned(),
            orthogonality <= TOLERANCE && gauge.integer_residual() <= TOLERANCE,
        ),
        ("is_residual_gauge".to_owned(), gauge.is_residual(&this.diagonal, TOLERANCE).unwrap()),
    ];
    let mut residuals = vec![
        ("orthogonality".to_owned(), orthogonality),
        ("delta_w".to_owned(), delta_w),
        ("commutator".to_owned(), action.commutator),
        ("RDRt_off_diagonal".to_owned(), action.off_diagonal),
        ("signed_permutation".to_owned(), gauge.integer_residual()),
    ];
    for family in ["additive", "multiplicative"] {
        let old = this.moments(family, &before, &this.diagonal);
        let parameters = [("same_D", &this.diagonal), ("transformed_D", &action.transformed)];
        for (which, parameters) in parameters {
            let new = this.moments(family, &after, parameters);
            let change = largest_change(&old.variance, &new.variance);
            let moved = change.max(largest_change(&old.mean, &new.mean));
            let name = format!("{family}_output_moments_invariant_{which}");
            booleans.push((name, moved <= TOLERANCE));
            residuals.push((format!("{family}_v_y_exact_change_{which}"), change));
        }
    }
    let stored = item["booleans"].as_object().unwrap();
    assert_eq!(stored.len(), booleans.len(), "{name}: every boolean is computed");
    for (key, found) in booleans {
        assert_eq!(Some(found), stored[&key].as_bool(), "{name}: {key}");
    }
    for (key, found) in residuals {
        // Printed with three digits; tiny ones are rounding and differ between programs.
        let wanted = item["residuals"][&key].as_f64().unwrap();
        let close = if wanted < 1e-9 { found < 1e-9 } else { (found / wanted - 1.0).abs() < 6e-3 };
        assert!(close, "{name}: residual {key} is {found}, wanted {wanted}");
    }
}

#[test]
fn every_item() {
    let case = Case::load("gauge");
    let items = case.json["items"].as_array().unwrap();
    assert_eq!(items.len(), 15);
    for item in items {
        check_item(&case, item);
    }
}
