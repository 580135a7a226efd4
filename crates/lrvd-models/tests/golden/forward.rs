//! Variances, divergence, moments, passes with given noise, their gradients, and rank statistics of one adapter.

use anyhow::{Context, Result};
use lrvd_burn::host::HostAdapter;
use lrvd_core::family::{LOG_VARIANCE_MAX, LOG_VARIANCE_MIN};
use lrvd_core::forward::{moment_matched, nested};
use lrvd_core::kl::{LogUniformOptions, kl_fit, kl_log_uniform};
use lrvd_core::moments::{CrossTerm, moments};
use lrvd_core::posterior::AlphaFloor;
use lrvd_core::prune::{StatisticLogVariance, StatisticOptions, rank_statistic};
use lrvd_core::special::MedianKind;

use crate::case::{Case, Limit, Values};
use crate::factors::{FAMILIES, posterior, read, with_noise};
use crate::json::Json;

/// First step of a difference quotient.
const FIRST_STEP: f64 = 0.1;
/// Halvings of the step.
const STEPS: usize = 12;
const OPTIONS: LogUniformOptions = LogUniformOptions {
    reduction: lrvd_core::kl::KlReduction::Element,
    alpha_floor: AlphaFloor::AUTHORS,
};

/// Inputs of a pass.
struct Inputs {
    factors: HostAdapter,
    scaling: f64,
    n: usize,
    x: Vec<f64>,
    g: Vec<f64>,
    eps: Vec<f64>,
    e1: Vec<f64>,
    e2: Vec<f64>,
}

/// What a gradient is taken by: `x`, A, B and the parameters of one family.
#[derive(Clone)]
struct Point<'a> {
    inputs: &'a Inputs,
    family: &'a str,
    blocks: [Vec<f64>; 4],
}

/// Names of the blocks.
const BLOCKS: [&str; 4] = ["x", "mu_A", "mu_B", "rank"];
/// Schemes of a pass.
const SCHEMES: [&str; 3] = ["paper", "exact", "nested"];

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    case.require(&[])?;
    let names = ["x", "mu_A", "mu_B", "log_alpha", "log_sigma2", "eps", "e1", "e2", "g"];
    let file = case.inputs(&names)?;
    let of = |name: &str| Ok::<_, anyhow::Error>(Values::read(&file, name)?.values);
    let factors = read(&file, "mu_A", "mu_B")?;
    let (rank, d_in, d_out) = (factors.rank, factors.d_input, factors.d_output);
    // Without a rank there is nothing to scale.
    let lambda = case.json.at(&["lambda"])?.number()?;
    let scaling = if rank == 0 { 0.0 } else { lambda / rank as f64 };
    let (x, g) = (of("x")?, of("g")?);
    let n = g.len() / d_out;
    for (key, found) in [
        ("scale", scaling),
        ("r", rank as f64),
        ("d_in", d_in as f64),
        ("d_out", d_out as f64),
        ("n", n as f64),
    ] {
        case.described(key, &[found], Limit::Relative(f64::EPSILON))?;
    }
    let inputs =
        Inputs { factors, scaling, n, x, g, eps: of("eps")?, e1: of("e1")?, e2: of("e2")? };
    let mut found = Vec::new();
    for family in FAMILIES {
        let parameters = of(if family == "additive" { "log_sigma2" } else { "log_alpha" })?;
        let HostAdapter { a, b, .. } = inputs.factors.clone();
        let point = Point { inputs: &inputs, family, blocks: [inputs.x.clone(), a, b, parameters] };
        for (key, values) in point.tensors()? {
            // The file holds what belongs to B as `[d_out, rank]`.
            let of_b = ["sigma2_B", "log_alpha_B", "mu_B"].iter().any(|end| key.ends_with(end));
            let values = if of_b { values.transposed() } else { values };
            found.push((format!("{family}.{key}"), values));
        }
        if family == "additive" {
            found.extend(statistics(case, &point)?);
        }
    }
    for (name, values) in &found {
        case.tolerated(name, values)?;
    }
    case.found(&found)
}

