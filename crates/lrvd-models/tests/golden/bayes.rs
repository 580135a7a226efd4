//! Variances, divergence, moments, passes with given noise, and rank statistics of one adapter.

use anyhow::{Context, Result};
use lrvd_burn::files::WeightStore;
use lrvd_core::kl::{KlReduction, LogUniformKl, kl_fit, kl_log_uniform};
use lrvd_core::linalg::transpose;
use lrvd_core::moments::{CrossTerm, Moments, moments};
use lrvd_core::posterior::{EPS_MEAN, Entries, clamp_log_variance};
use lrvd_core::prune::{StatisticOptions, rank_statistic};
use lrvd_core::{Factors, Noise, Posterior, VariationalFamily};

use crate::activation_noise::{moment_matched, nested};
use crate::case::{Case, Json, Limit, Values};

/// The posteriors that a fixture states, by the start of its names.
pub(crate) const FAMILIES: [&str; 2] = ["multiplicative", "additive"];
/// Relative difference of formulas for which a folder states no tolerance: the double-precision rule of those that
/// do.
pub(crate) const FORMULA: f64 = 1e-10;

/// `A` `[rank, d_in]` and `B` `[d_out, rank]` of a file.
pub(crate) fn factors(file: &WeightStore, a: &str, b: &str) -> Result<Factors> {
    let (a, b) = (Values::read(file, a)?, Values::read(file, b)?);
    let (rank, d_input, d_output) = (a.shape[0], a.shape[1], b.shape[0]);
    Ok(Factors { rank, d_input, d_output, a: a.values, b: b.values })
}

