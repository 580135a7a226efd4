//! Moments of an adapter's output: closed form, recorded draws, and draws of our own.

use lrvd_core::forward::{NestedNoise, NestedPass, WeightNoise, WeightPass};
use lrvd_core::moments::{CrossTerm, moments, output_covariance};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal_f64};
use lrvd_core::posterior::Posterior;

use super::super::{Comparison, Limit, Values, VerifyError, open, read_finite};
use super::factors::{FAMILIES, Factors};
use super::{FORMULA, INPUTS};

/// Standard errors that a sample may be away from the formula.
const ERRORS: f64 = 5.0;
/// Seed of our own draws.
const SEED: u64 = 20_250_622;
/// More draws than this would run for minutes.
const MOST_DRAWS: usize = 5_000_000;
/// Relative scatter of a recorded standard error around ours, at [`REFERENCE_DRAWS`] draws: both
/// estimate a fourth moment of a heavy-tailed law.
const ERROR_SCATTER: f64 = 0.15;
/// Draws that [`ERROR_SCATTER`] belongs to.
const REFERENCE_DRAWS: f64 = 200_000.0;
/// Relative error of a standard error of the mean, which follows from the recorded variance.
const MEAN_ERROR_ROUNDING: f64 = 1e-3;

pub(in super::super) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let file = open(&folder.dir, INPUTS)?;
    let factors = Factors::read(&file, "mu_A", "mu_B")?;
    let x = factors.input(&file, "x")?;
    let draws = folder.get("draws")?.count()?;
    if !(2..=MOST_DRAWS).contains(&draws) {
        return Err(VerifyError::unsupported(format!("`draws` = {draws}")));
    }
    let scaling = folder.get("scale")?.finite()?;
    for family in FAMILIES {
        let name = if family == "additive" { "log_sigma2" } else { "log_alpha" };
        let parameters =
            read_finite(&file, name)?.wanted(file.path(), name, &[factors.rank])?.values;
        let case = Case {
            family,
            posterior: factors.posterior(family, &parameters)?,
            x: &x.values,
            n: x.shape[0],
            draws,
            scaling,
        };
        case.check(comparison)?;
    }
    comparison.note("`results` summarises the recorded draws and is not compared");
    Ok(())
}

/// One posterior and its input.
struct Case<'a> {
    family: &'a str,
    posterior: Posterior<'a>,
    x: &'a [f64],
    n: usize,
    draws: usize,
    scaling: f64,
}

/// Closed-form moments of the scaled output.
struct Formula {
    mean: Values,
    variance: Values,
    covariance: Values,
}

/// Moments of draws, with their standard errors.
struct Sample {
    mean: Vec<f64>,
    variance: Vec<f64>,
    covariance: Vec<f64>,
    mean_error: Vec<f64>,
    variance_error: Vec<f64>,
    covariance_error: Vec<f64>,
}

