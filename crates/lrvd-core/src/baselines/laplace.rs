//! Laplace's approximation: the curvature around a trained adapter as its uncertainty.
//!
//! The adapter is trained as usual; its posterior is a Gaussian around the trained `θ*` whose precision is the Fisher matrix plus
//! `prior_precision·I`, one Kronecker-factored block per LoRA matrix:
//!
//! ```text
//! P_W = S ⊗ A + δ·I        W [d_output, d_input] row-major, S [d_output, d_output], A [d_input, d_input]
//! ```
//!
//! Linearised around the trained weights, the logits are Gaussian: `f ~ N(f*, Σ)` with `Σ = Σ_W J_W P_W⁻¹ J_Wᵀ`. Three ways from
//! there to probabilities:
//!
//! | Function | Exactness |
//! |---|---|
//! | [`monte_carlo_softmax`] | unbiased; the published code draws 100 000 |
//! | [`probit_softmax`] | uses the variances alone; keeps equal variances calibrated |
//! | [`laplace_bridge`] | a Dirichlet fitted in logit space, no sampling |
//!
//! Source: Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111; Martens and Grosse 2015, arXiv:1503.05671 (K-FAC);
//! Daxberger et al. 2021, arXiv:2106.14806.

use crate::error::{Error, check_at_least, check_finite, check_length, check_range, count_rows};
use crate::linalg::{
    Cholesky, dot, scaled, svd, symmetric_eigen, times, times_transposed, transpose,
};
use crate::metrics::{log_softmax, mean_probability, softmax};
use crate::special::compensated_sum;

/// What the sum of outer products of the inputs is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum InputNormalisation {
    /// The tokens: `A` is a mean, so `S ⊗ A` is a sum over data.
    #[default]
    Tokens,
    /// The examples, as the published code does (`laplace-compat`): inflates the curvature by the mean
    /// length of an example.
    Examples,
}

/// The curvature of one LoRA matrix `W [d_output, d_input]`, diagonalised; the precision is `curvature + δ·I`, for any `δ`.
///
/// Eigenvalues that rounding made negative count as 0.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvatureBlock {
    n_parameters: usize,
    /// Eigenvalues that may not be 0.
    curvature: Vec<f64>,
    form: Form,
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    /// Eigenvectors of both factors, as rows.
    Full { output: Vec<f64>, input: Vec<f64>, d_output: usize, d_input: usize },
    /// `Qᵀ [k, width]` and `Lᵀ [small, small]`.
    LowRank { side: WideSide, columns: Vec<f64>, root: Vec<f64>, width: usize, small: usize },
}

/// Which side of `W [d_output, d_input]` the wide factor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WideSide {
    /// The inputs: LoRA's `A [rank, d_input]`.
    Input,
    /// The outputs: LoRA's `B [d_output, rank]`.
    Output,
}

impl CurvatureBlock {
    /// A block `S ⊗ A` of its factors `S [d_output, d_output]` and `A [d_input, d_input]`.
    ///
    /// With `S = Q_Sᵀ diag(λ_S) Q_S`, `A = Q_Aᵀ diag(λ_A) Q_A` (eigenvectors as rows) and gradients `G [d_output, d_input]`:
    ///
    /// ```text
    /// ln det P       = Σ_pq ln(λ_S[p]·λ_A[q] + δ)
    /// ⟨G, P⁻¹ G'⟩    = Σ_pq (Q_S G Q_Aᵀ)[p,q]·(Q_S G' Q_Aᵀ)[p,q] / (λ_S[p]·λ_A[q] + δ)
    /// ```
    pub fn full(
        output_factor: &[f64],
        d_output: usize,
        input_factor: &[f64],
        d_input: usize,
    ) -> Result<Self, Error> {
        check_length("output_factor", output_factor.len(), d_output * d_output)?;
        check_length("input_factor", input_factor.len(), d_input * d_input)?;
        let output = symmetric_eigen(output_factor, d_output);
        let input = symmetric_eigen(input_factor, d_input);
        let curvature = output.values.iter();
        let curvature = curvature
            .flat_map(|s| input.values.iter().map(move |a| s.max(0.0) * a.max(0.0)))
            .collect();
        let (output, input) = (output.vectors, input.vectors);
        let form = Form::Full { output, input, d_output, d_input };
        Ok(Self { n_parameters: d_output * d_input, curvature, form })
    }

