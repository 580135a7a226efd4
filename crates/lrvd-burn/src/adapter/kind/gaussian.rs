//! A factorised Gaussian over the entries of the factors: Bayes by backprop, BLoB, training-free
//! noise.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use lrvd_core::baselines::{ElementReduction, ScaleMixture, StdMap, blob};
use lrvd_core::noise::{NoiseKey, Stream};

use super::Extension;
use super::low_rank::{Deviations, LowRankAdapter};
use crate::adapter::initialisation::Initialiser;
use crate::adapter::linear::AdaptedLinear;
use crate::adapter::schema::{Axis, ParameterSchema, Parameters};
use crate::adapter::wide::widened;
use crate::ops::standard_normal;
use crate::parameters::{Group, ParameterValue};
use crate::sampling::Pass;

const fn noise(name: &'static str, axes: &'static [Axis], initial_use: u32) -> ParameterSchema {
    let (group, transposed) = (Group::LogVariance, true);
    ParameterSchema { name, group, transposed, axes, initial_use }
}

const RHO_A: ParameterSchema = noise("lora_A_rho", &[Axis::Input, Axis::Rank], 2);
const RHO_B: ParameterSchema = noise("lora_B_rho", &[Axis::Rank, Axis::Output], 3);
const G_A: ParameterSchema = noise("lora_A_G", &[Axis::Input, Axis::Rank], 2);
const G_B: ParameterSchema = noise("lora_B_G", &[Axis::Rank, Axis::Output], 3);

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
/// # Shapes
///
/// | Name | Shape | In a checkpoint |
/// |---|---|---|
/// | `a` | `[d_input, rank]` | `lora_A_rho` (softplus), `lora_A_G` (square), transposed |
/// | `b` | `[rank, d_output]` | `lora_B_rho`, `lora_B_G`, transposed |
///
/// # References
///
/// The definition: `lrvd_core::baselines::bayes_by_backprop`.
#[derive(Module, Debug)]
pub struct ElementGaussian {
    /// Unconstrained parameter of A's standard deviations.
    pub a: Param<Tensor<2>>,
    /// The same of B; `None` if B is not random.
    pub b: Option<Param<Tensor<2>>>,
    #[module(skip)]
    map: StdMap,
}

impl ElementGaussian {
    /// Noise from parameters of the factors' shapes; they train if they ask for gradients.
    pub fn new(map: StdMap, a: Param<Tensor<2>>, b: Option<Param<Tensor<2>>>) -> Self {
        Self { a, b, map }
    }

    /// How parameters become standard deviations.
    pub fn std_map(&self) -> StdMap {
        self.map
    }

    /// Standard deviations of A `[d_input, rank]` and of B `[rank, d_output]`.
    pub fn deviations(&self) -> (Tensor<2>, Option<Tensor<2>>) {
        let std = |p: &Param<Tensor<2>>| standard_deviation(self.map, p.val());
        (std(&self.a), self.b.as_ref().map(std))
    }

    pub(in crate::adapter) fn factor_deviations(&self) -> Deviations {
        let (a, b) = self.deviations();
        Deviations { a, b }
    }

    /// Mean, parameter and noise stream of every random factor.
    fn factors(&self, adapter: &LowRankAdapter) -> Vec<(Tensor<2>, Tensor<2>, u32)> {
        let mut factors = vec![(adapter.a.val(), self.a.val(), Stream::WEIGHT_A)];
        if let Some(b) = &self.b {
            factors.push((adapter.b.val(), b.val(), Stream::WEIGHT_B));
        }
        factors
    }

    /// See [`AdaptedLinear::kl_elements`](crate::adapter::AdaptedLinear::kl_elements).
    fn kl(
        &self,
        adapter: &LowRankAdapter,
        prior_std: f64,
        reduction: ElementReduction,
    ) -> Tensor<1> {
        let precision = (prior_std * prior_std).recip();
        self.over_factors(adapter, reduction, |mean, rho, _| {
            let std = standard_deviation(self.map, widened(rho));
            let second = widened(mean).square() + std.clone().square();
            let terms = second.mul_scalar(0.5 * precision) - std.log();
            terms.add_scalar(prior_std.ln() - 0.5)
        })
    }

    /// See [`AdaptedLinear::kl_mixture`](crate::adapter::AdaptedLinear::kl_mixture).
    fn sampled_kl(
        &self,
        adapter: &LowRankAdapter,
        prior: &ScaleMixture,
        reduction: ElementReduction,
        key: NoiseKey,
    ) -> Tensor<1> {
        let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
        self.over_factors(adapter, reduction, |mean, rho, stream| {
            let eps = widened(standard_normal(&mean, mean.dims(), key.on_stream(stream)));
            let std = standard_deviation(self.map, widened(rho));
            let log_q = eps.clone().square().mul_scalar(-0.5) - std.clone().log();
            let weights = widened(mean) + std * eps;
            log_q.add_scalar(-half_log_tau) - log_density(weights, prior)
        })
    }

