//! Kronecker factors of every LoRA matrix, summed over the training set.

use burn::tensor::Tensor;
use lrvd_burn::host::{HostAdapter, values};
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::train::{Examples, evaluation_batches};
use lrvd_core::baselines::laplace::{
    CurvatureBlock, InputNormalisation, KronBlock, LowRankBlock, WideFactor, WideSide,
};
use lrvd_core::metrics::{log_softmax, softmax};
use lrvd_core::numeric::dense::transposed_times;
use lrvd_models::AutoClassifier;

use super::fisher::fisher_root;
use super::leading::leading_rows;
use super::watch::{Seen, Used, Watch};
use crate::data::batch::TokenExamples;
use crate::error::Result;
use crate::settings::LaplaceSettings as Settings;

/// Memory for the squares of wide factors, bytes. Where they fit, the data is summed first and cut to
/// few columns once, which loses the least; else every batch is cut as it comes, as published code
/// does.
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
    fn new(width: usize, settings: &Settings) -> Self {
        let columns = (width >= settings.low_rank_from).then_some(settings.low_rank);
        Self { width, columns, sum: Vec::new(), folded: Vec::new() }
    }

    /// Adds the rows of `vectors [n, rows, width]`.
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

    /// The wide factor times `weight`, if the side is wide.
    fn wide(&mut self, weight: f64) -> Result<Option<WideFactor>> {
        self.fold();
        let Some(columns) = self.columns else { return Ok(None) };
        let mut factor = WideFactor::new(self.width, columns)?;
        factor.add(1.0, &self.folded)?;
        Ok(Some(factor.scaled_by(weight)?))
    }
}

/// Sums of one adapter: for `A [rank, d_input]` and for `B [d_output, rank]`, the factor of its inputs
/// and that of the gradients at its outputs.
struct AdapterSums {
    a_input: Gram,
    a_output: Gram,
    b_input: Gram,
    b_output: Gram,
    rows: usize,
}

impl AdapterSums {
    fn new(used: &Used, settings: &Settings) -> Self {
        // The small side stays whole even if it is not small: only one side may be cut.
        let whole = Settings { low_rank_from: usize::MAX, ..settings.clone() };
        let width = |rows: &Tensor<3>| rows.dims()[2];
        Self {
            a_input: Gram::new(width(&used.input), settings),
            a_output: Gram::new(width(&used.rank_gradient), &whole),
            b_input: Gram::new(width(&used.rank_input), &whole),
            b_output: Gram::new(width(&used.output_gradient), settings),
            rows: 0,
        }
    }

    fn add(&mut self, used: &Used) {
        self.a_input.add(&used.input);
        self.a_output.add(&used.rank_gradient);
        self.b_input.add(&used.rank_input);
        self.b_output.add(&used.output_gradient);
        self.rows += used.rows;
    }

    fn fold(&mut self) {
        self.a_input.fold();
        self.b_output.fold();
    }

    /// Memory of the squares of the wide sides, if they are held.
    fn wide_bytes(&self) -> usize {
        let wide = [&self.a_input, &self.b_output].into_iter().filter(|g| g.columns.is_some());
        wide.map(|gram| gram.width * gram.width * size_of::<f64>()).sum()
    }

    /// Curvature of A and of B; `weight` is that of the inputs' factors.
    fn blocks(mut self, weight: f64) -> Result<[CurvatureBlock; 2]> {
        let (rank, d_output) = (self.a_output.width, self.b_output.width);
        let small = self.a_output.square(1.0);
        let a = match self.a_input.wide(weight)? {
            Some(wide) => LowRankBlock::new(&wide, WideSide::Input, &small, rank)?.into(),
            None => {
                let square = self.a_input.square(weight);
                KronBlock::new(&small, rank, &square, self.a_input.width)?.into()
            }
        };
        let small = self.b_input.square(weight);
        let b = match self.b_output.wide(1.0)? {
            Some(wide) => LowRankBlock::new(&wide, WideSide::Output, &small, rank)?.into(),
            None => KronBlock::new(&self.b_output.square(1.0), d_output, &small, rank)?.into(),
        };
        Ok([a, b])
    }
}

