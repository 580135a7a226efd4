use lrvd_core::energy::{AucRule, Capture, UpdateEnergy};
use lrvd_core::factor::FactorView;
use serde_json::Value;

use crate::support::{Case, GOLDEN, assert_close};

fn check_item(case: &Case, item: &Value) {
    let name = item["name"].as_str().unwrap();
    let key = |suffix: &str| format!("{name}.{suffix}");
    let (a_shape, b_shape) = (case.input_shape(&key("A")), case.input_shape(&key("B")));
    let (a, b) = (case.input(&key("A")), case.input_transposed(&key("B")));
    let update = UpdateEnergy::new(
        FactorView::new("A", &a, a_shape[0], a_shape[1]).unwrap(),
        FactorView::new("B", &b, b_shape[1], b_shape[0]).unwrap(),
    )
    .unwrap();
    let rank = update.rank();
    let indices = |values: Vec<f64>| -> Vec<usize> { values.iter().map(|&v| v as usize).collect() };
    let order = indices(case.input(&key("order")));
    let permutations = indices(case.input(&key("permutations")));
    assert_eq!(update.order_by_norm_product(), order, "{name}");

    let svd = update.singular_value_curve();
    let wanted = |suffix: &str| case.expected(&key(suffix));
    assert_close(
        &key("singular_values"),
        &update.singular_values(),
        &wanted("singular_values"),
        GOLDEN,
    );
    assert_close(&key("E_svd"), &svd, &wanted("E_svd"), GOLDEN);

    let mut scalars = vec![("auc_svd".to_owned(), AucRule::Mean.area(&svd).unwrap())];
    for (letter, capture) in [("E", Capture::Residual), ("F", Capture::PartialNorm)] {
        let curve = update.curve(capture, &order).unwrap();
        assert_close(
            &key(&format!("{letter}_order")),
            &curve,
            &wanted(&format!("{letter}_order")),
            GOLDEN,
        );
        let all: Vec<f64> = permutations
            .chunks(rank)
            .flat_map(|order| update.curve(capture, order).unwrap())
            .collect();
        let stored = wanted(&format!("{letter}_permutations"));
        assert_close(&key(&format!("{letter}_permutations")), &all, &stored, GOLDEN);
        scalars.push((format!("auc_{letter}_order"), AucRule::Mean.area(&curve).unwrap()));
        let areas: Vec<f64> =
            all.chunks(rank).map(|curve| AucRule::Mean.area(curve).unwrap()).collect();
        let mean = areas.iter().sum::<f64>() / areas.len() as f64;
        scalars.push((format!("mean_auc_{letter}_permutations"), mean));
        if letter == "E" {
            let monotone = curve.windows(2).all(|w| w[1] >= w[0] - 1e-12);
            assert_eq!(Some(monotone), item["order_is_monotone_in_E"].as_bool(), "{name}");
            let smallest = curve.iter().chain(&all).copied().fold(f64::INFINITY, f64::min);
            scalars.push(("smallest_E".to_owned(), smallest));
        } else {
            let largest = curve.iter().chain(&all).copied().fold(0.0, f64::max);
            scalars.push(("largest_F".to_owned(), largest));
        }
    }
    for (key, found) in scalars {
        let wanted = item[&key].as_f64().unwrap();
        assert!((found - wanted).abs() < 1e-12, "{name}: {key} is {found}, wanted {wanted}");
    }
}

#[test]
fn every_item() {
    let case = Case::load("energy");
    let items = case.json["items"].as_array().unwrap();
    assert_eq!(items.len(), 5);
    for item in items {
        check_item(&case, item);
    }
}