    /// A block whose factor on one side is `Q·Qᵀ` with few columns, with the other factor, `[small, small]`.
    ///
    /// With the wide factor `Q·Qᵀ` (`[d, d]`), the small one `L·Lᵀ` (`[r, r]`), `s² = 1/δ`, the gradient `G [d, r]` (wide side
    /// first) and `K = I + s²·(QᵀQ) ⊗ (LᵀL)`:
    ///
    /// ```text
    /// ln det P    = ln det K − d·r·ln s²
    /// ⟨G, P⁻¹ G'⟩ = s²·⟨G, G'⟩ − s⁴·vec(QᵀGL)ᵀ K⁻¹ vec(QᵀG'L)
    /// ```
    ///
    /// Any root `L` will do. The one used is that of the eigen-decomposition, which makes `K` diagonal (the columns of `Q` are
    /// orthogonal by construction) and exists for singular factors, where Cholesky's does not.
    ///
    /// Source: Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111; Woodbury 1950.
    pub fn low_rank(
        wide: &WideFactor,
        side: WideSide,
        small_factor: &[f64],
        small: usize,
    ) -> Result<Self, Error> {
        check_length("small_factor", small_factor.len(), small * small)?;
        let eigen = symmetric_eigen(small_factor, small);
        let values: Vec<f64> = eigen.values.iter().map(|v| v.max(0.0)).collect();
        let root =
            (0..small * small).map(|at| values[at / small].sqrt() * eigen.vectors[at]).collect();
        let (width, columns) = (wide.width, wide.columns.clone());
        let curvature = (0..wide.rank())
            .map(|k| &columns[k * width..(k + 1) * width])
            .flat_map(|column| {
                let square = dot(column, column);
                values.iter().map(move |v| square * v)
            })
            .collect();
        let form = Form::LowRank { side, columns, root, width, small };
        Ok(Self { n_parameters: width * small, curvature, form })
    }

    /// Entries of the matrix, `P`.
    pub fn n_parameters(&self) -> usize {
        self.n_parameters
    }

    /// Numbers that the two factors take: the entries of a square, or of the columns kept of a wide one.
    pub fn n_factor_entries(&self) -> usize {
        match &self.form {
            Form::Full { output, input, .. } => output.len() + input.len(),
            Form::LowRank { columns, root, .. } => columns.len() + root.len(),
        }
    }

    /// `ln det(curvature + δ·I)`.
    pub fn log_det(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        let (curvature, delta) = (self.curvature.iter(), prior_precision);
        Ok(match self.form {
            Form::Full { .. } => compensated_sum(curvature.map(|c| (c + delta).ln())),
            Form::LowRank { .. } => {
                let excess = compensated_sum(curvature.map(|c| (c / delta).ln_1p()));
                excess + self.n_parameters as f64 * delta.ln()
            }
        })
    }

    /// The derivative of [`log_det`](Self::log_det) with respect to `ln δ`: `Σ δ/(λ + δ)`.
    pub fn log_det_slope(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        let flat = (self.n_parameters - self.curvature.len()) as f64;
        let share = |c: &f64| prior_precision / (c + prior_precision);
        Ok(flat + compensated_sum(self.curvature.iter().map(share)))
    }

