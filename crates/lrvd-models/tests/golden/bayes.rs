//! Variances, divergence, moments, passes with given noise, and rank statistics of one adapter.

use anyhow::{Context, Result};
use lrvd_burn::files::WeightStore;
use lrvd_burn::host::{HostAdapter, HostNoise};
use lrvd_core::family::VariationalFamily;
use lrvd_core::forward::{moment_matched, nested};
use lrvd_core::kl::{KlReduction, LogUniformOptions, kl_fit, kl_log_uniform};
use lrvd_core::moments::{CrossTerm, moments, output_covariance};
use lrvd_core::posterior::{AlphaFloor, Posterior};
use lrvd_core::prune::{StatisticLogVariance, StatisticOptions, rank_statistic};
use lrvd_core::special::MedianKind;

use crate::case::{Case, Json, Limit, Values};

/// The posteriors that a fixture states, by the start of its names.
pub(crate) const FAMILIES: [&str; 2] = ["multiplicative", "additive"];
/// Relative difference of formulas for which a folder states no tolerance: the double-precision rule of those that
/// do.
pub(crate) const FORMULA: f64 = 1e-10;

/// `A` `[rank, d_in]` and `B` `[d_out, rank]` of a file, both rank-major here.
pub(crate) fn factors(file: &WeightStore, a: &str, b: &str) -> Result<HostAdapter> {
    let (a, b) = (Values::read(file, a)?, Values::read(file, b)?);
    let (rank, d_input, d_output) = (a.shape[0], a.shape[1], b.shape[0]);
    let (a, b) = (a.values, b.transposed().values);
    Ok(HostAdapter { rank, d_input, d_output, a, b, e: None, noise: None, scaling: 1.0 })
}

/// The same factors with the noise of one family.
pub(crate) fn with_noise(factors: &HostAdapter, family: &str, parameters: &[f64]) -> HostAdapter {
    let family = match family {
        "additive" => VariationalFamily::RankVariance,
        _ => VariationalFamily::NoiseToSignal,
    };
    let noise = HostNoise { family, a: parameters.to_vec(), b: Vec::new() };
    HostAdapter { noise: Some(noise), ..factors.clone() }
}

pub(crate) fn posterior(adapter: &HostAdapter) -> Result<Posterior<'_>> {
    adapter.posterior()?.context("an adapter without a posterior")
}

/// The parameters of a family in a file of inputs.
fn parameters(file: &WeightStore, family: &str) -> Result<Vec<f64>> {
    let name = if family == "additive" { "log_sigma2" } else { "log_alpha" };
    Ok(Values::read(file, name)?.values)
}

/// Every quantity but the gradients: the core has none, and those of the operators are compared with slopes of the core's
/// functions.
pub(crate) fn forward(case: &mut Case) -> Result<()> {
    case.require_tolerated()?;
    let names = ["x", "mu_A", "mu_B", "log_alpha", "log_sigma2", "eps", "e1", "e2", "g"];
    let file = case.inputs(&names)?;
    let of = |name: &str| Ok::<_, anyhow::Error>(Values::read(&file, name)?.values);
    let factors = factors(&file, "mu_A", "mu_B")?;
    let (rank, d_in, d_out) = (factors.rank, factors.d_input, factors.d_output);
    // Without a rank there is nothing to scale.
    let lambda: f64 = case.json.read("lambda")?;
    let scaling = if rank == 0 { 0.0 } else { lambda / rank as f64 };
    let (x, eps, e1, e2) = (of("x")?, of("eps")?, of("e1")?, of("e2")?);
    let n = eps.len() / d_out;
    let mut found = Vec::new();
    for family in FAMILIES {
        let mut put = |key: &str, shape: &[usize], values| {
            found.push((format!("{family}.{key}"), Values::new(shape, values)));
        };
        let adapter = with_noise(&factors, family, &parameters(&file, family)?);
        let q = posterior(&adapter)?;
        let (variance, ratios) = (q.variance(), q.log_alpha(AlphaFloor::AUTHORS));
        // The file holds what belongs to B as `[d_out, rank]`.
        let of_b = |values| Values::new(&[rank, d_out], values).transposed().values;
        put("sigma2_A", &[rank, d_in], variance.a);
        put("sigma2_B", &[d_out, rank], of_b(variance.b));
        put("log_alpha_A", &[rank, d_in], ratios.a);
        put("log_alpha_B", &[d_out, rank], of_b(ratios.b));
        let options =
            LogUniformOptions { reduction: KlReduction::Element, alpha_floor: AlphaFloor::AUTHORS };
        let kl = kl_log_uniform(&q, options);
        put("kl_per_rank", &[rank], kl.per_rank());
        put("kl_total", &[1], vec![kl.total()]);
        put("kl_A_per_rank", &[rank], kl.a_per_rank);
        put("kl_B_per_rank", &[rank], kl.b_per_rank);
        let [exact, paper] = [CrossTerm::Exact, CrossTerm::Omitted];
        let moments_of = |cross| moments(&q, &x, cross);
        let m = moments_of(exact)?;
        put("m_s", &[n, rank], m.rank_mean);
        put("v_s", &[n, rank], m.rank_variance);
        put("m_y", &[n, d_out], m.mean);
        put("v_y_exact", &[n, d_out], m.variance);
        put("v_y_paper", &[n, d_out], moments_of(paper)?.variance);
        put("y.exact", &[n, d_out], moment_matched(&q, &x, &eps, scaling, exact)?);
        put("y.paper", &[n, d_out], moment_matched(&q, &x, &eps, scaling, paper)?);
        put("y.nested", &[n, d_out], nested(&q, &x, [&e1, &e2], scaling)?);
        if family == "additive" {
            found.extend(statistics(case, &adapter)?);
        }
        for gradient in ["grad.", "grad_kl."].map(|start| format!("{family}.{start}")) {
            for name in case.below(&gradient) {
                case.recorded(&format!("{gradient}{name}"))?;
            }
        }
    }
    for (name, values) in &found {
        case.tolerated(name, values)?;
    }
    case.found(&found)
}

