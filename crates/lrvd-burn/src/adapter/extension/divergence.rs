//! What the noise of an extension costs under a prior, as tensors that carry gradients.

use burn::tensor::Tensor;
use lrvd_core::baselines::{ElementReduction, KlDirection, ScaleMixture};

use super::Extension;
use crate::adapter::linear::AdaptedLinear;
use crate::sampling::Pass;

impl AdaptedLinear {
    /// `KL(q ‖ p)` of independent entries from `N(0, prior_std²)` in nats, `[1]`; `None` without
    /// [`Extension::Gaussian`].
    ///
    /// # Formula
    ///
    /// ```text
    /// Σ ln(prior/σ) + (σ² + mean²)/(2·prior²) − ½        over the entries of the random factors
    /// ```
    ///
    /// [`ElementReduction::Mean`] takes the mean over each factor instead. A factor without noise
    /// gets no gradient: BLoB's B.
    ///
    /// # Numerics
    ///
    /// Summed in double precision where the device can, returned in the factors' precision.
    ///
    /// # References
    ///
    /// The definition: `lrvd_core::baselines::ElementGaussian::kl`. With noise on A alone this is the
    /// divergence of the whole weight under a prior of covariance `prior²·c²·[I ⊗ BBᵀ]`: Wang et al.
    /// 2024, arXiv:2406.11675.
    pub fn kl_elements(&self, prior_std: f64, reduction: ElementReduction) -> Option<Tensor<1>> {
        match (&self.extension, &self.adapter) {
            (Some(Extension::Gaussian(e)), Some(adapter)) => {
                Some(e.kl(adapter, prior_std, reduction))
            }
            _ => None,
        }
    }

    /// Estimate of `KL(q ‖ p)` from a scale mixture by the draw of `pass`, `[1]`; `None` without
    /// [`Extension::Gaussian`].
    ///
    /// # Formula
    ///
    /// ```text
    /// Σ ln q(w) − ln p(w),     w = mean + σ ⊙ eps
    /// ```
    ///
    /// `eps` is the noise that a forward under `pass` draws: for a draw per batch and flipout that
    /// of the batch, for a draw per sequence that of the first sequence. Its expectation is the
    /// divergence; a single value may be negative.
    ///
    /// # References
    ///
    /// The definition: `lrvd_core::baselines::ElementGaussian::sampled_kl`. Blundell et al. 2015,
    /// arXiv:1505.05424.
    pub fn kl_mixture(
        &self,
        pass: &Pass,
        prior: &ScaleMixture,
        reduction: ElementReduction,
    ) -> Option<Tensor<1>> {
        match (&self.extension, &self.adapter) {
            (Some(Extension::Gaussian(e)), Some(adapter)) => {
                let key = pass.noise.for_module(self.noise_id());
                Some(e.sampled_kl(adapter, prior, reduction, key))
            }
            _ => None,
        }
    }

    /// Divergence between the law of random scales and `N(0, 1)` in nats, `[1]`; `None` without
    /// [`Extension::Scale`].
    ///
    /// # Formula
    ///
    /// With `m = exp(log_mean)`, `v = exp(2·log_std)`:
    ///
    /// ```text
    /// posterior from prior:  Σ −log_std + ½(v + m²) − ½
    /// prior from posterior:  Σ  log_std + (1 + m²)/(2v) − ½
    /// ```
    ///
    /// # References
    ///
    /// The definition: `lrvd_core::baselines::scala_bl_kl`.
    pub fn kl_scale(&self, direction: KlDirection) -> Option<Tensor<1>> {
        match &self.extension {
            Some(Extension::Scale(e)) => Some(e.kl(direction)),
            _ => None,
        }
    }
}