    /// `⟨G_c, (curvature + δ·I)⁻¹ G_c'⟩` for every pair of `gradients [n, d_output, d_input]`, row-major: `[n, n]`.
    pub fn covariance(
        &self,
        gradients: &[f64],
        n: usize,
        prior_precision: f64,
    ) -> Result<Vec<f64>, Error> {
        check_precision(prior_precision)?;
        let (len, delta) = (self.n_parameters, prior_precision);
        check_length("gradients", gradients.len(), n * len)?;
        // Along the eigenvectors, over the root of the precision (full) or of K (low rank).
        let whitened: Vec<f64> = (0..n)
            .map(|row| &gradients[row * len..(row + 1) * len])
            .flat_map(|gradient| {
                let turned = self.form.along(gradient).into_iter().zip(&self.curvature);
                turned
                    .map(|(v, c)| match self.form {
                        Form::Full { .. } => v / (c + delta).sqrt(),
                        Form::LowRank { .. } => v / (1.0 + c / delta).sqrt(),
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let known = times_transposed(&whitened, &whitened, n, self.curvature.len(), n);
        if matches!(self.form, Form::Full { .. }) {
            return Ok(known);
        }
        let plain = times_transposed(gradients, gradients, n, len, n);
        let mut covariance: Vec<f64> =
            plain.iter().zip(known).map(|(p, q)| p / delta - q / (delta * delta)).collect();
        // Both terms of a variance are of size |G|²/δ, and rounding may leave less than nothing of their difference.
        for i in 0..n {
            covariance[i * n + i] = covariance[i * n + i].max(0.0);
        }
        Ok(covariance)
    }
}

impl Form {
    /// `Q_S G Q_Aᵀ`, or `QᵀGL`, in the order of the curvature.
    fn along(&self, gradient: &[f64]) -> Vec<f64> {
        match self {
            Self::Full { output, input, d_output: o, d_input: i } => {
                let half = times(output, gradient, *o, *o, *i);
                times_transposed(&half, input, *o, *i, *i)
            }
            Self::LowRank { side, columns, root, width, small } => {
                let wide_first = match side {
                    WideSide::Output => gradient.to_vec(),
                    WideSide::Input => transpose(gradient, *small, *width),
                };
                let k = columns.len().checked_div(*width).unwrap_or(0);
                let half = times(columns, &wide_first, k, *width, *small);
                times_transposed(&half, root, k, *small, *small)
            }
        }
    }
}

fn check_precision(prior_precision: f64) -> Result<(), Error> {
    check_range("prior_precision", prior_precision, f64::MIN_POSITIVE, f64::MAX)
}

/// Columns kept of a wide factor.
pub const LOW_RANK: usize = 10;
/// Width from which on a factor is kept in this form.
pub const LOW_RANK_FROM: usize = 100;

/// A running approximation `Q·Qᵀ` of `Σ a·aᵀ` with few columns.
///
/// ```text
/// [Q, a_1, …, a_b] = U diag(S) Vᵀ,     Q ← U[:, ..n]·diag(S[..n])
/// ```
///
/// Columns are kept as rows: `columns` is `Qᵀ`, `[k, width]` with `k ≤ n_columns`.
///
/// In `f64`, by one-sided Jacobi. Exact as long as the vectors span no more than `n_columns` dimensions; after
/// that every update loses the smallest directions, so the approximation is from below and depends on
/// how the vectors were batched.
#[derive(Debug, Clone, PartialEq)]
pub struct WideFactor {
    width: usize,
    n_columns: usize,
    columns: Vec<f64>,
}

impl WideFactor {
    /// Nothing gathered yet, with at most `n_columns` columns ([`LOW_RANK`] in the published code).
    pub fn new(width: usize, n_columns: usize) -> Result<Self, Error> {
        check_range("n_columns", n_columns as f64, 1.0, f64::MAX)?;
        Ok(Self { width, n_columns, columns: Vec::new() })
    }

    /// Folds a batch of vectors `[b, width]` in, each scaled by `weight` (the root of a probability).
    pub fn add(&mut self, weight: f64, vectors: &[f64]) -> Result<(), Error> {
        count_rows("vectors", vectors, self.width)?;
        self.columns.extend(vectors.iter().map(|v| weight * v));
        let rows = self.columns.len().checked_div(self.width).unwrap_or(0);
        let parts = svd(&self.columns, rows, self.width);
        let kept = parts.values.iter().take(self.n_columns).take_while(|&&s| s > 0.0);
        self.columns = kept
            .zip(parts.right.chunks(self.width.max(1)))
            .flat_map(|(&s, direction)| scaled(direction, s))
            .collect();
        Ok(())
    }

    /// The factor times `weight`, `Q·Qᵀ ← weight·Q·Qᵀ`: the data's scale, applied once at the end.
    #[must_use = "the scaled factor is returned"]
    pub fn scaled_by(&self, weight: f64) -> Result<Self, Error> {
        check_range("weight", weight, 0.0, f64::MAX)?;
        Ok(Self { columns: scaled(&self.columns, weight.sqrt()), ..*self })
    }

    /// The number of columns in use.
    pub fn rank(&self) -> usize {
        self.columns.len().checked_div(self.width).unwrap_or(0)
    }

    /// `Qᵀ`, `[rank, width]`: orthogonal rows, longest first.
    pub fn columns(&self) -> &[f64] {
        &self.columns
    }
}

/// Decay rates and floor of Adam, at the defaults of every library.
const BETA: (f64, f64) = (0.9, 0.999);
const ADAM_EPS: f64 = 1e-8;

/// Laplace's approximation of the marginal likelihood as a function of the prior precision `δ`.
///
/// ```text
/// ln Z(δ)    = ln p(D|θ*) − ½·[ δ·‖θ*‖² + Σ_W ln det(F_W + δ·I) − P·ln δ ]
/// d/d ln δ   = −½·[ δ·‖θ*‖² + Σ_W Σ δ/(λ + δ) − P ]
/// ```
///
/// One `δ` for all matrices; `P` counts all their entries, `‖θ*‖²` sums their squares.
///
/// Source: MacKay 1992; Immer et al. 2021, arXiv:2104.04975; Yang et al. 2024, arXiv:2308.13111.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence<'a> {
    blocks: &'a [CurvatureBlock],
    squared_norm: f64,
    log_likelihood: f64,
}

/// How `ln δ` is climbed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct EvidenceOptions {
    /// First prior precision, positive.
    pub start: f64,
    /// Learning rate of Adam on `ln δ`, positive.
    pub learning_rate: f64,
    /// Number of updates.
    pub steps: u32,
}

impl Default for EvidenceOptions {
    fn default() -> Self {
        Self { start: 1.0, learning_rate: 0.1, steps: 100 }
    }
}

/// Where the climb ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvidenceFit {
    /// The last prior precision.
    pub prior_precision: f64,
    /// The marginal likelihood there, nats.
    pub log_evidence: f64,
    /// Its derivative with respect to `ln δ` there: far from 0 if the climb stopped early.
    pub slope: f64,
}

impl<'a> Evidence<'a> {
    /// Of the blocks of all LoRA matrices, their squared norm and the training set's log-likelihood in
    /// nats (a sum over examples; a constant as far as `δ` is concerned).
    pub fn new(
        blocks: &'a [CurvatureBlock],
        squared_norm: f64,
        log_likelihood: f64,
    ) -> Result<Self, Error> {
        check_range("squared_norm", squared_norm, 0.0, f64::MAX)?;
        if log_likelihood.is_nan() {
            return Err(Error::undefined("log_likelihood", "is not a number"));
        }
        Ok(Self { blocks, squared_norm, log_likelihood })
    }

