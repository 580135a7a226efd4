//! Kronecker factors of every LoRA matrix, summed over the training set, and the leading columns of wide ones.

use burn::tensor::Tensor;
use lrvd_burn::adapter::LowRankAdapter;
use lrvd_burn::model::NamedModule;
use lrvd_burn::parameters::values;
use lrvd_burn::train::{Examples, evaluation_batches, report_progress};
use lrvd_core::baselines::laplace::{CurvatureBlock, InputNormalisation, WideFactor, WideSide};
use lrvd_core::linalg::{svd, symmetric_eigen, times, times_transposed, transposed_times};
use lrvd_core::metrics::{log_softmax, softmax};
use lrvd_core::noise::{NoiseKey, fill_normal_f64};
use lrvd_models::{AutoModel, TokenBatch};

use super::{Inputs, Seen, Used, Watch};
use crate::error::Burn;
use crate::settings::LaplaceSettings as Settings;

/// Memory for the squares of wide factors, bytes. Where they fit, the sum is cut to few columns, else every batch is.
pub(super) const SQUARES: usize = 1 << 30;

/// `Σ v·vᵀ` of one side of a matrix.
struct Gram {
    width: usize,
    /// Columns to keep; `None` keeps the square itself.
    columns: Option<usize>,
    /// `[width, width]`; empty where there is nothing beside `folded`.
    sum: Vec<f64>,
    /// Rows `√λ·v` of what was cut to few columns.
    folded: Vec<f64>,
}

impl Gram {
    fn add(&mut self, vectors: &Tensor<3>) {
        let [n, rows, width] = vectors.dims();
        let flat = vectors.clone().reshape([n * rows, width]);
        let square = values(flat.clone().transpose().matmul(flat));
        if self.sum.is_empty() {
            self.sum = square;
        } else {
            for (sum, value) in self.sum.iter_mut().zip(square) {
                *sum += value;
            }
        }
    }

    fn fold(&mut self) {
        let Some(columns) = self.columns else { return };
        if self.sum.is_empty() {
            return;
        }
        let mut sum = std::mem::take(&mut self.sum);
        let rows = self.folded.len() / self.width.max(1);
        let before = transposed_times(&self.folded, &self.folded, rows, self.width, self.width);
        for (sum, value) in sum.iter_mut().zip(before) {
            *sum += value;
        }
        self.folded = leading_rows(&sum, self.width, columns);
    }

    fn square(&self, weight: f64) -> Vec<f64> {
        self.sum.iter().map(|value| weight * value).collect()
    }

    fn wide(&mut self, weight: f64) -> Burn<Option<WideFactor>> {
        self.fold();
        let Some(columns) = self.columns else { return Ok(None) };
        let mut factor = WideFactor::new(self.width, columns)?;
        factor.add(1.0, &self.folded)?;
        Ok(Some(factor.scaled_by(weight)?))
    }
}

/// Of A and of B, the factor of the gradients at its outputs and that of its inputs.
struct AdapterSums {
    grams: [[Gram; 2]; 2],
    rows: usize,
}

impl AdapterSums {
    fn new(used: &Used, settings: &Settings) -> Self {
        // The small side stays whole even if it is not small: only one side may be cut.
        let gram = |rows: &Tensor<3>, may_be_cut: bool| {
            let width = rows.dims()[2];
            let is_cut = may_be_cut && width >= settings.low_rank_from;
            let columns = is_cut.then_some(settings.low_rank);
            Gram { width, columns, sum: Vec::new(), folded: Vec::new() }
        };
        let a = [gram(&used.rank_gradient, false), gram(&used.input, true)];
        let b = [gram(&used.output_gradient, true), gram(&used.rank_input, false)];
        Self { grams: [a, b], rows: 0 }
    }