    /// Sum over the random factors of the reduced `terms`, in the factors' precision.
    fn over_factors(
        &self,
        adapter: &LowRankAdapter,
        reduction: ElementReduction,
        terms: impl Fn(Tensor<2>, Tensor<2>, u32) -> Tensor<2>,
    ) -> Tensor<1> {
        let dtype = adapter.a.val().dtype();
        let sums = self.factors(adapter).into_iter().map(|(mean, rho, stream)| {
            let weight = reduction.weight(mean.shape().num_elements());
            terms(mean, rho, stream).sum().mul_scalar(weight)
        });
        let total = sums.reduce(|a, b| a + b);
        total.unwrap_or_else(|| adapter.a.val().zeros_like().sum()).cast(dtype)
    }

    /// Softplus noise whose parameters are `N(rho, rho_std²)`, on both factors or on A alone.
    pub(super) fn fresh_softplus(init: &Initialiser, both: bool, rho: f64, rho_std: f64) -> Self {
        let [of_a, of_b] = schemas(StdMap::Softplus);
        let b = both.then(|| init.normal(of_b, rho, rho_std));
        Self::new(StdMap::Softplus, init.normal(of_a, rho, rho_std), b)
    }

    /// Squared noise on A whose parameters are `U(epsilon/√2, epsilon)`.
    pub(super) fn fresh_square(init: &Initialiser, epsilon: f64) -> Self {
        let [of_a, _] = schemas(StdMap::Square);
        Self::new(StdMap::Square, init.mapped(of_a, |u| blob::initial_rho(u, epsilon)), None)
    }
}

/// The parameters of A and of B.
pub(super) fn schemas(map: StdMap) -> &'static [&'static ParameterSchema; 2] {
    match map {
        StdMap::Softplus => &[&RHO_A, &RHO_B],
        StdMap::Square => &[&G_A, &G_B],
    }
}

impl Parameters for ElementGaussian {
    fn each(&self, visit: &mut dyn FnMut(&'static ParameterSchema, &dyn ParameterValue)) {
        let [of_a, of_b] = schemas(self.map);
        visit(of_a, &self.a);
        if let Some(b) = &self.b {
            visit(of_b, b);
        }
    }

    fn each_mut(
        &mut self,
        visit: &mut dyn FnMut(&'static ParameterSchema, &mut dyn ParameterValue),
    ) {
        let [of_a, of_b] = schemas(self.map);
        visit(of_a, &mut self.a);
        if let Some(b) = &mut self.b {
            visit(of_b, b);
        }
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
    /// The definition: `lrvd_core::baselines::bayes_by_backprop::element_kl`. With noise on A alone this is the
    /// divergence of the whole weight under a prior of covariance `prior²·c²·[I ⊗ BBᵀ]`: Wang et al.
    /// 2024, arXiv:2406.11675.
    pub fn kl_elements(&self, prior_std: f64, reduction: ElementReduction) -> Option<Tensor<1>> {
        let (adapter, noise) = gaussian_of(self)?;
        Some(noise.kl(adapter, prior_std, reduction))
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
    /// The definition: `lrvd_core::baselines::bayes_by_backprop::sampled_element_kl`. Blundell et al. 2015,
    /// arXiv:1505.05424.
    pub fn kl_mixture(
        &self,
        pass: &Pass,
        prior: &ScaleMixture,
        reduction: ElementReduction,
    ) -> Option<Tensor<1>> {
        let (adapter, noise) = gaussian_of(self)?;
        let key = pass.noise.for_module(self.noise_id());
        Some(noise.sampled_kl(adapter, prior, reduction, key))
    }
}

fn gaussian_of(layer: &AdaptedLinear) -> Option<(&LowRankAdapter, &ElementGaussian)> {
    let adapter = layer.low_rank()?;
    match &adapter.extension {
        Some(Extension::Gaussian(noise)) => Some((adapter, noise)),
        _ => None,
    }
}

/// `σ(rho)`; the definition is [`StdMap::value`].
fn standard_deviation<const D: usize>(map: StdMap, rho: Tensor<D>) -> Tensor<D> {
    match map {
        StdMap::Softplus => softplus(rho),
        StdMap::Square => rho.square(),
    }
}

fn softplus<const D: usize>(t: Tensor<D>) -> Tensor<D> {
    activation::softplus_with_threshold(t, 1.0, SOFTPLUS_LINEAR)
}

/// `ln p(w)` of every entry; the definition is [`ScaleMixture::log_density`].
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
