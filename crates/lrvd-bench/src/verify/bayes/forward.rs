//! One adapter: everything that a pass and its gradient go through.

use lrvd_burn::files::TensorFile;
use lrvd_core::forward::{ForwardGradient, MomentMatchedPass, NestedNoise, NestedPass};
use lrvd_core::kl::{LogUniformOptions, kl_log_uniform};
use lrvd_core::log_alpha::{AlphaFloor, log_alpha_entries};
use lrvd_core::moments::{CrossTerm, moments};
use lrvd_core::numeric::MedianKind;
use lrvd_core::posterior::{ParameterGradient, Posterior};
use lrvd_core::prune::{StatisticLogVariance, StatisticOptions, rank_statistic};

use super::super::{Comparison, Folder, Limit, Precision, Values, VerifyError, open, read_finite};
use super::factors::{FAMILIES, Factors};
use super::{INPUTS, tolerance};

/// Start of the names of pruning masks: `keep.<median>.<threshold>`.
const KEEP: &str = "keep.";

/// Inputs of a pass.
struct Inputs {
    factors: Factors,
    scaling: f64,
    n: usize,
    x: Vec<f64>,
    g: Vec<f64>,
    eps: Vec<f64>,
    e1: Vec<f64>,
    e2: Vec<f64>,
    log_alpha: Vec<f64>,
    log_variance: Vec<f64>,
}

/// Recomputed tensors by name.
type Found = Vec<(String, Values)>;

pub(in super::super) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    comparison.check_complete()?;
    let inputs = Inputs::read(folder, comparison)?;
    let mut found = Found::new();
    for family in FAMILIES {
        inputs.family(family, &mut found)?;
    }
    let statistics = inputs.statistics()?;
    for name in comparison.below(KEEP) {
        let Some((median, threshold)) = name.split_once('.') else { continue };
        let Ok(threshold) = threshold.parse::<f64>() else { continue };
        let key = format!("rank_statistic.{median}");
        if let Some((_, statistic)) = statistics.iter().find(|(known, _)| *known == key) {
            let keep = Values::flags(statistic.values.iter().map(|&s| s < threshold));
            comparison.tensor(&format!("{KEEP}{name}"), &keep, Limit::EXACT)?;
        }
    }
    found.extend(statistics);
    for (name, values) in &found {
        comparison.required(name, values, tolerance(folder, name)?)?;
    }
    comparison.scalars(&found, Precision::F64)
}

impl Inputs {
    fn read(folder: &Folder, comparison: &mut Comparison<'_>) -> Result<Self, VerifyError> {
        let file = open(&folder.dir, INPUTS)?;
        let known = ["x", "mu_A", "mu_B", "log_alpha", "log_sigma2", "eps", "e1", "e2", "g"];
        if let Some(name) = file.names().find(|name| !known.contains(name)) {
            return Err(VerifyError::unsupported(format!("input tensor `{name}`")));
        }
        let factors = Factors::read(&file, "mu_A", "mu_B")?;
        let x = factors.input(&file, "x")?;
        let (n, rank, d_out) = (x.shape[0], factors.rank, factors.d_out);
        let of = |name: &str, shape: &[usize]| wanted(&file, name, shape);
        let lambda = folder.get("lambda")?.finite()?;
        // Without a rank there is nothing to scale.
        let scaling = if rank == 0 { 0.0 } else { lambda / rank as f64 };
        for (key, found) in [
            ("scale", scaling),
            ("r", rank as f64),
            ("d_in", factors.d_in as f64),
            ("d_out", d_out as f64),
            ("n", n as f64),
        ] {
            if let Some(entry) = folder.find(key) {
                comparison.numbers(&entry, &[found], Limit::Relative(f64::EPSILON))?;
            }
        }
        Ok(Self {
            scaling,
            n,
            g: of("g", &[n, d_out])?,
            eps: of("eps", &[n, d_out])?,
            e1: of("e1", &[n, rank])?,
            e2: of("e2", &[n, d_out])?,
            log_alpha: of("log_alpha", &[rank])?,
            log_variance: of("log_sigma2", &[rank])?,
            x: x.values,
            factors,
        })
    }