    fn add(&mut self, used: &Used) {
        let rows = [&used.rank_gradient, &used.input, &used.output_gradient, &used.rank_input];
        let grams = self.grams.as_flattened_mut().iter_mut();
        grams.zip(rows).for_each(|(gram, rows)| gram.add(rows));
        self.rows += used.rows;
    }

    /// Memory of the squares of the wide sides, if they are held.
    fn wide_bytes(&self) -> usize {
        let wide = self.grams.as_flattened().iter().filter(|gram| gram.columns.is_some());
        wide.map(|gram| gram.width * gram.width * size_of::<f64>()).sum()
    }
}

/// The curvature of a matrix from its sums; `weight` is that of its inputs' factor.
fn block([mut output, mut input]: [Gram; 2], weight: f64) -> Burn<CurvatureBlock> {
    if let Some(wide) = input.wide(weight)? {
        let square = output.square(1.0);
        return Ok(CurvatureBlock::low_rank(&wide, WideSide::Input, &square, output.width)?);
    }
    let square = input.square(weight);
    Ok(match output.wide(1.0)? {
        Some(wide) => CurvatureBlock::low_rank(&wide, WideSide::Output, &square, input.width)?,
        None => CurvatureBlock::full(&output.square(1.0), output.width, &square, input.width)?,
    })
}

pub(super) struct Curvatures {
    /// Of A and B of the observed layers, in their order; layers that no example reaches have none.
    pub(super) blocks: Vec<CurvatureBlock>,
    pub(super) places: Vec<Option<[usize; 2]>>,
    /// `‖θ*‖²` of the matrices that have blocks.
    pub(super) squared_norm: f64,
    /// `Σ ln p(y)`, nats.
    pub(super) log_likelihood: f64,
}

impl Curvatures {
    /// `scale` times the Fisher matrix over the examples of `inputs` in passes of its batch size, exact in the
    /// labels, Kronecker-factored over rows, with at most `memory` bytes for the squares of wide factors.
    pub(super) fn of(
        watch: &Watch,
        inputs: &Inputs<'_>,
        settings: &Settings,
        scale: f64,
        memory: usize,
    ) -> Burn<Self> {
        let labels = watch.width;
        let examples = inputs.examples;
        let seeds = labels - 1;
        let mut sums: Vec<Option<AdapterSums>> = watch.modules.iter().map(|_| None).collect();
        let mut log_likelihood = 0.0;
        let sizes: Vec<usize> = (0..examples.len()).map(|i| examples.size(i)).collect();
        let size = (inputs.batch_size / seeds.max(1)).max(1);
        for indices in evaluation_batches(&sizes, size)? {
            let batch = examples.input(&indices)?;
            let mut outcome = Ok(Vec::new());
            let seen = watch.gradients(&batch, seeds, |logits| {
                outcome = softmax(logits, labels);
                roots(outcome.as_deref().unwrap_or_default(), labels, indices.len())
            });
            outcome?;
            log_likelihood += likelihood(&seen, examples, &indices, labels)?;
            report_progress(inputs.watch, 0)?;
            for used in &seen.uses {
                let expected: usize = sums.iter().flatten().map(AdapterSums::wide_bytes).sum();
                let sum = &mut sums[used.module];
                let sum = sum.get_or_insert_with(|| AdapterSums::new(used, settings));
                sum.add(used);
                if expected > memory {
                    sum.grams.as_flattened_mut().iter_mut().for_each(Gram::fold);
                }
            }
        }
        let mut blocks = Vec::new();
        let mut places = Vec::new();
        let mut squared_norm = 0.0;
        for (sum, &module) in sums.into_iter().zip(&watch.modules) {
            let Some(sum) = sum else {
                places.push(None);
                continue;
            };
            squared_norm += norm_of(&watch.model, module, sum.grams[1][0].width);
            let divisor = match settings.normalisation {
                InputNormalisation::Tokens => sum.rows,
                InputNormalisation::Examples => examples.len(),
            };
            places.push(Some([blocks.len(), blocks.len() + 1]));
            let weight = scale / divisor.max(1) as f64;
            for grams in sum.grams {
                blocks.push(block(grams, weight)?);
            }
        }
        Ok(Self { blocks, places, squared_norm, log_likelihood: scale * log_likelihood })
    }
}