pub(super) struct Curvatures {
    /// Of A and B of the observed layers, in their order; layers that no example reaches have none.
    pub(super) blocks: Vec<CurvatureBlock>,
    /// Places of A and B in `blocks` by layer.
    pub(super) places: Vec<Option<[usize; 2]>>,
    /// `‖θ*‖²` of the matrices that have blocks.
    pub(super) squared_norm: f64,
    /// `Σ ln p(y)`, nats.
    pub(super) log_likelihood: f64,
}

impl Curvatures {
    /// `scale` times the Fisher matrix over `examples` in passes of `batch_size` rows, exact in the
    /// labels, Kronecker-factored over rows, with at most `memory` bytes for the squares of wide factors.
    pub(super) fn of(
        watch: &Watch,
        examples: &TokenExamples<'_>,
        batch_size: usize,
        settings: &Settings,
        scale: f64,
        memory: usize,
    ) -> Result<Self> {
        let labels = watch.labels();
        let seeds = labels - 1;
        let mut sums: Vec<Option<AdapterSums>> = watch.modules().iter().map(|_| None).collect();
        let mut log_likelihood = 0.0;
        let sizes: Vec<usize> = (0..examples.len()).map(|i| examples.size(i)).collect();
        let size = (batch_size / seeds.max(1)).max(1);
        for indices in evaluation_batches(&sizes, size)? {
            let batch = examples.input(&indices)?;
            let mut outcome = Ok(Vec::new());
            let seen = watch.gradients(&batch, seeds, |logits| {
                outcome = softmax(logits, labels);
                roots(outcome.as_deref().unwrap_or_default(), labels, indices.len())
            });
            outcome?;
            log_likelihood += likelihood(&seen, examples, &indices)?;
            for used in &seen.uses {
                let wanted: usize = sums.iter().flatten().map(AdapterSums::wide_bytes).sum();
                let sum = &mut sums[used.module];
                let sum = sum.get_or_insert_with(|| AdapterSums::new(used, settings));
                sum.add(used);
                if wanted > memory {
                    sum.fold();
                }
            }
        }
        let (mut blocks, mut places, mut squared_norm) = (Vec::new(), Vec::new(), 0.0);
        for (sum, &module) in sums.into_iter().zip(watch.modules()) {
            let Some(sum) = sum else {
                places.push(None);
                continue;
            };
            squared_norm += norm_of(watch.model(), module, sum.b_output.width);
            let divisor = match settings.normalisation {
                InputNormalisation::Tokens => sum.rows,
                InputNormalisation::Examples => examples.len(),
            };
            places.push(Some([blocks.len(), blocks.len() + 1]));
            blocks.extend(sum.blocks(scale / divisor.max(1) as f64)?);
        }
        Ok(Self { blocks, places, squared_norm, log_likelihood: scale * log_likelihood })
    }

    pub(super) fn n_factor_entries(&self) -> usize {
        self.blocks.iter().map(CurvatureBlock::n_factor_entries).sum()
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

/// `Σ ln p(y)` of a batch.
fn likelihood(seen: &Seen, examples: &TokenExamples<'_>, indices: &[usize]) -> Result<f64> {
    let labels = examples.labels;
    let logs = log_softmax(&seen.logits, labels)?;
    let of = |(row, &index): (&[f64], &usize)| {
        examples.examples[index].label.class().and_then(|class| row.get(class)).copied()
    };
    Ok(logs.chunks_exact(labels).zip(indices).filter_map(of).sum())
}

/// `‖A‖² + ‖B‖²` of the adapter of `module`. A head that is computed for the answers only has
/// `outputs` of its columns of B in use, those of the answers.
fn norm_of(model: &AutoClassifier, module: u32, outputs: usize) -> f64 {
    let mut found = None;
    model.visit_layers(&mut |_, layer| {
        if layer.noise_id() == module {
            found = layer.low_rank().map(HostAdapter::read);
        }
    });
    let Some(host) = found else { return 0.0 };
    let square = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
    let b = match model {
        AutoClassifier::Llama(choice) if outputs != host.d_output => {
            let rows = host.b.chunks_exact(host.d_output);
            let answers = choice.answer_ids();
            rows.flat_map(|row| answers.iter().filter_map(|&id| row.get(id as usize)))
                .map(|v| v * v)
                .sum()
        }
        _ => square(&host.b),
    };
    square(&host.a) + b
}