    /// Number of parameters of all blocks.
    pub fn n_parameters(&self) -> usize {
        self.blocks.iter().map(CurvatureBlock::n_parameters).sum()
    }

    /// `ln Z(δ)`, nats.
    pub fn log_evidence(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        let log_dets = self.of_blocks(|block| block.log_det(prior_precision))?;
        let excess = log_dets - self.n_parameters() as f64 * prior_precision.ln();
        Ok(self.log_likelihood - 0.5 * (prior_precision * self.squared_norm + excess))
    }

    /// The derivative of [`log_evidence`](Self::log_evidence) with respect to `ln δ`.
    pub fn slope(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        let slopes = self.of_blocks(|block| block.log_det_slope(prior_precision))?;
        let excess = slopes - self.n_parameters() as f64;
        Ok(-0.5 * (prior_precision * self.squared_norm + excess))
    }

    /// Climbs `ln Z` in `ln δ` with Adam.
    ///
    /// # Errors
    ///
    /// An option is outside its range, or `δ` leaves the range of `f64` (a model without weights and without curvature has no
    /// best prior).
    pub fn fit(&self, options: EvidenceOptions) -> Result<EvidenceFit, Error> {
        check_range("start", options.start, f64::MIN_POSITIVE, f64::MAX)?;
        check_range("learning_rate", options.learning_rate, f64::MIN_POSITIVE, f64::MAX)?;
        let mut log_precision = options.start.ln();
        let (mut first, mut second) = (0.0, 0.0);
        let (mut first_power, mut second_power) = (1.0, 1.0);
        for _ in 0..options.steps {
            let slope = self.slope(log_precision.exp())?;
            first = BETA.0 * first + (1.0 - BETA.0) * slope;
            second = BETA.1 * second + (1.0 - BETA.1) * slope * slope;
            first_power *= BETA.0;
            second_power *= BETA.1;
            let root = (second / (1.0 - second_power)).sqrt();
            log_precision +=
                options.learning_rate * (first / (1.0 - first_power)) / (root + ADAM_EPS);
        }
        let prior_precision = log_precision.exp();
        Ok(EvidenceFit {
            prior_precision,
            log_evidence: self.log_evidence(prior_precision)?,
            slope: self.slope(prior_precision)?,
        })
    }

