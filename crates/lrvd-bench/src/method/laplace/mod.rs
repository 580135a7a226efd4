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
//! The answer is one probability per class (`k = 0`); there are no draws. What is random are the LoRA
//! matrices: a head that is trained along (the pooler and classifier of `DeBERTa`) stays at its point
//! estimate. A score has a Gaussian answer whose mean is the trained model's: nothing is fitted then.
//!
//! Parameters: LoRA's, `rank·(d_input + d_output)` per layer, are trained. Kept beside them for
//! prediction: the factors of every block, `n²` numbers for a side of width `n`, `10·n` for a wide one,
//! and `δ`. Published tables count what is trained alone.
//! Source: Yang et al. 2024, arXiv:2308.13111.
//!
//! | File | What |
//! |---|---|
//! | `settings` | settings and their ranges |
//! | `watch` | inputs and gradients of every adapter, example by example |
//! | `fisher` | the exact Fisher matrix in fewer passes than classes |
//! | `factors` | sums over the training set, and the blocks they make |
//! | `leading` | the leading columns of a wide factor |
//! | `predictive` | Gaussian logits and probabilities |
//!
//! Decisions: relative positions that pass through an adapter (`DeBERTa` with shared keys) count as
//! further rows of each example that reaches them. The `DeBERTa` or Llama layer `last` is the adapted
//! one nearest to the output.

mod factors;
mod fisher;
mod leading;
mod predictive;
#[cfg(test)]
mod tests;
mod watch;

use std::borrow::Cow;
use std::collections::BTreeMap;

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::train::{Attach, Logits, Predict, RankPolicy, Regularise};
use lrvd_core::baselines::laplace::Evidence;
use lrvd_core::metrics::Predictions;
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use lrvd_models::AutoClassifier;

use self::factors::{Curvatures, SQUARES};
use self::predictive::{SALT, gaussian_logits, probabilities};
use self::watch::Watch;
use super::setup::adapter;
use super::{Inputs, PostHoc, RankRequest};
use crate::data::batch::TokenisedExample;
use crate::error::{Result, train_error};
use crate::eval::RunContext;
use crate::settings::{ExperimentConfig, LaplacePrior as PriorChoice, LaplaceSettings as Settings};

pub(super) struct Laplace {
    adapter: AdapterConfig,
    settings: Settings,
    fitted: Option<Fitted>,
}

struct Fitted {
    curvatures: Curvatures,
    prior_precision: f64,
}

impl Laplace {
    pub(super) fn new(
        config: &ExperimentConfig,
        request: RankRequest,
        settings: &Settings,
    ) -> Self {
        let kind = AdapterKind::Lora { b_bound: config.lora_b_bound };
        let adapter = adapter(config, kind, request);
        Self { adapter, settings: settings.clone(), fitted: None }
    }

    /// The training examples, or as many as the settings say, whichever the seed picks.
    fn fitted_to<'a>(&self, context: &RunContext<'a>) -> Cow<'a, [TokenisedExample]> {
        let train = &context.task.train;
        match self.settings.examples.filter(|&wanted| wanted < train.len()) {
            None => Cow::Borrowed(train),
            Some(wanted) => {
                let key = NoiseKey::new(context.seed ^ SALT).on_stream(Stream::DATA);
                let order = permutation(key, train.len());
                order.into_iter().take(wanted).map(|i| train[i].clone()).collect()
            }
        }
    }

    fn prior_precision(
        &self,
        watch: &Watch,
        curvatures: &Curvatures,
        context: &RunContext<'_>,
    ) -> Result<f64> {
        match self.settings.prior {
            PriorChoice::Marginal => {
                let Curvatures { blocks, squared_norm, log_likelihood, .. } = curvatures;
                let evidence = Evidence::new(blocks, *squared_norm, *log_likelihood)?;
                Ok(evidence.fit(self.settings.evidence())?.prior_precision)
            }
            PriorChoice::Validation => self.on_holdout(watch, curvatures, context),
        }
    }

    /// The candidate with the lowest negative log-likelihood of the examples held out, the larger one of equals.
    fn on_holdout(
        &self,
        watch: &Watch,
        curvatures: &Curvatures,
        context: &RunContext<'_>,
    ) -> Result<f64> {
        let candidates = self.settings.candidates();
        let holdout = context.examples(&context.task.holdout);
        let classes: Vec<usize> =
            holdout.examples.iter().filter_map(|example| example.label.class()).collect();
        let examples = gaussian_logits(watch, curvatures, &context.inputs(&holdout), &candidates)?;
        let mut best = (f64::INFINITY, self.settings.prior_start);
        for (which, &candidate) in candidates.iter().enumerate() {
            let answers = probabilities(&examples, which, &self.settings, context.seed)?;
            let nll = Predictions::new(&answers, holdout.labels, &classes)?.nll();
            if nll <= best.0 {
                best = (nll, candidate);
            }
        }
        Ok(best.1)
    }
}

impl Attach<AutoClassifier> for Laplace {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }
}

impl Regularise<AutoClassifier> for Laplace {}
impl RankPolicy<AutoClassifier> for Laplace {}

impl Predict<AutoClassifier> for Laplace {
    /// Logarithms of probabilities after the fit, before it the logits of the trained weights.
    fn predict(
        &self,
        model: &AutoClassifier,
        inputs: &Inputs<'_>,
        draws: usize,
    ) -> Result<Logits, lrvd_burn::Error> {
        let Some(Fitted { curvatures, prior_precision }) = &self.fitted else {
            return inputs.predict(model, draws);
        };
        let watch = Watch::new(model, self.settings.layers, inputs.examples)?;
        let examples = gaussian_logits(&watch, curvatures, inputs, &[*prior_precision])
            .map_err(train_error)?;
        let answers =
            probabilities(&examples, 0, &self.settings, inputs.seed).map_err(train_error)?;
        // A probability that underflowed has no logarithm.
        let values = answers.into_iter().map(|p| p.max(f64::MIN_POSITIVE).ln()).collect();
        Ok(Logits::new(values, examples.len(), watch.labels()))
    }
}

impl PostHoc for Laplace {
    fn holdout(&self) -> f64 {
        match self.settings.prior {
            PriorChoice::Marginal => 0.0,
            PriorChoice::Validation => self.settings.holdout,
        }
    }

    fn finish(&mut self, model: &mut AutoClassifier, context: &RunContext<'_>) -> Result<()> {
        if context.task.goal.is_regression() {
            return Ok(());
        }
        let examples = self.fitted_to(context);
        let scale = context.task.train.len() as f64 / examples.len().max(1) as f64;
        let train = context.examples(&examples);
        let watch = Watch::new(model, self.settings.layers, &train)?;
        let rows = context.config.evaluation_batch_size;
        let curvatures = Curvatures::of(&watch, &train, rows, &self.settings, scale, SQUARES)?;
        let prior_precision = self.prior_precision(&watch, &curvatures, context)?;
        self.fitted = Some(Fitted { curvatures, prior_precision });
        Ok(())
    }

    /// The curvature of the head is that of the trained answers' rows.
    fn takes_other_answers(&self) -> bool {
        self.fitted.is_none()
    }

    fn fitted(&self) -> BTreeMap<String, f64> {
        let precision = self.fitted.as_ref().map(|fitted| fitted.prior_precision);
        precision.map(|value| ("prior-precision".to_owned(), value)).into_iter().collect()
    }

    fn stored_parameters(&self) -> usize {
        let kept = |fitted: &Fitted| 1 + fitted.curvatures.n_factor_entries();
        self.fitted.as_ref().map_or(0, kept)
    }
}