/// Rank statistics of the additive family, and the masks that they give.
fn statistics(case: &mut Case, adapter: &HostAdapter) -> Result<Vec<(String, Values)>> {
    let mut found = Vec::new();
    for (median, name) in [(MedianKind::Lower, "lower"), (MedianKind::Midpoint, "midpoint")] {
        let of = |log_variance| {
            let options = StatisticOptions { median, log_variance, ..Default::default() };
            Ok::<_, anyhow::Error>(rank_statistic(&posterior(adapter)?, options)?)
        };
        let raw = of(StatisticLogVariance::Raw)?;
        for threshold in case.below(&format!("keep.{name}.")) {
            let limit: f64 = threshold.parse().context("a threshold")?;
            let keep = Values::flags(&[raw.len()], raw.iter().map(|&s| s < limit));
            case.tensor(&format!("keep.{name}.{threshold}"), &keep, Limit::EXACT)?;
        }
        found.push((format!("rank_statistic.{name}"), Values::list(raw)));
        let clamped = Values::list(of(StatisticLogVariance::Clamped)?);
        found.push((format!("rank_statistic_clamped.{name}"), clamped));
    }
    Ok(found)
}

/// The fitted divergence from the log-uniform prior on every recorded grid.
pub(crate) fn divergence(case: &mut Case) -> Result<()> {
    for name in case.below("") {
        let Some(prefix) = name.strip_suffix("log_alpha") else { continue };
        let grid = case.recorded(&name)?;
        let found = Values::new(&grid.shape, grid.values.into_iter().map(kl_fit).collect());
        // Its own tolerance, else that of the main grid.
        let name = format!("{prefix}kl");
        let limit = case.tolerance(&name).or_else(|_| case.tolerance("kl"))?;
        case.tensor(&name, &found, limit)?;
        case.recorded(&format!("{prefix}dkl"))?;
    }
    Ok(())
}

/// Mean, variance and covariance of the outputs in closed form.
pub(crate) fn monte_carlo(case: &mut Case) -> Result<()> {
    let file = case.inputs(&["mu_A", "mu_B", "x", "log_alpha", "log_sigma2"])?;
    let factors = factors(&file, "mu_A", "mu_B")?;
    let x = Values::read(&file, "x")?.values;
    let scaling: f64 = case.json.read("scale")?;
    for family in FAMILIES {
        let adapter = with_noise(&factors, family, &parameters(&file, family)?);
        let q = posterior(&adapter)?;
        let exact = moments(&q, &x, CrossTerm::Exact)?;
        let paper = moments(&q, &x, CrossTerm::Omitted)?;
        let covariance = output_covariance(&q, &x, CrossTerm::Exact)?;
        let d_out = q.d_output();
        let shape = [exact.mean.len() / d_out, d_out, d_out];
        let scaled = |axes: usize, values: Vec<f64>, factor: f64| {
            Values::new(&shape[..axes], values.into_iter().map(|v| v * factor).collect())
        };
        let square = scaling * scaling;
        let mean = scaled(2, exact.mean, scaling);
        let variance = scaled(2, exact.variance, square);
        let covariance = scaled(3, covariance, square);
        let paper = scaled(2, paper.variance, square);
        for (what, found) in [
            ("mean", &mean),
            ("v_exact", &variance),
            ("v_paper", &paper),
            ("cov_exact", &covariance),
        ] {
            let limit = Limit::Absolute(FORMULA * found.largest().max(1.0));
            case.tensor(&format!("{family}.formula.{what}"), found, limit)?;
        }
        // The recorded draws are within five standard errors of the recorded formula.
        for sampler in ["weight_space", "nested"] {
            for name in case.below(&format!("{family}.{sampler}.")) {
                case.recorded(&format!("{family}.{sampler}.{name}"))?;
            }
        }
    }
    Ok(())
}
