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
//! Decisions: relative positions that pass through an adapter (`DeBERTa` with shared keys) count as
//! further rows of each example that reaches them. The `DeBERTa` or Llama layer `last` is the adapted
//! one nearest to the output.

mod factors;
mod predictive;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;

use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::train::{Logits, Method};
use lrvd_core::baselines::laplace::Evidence;
use lrvd_core::metrics::Predictions;
use lrvd_models::AutoModel;

use super::setup::lora;
use super::{Fitting, Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::{Config, LaplacePrior as PriorChoice, LaplaceSettings as Settings};
use factors::{Curvatures, SQUARES};
use predictive::{SALT, gaussian_logits, probabilities};
use watch::Watch;

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
    pub(super) fn new(config: &Config, request: RankRequest) -> Result<Self> {
        let (adapter, settings) = (lora(config, request), config.methods.laplace.clone());
        Ok(Self { adapter, settings, fitted: None })
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
                let evidence = Evidence::new(blocks, *squared_norm, *log_likelihood)?;
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
        let examples =
            gaussian_logits(watch, curvatures, &data.inputs(&data.holdout), &candidates)?;
        let mut best = (f64::INFINITY, self.settings.prior_start);
        for (which, &candidate) in candidates.iter().enumerate() {
            let answers = probabilities(&examples, which, &self.settings, data.inputs.seed)?;
            let nll = Predictions::new(&answers, watch.labels(), &classes)?.nll();
            if nll <= best.0 {
                best = (nll, candidate);
            }
        }
        Ok(best.1)
    }
}

impl Method<AutoModel> for Laplace {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    /// Logarithms of probabilities after the fit, before it the logits of the trained weights.
    fn predict(&self, model: &AutoModel, inputs: &Inputs<'_>, draws: usize) -> Burn<Logits> {
        let Some(Fitted { curvatures, prior_precision }) = &self.fitted else {
            return inputs.predict(model, draws);
        };
        let watch = Watch::new(model, self.settings.layers, inputs.examples)?;
        let examples = gaussian_logits(&watch, curvatures, inputs, &[*prior_precision])?;
        let answers = probabilities(&examples, 0, &self.settings, inputs.seed)?;
        // A probability that underflowed has no logarithm.
        let values = answers.into_iter().map(|p| p.max(f64::MIN_POSITIVE).ln()).collect();
        Ok(Logits::new(values, examples.len(), watch.labels()))
    }

    fn finish(&mut self, model: &mut AutoModel, data: &Fitting<'_>) -> Burn<()> {
        if data.is_regression()? {
            return Ok(());
        }
        // The training examples, or as many as the settings say, whichever the seed picks.
        let all = data.train.len();
        let count = self.settings.examples.filter(|&count| count < all);
        let picked = count.map(|count| data.picked(SALT, count));
        let train = picked.as_ref().map_or(data.train, |picked| picked);
        let scale = all as f64 / train.len().max(1) as f64;
        let watch = Watch::new(model, self.settings.layers, &train)?;
        let rows = data.inputs.batch_size;
        let curvatures = Curvatures::of(&watch, train, rows, &self.settings, scale, SQUARES)?;
        let prior_precision = self.prior_precision(&watch, &curvatures, data)?;
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