    fn posterior(&self, family: &str) -> Result<Posterior<'_>, VerifyError> {
        let parameters = if family == "additive" { &self.log_variance } else { &self.log_alpha };
        Ok(self.factors.posterior(family, parameters)?)
    }

    /// Every tensor of one family.
    fn family(&self, family: &str, found: &mut Found) -> Result<(), VerifyError> {
        let posterior = self.posterior(family)?;
        let (rank, d_in, d_out, n) =
            (self.factors.rank, self.factors.d_in, self.factors.d_out, self.n);
        let mut put = |key: &str, shape: &[usize], values: Vec<f64>| {
            // The file holds what belongs to B as `[d_out, rank]`.
            let values = Values::new(shape, values);
            let b_shaped = ["sigma2_B", "log_alpha_B", "mu_B"].iter().any(|end| key.ends_with(end));
            let values = if b_shaped { values.transposed() } else { values };
            found.push((format!("{family}.{key}"), values));
        };
        let (a_shape, b_shape, per_rank) = ([rank, d_in], [rank, d_out], [rank]);
        let variance = posterior.variance();
        put("sigma2_A", &a_shape, variance.a);
        put("sigma2_B", &b_shape, variance.b);
        let ratios = log_alpha_entries(&posterior, AlphaFloor::AUTHORS);
        put("log_alpha_A", &a_shape, ratios.a);
        put("log_alpha_B", &b_shape, ratios.b);

        let options = LogUniformOptions { alpha_floor: AlphaFloor::AUTHORS, ..Default::default() };
        let kl = kl_log_uniform(&posterior, options);
        put("kl_per_rank", &per_rank, kl.per_rank());
        put("kl_total", &[1], vec![kl.total()]);
        put("kl_A_per_rank", &per_rank, kl.a_per_rank);
        put("kl_B_per_rank", &per_rank, kl.b_per_rank);
        put("grad_kl.mu_A", &a_shape, kl.gradient.a_mean);
        put("grad_kl.mu_B", &b_shape, kl.gradient.b_mean);
        put("grad_kl.rank", &per_rank, rank_gradient(&kl.gradient.parameters));

        let exact = moments(&posterior, &self.x, CrossTerm::Exact)?;
        let omitted = moments(&posterior, &self.x, CrossTerm::Omitted)?;
        put("m_s", &[n, rank], exact.rank_mean);
        put("v_s", &[n, rank], exact.rank_variance);
        put("m_y", &[n, d_out], exact.mean);
        put("v_y_exact", &[n, d_out], exact.variance);
        put("v_y_paper", &[n, d_out], omitted.variance);

        let mut put_pass = |key: &str, output: &[f64], gradient: ForwardGradient| {
            put(&format!("y.{key}"), &[n, d_out], output.to_vec());
            let name = |of: &str| format!("grad.{key}.{of}");
            put(&name("x"), &[n, d_in], gradient.x);
            put(&name("mu_A"), &a_shape, gradient.posterior.a_mean);
            put(&name("mu_B"), &b_shape, gradient.posterior.b_mean);
            put(&name("rank"), &per_rank, rank_gradient(&gradient.posterior.parameters));
        };
        for (key, cross) in [("paper", CrossTerm::Omitted), ("exact", CrossTerm::Exact)] {
            let pass = MomentMatchedPass::new(posterior, &self.x, &self.eps, self.scaling, cross)?;
            put_pass(key, pass.output(), pass.backward(&self.g)?);
        }
        let noise = NestedNoise { rank: &self.e1, output: &self.e2 };
        let pass = NestedPass::new(posterior, &self.x, noise, self.scaling)?;
        put_pass("nested", pass.output(), pass.backward(&self.g)?);
        Ok(())
    }

    /// Rank statistics of the additive family, by name.
    fn statistics(&self) -> Result<Found, VerifyError> {
        let posterior = self.posterior("additive")?;
        let mut found = Found::new();
        for (median, median_name) in
            [(MedianKind::Lower, "lower"), (MedianKind::Midpoint, "midpoint")]
        {
            for (log_variance, name) in [
                (StatisticLogVariance::Raw, "rank_statistic"),
                (StatisticLogVariance::Clamped, "rank_statistic_clamped"),
            ] {
                let options = StatisticOptions { median, log_variance, ..Default::default() };
                let statistic = rank_statistic(&posterior, options)?;
                found.push((format!("{name}.{median_name}"), Values::list(statistic)));
            }
        }
        Ok(found)
    }
}

fn wanted(file: &TensorFile, name: &str, shape: &[usize]) -> Result<Vec<f64>, VerifyError> {
    Ok(read_finite(file, name)?.wanted(file.path(), name, shape)?.values)
}

/// Both families here have one parameter per rank.
fn rank_gradient(gradient: &ParameterGradient) -> Vec<f64> {
    gradient.per_rank().map(<[f64]>::to_vec).unwrap_or_default()
}
