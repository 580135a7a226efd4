//! Regression of answers on features: multinomial, binary for each label, or of numbers.
//!
//! ```text
//! F(W, b) = Σ_n loss(W·x_n + b, y_n) + strength/2 · ‖W‖²                 b is free
//! loss    = −Σ_c y_c ln softmax(z)_c  |  Σ_c ln(1 + e^z_c) − y_c z_c  |  ½ (z − y)²
//! ```
//!
//! Features are standardised first, and so are numbers that are answers; scale and shift are folded into `W` and `b` in the end.
//! The strength is a half power of ten, of which the next stronger and the next weaker one have no smaller mean loss of the rows that
//! are out of the fold; scikit-learn's `C` is its reciprocal.

use std::ops::RangeInclusive;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::train::{PassWatch, report_progress};
use lrvd_core::lbfgs::{Evaluation, Minimum, minimise};
use lrvd_core::noise::{NoiseKey, Stream, permutation};

use crate::error::Burn;

/// Folds of the cross-validation, fewer where there are fewer rows.
const FOLDS: usize = 5;
/// Largest entry of the gradient of the mean loss at the end of a fit of the cross-validation; scikit-learn's default is 1e-4.
const ROUGH: f64 = 3e-4;
/// The same times the number of classes, where that is smaller: entries are of the size of a class's share, and fits that end
/// far from their minimum are too unsure, so that the temperature that is fitted to them is too low.
const ROUGH_SHARE: f64 = 4.5e-3;
/// That of the fit to all rows.
const FINE: f64 = 1e-5;
const MOST_STEPS: usize = 1000;
/// Exponents of the strengths, in halves, the one that is tried first, and that of rows of which none can be left out.
const EXPONENTS: RangeInclusive<i32> = -4..=8;
const FIRST: i32 = 2;
const USUAL: i32 = 0;
/// Mixed into the run's seed, so that the folds are drawn by no other random numbers.
const SALT: u64 = 0x4c49_4e45_4152_0001;

/// `10^(halves/2)`.
fn strength(halves: i32) -> f64 {
    10.0_f64.powf(f64::from(halves) / 2.0)
}

/// Answers that rows have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Shares of classes that sum to 1.
    Classes,
    /// Shares of labels that are independent of each other.
    Labels,
    /// One number.
    Score,
}

/// Rows with their answers.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub answers: Answers,
    /// `[rows, width]`, row-major.
    pub expected: Vec<f64>,
    /// Classes or labels, or 1.
    pub width: usize,
    /// `[rows, features]`, row-major.
    pub features: Vec<f64>,
}

/// A regression that was fitted to rows.
#[derive(Clone, Debug)]
pub(crate) struct Regression {
    /// `[width, features]`, row-major.
    pub weight: Vec<f64>,
    /// `[width]`.
    pub bias: Vec<f64>,
    pub strength: f64,
    /// Mean loss of the rows that are out of a fold, in nats, or in squares of the answers' standard deviation; `None` where no row
    /// could be left out.
    pub loss: Option<f64>,
    pub folds: usize,
    /// Numbers of the rows that are in a fold. A class's only row is in none.
    pub left_out: Vec<usize>,
    /// Their logits by the fit without their fold, `[rows, width]`, row-major.
    pub logits: Vec<f64>,
}