/// Seeds `[labels − 1, n, labels]` from probabilities `[n, labels]`; zeros without any.
fn roots(probabilities: &[f64], labels: usize, n: usize) -> Vec<f64> {
    let mut seeds = vec![0.0; (labels - 1) * n * labels];
    for (i, p) in probabilities.chunks_exact(labels).enumerate() {
        for (k, row) in fisher_root(p).chunks_exact(labels).enumerate() {
            seeds[(k * n + i) * labels..][..labels].copy_from_slice(row);
        }
    }
    seeds
}

fn likelihood(
    seen: &Seen,
    examples: &dyn Examples<Input = TokenBatch>,
    indices: &[usize],
    labels: usize,
) -> Burn<f64> {
    let logs = log_softmax(&seen.logits, labels)?;
    let classes = examples.targets(indices)?.classes().unwrap_or_default();
    let of = |(row, class): (&[f64], usize)| row.get(class).copied();
    Ok(logs.chunks_exact(labels).zip(classes).filter_map(of).sum())
}

/// `‖A‖² + ‖B‖²` of the adapter of `module`. A head that is computed for the answers only has
/// `outputs` of its columns of B in use, those of the answers.
fn norm_of(model: &AutoModel, module: u32, outputs: usize) -> f64 {
    let mut found = None;
    model.visit_layers(&mut |_, layer| {
        if layer.noise_id() == module {
            found = layer.low_rank().map(LowRankAdapter::host_factors);
        }
    });
    let Some(factors) = found else { return 0.0 };
    let square = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
    let b = factors.b_by_rank();
    let b = match model {
        AutoModel::Llama(choice) if outputs != factors.d_output => {
            let rows = b.chunks_exact(factors.d_output);
            let answers = choice.answer_ids();
            rows.flat_map(|row| answers.iter().filter_map(|&id| row.get(id as usize)))
                .map(|v| v * v)
                .sum()
        }
        _ => square(&b),
    };
    square(&factors.a) + b
}

/// Columns of the Cholesky root of `Λ = diag(p) − p·pᵀ` as rows, `[labels − 1, labels]`.
///
/// `Λ` is the Fisher matrix of one example's logits, of rank `labels − 1`: so many backward passes give that of the parameters.
///
/// ```text
/// Σ_c p_c·∇(−ln p_c)·∇(−ln p_c)ᵀ = Jᵀ·Λ·J = Σ_k (Jᵀ·R_k)·(Jᵀ·R_k)ᵀ          J: gradients of the logits
/// R_k[k] = √(p_k·s_{k+1}/s_k)        R_k[c] = −p_c·√(p_k/(s_k·s_{k+1}))   for c > k,   s_k = Σ_{j ≥ k} p_j
/// ```
///
/// Source: Tanabe and Sagae 1992, An exact Cholesky decomposition of the multinomial covariance.
pub(super) fn fisher_root(p: &[f64]) -> Vec<f64> {
    let labels = p.len();
    // Sums from the back: 1 − Σ would lose what is left of a confident answer.
    let mut tail = vec![0.0; labels + 1];
    for k in (0..labels).rev() {
        tail[k] = tail[k + 1] + p[k];
    }
    let mut root = vec![0.0; labels.saturating_sub(1) * labels];
    for (k, row) in root.chunks_exact_mut(labels).enumerate() {
        if p[k] > 0.0 && tail[k + 1] > 0.0 {
            row[k] = (p[k] * (tail[k + 1] / tail[k])).sqrt();
            let factor = (p[k] / tail[k]).sqrt() / tail[k + 1].sqrt();
            for c in k + 1..labels {
                row[c] = -p[c] * factor;
            }
        }
    }
    root
}

