//! A factorised Gaussian over the entries of the factors: Bayes by backprop, BLoB, training-free
//! noise.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use lrvd_core::baselines::{ElementReduction, ScaleMixture, StdMap};
use lrvd_core::noise::Stream;

use super::Extension;
use crate::adapter::divergence::widened;
use crate::adapter::linear::AdaptedLinear;
use crate::adapter::schema::{Axis, ParameterSchema, Visit};
use crate::ops::standard_normal;
use crate::sampling::Pass;

const RHO_A: ParameterSchema = ParameterSchema::noise("lora_A_rho", &[Axis::Input, Axis::Rank], 2);
const RHO_B: ParameterSchema = ParameterSchema::noise("lora_B_rho", &[Axis::Rank, Axis::Output], 3);
const G_A: ParameterSchema = ParameterSchema::noise("lora_A_G", &[Axis::Input, Axis::Rank], 2);
const G_B: ParameterSchema = ParameterSchema::noise("lora_B_G", &[Axis::Rank, Axis::Output], 3);

/// Above this, softplus is the identity in double precision.
const SOFTPLUS_LINEAR: f64 = 40.0;

/// One standard deviation per entry of A, and of B if B is random too; the means are the factors.
///
/// # Formula
///
/// ```text
/// A = mean_a + σ(a) ⊙ eps_a,   B = mean_b + σ(b) ⊙ eps_b        σ: softplus or square
/// ```
///
/// # References
///
/// The definition: `lrvd_core::baselines::bayes_by_backprop`.
#[derive(Module, Debug)]
pub struct ElementGaussian {
    /// Unconstrained parameter of A's standard deviations, `[d_input, rank]`; in a checkpoint, transposed, `lora_A_rho`
    /// (softplus) or `lora_A_G` (square).
    pub a: Param<Tensor<2>>,
    /// The same of B, `[rank, d_output]`; `None` if B is not random.
    pub b: Option<Param<Tensor<2>>>,
    /// How parameters become standard deviations.
    #[module(skip)]
    pub map: StdMap,
}

impl ElementGaussian {
    /// Noise from parameters of the factors' shapes; they train if they ask for gradients.
    pub fn new(map: StdMap, a: Param<Tensor<2>>, b: Option<Param<Tensor<2>>>) -> Self {
        Self { a, b, map }
    }

    /// Standard deviations of A `[d_input, rank]` and of B `[rank, d_output]`.
    pub fn deviations(&self) -> (Tensor<2>, Option<Tensor<2>>) {
        let std = |p: &Param<Tensor<2>>| standard_deviation(self.map, p.val());
        (std(&self.a), self.b.as_ref().map(std))
    }

    pub(super) fn each(&mut self, visit: &mut Visit<'_>) {
        let [of_a, of_b] = schemas(self.map);
        visit(of_a, &mut self.a);
        if let Some(b) = &mut self.b {
            visit(of_b, b);
        }
    }
}

/// The parameters of A and of B.
pub(super) fn schemas(map: StdMap) -> &'static [&'static ParameterSchema; 2] {
    match map {
        StdMap::Softplus => &[&RHO_A, &RHO_B],
        StdMap::Square => &[&G_A, &G_B],
    }
}

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
    /// Blundell et al. 2015, arXiv:1505.05424. With noise on A alone this is the
    /// divergence of the whole weight under a prior of covariance `prior²·c²·[I ⊗ BBᵀ]`: Wang et al.
    /// 2024, arXiv:2406.11675.
    pub fn kl_elements(&self, prior_std: f64, reduction: ElementReduction) -> Option<Tensor<1>> {
        let precision = (prior_std * prior_std).recip();
        self.over_random_entries(reduction, |mean, std, _| {
            let second = widened(mean).square() + std.clone().square();
            let terms = second.mul_scalar(0.5 * precision) - std.log();
            terms.add_scalar(prior_std.ln() - 0.5)
        })
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
    /// Blundell et al. 2015, arXiv:1505.05424.
    pub fn kl_mixture(
        &self,
        pass: &Pass,
        prior: &ScaleMixture,
        reduction: ElementReduction,
    ) -> Option<Tensor<1>> {
        let key = pass.noise.for_module(self.noise_id());
        let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
        self.over_random_entries(reduction, |mean, std, stream| {
            let eps = widened(standard_normal(&mean, mean.dims(), key.on_stream(stream)));
            let log_q = eps.clone().square().mul_scalar(-0.5) - std.clone().log();
            let weights = widened(mean) + std * eps;
            log_q.add_scalar(-half_log_tau) - log_density(weights, prior)
        })
    }

    /// Sum of the reduced `terms` of mean, widened standard deviation and noise stream of every random factor, in the
    /// factors' precision.
    fn over_random_entries(
        &self,
        reduction: ElementReduction,
        terms: impl Fn(Tensor<2>, Tensor<2>, u32) -> Tensor<2>,
    ) -> Option<Tensor<1>> {
        let adapter = self.low_rank()?;
        let Some(Extension::Gaussian(noise)) = &adapter.extension else { return None };
        let sum = |mean: Tensor<2>, rho: &Param<Tensor<2>>, stream| {
            let weight = reduction.weight(mean.shape().num_elements());
            let std = standard_deviation(noise.map, widened(rho.val()));
            terms(mean, std, stream).sum().mul_scalar(weight)
        };
        let a = adapter.a.val();
        let (dtype, of_a) = (a.dtype(), sum(a, &noise.a, Stream::WEIGHT_A));
        let total = match &noise.b {
            Some(b) => of_a + sum(adapter.b.val(), b, Stream::WEIGHT_B),
            None => of_a,
        };
        Some(total.cast(dtype))
    }
}

/// `σ(rho)`; the formulas are those of [`StdMap`].
fn standard_deviation<const D: usize>(map: StdMap, rho: Tensor<D>) -> Tensor<D> {
    match map {
        StdMap::Softplus => softplus(rho),
        StdMap::Square => rho.square(),
    }
}

fn softplus<const D: usize>(t: Tensor<D>) -> Tensor<D> {
    activation::softplus_with_threshold(t, 1.0, SOFTPLUS_LINEAR)
}

/// `ln p(w)` of every entry under [`ScaleMixture`].
fn log_density(w: Tensor<2>, prior: &ScaleMixture) -> Tensor<2> {
    let squares = w.square();
    let share = |probability: f64, std: f64| {
        let constant = probability.ln() - std.ln() - 0.5 * std::f64::consts::TAU.ln();
        squares.clone().mul_scalar(-0.5 / (std * std)).add_scalar(constant)
    };
    let [weight, first, second] = prior.parts();
    // A component of probability 0 has no logarithm.
    if weight == 1.0 {
        return share(1.0, first);
    }
    if weight == 0.0 {
        return share(1.0, second);
    }
    let (first, second) = (share(weight, first), share(1.0 - weight, second));
    second.clone() + softplus(first - second)
}