impl Regression {
    /// Fits a regression whose folds follow from `seed`. `watch` may end it.
    pub(crate) fn fit(rows: &Rows, seed: u64, host: &Device, watch: PassWatch<'_>) -> Burn<Self> {
        let Rows { answers, expected, width, features } = rows;
        let count = expected.len() / width;
        let inputs = Scale::of(features, count);
        let outputs = match answers {
            Answers::Score => Scale::of(expected, count),
            Answers::Classes | Answers::Labels => Scale::none(*width),
        };
        let table = Table {
            answers: *answers,
            features: matrix(inputs.applied(features), count, host),
            expected: outputs.applied(expected),
            width: *width,
        };
        let folds = folds(&table.groups(), seed);
        let folds = Folds::new(&table, &folds, watch);
        let validated = folds.best()?;
        let strength = strength(validated.as_ref().map_or(USUAL, |found| found.halves));
        let start = validated.as_ref().and_then(|found| found.points.first().cloned());
        let found = table.fit(start.unwrap_or_else(|| table.zero()), strength, FINE, watch)?;
        if found.slope.is_nan() || found.slope > ROUGH {
            return Err(lrvd_burn::Error::other(format!(
                "the regression of strength {strength} has a gradient of {:e} after {} steps, expected at most {FINE:e}",
                found.slope, found.steps
            )));
        }
        let (mut weight, mut bias) = table.split(&found.at);
        inputs.fold_into(&mut weight, &mut bias);
        let scales = outputs.deviations.iter().zip(&outputs.means);
        let wide = inputs.means.len();
        for ((row, bias), (deviation, mean)) in
            weight.chunks_mut(wide.max(1)).zip(&mut bias).zip(scales)
        {
            for weight in row {
                *weight *= deviation;
            }
            *bias = *bias * deviation + mean;
        }
        let loss = validated.as_ref().map(|found| found.loss);
        let left_out = validated.as_ref().map_or_else(Vec::new, |_| folds.held.concat());
        let logits = validated.map_or_else(Vec::new, |found| found.logits);
        Ok(Self { weight, bias, strength, loss, folds: folds.held.len(), left_out, logits })
    }

    /// Answers to `features [rows, d]`: `[rows, width]`.
    pub(crate) fn answers(&self, features: &[f64], host: &Device) -> Vec<f64> {
        let wide = self.weight.len() / self.bias.len();
        let count = features.len() / wide.max(1);
        let features = matrix(features.to_vec(), count, host);
        products(&features, &self.weight, &self.bias)
    }
}

/// Means and standard deviations of columns; 1 for a column that is constant.
struct Scale {
    means: Vec<f64>,
    deviations: Vec<f64>,
}

impl Scale {
    fn none(columns: usize) -> Self {
        Self { means: vec![0.0; columns], deviations: vec![1.0; columns] }
    }

    fn of(values: &[f64], count: usize) -> Self {
        let columns = values.len() / count.max(1);
        let mean_of = |term: &dyn Fn(usize, f64) -> f64| {
            let mut sums = vec![0.0; columns];
            for row in values.chunks_exact(columns.max(1)) {
                for (column, (sum, value)) in sums.iter_mut().zip(row).enumerate() {
                    *sum += term(column, *value);
                }
            }
            sums.into_iter().map(|sum| sum / count as f64).collect::<Vec<f64>>()
        };
        let means = mean_of(&|_, value| value);
        let squares = mean_of(&|column, value| (value - means[column]).powi(2));
        // What varies by rounding alone is constant.
        let deviation = |(square, mean): (f64, &f64)| {
            let own = square.sqrt();
            if own > 1e-9 * mean.abs() { own } else { 1.0 }
        };
        let deviations = squares.into_iter().zip(&means).map(deviation).collect();
        Self { means, deviations }
    }

    fn applied(&self, values: &[f64]) -> Vec<f64> {
        let columns = self.means.iter().zip(&self.deviations).cycle();
        values.iter().zip(columns).map(|(value, (mean, own))| (value - mean) / own).collect()
    }

    /// `W·(x − mean)/deviation + b` as a product with `x`.
    fn fold_into(&self, weight: &mut [f64], bias: &mut [f64]) {
        for (row, bias) in weight.chunks_mut(self.means.len().max(1)).zip(bias) {
            for ((weight, mean), own) in row.iter_mut().zip(&self.means).zip(&self.deviations) {
                *weight /= own;
                *bias -= *weight * mean;
            }
        }
    }
}

fn matrix(values: Vec<f64>, rows: usize, host: &Device) -> Tensor<2> {
    let columns = values.len() / rows.max(1);
    Tensor::from_data(TensorData::new(values, [rows, columns]), (host, DType::F64))
}