const SURPLUS: usize = 10;
const MAX_ITERATIONS: usize = 100;
/// Relative change of the sum of the requested eigenvalues at which the iteration ends.
const TOLERANCE: f64 = 1e-9;

/// Rows `√λ_i·v_i` of the `k` largest eigenvalues of a symmetric positive semi-definite matrix `[width, width]`, `[≤ k, width]`,
/// longest first, by subspace iteration with a fixed random start and one Rayleigh-Ritz step.
pub(super) fn leading_rows(gram: &[f64], width: usize, k: usize) -> Vec<f64> {
    let block = (k + SURPLUS).min(width);
    let mut basis = vec![0.0; block * width];
    fill_normal_f64(NoiseKey::new(0), 0, &mut basis);
    let mut last = 0.0;
    for _ in 0..MAX_ITERATIONS {
        // Two products for one orthogonalisation.
        let product = times(&basis, gram, block, width, width);
        let parts = svd(&times(&product, gram, block, width, width), block, width);
        basis = parts.right;
        let sum: f64 = parts.values.iter().take(k).map(|v| v.sqrt()).sum();
        if (sum - last).abs() <= TOLERANCE * sum {
            break;
        }
        last = sum;
    }
    let product = times(&basis, gram, block, width, width);
    let small = symmetric_eigen(&times_transposed(&product, &basis, block, width, block), block);
    let vectors = times(&small.vectors, &basis, block, block, width);
    let kept = small.values.iter().take(k).take_while(|&&value| value > 0.0);
    kept.zip(vectors.chunks_exact(width))
        .flat_map(|(value, vector)| vector.iter().map(move |v| value.sqrt() * v))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posthoc_roots_multiply_to_the_covariance_of_a_label() {
        let cases: [&[f64]; 6] = [
            &[0.3, 0.7],
            &[0.2, 0.1, 0.4, 0.3],
            &[1.0, 0.0, 0.0],
            &[0.0, 0.0, 1.0],
            &[1e-12, 1.0 - 1e-12],
            &[1.0 - 1e-12, 1e-12],
        ];
        for p in cases {
            let n = p.len();
            let root = fisher_root(p);
            let square = transposed_times(&root, &root, n - 1, n, n);
            for (at, value) in square.iter().enumerate() {
                let i = at / n;
                let j = at % n;
                let expected = if i == j { p[i] * (1.0 - p[i]) } else { -p[i] * p[j] };
                let slack = 1e-15 + 1e-12 * expected.abs();
                assert!((value - expected).abs() <= slack, "{p:?} {i} {j}: {value} {expected}");
            }
        }
    }

    #[test]
    fn posthoc_leading_rows_are_those_of_the_full_decomposition() {
        let width = 40;
        let k = 10;
        let mut vectors = vec![0.0; 35 * width];
        fill_normal_f64(NoiseKey::new(7), 0, &mut vectors);
        for (i, row) in vectors.chunks_exact_mut(width).enumerate() {
            for value in row {
                *value *= 0.8_f64.powi(i as i32);
            }
        }
        let gram = transposed_times(&vectors, &vectors, 35, width, width);
        let rows = leading_rows(&gram, width, k);
        let full = symmetric_eigen(&gram, width);
        assert_eq!(rows.len(), k * width);
        for (i, row) in rows.chunks_exact(width).enumerate() {
            let square: f64 = row.iter().map(|v| v * v).sum();
            assert!((square / full.values[i] - 1.0).abs() < 1e-6, "{i}: {square}");
            let vector = &full.vectors[i * width..(i + 1) * width];
            let cosine: f64 = row.iter().zip(vector).map(|(a, b)| a * b).sum::<f64>().abs();
            assert!((cosine / square.sqrt() - 1.0).abs() < 1e-4, "{i}: {cosine}");
        }
    }
}