impl Point<'_> {
    fn adapter(&self) -> HostAdapter {
        let [_, a, b, parameters] = self.blocks.clone();
        with_noise(&HostAdapter { a, b, ..self.inputs.factors.clone() }, self.family, &parameters)
    }

    /// Output of a pass, `[n, d_out]`.
    fn output(&self, scheme: &str) -> Result<Vec<f64>> {
        let (adapter, Inputs { scaling, eps, e1, e2, .. }) = (self.adapter(), self.inputs);
        let (q, x) = (posterior(&adapter)?, &self.blocks[0]);
        let cross = if scheme == "exact" { CrossTerm::Exact } else { CrossTerm::Omitted };
        Ok(match scheme {
            "nested" => nested(&q, x, [e1, e2], *scaling)?,
            _ => moment_matched(&q, x, eps, *scaling, cross)?,
        })
    }

    /// Every tensor of the family but the rank statistics; B rank-major.
    fn tensors(&self) -> Result<Vec<(String, Values)>> {
        let (adapter, n) = (self.adapter(), self.inputs.n);
        let (rank, d_in, d_out) = (adapter.rank, adapter.d_input, adapter.d_output);
        let (q, x) = (posterior(&adapter)?, &self.blocks[0]);
        let mut found = Vec::new();
        let mut put = |key: &str, shape: &[usize], values| {
            found.push((key.to_owned(), Values::new(shape, values)));
        };
        let (variance, ratios) = (q.variance(), q.log_alpha(AlphaFloor::AUTHORS));
        put("sigma2_A", &[rank, d_in], variance.a);
        put("sigma2_B", &[rank, d_out], variance.b);
        put("log_alpha_A", &[rank, d_in], ratios.a);
        put("log_alpha_B", &[rank, d_out], ratios.b);
        let kl = kl_log_uniform(&q, OPTIONS);
        put("kl_per_rank", &[rank], kl.per_rank());
        put("kl_total", &[1], vec![kl.total()]);
        put("kl_A_per_rank", &[rank], kl.a_per_rank);
        put("kl_B_per_rank", &[rank], kl.b_per_rank);
        let exact = moments(&q, x, CrossTerm::Exact)?;
        put("m_s", &[n, rank], exact.rank_mean);
        put("v_s", &[n, rank], exact.rank_variance);
        put("m_y", &[n, d_out], exact.mean);
        put("v_y_exact", &[n, d_out], exact.variance);
        put("v_y_paper", &[n, d_out], moments(&q, x, CrossTerm::Omitted)?.variance);

        let shapes = [[n, d_in], [rank, d_in], [rank, d_out], [rank, 1]];
        let shape = |block: usize| if block == 3 { &shapes[3][..1] } else { &shapes[block][..] };
        let total_kl =
            |point: &Point<'_>| Ok(kl_log_uniform(&posterior(&point.adapter())?, OPTIONS).total());
        for (block, name) in BLOCKS.iter().enumerate().skip(1) {
            put(&format!("grad_kl.{name}"), shape(block), self.gradient(block, total_kl)?);
        }
        for scheme in SCHEMES {
            put(&format!("y.{scheme}"), &[n, d_out], self.output(scheme)?);
            let weighted = |point: &Point<'_>| {
                let output = point.output(scheme)?;
                Ok(output.iter().zip(&point.inputs.g).map(|(y, g)| y * g).sum())
            };
            for (block, name) in BLOCKS.iter().enumerate() {
                let gradient = self.gradient(block, weighted)?;
                put(&format!("grad.{scheme}.{name}"), shape(block), gradient);
            }
        }
        Ok(found)
    }

    /// The gradient of `of` by a block, from differences of its values.
    fn gradient(&self, block: usize, of: impl Fn(&Point<'_>) -> Result<f64>) -> Result<Vec<f64>> {
        (0..self.blocks[block].len())
            .map(|i| {
                let at = self.blocks[block][i];
                let clamped = block == 3 && self.family == "additive";
                // At the ends of the clamp the slope is that from within.
                let side = match at {
                    LOG_VARIANCE_MIN if clamped => Some(1.0),
                    LOG_VARIANCE_MAX if clamped => Some(-1.0),
                    _ => None,
                };
                derivative(at, side, |value| {
                    let mut moved = self.clone();
                    moved.blocks[block][i] = value;
                    of(&moved)
                })
            })
            .collect()
    }
}

/// The derivative of `f` from difference quotients of falling step, extrapolated to step 0 (Ridders): central ones,
/// or those of one side. Of all extrapolations the one that differs least from its neighbours is taken, where a
/// small step also counts what it loses to rounding.
fn derivative(at: f64, side: Option<f64>, f: impl Fn(f64) -> Result<f64>) -> Result<f64> {
    let size = f(at)?.abs();
    let order = if side.is_some() { 2.0 } else { 4.0 };
    let (mut step, mut last) = (FIRST_STEP, Vec::<f64>::new());
    let (mut best, mut smallest) = (f64::NAN, f64::INFINITY);
    for _ in 0..STEPS {
        let [low, high] = side.map_or([at - step, at + step], |side| [at, at + side * step]);
        let mut row = vec![(f(high)? - f(low)?) / (high - low)];
        let mut factor = order;
        for (column, before) in last.iter().enumerate() {
            let next = (row[column] * factor - before) / (factor - 1.0);
            let spread = (next - row[column]).abs().max((next - before).abs());
            let error = spread + f64::EPSILON * size / step;
            if error < smallest {
                (best, smallest) = (next, error);
            }
            row.push(next);
            factor *= order;
        }
        last = row;
        step /= 2.0;
    }
    Ok(best)
}

/// Rank statistics of the additive family, and the masks that they give.
fn statistics(case: &mut Case, point: &Point<'_>) -> Result<Vec<(String, Values)>> {
    let adapter = point.adapter();
    let mut found = Vec::new();
    for (median, name) in [(MedianKind::Lower, "lower"), (MedianKind::Midpoint, "midpoint")] {
        let of = |log_variance| {
            let options = StatisticOptions { median, log_variance, ..Default::default() };
            Ok::<_, anyhow::Error>(rank_statistic(&posterior(&adapter)?, options)?)
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

/// The fitted divergence from the log-uniform prior, and its slope, on every recorded grid.
pub(crate) fn divergence(case: &mut Case) -> Result<()> {
    case.require(&["log_alpha"])?;
    for name in case.names() {
        let Some(prefix) = name.strip_suffix("log_alpha") else { continue };
        let grid = case.recorded(&name)?;
        let slope = |&a: &f64| derivative(a, None, |a| Ok(kl_fit(a)));
        let values = grid.values.iter().map(|&a| kl_fit(a)).collect();
        let slopes = grid.values.iter().map(slope).collect::<Result<_>>()?;
        for (key, found) in [("kl", values), ("dkl", slopes)] {
            let name = format!("{prefix}{key}");
            // Its own tolerance, else that of the same quantity on the main grid.
            let limit = case.tolerance(&name).or_else(|_| case.tolerance(key))?;
            case.tensor(&name, &Values::new(&grid.shape, found), limit)?;
        }
    }
    Ok(())
}
