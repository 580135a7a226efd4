use lrvd_core::factor::FactorView;
use lrvd_core::forward::{ForwardGradient, MomentMatchedPass, NestedNoise, NestedPass};
use lrvd_core::kl::{LogUniformOptions, kl_log_uniform};
use lrvd_core::log_alpha::{AlphaFloor, log_alpha_entries};
use lrvd_core::moments::{CrossTerm, moments};
use lrvd_core::numeric::MedianKind;
use lrvd_core::posterior::{NoiseParameters, ParameterGradient, Posterior};
use lrvd_core::prune::{PruneRule, StatisticLogVariance, StatisticOptions, rank_statistic};

use crate::support::{Case, GOLDEN, assert_close};

const CASES: [&str; 7] = [
    "forward_r0_empty",
    "forward_r1_in5_out3_n1",
    "forward_r2_clamp_boundary",
    "forward_r3_in7_out4_even_and_odd",
    "forward_r4_b_zero_init",
    "forward_r4_in6_out5",
    "forward_r8_in16_out12",
];

/// A golden tensor name with the value this crate computes for it.
type Found = Vec<(String, Vec<f64>)>;

/// Everything the fixture lists for one family; B-shaped tensors rank-major.
fn family_tensors(case: &Case, name: &str) -> Found {
    let a_shape = case.input_shape("mu_A");
    let b_shape = case.input_shape("mu_B");
    let (a_mean, b_mean) = (case.input("mu_A"), case.input_transposed("mu_B"));
    let log_alpha = case.input("log_alpha");
    let log_variance = case.input("log_sigma2");
    let parameters = if name == "additive" {
        NoiseParameters::RankVariance(&log_variance)
    } else {
        NoiseParameters::NoiseToSignal(&log_alpha)
    };
    let posterior = Posterior::new(
        FactorView::new("mu_A", &a_mean, a_shape[0], a_shape[1]).unwrap(),
        FactorView::new("mu_B", &b_mean, b_shape[1], b_shape[0]).unwrap(),
        parameters,
    )
    .unwrap();
    let scale = case.json["scale"].as_f64().unwrap();
    let (x, g) = (case.input("x"), case.input("g"));

    let mut found: Found = Vec::new();
    let mut put = |key: &str, values: Vec<f64>| found.push((format!("{name}.{key}"), values));
    let variance = posterior.variance();
    put("sigma2_A", variance.a);
    put("sigma2_B", variance.b);
    let ratios = log_alpha_entries(&posterior, AlphaFloor::AUTHORS);
    put("log_alpha_A", ratios.a);
    put("log_alpha_B", ratios.b);

    let options = LogUniformOptions { alpha_floor: AlphaFloor::AUTHORS, ..Default::default() };
    let kl = kl_log_uniform(&posterior, options);
    put("kl_per_rank", kl.per_rank());
    put("kl_total", vec![kl.total()]);
    put("kl_A_per_rank", kl.a_per_rank);
    put("kl_B_per_rank", kl.b_per_rank);
    put("grad_kl.mu_A", kl.gradient.a_mean);
    put("grad_kl.mu_B", kl.gradient.b_mean);
    put("grad_kl.rank", per_rank(kl.gradient.parameters));

    let exact = moments(&posterior, &x, CrossTerm::Exact).unwrap();
    put("v_y_paper", moments(&posterior, &x, CrossTerm::Omitted).unwrap().variance);
    put("m_s", exact.rank_mean);
    put("v_s", exact.rank_variance);
    put("m_y", exact.mean);
    put("v_y_exact", exact.variance);

    let eps = case.input("eps");
    for (key, cross) in [("paper", CrossTerm::Omitted), ("exact", CrossTerm::Exact)] {
        let pass = MomentMatchedPass::new(posterior, &x, &eps, scale, cross).unwrap();
        put(&format!("y.{key}"), pass.output().to_vec());
        put_gradient(&mut put, key, pass.backward(&g).unwrap());
    }
    let (e1, e2) = (case.input("e1"), case.input("e2"));
    let noise = NestedNoise { rank: &e1, output: &e2 };
    let pass = NestedPass::new(posterior, &x, noise, scale).unwrap();
    put("y.nested", pass.output().to_vec());
    put_gradient(&mut put, "nested", pass.backward(&g).unwrap());

    if name == "additive" {
        let statistics = statistic_tensors(&posterior);
        found.extend(statistics);
    }
    found
}

fn put_gradient(put: &mut impl FnMut(&str, Vec<f64>), key: &str, gradient: ForwardGradient) {
    put(&format!("grad.{key}.x"), gradient.x);
    put(&format!("grad.{key}.mu_A"), gradient.posterior.a_mean);
    put(&format!("grad.{key}.mu_B"), gradient.posterior.b_mean);
    put(&format!("grad.{key}.rank"), per_rank(gradient.posterior.parameters));
}

fn per_rank(gradient: ParameterGradient) -> Vec<f64> {
    gradient.per_rank().unwrap().to_vec()
}

fn statistic_tensors(posterior: &Posterior<'_>) -> Found {
    let mut found: Found = Vec::new();
    for (median, name) in [(MedianKind::Lower, "lower"), (MedianKind::Midpoint, "midpoint")] {
        let of = |log_variance| {
            let options = StatisticOptions { median, log_variance, ..Default::default() };
            rank_statistic(posterior, options).unwrap()
        };
        let raw = of(StatisticLogVariance::Raw);
        for threshold in [2, 3, 4] {
            let kept = PruneRule::new(f64::from(threshold), 0).unwrap().kept(&raw).unwrap();
            let mask = (0..raw.len()).map(|i| f64::from(u8::from(kept.contains(&i)))).collect();
            found.push((format!("keep.{name}.{threshold}"), mask));
        }
        found.push((format!("rank_statistic.{name}"), raw));
        let clamped = of(StatisticLogVariance::Clamped);
        found.push((format!("rank_statistic_clamped.{name}"), clamped));
    }
    found
}

/// Tensors the file stores as `[d_out, r]`.
fn is_b_shaped(key: &str) -> bool {
    ["sigma2_B", "log_alpha_B", "mu_B"].iter().any(|suffix| key.ends_with(suffix))
}

#[test]
fn every_tensor_of_every_forward_case() {
    for name in CASES {
        let case = Case::load(name);
        let mut found = family_tensors(&case, "additive");
        found.extend(family_tensors(&case, "multiplicative"));
        let mut keys: Vec<String> = found.iter().map(|(key, _)| key.clone()).collect();
        keys.sort();
        assert_eq!(keys, case.expected_names(), "{name}: every expected tensor is computed");
        for (key, values) in &found {
            let wanted =
                if is_b_shaped(key) { case.expected_transposed(key) } else { case.expected(key) };
            assert_close(&format!("{name}: {key}"), values, &wanted, GOLDEN);
        }
    }
}

#[test]
fn the_comparison_notices_a_missing_cross_term() {
    let case = Case::load("forward_r4_in6_out5");
    let gap = case
        .expected("additive.v_y_exact")
        .iter()
        .zip(case.expected("additive.v_y_paper"))
        .map(|(e, p)| (e - p).abs())
        .fold(0.0, f64::max);
    assert!(gap > 1e-3);
}