    fn of_blocks(&self, f: impl Fn(&CurvatureBlock) -> Result<f64, Error>) -> Result<f64, Error> {
        let values: Vec<f64> = self.blocks.iter().map(f).collect::<Result<_, _>>()?;
        Ok(compensated_sum(values))
    }
}

/// Added to the diagonal of a covariance before its root is taken, as the published code does; also
/// serves the degenerate directions of a covariance whose rows sum to 0.
const JITTER: f64 = 1e-6;

/// The covariance of one example's logits, gathered block by block.
#[derive(Debug, Clone, PartialEq)]
pub struct LogitCovariance {
    n_classes: usize,
    values: Vec<f64>,
}

impl LogitCovariance {
    /// Zero.
    pub fn new(n_classes: usize) -> Self {
        Self { n_classes, values: vec![0.0; n_classes * n_classes] }
    }

    /// Adds one LoRA matrix's share, `J_W P_W⁻¹ J_Wᵀ`.
    ///
    /// `jacobian [n_classes, d_output, d_input]` holds the gradient of every logit by the matrix; it is
    /// not kept.
    pub fn add(
        &mut self,
        block: &CurvatureBlock,
        jacobian: &[f64],
        prior_precision: f64,
    ) -> Result<(), Error> {
        let share = block.covariance(jacobian, self.n_classes, prior_precision)?;
        for (sum, share) in self.values.iter_mut().zip(share) {
            *sum += share;
        }
        Ok(())
    }

