//! Laplace-LoRA: a Gaussian around a trained LoRA, as wide as the training data leaves it.
//!
//! Objective of the training: mean negative log-likelihood, as LoRA's. Afterwards, with the trained
//! factors `θ*`, every LoRA matrix `W` gets the posterior `N(W*, (S ⊗ A + δ·I)⁻¹)`:
//!
//! ```text
//! A = 1/Σ_n T_n·Σ_n Σ_t a_nt·a_ntᵀ          S = Σ_n Σ_c p_nc Σ_t g_nct·g_nctᵀ,  g = ∂(−ln p_nc)/∂(W·a)
//! ln Z(δ) = Σ_n ln p(y_n) − ½·[δ·‖θ*‖² + Σ_W ln det(S ⊗ A + δ·I) − P·ln δ]         → δ
//! f(x) ~ N(f*(x), Σ_W J_W·(S ⊗ A + δ·I)⁻¹·J_Wᵀ),     p(y|x) = E softmax(f(x))
//! ```
//!
//! Exact in the classes, Kronecker-factored over tokens (K-FAC "expand"); padding is no token. A
//! factor 100 or more wide is kept by its 10 leading columns.
//!
//! The answer is one probability per class (`k = 0`); there are no draws. A head that is trained along stays at its point
//! estimate. Nothing is fitted for scores: the mean of their Gaussian is the trained model's answer.
//!
//! Parameters: LoRA's, `rank·(d_input + d_output)` per layer, are trained. Kept beside them: the factors of every block, `n²`
//! numbers for a side of width `n`, `10·n` for a wide one, and `δ`. Source: Yang et al. 2024, arXiv:2308.13111. Relative positions
//! that pass through an adapter (`DeBERTa` with shared keys) count as further rows of each example that reaches them. The layer
//! `last` is the adapted one nearest to the output.

mod factors;
#[cfg(test)]
mod tests;

use burn::module::Module;
use burn::tensor::{Gradients, Int, Tensor, TensorData};
use lrvd_burn::adapter::{AdaptedLinear, AdapterConfig};
use lrvd_burn::model::NamedModule;
use lrvd_burn::parameters::values;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{
    Examples, Fitted, Method, Model, Prediction, Setup, TrainConfig, evaluation_batches,
    report_progress, restore_order,
};
use lrvd_core::baselines::laplace::{self, CurvatureBlock, LogitCovariance};
use lrvd_core::metrics::Predictions;
use lrvd_core::noise::{NoiseKey, fill_normal_f64};
use lrvd_models::{AutoModel, TokenBatch};