fn host_values(tensor: Tensor<2>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// `features·weightᵀ + bias`, `[rows, width]`.
fn products(features: &Tensor<2>, weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let weight = matrix(weight.to_vec(), bias.len(), &features.device());
    let mut values = host_values(features.clone().matmul(weight.transpose()));
    for row in values.chunks_mut(bias.len().max(1)) {
        row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
    }
    values
}

/// Fold of every row, drawn by its group: as many of each group in every fold as can be. A group's only row is in none.
fn folds(groups: &[usize], seed: u64) -> Vec<Option<usize>> {
    let key = NoiseKey::new(seed ^ SALT).on_stream(Stream::DATA);
    let mut order = permutation(key, groups.len());
    order.sort_by_key(|&row| groups[row]);
    let mut folds = vec![None; groups.len()];
    let mut next = 0;
    for group in order.chunk_by(|&a, &b| groups[a] == groups[b]).filter(|group| group.len() > 1) {
        for &row in group {
            folds[row] = Some(next % FOLDS);
            next += 1;
        }
    }
    folds
}

/// Rows whose features are standardised.
struct Table {
    answers: Answers,
    features: Tensor<2>,
    expected: Vec<f64>,
    width: usize,
}

impl Table {
    fn rows(&self) -> usize {
        self.features.dims()[0]
    }

    /// The class of every row; one group of other answers.
    fn groups(&self) -> Vec<usize> {
        let class = |row: &[f64]| {
            let largest = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            largest.filter(|_| self.answers == Answers::Classes).map_or(0, |(class, _)| class)
        };
        self.expected.chunks_exact(self.width).map(class).collect()
    }

    fn part(&self, rows: &[usize]) -> Self {
        let ids: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
        let device = self.features.device();
        let ids: Tensor<1, Int> = Tensor::from_data(TensorData::new(ids, [rows.len()]), &device);
        let of = |&row: &usize| self.expected[row * self.width..(row + 1) * self.width].iter();
        Self {
            answers: self.answers,
            features: self.features.clone().select(0, ids),
            expected: rows.iter().flat_map(of).copied().collect(),
            width: self.width,
        }
    }

    /// Weight and bias of a point of the minimisation.
    fn split(&self, at: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (weight, bias) = at.split_at(at.len() - self.width);
        (weight.to_vec(), bias.to_vec())
    }

    fn zero(&self) -> Vec<f64> {
        vec![0.0; self.width * (self.features.dims()[1] + 1)]
    }

    fn logits(&self, at: &[f64]) -> Vec<f64> {
        let (weight, bias) = at.split_at(at.len() - self.width);
        products(&self.features, weight, bias)
    }

    /// Sum of the losses of `logits`, which become its derivatives.
    fn loss(&self, logits: &mut [f64]) -> f64 {
        let rows = logits.chunks_mut(self.width).zip(self.expected.chunks(self.width));
        let of = |(z, y): (&mut [f64], &[f64])| match self.answers {
            Answers::Classes => softmax_loss(z, y),
            Answers::Labels => z.iter_mut().zip(y).map(|(z, &y)| sigmoid_loss(z, y)).sum(),
            Answers::Score => z.iter_mut().zip(y).map(|(z, &y)| squared_loss(z, y)).sum(),
        };
        rows.map(of).sum()
    }

    /// `F/rows` and its gradient.
    fn evaluate(&self, at: &[f64], strength: f64) -> Evaluation {
        let mut slopes = self.logits(at);
        let loss = self.loss(&mut slopes);
        let weight = &at[..at.len() - self.width];
        let mut bias = vec![0.0; self.width];
        for row in slopes.chunks_exact(self.width) {
            bias.iter_mut().zip(row).for_each(|(sum, slope)| *sum += slope);
        }
        let slopes = matrix(slopes, self.rows(), &self.features.device());
        let mut gradient = host_values(slopes.transpose().matmul(self.features.clone()));
        gradient.iter_mut().zip(weight).for_each(|(slope, weight)| *slope += strength * weight);
        gradient.extend(bias);
        let per_row = (self.rows() as f64).recip();
        for slope in &mut gradient {
            *slope *= per_row;
        }
        let square: f64 = weight.iter().map(|weight| weight * weight).sum();
        Evaluation { value: per_row * (loss + 0.5 * strength * square), gradient }
    }

    fn fit(
        &self,
        start: Vec<f64>,
        strength: f64,
        tolerance: f64,
        watch: PassWatch<'_>,
    ) -> Burn<Minimum> {
        minimise(start, tolerance, MOST_STEPS, |at| {
            report_progress(watch, 0)?;
            Ok(self.evaluate(at, strength))
        })
    }
}

/// Cross-entropy of `z` against shares `y` that sum to 1; `z` becomes `softmax(z) − y`.
fn softmax_loss(z: &mut [f64], y: &[f64]) -> f64 {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mean: f64 = z.iter().zip(y).map(|(z, y)| (z - top) * y).sum();
    for z in &mut *z {
        *z = (*z - top).exp();
    }
    let total: f64 = z.iter().sum();
    z.iter_mut().zip(y).for_each(|(z, y)| *z = *z / total - y);
    total.ln() - mean
}

/// `ln(1 + e^z) − y·z`; `z` becomes `σ(z) − y`.
fn sigmoid_loss(z: &mut f64, y: f64) -> f64 {
    let small = (-z.abs()).exp();
    let loss = z.max(0.0) + small.ln_1p() - y * *z;
    *z = if *z > 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) } - y;
    loss
}