    /// The covariance, `[n_classes, n_classes]`, row-major.
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

/// Average softmax of Gaussian logits.
///
/// ```text
/// p = 1/n·Σ_t softmax(f + L·z_t),     L·Lᵀ = Σ + 1e-6·I
/// ```
///
/// # Shapes
///
/// | Name         | Shape                    | Unit            |
/// |--------------|--------------------------|-----------------|
/// | `logits`     | `[n_classes]`            | nats            |
/// | `covariance` | `[n_classes, n_classes]` | nats²           |
/// | `normals`    | `[n_draws, n_classes]`   | standard normal |
/// | *returns*    | `[n_classes]`            | probability     |
///
/// # Errors
///
/// No draws, or a covariance that is not positive definite even with the jitter.
pub fn monte_carlo_softmax(
    logits: &[f64],
    covariance: &[f64],
    normals: &[f64],
) -> Result<Vec<f64>, Error> {
    let n_classes = check(logits, covariance)?;
    let mut jittered = covariance.to_vec();
    for value in jittered.iter_mut().step_by(n_classes + 1) {
        *value += JITTER;
    }
    let root = Cholesky::new("covariance", &jittered, n_classes)?;
    let n_draws = normals.len() / n_classes;
    check_length("normals", normals.len(), n_draws * n_classes)?;
    let draws: Vec<f64> = normals
        .chunks_exact(n_classes)
        .flat_map(|z| root.lower_times(z).into_iter().zip(logits).map(|(v, f)| f + v))
        .collect();
    if draws.is_empty() {
        return Err(Error::length("normals", 0, "at least 1"));
    }
    mean_probability(&log_softmax(&draws, n_classes)?, n_draws, n_classes)
}

/// Softmax of logits shrunk by their own variance.
///
/// ```text
/// p = softmax(f_c / √(1 + π/8·Σ_cc))
/// ```
///
/// `logits` and the result are `[n_classes]`, `covariance` is `[n_classes, n_classes]`.
///
/// Source: `MacKay` 1992; for several classes: Gibbs 1998.
pub fn probit_softmax(logits: &[f64], covariance: &[f64]) -> Result<Vec<f64>, Error> {
    let n_classes = check(logits, covariance)?;
    let mut shrunk = Vec::with_capacity(n_classes);
    for (c, &logit) in logits.iter().enumerate() {
        let variance = covariance[c * (n_classes + 1)];
        check_range("variance", variance, 0.0, f64::MAX)?;
        shrunk.push(logit / (1.0 + std::f64::consts::PI / 8.0 * variance).sqrt());
    }
    softmax(&shrunk, n_classes)
}

/// Mean of the Dirichlet whose Laplace approximation in logit space is this Gaussian.
///
/// First the part of the Gaussian that softmax ignores is conditioned away (`1` the vector of ones):
///
/// ```text
/// f' = f − Σ1·(1ᵀf)/(1ᵀΣ1),     Σ' = Σ − Σ1 1ᵀΣ/(1ᵀΣ1)
/// a_c = (1 − 2/C + exp(f'_c)/C²·Σ_k exp(−f'_k)) / Σ'_cc,     p = a/Σ a
/// ```
///
/// # Errors
///
/// The covariance leaves nothing to condition on, or no variance.
///
/// `exp(f'_c)·Σ exp(−f'_k)` is computed as `Σ exp(f'_c − f'_k)`; it overflows for logits 700 apart.
///
/// Source: Hobbhahn et al. 2022, arXiv:2003.01227.
pub fn laplace_bridge(logits: &[f64], covariance: &[f64]) -> Result<Vec<f64>, Error> {
    let n_classes = check(logits, covariance)?;
    let undefined = |reason| Error::undefined("laplace_bridge", format!("is undefined: {reason}"));
    let row_sums: Vec<f64> = covariance.chunks(n_classes).map(|row| row.iter().sum()).collect();
    let total: f64 = row_sums.iter().sum();
    if !(total > 0.0 && total.is_finite()) {
        return Err(undefined("the sum of the covariance is not positive"));
    }
    let shift = logits.iter().sum::<f64>() / total;
    let centred: Vec<f64> = logits.iter().zip(&row_sums).map(|(f, s)| f - s * shift).collect();
    let classes = n_classes as f64;
    let mut strengths = Vec::with_capacity(n_classes);
    for (c, &f) in centred.iter().enumerate() {
        let variance = covariance[c * (n_classes + 1)] - row_sums[c] * row_sums[c] / total;
        if !(variance > 0.0 && variance.is_finite()) {
            return Err(undefined("a class has no variance"));
        }
        let ratios: f64 = centred.iter().map(|g| (f - g).exp()).sum();
        strengths.push((1.0 - 2.0 / classes + ratios / (classes * classes)) / variance);
    }
    let total: f64 = strengths.iter().sum();
    if !total.is_finite() {
        return Err(undefined("logits too far apart"));
    }
    Ok(strengths.into_iter().map(|a| a / total).collect())
}

/// Number of classes, after checking shapes and logits.
fn check(logits: &[f64], covariance: &[f64]) -> Result<usize, Error> {
    let n_classes = logits.len();
    check_at_least("logits", n_classes, 1)?;
    check_finite("logits", logits)?;
    check_length("covariance", covariance.len(), n_classes * n_classes)?;
    Ok(n_classes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::linalg::transposed_times;
    use crate::testing::assert_near;

    /// Six vectors of width 5 within three dimensions.
    fn vectors() -> Vec<f64> {
        let basis = [1.0, 0.5, -2.0, 0.0, 0.25, 0.0, 1.5, 1.0, -1.0, 0.5, 2.0, 0.0, 0.5, 0.5, -0.5];
        (0..6)
            .flat_map(|n| {
                let at = move |k: usize| ((7 * n * n + 3 * k) as f64).sin();
                (0..5).map(move |j| (0..3).map(|k| at(k) * basis[5 * k + j]).sum())
            })
            .collect()
    }

    fn gram(factor: &WideFactor) -> Vec<f64> {
        transposed_times(factor.columns(), factor.columns(), factor.rank(), 5, 5)
    }

    #[test]
    fn updates_are_exact_within_the_rank_however_they_are_batched() {
        let all = vectors();
        let expected = transposed_times(&all, &all, 6, 5, 5);
        for batch in [1, 2, 4, 6] {
            let mut factor = WideFactor::new(5, 3).unwrap();
            for part in all.chunks(batch * 5) {
                factor.add(1.0, part).unwrap();
            }
            assert_eq!(factor.rank(), 3);
            assert_near(&gram(&factor), &expected, 1e-12);
            let products = times_transposed(factor.columns(), factor.columns(), 3, 5, 3);
            assert!(products[1].abs() < 1e-12 && products[0] > products[4]);
        }
    }

    #[test]
    fn beyond_the_rank_the_trace_can_only_fall() {
        let all = vectors();
        let trace = |g: &[f64]| (0..5).map(|i| g[6 * i]).sum::<f64>();
        let whole = trace(&transposed_times(&all, &all, 6, 5, 5));
        let mut factor = WideFactor::new(5, 2).unwrap();
        factor.add(1.0, &all).unwrap();
        let best = trace(&gram(&factor));
        assert!(best < whole);
        let mut stepwise = WideFactor::new(5, 2).unwrap();
        for part in all.chunks(5) {
            stepwise.add(1.0, part).unwrap();
        }
        assert!(trace(&gram(&stepwise)) <= best * (1.0 + 1e-12));
    }

    #[test]
    fn weights_scale_the_square() {
        let mut factor = WideFactor::new(2, 1).unwrap();
        factor.add(0.5, &[3.0, 4.0]).unwrap();
        // 0.25·(9, 12; 12, 16), then times 4.
        let factor = factor.scaled_by(4.0).unwrap();
        let found = transposed_times(factor.columns(), factor.columns(), 1, 2, 2);
        assert_near(&found, &[9.0, 12.0, 12.0, 16.0], 1e-14);
        assert!(factor.scaled_by(-1.0).is_err());
        assert!(WideFactor::new(2, 0).is_err());
        let mut factor = WideFactor::new(2, 1).unwrap();
        assert!(factor.add(1.0, &[1.0; 3]).is_err());
        factor.add(1.0, &[0.0; 2]).unwrap();
        assert_eq!(factor.rank(), 0);
    }
}