/// A posterior of one family around `factors`.
pub(crate) fn posterior(factors: &Factors, family: &str, parameters: &[f64]) -> Result<Posterior> {
    let family = match family {
        "additive" => VariationalFamily::RankVariance,
        _ => VariationalFamily::NoiseToSignal,
    };
    Ok(Posterior::new(factors.clone(), Noise::per_rank(family, parameters.to_vec()))?)
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
    let Factors { rank, d_input: d_in, d_output: d_out, .. } = factors;
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
        let q = posterior(&factors, family, &parameters(&file, family)?)?;
        let variance = q.variance();
        let (ratios, kl) = if family == "additive" {
            with_floor(&q)
        } else {
            let noise = &q.noise().a;
            let a = noise.iter().flat_map(|&p| vec![p; d_in]).collect();
            (Entries { a, b: noise.repeat(d_out) }, kl_log_uniform(&q, KlReduction::Element))
        };
        put("sigma2_A", &[rank, d_in], variance.a);
        put("sigma2_B", &[d_out, rank], variance.b);
        put("log_alpha_A", &[rank, d_in], ratios.a);
        put("log_alpha_B", &[d_out, rank], ratios.b);
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
            found.extend(statistics(case, &q)?);
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

/// Log noise-to-signal ratios of an additive posterior, and the divergence of each rank, with 1e-8 added to every ratio as in the
/// authors' code.
fn with_floor(q: &Posterior) -> (Entries, LogUniformKl) {
    let ratios = |means: &[f64], variance: Vec<f64>| -> Vec<f64> {
        let ratio =
            |(mean, variance): (&f64, f64)| (variance / (mean * mean + EPS_MEAN) + 1e-8).ln();
        means.iter().zip(variance).map(ratio).collect()
    };
    let sums = |rows: &[f64], width: usize| -> Vec<f64> {
        rows.chunks(width).map(|row| row.iter().map(|&a| kl_fit(a)).sum::<f64>()).collect()
    };
    let Factors { rank, d_input, d_output, ref a, ref b } = *q.factors();
    let variance = q.variance();
    let (a, b) = (ratios(a, variance.a), ratios(b, variance.b));
    let a_per_rank = sums(&a, d_input);
    let b_per_rank = sums(&transpose(&b, d_output, rank), d_output);
    (Entries { a, b }, LogUniformKl { a_per_rank, b_per_rank })
}

/// Rank statistics of the additive family, and the masks that they give: of the clamped log-variance and of the raw one, with the
/// lower of the two middle values or their mean.
fn statistics(case: &mut Case, q: &Posterior) -> Result<Vec<(String, Values)>> {
    let noise = &q.noise().a;
    let Factors { d_input, d_output, ref a, .. } = *q.factors();
    let b = q.factors().b_by_rank();
    let clamped: Vec<f64> = noise.iter().map(|&l| clamp_log_variance(l)).collect();
    let mut found = Vec::new();
    for name in ["lower", "midpoint"] {
        let middle = |means: &[f64], width: usize, rank: usize| {
            let row = &means[rank * width..(rank + 1) * width];
            let mut logs: Vec<f64> = row.iter().map(|m| -(m * m + EPS_MEAN).ln()).collect();
            logs.sort_by(f64::total_cmp);
            let [low, high] = [logs[(width - 1) / 2], logs[width / 2]];
            if name == "lower" { low } else { f64::midpoint(low, high) }
        };
        let of = |log_variance: &[f64]| -> Vec<f64> {
            let statistic = |(k, l): (usize, &f64)| {
                l + f64::midpoint(middle(a, d_input, k), middle(&b, d_output, k))
            };
            log_variance.iter().enumerate().map(statistic).collect()
        };
        let raw = of(noise);
        for threshold in case.below(&format!("keep.{name}.")) {
            let limit: f64 = threshold.parse().context("a threshold")?;
            let keep = Values::flags(&[raw.len()], raw.iter().map(|&s| s < limit));
            case.tensor(&format!("keep.{name}.{threshold}"), &keep, Limit::EXACT)?;
        }
        found.push((format!("rank_statistic.{name}"), Values::list(raw)));
        let clamped = match name {
            "lower" => rank_statistic(q, StatisticOptions::default())?,
            _ => of(&clamped),
        };
        found.push((format!("rank_statistic_clamped.{name}"), Values::list(clamped)));
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

/// Covariance of the outputs of each token, `[tokens, d_output, d_output]`, whose off-diagonal part is what independent noise of
/// every output drops.
///
/// ```text
/// Cov(y[o], y[p]) = Σ_k v_s[k]·b[o,k]·b[p,k]     o ≠ p
/// Var y[o]        = as in moments
/// ```
fn output_covariance(factors: &Factors, m: &Moments) -> Vec<f64> {
    let Factors { rank, d_output: d_out, ref b, .. } = *factors;
    let entry = |token: usize, o: usize, p: usize| -> f64 {
        if o == p {
            return m.variance[token * d_out + o];
        }
        let v_s = &m.rank_variance[token * rank..];
        (0..rank).map(|k| v_s[k] * b[o * rank + k] * b[p * rank + k]).sum()
    };
    let tokens = m.mean.len() / d_out;
    let rows = (0..tokens).flat_map(|token| (0..d_out).map(move |o| (token, o)));
    rows.flat_map(|(token, o)| (0..d_out).map(move |p| entry(token, o, p))).collect()
}

/// Mean, variance and covariance of the outputs in closed form.
pub(crate) fn monte_carlo(case: &mut Case) -> Result<()> {
    let file = case.inputs(&["mu_A", "mu_B", "x", "log_alpha", "log_sigma2"])?;
    let factors = factors(&file, "mu_A", "mu_B")?;
    let x = Values::read(&file, "x")?.values;
    let scaling: f64 = case.json.read("scale")?;
    for family in FAMILIES {
        let q = posterior(&factors, family, &parameters(&file, family)?)?;
        let exact = moments(&q, &x, CrossTerm::Exact)?;
        let paper = moments(&q, &x, CrossTerm::Omitted)?;
        let covariance = output_covariance(&factors, &exact);
        let d_out = factors.d_output;
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
