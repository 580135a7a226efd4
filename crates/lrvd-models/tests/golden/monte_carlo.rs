//! Moments of an adapter's output: closed form, recorded draws, and further draws.

use anyhow::{Result, ensure};
use lrvd_core::forward::{drawn_weights, nested};
use lrvd_core::moments::{CrossTerm, moments, output_covariance};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal_f64};
use lrvd_core::posterior::Posterior;

use crate::case::{Case, Limit, Values};
use crate::factors::{FAMILIES, FORMULA, posterior, read, with_noise};
use crate::json::Json;

/// Standard errors that a sample may be away from the formula.
const ERRORS: f64 = 5.0;
/// Seed of the further draws.
const SEED: u64 = 20_250_622;
/// More draws would run for minutes.
const MOST_DRAWS: usize = 5_000_000;
/// Relative scatter of a recorded standard error around ours, at [`REFERENCE_DRAWS`] draws: both estimate a fourth
/// moment of a heavy-tailed law.
const ERROR_SCATTER: f64 = 0.15;
const REFERENCE_DRAWS: f64 = 200_000.0;
/// Relative error of a standard error of the mean, which follows from the recorded variance.
const MEAN_ERROR_ROUNDING: f64 = 1e-3;

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    let file = case.inputs(&["mu_A", "mu_B", "x", "log_alpha", "log_sigma2"])?;
    let factors = read(&file, "mu_A", "mu_B")?;
    let x = Values::read(&file, "x")?;
    let draws = case.json.at(&["draws"])?.count()?;
    ensure!((2..=MOST_DRAWS).contains(&draws), "`draws` = {draws}");
    let scaling = case.json.at(&["scale"])?.number()?;
    for family in FAMILIES {
        let name = if family == "additive" { "log_sigma2" } else { "log_alpha" };
        let adapter = with_noise(&factors, family, &Values::read(&file, name)?.values);
        let source = Source { q: posterior(&adapter)?, x: &x.values, draws, scaling };
        let formula = source.formula(case, family)?;
        for sampler in ["weight_space", "nested"] {
            source.compare(case, &format!("{family}.{sampler}"), sampler, &formula)?;
        }
    }
    Ok(())
}

/// One posterior and its input.
struct Source<'a> {
    q: Posterior<'a>,
    x: &'a [f64],
    draws: usize,
    scaling: f64,
}

/// Mean, variance and covariances of the scaled output.
type Moments = [Values; 3];