use super::observer::{ObservedUse, Observer};
use super::setup::lora;
use super::{Fitting, Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::{
    Config, LaplaceLayers as Layers, LaplacePredictive as Predictive, LaplacePrior as PriorChoice,
    LaplaceSettings as Settings,
};
use factors::{Curvatures, SQUARES};

pub(super) struct Laplace {
    adapter: AdapterConfig,
    settings: Settings,
    fit: Option<Fit>,
}

struct Fit {
    curvatures: Curvatures,
    prior_precision: f64,
}

impl Laplace {
    pub(super) fn new(config: &Config, request: RankRequest) -> Result<Self> {
        let adapter = lora(config, request);
        let settings = config.methods.laplace.clone();
        Ok(Self { adapter, settings, fit: None })
    }

    /// Share of the training examples that chooses the prior precision.
    pub(super) fn holdout(config: &Config) -> f64 {
        let settings = &config.methods.laplace;
        match settings.prior {
            PriorChoice::Marginal => 0.0,
            PriorChoice::Validation => settings.holdout,
        }
    }

    fn prior_precision(
        &self,
        watch: &Watch,
        curvatures: &Curvatures,
        data: &Fitting<'_>,
    ) -> Burn<f64> {
        match self.settings.prior {
            PriorChoice::Marginal => {
                let Curvatures { blocks, squared_norm, log_likelihood, .. } = curvatures;
                let evidence = laplace::Evidence::new(blocks, *squared_norm, *log_likelihood)?;
                Ok(evidence.fit(self.settings.evidence())?.prior_precision)
            }
            PriorChoice::Validation => self.on_holdout(watch, curvatures, data),
        }
    }

    /// The candidate with the lowest negative log-likelihood of the examples held out, the larger one of equals.
    fn on_holdout(&self, watch: &Watch, curvatures: &Curvatures, data: &Fitting<'_>) -> Burn<f64> {
        let candidates = self.settings.candidates();
        let all: Vec<usize> = (0..data.holdout.len()).collect();
        let classes = data.holdout.targets(&all)?.classes().unwrap_or_default();
        let examples = gaussian_logits(watch, curvatures, &data.inputs(data.holdout), &candidates)?;
        let mut best = (f64::INFINITY, self.settings.prior_start);
        for (which, &candidate) in candidates.iter().enumerate() {
            let answers = probabilities(&examples, which, &self.settings, data.inputs.draws.seed)?;
            let nll = Predictions::new(&answers, watch.width, &classes)?.nll();
            if nll <= best.0 {
                best = (nll, candidate);
            }
        }
        Ok(best.1)
    }
}

impl Method<AutoModel> for Laplace {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        Ok(Setup::new(self.adapter, config))
    }

    /// Logarithms of probabilities after the fit, before it the logits of the trained weights.
    fn predict(&self, model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Prediction> {
        let Some(Fit { curvatures, prior_precision }) = &self.fit else {
            return inputs.predict(model);
        };
        let watch = Watch::new(model, self.settings.layers, inputs.examples)?;
        let examples = gaussian_logits(&watch, curvatures, inputs, &[*prior_precision])?;
        let answers = probabilities(&examples, 0, &self.settings, inputs.draws.seed)?;
        // A probability that underflowed has no logarithm.
        let values = answers.into_iter().map(|p| p.max(f64::MIN_POSITIVE).ln()).collect();
        Ok(Prediction::new(values, examples.len(), watch.width))
    }

    fn finish(&mut self, model: &mut AutoModel, data: &Fitting<'_>) -> Burn<Fitted> {
        if data.is_regression()? {
            return Ok(Fitted::default());
        }
        // The training examples, or as many as the settings set, drawn by the seed.
        let all = data.train.len();
        let count = self.settings.examples.filter(|&count| count < all);
        let picked = count.map(|count| data.picked(SALT, count));
        let train = picked.as_ref().map_or(data.train, |picked| picked);
        let scale = all as f64 / train.len().max(1) as f64;
        let watch = Watch::new(model, self.settings.layers, train)?;
        let inputs = data.inputs(train);
        let curvatures = Curvatures::of(&watch, &inputs, &self.settings, scale, SQUARES)?;
        let prior_precision = self.prior_precision(&watch, &curvatures, data)?;
        let entries = curvatures.blocks.iter().map(CurvatureBlock::n_factor_entries);
        let stored = 1 + entries.sum::<usize>();
        self.fit = Some(Fit { curvatures, prior_precision });
        let values = [("prior-precision".to_owned(), prior_precision)].into();
        Ok(Fitted { values, stored, ..Fitted::default() })
    }
}

/// Mixed into the run's seed, so that the random numbers here are used nowhere else.
const SALT: u64 = 0x4c41_504c_4143_4521;

#[derive(Clone, Debug)]
struct GaussianLogits {
    mean: Vec<f64>,
    covariances: Vec<LogitCovariance>,
}

/// The logits of every example of `inputs`, in order, with a covariance for each of `precisions`.
///
/// ```text
/// f ~ N(f*(x), Σ_W J_W·(S ⊗ A + δ·I)⁻¹·J_Wᵀ)        J_W[c] = Σ_rows g_c·aᵀ
/// ```
fn gaussian_logits(
    watch: &Watch,
    curvatures: &Curvatures,
    inputs: &Inputs<'_>,
    precisions: &[f64],
) -> Burn<Vec<GaussianLogits>> {
    let labels = watch.width;
    let examples = inputs.examples;
    let sizes: Vec<usize> = (0..examples.len()).map(|i| examples.size(i)).collect();
    let size = (inputs.batch_size / labels).max(1);
    let batches = evaluation_batches(&sizes, size)?;
    let mut all = Vec::with_capacity(examples.len());
    for indices in &batches {
        let batch = examples.input(indices)?;
        let seen = watch.gradients(&batch, labels, |_| one_hot(labels, indices.len()));
        let mut examples: Vec<GaussianLogits> = seen
            .logits
            .chunks_exact(labels)
            .map(|mean| GaussianLogits {
                mean: mean.to_vec(),
                covariances: vec![LogitCovariance::new(labels); precisions.len()],
            })
            .collect();
        for (module, place) in curvatures.places.iter().enumerate() {
            let (Some(place), Some(jacobians)) = (place, jacobians(&seen, module, labels)) else {
                continue;
            };
            for (&at, jacobian) in place.iter().zip(jacobians) {
                add(&mut examples, &jacobian, labels, &curvatures.blocks[at], precisions)?;
            }
        }
        all.extend(examples);
        report_progress(inputs.watch, indices.len())?;
    }
    restore_order(&batches, all)
}

/// Adds to every example's covariances the share of `block`, by the example's part of `jacobian [labels, n, …]`.
fn add(
    examples: &mut [GaussianLogits],
    jacobian: &[f64],
    labels: usize,
    block: &CurvatureBlock,
    precisions: &[f64],
) -> Burn<()> {
    let n = examples.len();
    let width = jacobian.len() / (labels * n).max(1);
    for (i, example) in examples.iter_mut().enumerate() {
        let row = |class: usize| &jacobian[(class * n + i) * width..][..width];
        let part: Vec<f64> = (0..labels).flat_map(row).copied().collect();
        for (sum, &precision) in example.covariances.iter_mut().zip(precisions) {
            sum.add(block, &part, precision)?;
        }
    }
    Ok(())
}

/// Seeds that pick one logit each, `[labels, n, labels]`.
fn one_hot(labels: usize, n: usize) -> Vec<f64> {
    let mut seeds = vec![0.0; labels * n * labels];
    for (at, row) in seeds.chunks_exact_mut(labels).enumerate() {
        row[at / n] = 1.0;
    }
    seeds
}

/// Gradients of every logit of every example by A `[labels, n, rank, d_input]` and by B
/// `[labels, n, d_output, rank]` of one layer, over all its uses; `None` if it was not used.
fn jacobians(seen: &Seen, module: usize, labels: usize) -> Option<[Vec<f64>; 2]> {
    let product = |gradient: &Tensor<3>, input: &Tensor<3>| {
        gradient.clone().swap_dims(1, 2).matmul(input.clone().repeat_dim(0, labels))
    };
    let uses = seen.uses.iter().filter(|used| used.module == module);
    let parts = uses.map(|used| {
        let a = product(&used.rank_gradient, &used.input);
        [a, product(&used.output_gradient, &used.rank_input)]
    });
    parts.reduce(|[a, b], [c, d]| [a + c, b + d]).map(|both| both.map(values))
}

fn probabilities(
    examples: &[GaussianLogits],
    which: usize,
    settings: &Settings,
    seed: u64,
) -> Burn<Vec<f64>> {
    let mut all = Vec::new();
    let mut normals = Vec::new();
    for (i, example) in examples.iter().enumerate() {
        let mean = &example.mean;
        let covariance = example.covariances[which].values();
        let answer: Result<Vec<f64>, lrvd_core::Error> = match settings.predictive {
            Predictive::Probit => laplace::probit_softmax(mean, covariance),
            Predictive::Bridge => laplace::laplace_bridge(mean, covariance),
            Predictive::MonteCarlo => {
                normals.resize(settings.samples * mean.len(), 0.0);
                let key = NoiseKey::new(seed ^ SALT).at_step(i as u32);
                fill_normal_f64(key, 0, &mut normals);
                laplace::monte_carlo_softmax(mean, covariance, &normals)
            }
        };
        all.extend(answer?);
    }
    Ok(all)
}

/// A copy of a model at its posterior mean whose adapters an observer sees; none of its parameters requires a gradient.
struct Watch {
    model: AutoModel,
    observer: Observer,
    /// Answers of an example.
    width: usize,
    modules: Vec<u32>,
}

struct Seen {
    /// Logits, `[n, labels]`.
    logits: Vec<f64>,
    uses: Vec<Used>,
}

/// One use of an adapter. Rows that are padding, or that no example's loss reaches, are 0.
struct Used {
    /// Place of the layer among the observed ones.
    module: usize,
    /// `[n, rows, d_input]`.
    input: Tensor<3>,
    /// `[n, rows, rank]`.
    rank_input: Tensor<3>,
    /// `[s·n, rows, rank]`.
    rank_gradient: Tensor<3>,
    /// `[s·n, rows, d_output]`.
    output_gradient: Tensor<3>,
    rows: usize,
}

impl Watch {
    /// Observes the adapters of a copy of `model` that `layers` names; any of `examples` shows the width of the answers.
    fn new(
        model: &AutoModel,
        layers: Layers,
        examples: &dyn Examples<Input = TokenBatch>,
    ) -> Burn<Self> {
        let mut modules = Vec::new();
        model.visit_layers(&mut |_, layer| {
            if layer.low_rank().is_some() {
                modules.push(layer.noise_id());
            }
        });
        if layers == Layers::Last {
            modules.drain(..modules.len().saturating_sub(1));
        }
        let meant = |layer: &AdaptedLinear| modules.contains(&layer.noise_id());
        let observer = Observer::default();
        let mut model = model.clone().valid();
        let [_, width] = model.logits(&examples.input(&[0])?, &Pass::mean()).dims();
        observer.observe(&mut model, meant)?;
        Ok(Self { model, observer, width, modules })
    }

    /// Gradients of `Σ_c seed[k, i, c]·logit[i, c]` for every seed `k` and example `i` of `batch`.
    /// `seeds` gives `[s, n, labels]` for the logits `[n, labels]`. All of them take one backward
    /// pass, over `s` copies of the batch.
    fn gradients(
        &self,
        batch: &TokenBatch,
        s: usize,
        seeds: impl FnOnce(&[f64]) -> Vec<f64>,
    ) -> Seen {
        let [n, _] = batch.ids.dims();
        let logits = self.model.logits(&batch.repeat(s), &Pass::mean());
        let host = values(logits.clone().inner().narrow(0, 0, n));
        let seeds = TensorData::new(seeds(&host), [s * n, self.width]);
        let seeds = Tensor::<2>::from_data(seeds, (&logits.device().inner(), logits.dtype()));
        let gradients = (logits * seeds).sum().backward();
        let uses = self.observer.take();
        let uses = uses.iter().filter_map(|used| self.used(used, &gradients, &batch.mask, s));
        Seen { logits: host, uses: uses.collect() }
    }

    fn used(
        &self,
        used: &ObservedUse,
        gradients: &Gradients,
        mask: &Tensor<2>,
        s: usize,
    ) -> Option<Used> {
        let module = self.modules.iter().position(|&id| id == used.module)?;
        let [n, length] = mask.dims();
        let first = |rows: &Tensor<3>| rows.clone().narrow(0, 0, n);
        let mut input = first(&used.input);
        let mut rank_input = first(&used.rank_input);
        let mut rank_gradient = used.rank_gradient(gradients)?;
        let mut output_gradient = used.output_gradient(gradients)?;
        let rows = input.dims()[1];
        let live = if used.use_index != 0 {
            if let Some(merge) = Merge::of_equal_rows(&input) {
                input = merge.pick(input);
                rank_input = merge.pick(rank_input);
                rank_gradient = merge.sum(rank_gradient);
                output_gradient = merge.sum(output_gradient);
            }
            reached(&output_gradient, s)
        } else if rows == length {
            mask.clone().cast(input.dtype()).unsqueeze_dim(2)
        } else {
            // The last token alone, as the head of a language model sees it.
            Tensor::ones([n, rows, 1], (&input.device(), input.dtype()))
        };
        let count: f64 = values(live.clone()).iter().sum();
        let copies = live.clone().repeat_dim(0, s);
        Some(Used {
            module,
            input: input * live.clone(),
            rank_input: rank_input * live,
            rank_gradient: rank_gradient * copies.clone(),
            output_gradient: output_gradient * copies,
            rows: count.round() as usize,
        })
    }
}

/// 1 for rows of an example that any of its `s` losses reaches, else 0, `[n, rows, 1]`: a table of positions has more rows than
/// a short text has distances.
fn reached(gradient: &Tensor<3>, s: usize) -> Tensor<3> {
    let [copies, rows, _] = gradient.dims();
    let size: Tensor<3> = gradient.clone().abs().sum_dim(2).reshape([s, copies / s, rows]);
    let size: Tensor<2> = size.sum_dim(0).squeeze_dim(0);
    size.sign().unsqueeze_dim(2)
}

/// Rows that are one and the same input, to be seen as one use: distances that share a bucket read the same row of the table,
/// which the encoder projects once or once a distance, depending on the length of the batch.
struct Merge {
    first: Tensor<1, Int>,
    /// `[1, groups, rows]`, 1 where a row belongs to a group.
    groups: Tensor<3>,
}

impl Merge {
    /// Groups of neighbouring equal rows of `input [n, rows, width]`, which all examples share; `None` if no two are equal.
    fn of_equal_rows(input: &Tensor<3>) -> Option<Self> {
        let [_, rows, width] = input.dims();
        let host = values(input.clone().narrow(0, 0, 1));
        let row = |i: usize| &host[i * width..(i + 1) * width];
        let first: Vec<usize> = (0..rows).filter(|&i| i == 0 || row(i) != row(i - 1)).collect();
        if first.len() == rows {
            return None;
        }
        let mut groups = vec![0.0; first.len() * rows];
        for i in 0..rows {
            let group = first.partition_point(|&start| start <= i) - 1;
            groups[group * rows + i] = 1.0;
        }
        let device = input.device();
        let shape = [1, first.len(), rows];
        let groups = Tensor::from_data(TensorData::new(groups, shape), (&device, input.dtype()));
        let first: Vec<i32> = first.into_iter().map(|i| i as i32).collect();
        Some(Self { first: Tensor::from_ints(first.as_slice(), &device), groups })
    }

    fn pick(&self, rows: Tensor<3>) -> Tensor<3> {
        rows.select(1, self.first.clone())
    }

    fn sum(&self, rows: Tensor<3>) -> Tensor<3> {
        let n = rows.dims()[0];
        self.groups.clone().repeat_dim(0, n).matmul(rows)
    }
}