impl Case<'_> {
    fn check(&self, comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
        let formula = self.formula(comparison)?;
        for sampler in ["weight_space", "nested"] {
            let own = self.sample(sampler, &formula)?;
            let key = |what: &str| format!("{}.{sampler}.{what}", self.family);
            let stored = |name: &str| comparison.recorded(&key(name));
            let (mean, variance, covariance) = (stored("mean")?, stored("var")?, stored("cov")?);
            let (mean_error, variance_error) = (stored("se_mean")?, stored("se_var")?);
            // The recorded draws against the formula, in units of their own standard errors.
            let limit = Limit::Absolute(ERRORS);
            let mut against = |what: &str, sample: &Values, formula: &Values, errors: &[f64]| {
                let scores = |of: &Values| scaled(of, &formula.values, errors);
                let name = format!("{} (standard errors)", key(what));
                let zero = Values::new(formula.shape.clone(), vec![0.0; formula.values.len()]);
                comparison.pair(&name, &scores(sample), &zero, limit, |_| true);
            };
            against("mean", &mean, &formula.mean, &mean_error.values);
            against("var", &variance, &formula.variance, &variance_error.values);
            against("cov", &covariance, &formula.covariance, &own.covariance_error);
            // Our own draws, by the same measure.
            let list =
                |values: &[f64], like: &Values| Values::new(like.shape.clone(), values.to_vec());
            let (f, c) = (&formula, "own ");
            let mut ours = |what: &str, sample: &[f64], formula: &Values, errors: &[f64]| {
                against(&format!("{c}{what}"), &list(sample, formula), formula, errors);
            };
            ours("mean", &own.mean, &f.mean, &own.mean_error);
            ours("var", &own.variance, &f.variance, &own.variance_error);
            ours("cov", &own.covariance, &f.covariance, &own.covariance_error);
            // The standard errors themselves.
            let n = self.draws as f64;
            let from_variance = variance.values.iter().map(|v| (v / n).sqrt()).collect();
            let from_variance = Values::new(variance.shape.clone(), from_variance);
            let rounding = Limit::Relative(MEAN_ERROR_ROUNDING);
            comparison.tensor(&key("se_mean"), &from_variance, rounding)?;
            let scatter = ERROR_SCATTER * (REFERENCE_DRAWS / n).sqrt().max(1.0);
            let own_error = list(&own.variance_error, &variance_error);
            comparison.tensor(&key("se_var"), &own_error, Limit::Relative(scatter))?;
            for what in ["mean", "var", "cov"] {
                let reason = "draws of another generator; compared with the formula above";
                comparison.set_aside(&key(what), reason);
            }
        }
        Ok(())
    }

    fn formula(&self, comparison: &mut Comparison<'_>) -> Result<Formula, VerifyError> {
        let d_out = self.posterior.d_output();
        let (once, twice) = (self.scaling, self.scaling * self.scaling);
        let exact = moments(&self.posterior, self.x, CrossTerm::Exact)?;
        let omitted = moments(&self.posterior, self.x, CrossTerm::Omitted)?;
        let covariance = output_covariance(&self.posterior, self.x, CrossTerm::Exact)?;
        let values = |shape: &[usize], of: Vec<f64>, factor: f64| {
            Values::new(shape, of.into_iter().map(|v| v * factor).collect())
        };
        let rows = [self.n, d_out];
        let formula = Formula {
            mean: values(&rows, exact.mean, once),
            variance: values(&rows, exact.variance, twice),
            covariance: values(&[self.n, d_out, d_out], covariance, twice),
        };
        let paper = values(&rows, omitted.variance, twice);
        for (what, found) in [
            ("mean", &formula.mean),
            ("v_exact", &formula.variance),
            ("v_paper", &paper),
            ("cov_exact", &formula.covariance),
        ] {
            let name = format!("{}.formula.{what}", self.family);
            let limit = Limit::Absolute(FORMULA * found.largest().max(1.0));
            comparison.required(&name, found, limit)?;
        }
        Ok(formula)
    }

    /// Moments of our own draws, keyed by the draw's number.
    fn sample(&self, sampler: &str, formula: &Formula) -> Result<Sample, VerifyError> {
        let q = self.posterior;
        let (rank, d_in, d_out) = (q.rank(), q.d_input(), q.d_output());
        let outputs = self.n * d_out;
        let mut sums = Sums::new(&formula.mean.values, d_out);
        let weights = sampler == "weight_space";
        let (first, second) = if weights {
            (Stream::WEIGHT_A, Stream::WEIGHT_B)
        } else {
            (Stream::RANK, Stream::OUTPUT)
        };
        let sizes = if weights { (rank * d_in, rank * d_out) } else { (self.n * rank, outputs) };
        let (mut one, mut two) = (vec![0.0; sizes.0], vec![0.0; sizes.1]);
        for draw in 0..self.draws {
            let key = NoiseKey::new(SEED).at_step(draw as u32);
            fill_normal_f64(key.on_stream(first), 0, &mut one);
            fill_normal_f64(key.on_stream(second), 0, &mut two);
            if weights {
                let noise = WeightNoise { a: &one, b: &two };
                sums.add(WeightPass::new(q, self.x, noise, self.scaling)?.output());
            } else {
                let noise = NestedNoise { rank: &one, output: &two };
                sums.add(NestedPass::new(q, self.x, noise, self.scaling)?.output());
            }
        }
        Ok(sums.sample(self.draws as f64))
    }
}

/// `(value − centre) / error`; 0 where both differ by nothing.
fn scaled(values: &Values, centre: &[f64], errors: &[f64]) -> Values {
    let fits = values.values.len() == centre.len() && errors.len() == centre.len();
    if !fits {
        // The comparison reports the shape.
        return values.clone();
    }
    let scores = values.values.iter().zip(centre).zip(errors).map(|((value, centre), error)| {
        if value == centre { 0.0 } else { (value - centre) / error }
    });
    Values::new(values.shape.clone(), scores.collect())
}

/// Running sums of powers of the distance from known means.
struct Sums<'a> {
    centre: &'a [f64],
    d_out: usize,
    first: Vec<f64>,
    second: Vec<f64>,
    fourth: Vec<f64>,
    product: Vec<f64>,
    product_square: Vec<f64>,
}

impl<'a> Sums<'a> {
    fn new(centre: &'a [f64], d_out: usize) -> Self {
        let (n, pairs) = (centre.len(), centre.len() * d_out);
        Self {
            centre,
            d_out,
            first: vec![0.0; n],
            second: vec![0.0; n],
            fourth: vec![0.0; n],
            product: vec![0.0; pairs],
            product_square: vec![0.0; pairs],
        }
    }

    fn add(&mut self, output: &[f64]) {
        let d_out = self.d_out;
        for (i, (y, centre)) in output.iter().zip(self.centre).enumerate() {
            let distance = y - centre;
            let square = distance * distance;
            self.first[i] += distance;
            self.second[i] += square;
            self.fourth[i] += square * square;
            let row = i / d_out * d_out;
            for p in 0..d_out {
                let product = distance * (output[row + p] - self.centre[row + p]);
                self.product[i * d_out + p] += product;
                self.product_square[i * d_out + p] += product * product;
            }
        }
    }

    fn sample(self, n: f64) -> Sample {
        let over = |sums: &[f64]| -> Vec<f64> { sums.iter().map(|sum| sum / n).collect() };
        let (first, second, fourth) = (over(&self.first), over(&self.second), over(&self.fourth));
        let (product, square) = (over(&self.product), over(&self.product_square));
        let error = |square: f64, mean: f64| ((square - mean * mean).max(0.0) / n).sqrt();
        let pairs = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(&a, &b)| error(a, b)).collect();
        let variance: Vec<f64> = second.iter().zip(&first).map(|(s, f)| s - f * f).collect();
        Sample {
            mean: self.centre.iter().zip(&first).map(|(centre, f)| centre + f).collect(),
            mean_error: variance.iter().map(|v| (v / n).sqrt()).collect(),
            variance_error: pairs(&fourth, &second),
            covariance_error: pairs(&square, &product),
            covariance: product,
            variance,
        }
    }
}