impl Source<'_> {
    /// Closed forms, compared with the recorded ones.
    fn formula(&self, case: &mut Case, family: &str) -> Result<Moments> {
        let (q, x, c) = (&self.q, self.x, self.scaling);
        let (exact, paper) = (moments(q, x, CrossTerm::Exact)?, moments(q, x, CrossTerm::Omitted)?);
        let covariance = output_covariance(q, x, CrossTerm::Exact)?;
        let d_out = q.d_output();
        let n = exact.mean.len() / d_out;
        let scaled = |shape: &[usize], values: Vec<f64>, factor: f64| {
            Values::new(shape, values.into_iter().map(|v| v * factor).collect())
        };
        let formula = [
            scaled(&[n, d_out], exact.mean, c),
            scaled(&[n, d_out], exact.variance, c * c),
            scaled(&[n, d_out, d_out], covariance, c * c),
        ];
        let paper = scaled(&[n, d_out], paper.variance, c * c);
        let [mean, variance, covariance] = &formula;
        for (what, found) in
            [("mean", mean), ("v_exact", variance), ("v_paper", &paper), ("cov_exact", covariance)]
        {
            let limit = Limit::Absolute(FORMULA * found.largest().max(1.0));
            case.tensor(&format!("{family}.formula.{what}"), found, limit)?;
        }
        Ok(formula)
    }

    /// Recorded draws and our own against the formula, in standard errors; then the recorded standard errors.
    fn compare(&self, case: &mut Case, key: &str, sampler: &str, formula: &Moments) -> Result<()> {
        let [own, own_errors] = self.sample(sampler, &formula[0].values)?;
        let names = ["mean", "var", "cov"].map(|what| format!("{key}.{what}"));
        let (se_mean, se_var) = (format!("{key}.se_mean"), format!("{key}.se_var"));
        let recorded_errors = [
            case.recorded(&se_mean)?.values,
            case.recorded(&se_var)?.values,
            own_errors[2].clone(),
        ];
        for (i, name) in names.iter().enumerate() {
            let recorded = case.recorded(name)?;
            for (name, values, errors) in [
                (format!("{name} (standard errors)"), &recorded.values, &recorded_errors[i]),
                (format!("{name} of our draws (standard errors)"), &own[i], &own_errors[i]),
            ] {
                let pairs = values.iter().zip(&formula[i].values).zip(errors);
                let scores = pairs.map(
                    |((value, centre), e)| {
                        if value == centre { 0.0 } else { (value - centre) / e }
                    },
                );
                let scores = Values::new(&recorded.shape, scores.collect());
                let zero = Values::new(&formula[i].shape, vec![0.0; formula[i].values.len()]);
                case.pair(&name, &scores, &zero, Limit::Absolute(ERRORS));
            }
        }
        let n = self.draws as f64;
        let variance = case.recorded(&names[1])?;
        let of_mean = variance.values.iter().map(|v| (v / n).sqrt()).collect();
        let of_mean = Values::new(&variance.shape, of_mean);
        case.tensor(&se_mean, &of_mean, Limit::Relative(MEAN_ERROR_ROUNDING))?;
        let scatter = ERROR_SCATTER * (REFERENCE_DRAWS / n).sqrt().max(1.0);
        let of_variance = Values::new(&variance.shape, own_errors[1].clone());
        case.tensor(&se_var, &of_variance, Limit::Relative(scatter))
    }

    /// Moments of the further draws and their standard errors; `centre` is the mean of the formula.
    fn sample(&self, sampler: &str, centre: &[f64]) -> Result<[[Vec<f64>; 3]; 2]> {
        let (n, d_out) = (self.draws as f64, self.q.d_output());
        let distances: Vec<Vec<f64>> = (0..self.draws)
            .map(|draw| {
                let output = self.draw(sampler, NoiseKey::new(SEED).at_step(draw as u32))?;
                Ok(output.iter().zip(centre).map(|(y, centre)| y - centre).collect())
            })
            .collect::<Result<_>>()?;
        let mean = |of: &dyn Fn(&[f64]) -> f64| distances.iter().map(|d| of(d)).sum::<f64>() / n;
        let error = |square: f64, mean: f64| ((square - mean * mean).max(0.0) / n).sqrt();
        let (mut found, mut errors) = (<[Vec<f64>; 3]>::default(), <[Vec<f64>; 3]>::default());
        for i in 0..centre.len() {
            let (first, second) = (mean(&|d| d[i]), mean(&|d| d[i].powi(2)));
            let variance = second - first * first;
            found[0].push(centre[i] + first);
            errors[0].push((variance / n).sqrt());
            found[1].push(variance);
            errors[1].push(error(mean(&|d| d[i].powi(4)), second));
            for p in i / d_out * d_out..(i / d_out + 1) * d_out {
                let product = mean(&|d| d[i] * d[p]);
                errors[2].push(error(mean(&|d| (d[i] * d[p]).powi(2)), product));
                found[2].push(product);
            }
        }
        Ok([found, errors])
    }

    fn draw(&self, sampler: &str, key: NoiseKey) -> Result<Vec<f64>> {
        let (rank, d_in, d_out) = (self.q.rank(), self.q.d_input(), self.q.d_output());
        let n = self.x.len() / d_in;
        let normals = |stream, size: usize| {
            let mut values = vec![0.0; size];
            fill_normal_f64(key.on_stream(stream), 0, &mut values);
            values
        };
        Ok(if sampler == "weight_space" {
            let a = normals(Stream::WEIGHT_A, rank * d_in);
            let b = normals(Stream::WEIGHT_B, rank * d_out);
            drawn_weights(&self.q, self.x, [&a, &b], self.scaling)?
        } else {
            let s = normals(Stream::RANK, n * rank);
            let y = normals(Stream::OUTPUT, n * d_out);
            nested(&self.q, self.x, [&s, &y], self.scaling)?
        })
    }
}