/// `½ (z − y)²`; `z` becomes `z − y`.
fn squared_loss(z: &mut f64, y: f64) -> f64 {
    *z -= y;
    0.5 * *z * *z
}

/// A strength by its exponent in halves, and what the fits without each fold answered to the rows of the fold.
struct Validated {
    halves: i32,
    loss: f64,
    /// A point for each fold.
    points: Vec<Vec<f64>>,
    logits: Vec<f64>,
}

/// Rows in folds.
struct Folds<'a> {
    table: &'a Table,
    /// Rows of each fold.
    held: Vec<Vec<usize>>,
    /// The fold of each row; `None` of one that every fit has.
    own: &'a [Option<usize>],
    watch: PassWatch<'a>,
}

impl<'a> Folds<'a> {
    fn new(table: &'a Table, folds: &'a [Option<usize>], watch: PassWatch<'a>) -> Self {
        let count = folds.iter().flatten().max().map_or(0, |last| last + 1);
        let of = |own| (0..folds.len()).filter(|&row| folds[row] == Some(own)).collect();
        Self { table, held: (0..count).map(of).collect(), own: folds, watch }
    }

    /// Fits from `points` without each fold.
    fn at(&self, halves: i32, points: &[Vec<f64>]) -> Burn<Validated> {
        let mut found = Validated { halves, loss: 0.0, points: Vec::new(), logits: Vec::new() };
        let rough = ROUGH.min(ROUGH_SHARE / self.table.width as f64);
        for (own, (held, start)) in self.held.iter().zip(points).enumerate() {
            let others = (0..self.own.len()).filter(|&row| self.own[row] != Some(own));
            let others = self.table.part(&others.collect::<Vec<_>>());
            let point = others.fit(start.clone(), strength(halves), rough, self.watch)?.at;
            let held = self.table.part(held);
            let logits = held.logits(&point);
            found.loss += held.loss(&mut logits.clone());
            found.logits.extend(logits);
            found.points.push(point);
        }
        found.loss /= self.held.iter().map(Vec::len).sum::<usize>() as f64;
        tracing::debug!(strength = strength(halves), loss = found.loss, "left out");
        Ok(found)
    }

    /// The strength downhill from the first one: in `ln(strength)` the loss has one minimum. `None` of fewer than two folds.
    fn best(&self) -> Burn<Option<Validated>> {
        if self.held.len() < 2 {
            return Ok(None);
        }
        let mut best = self.at(FIRST, &vec![self.table.zero(); self.held.len()])?;
        for direction in [-1, 1] {
            loop {
                let halves = best.halves + direction;
                if !EXPONENTS.contains(&halves) {
                    break;
                }
                let next = self.at(halves, &best.points)?;
                if next.loss >= best.loss {
                    break;
                }
                best = next;
            }
            if best.halves != FIRST {
                break;
            }
        }
        Ok(Some(best))
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
