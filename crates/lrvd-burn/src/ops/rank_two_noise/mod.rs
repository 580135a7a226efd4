//! Gaussian noise added to activations with the moments of the posterior.

#[cfg(feature = "flex")]
pub(super) mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::Tensor;
use lrvd_core::family::EPS_VARIANCE;
use lrvd_core::noise::NoiseKey;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::standard_normal::StandardNormal;
use super::value::Value;

/// Added to a variance before its root, so that the root has a slope at 0: ε of `docs/math/notation.md`.
pub const VARIANCE_EPSILON: f64 = EPS_VARIANCE;

/// Where a noise comes from and what multiplies it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The stream of the standard-normal numbers.
    pub key: NoiseKey,
    /// The factor `c`.
    pub scale: f64,
}

/// `mean` plus Gaussian noise whose variance has rank two across tokens and channels.
///
/// # Formula
///
/// ```text
/// out[n,k] = mean[n,k] + c · E[n,k] · sqrt(max(V[n,k], 0) + 1e-8),   V[n,k] = q[n]·w[k] + t[n]
/// ```
///
/// `E` is element `n·d + k` of the standard-normal stream of the noise's key, a constant for gradients.
/// With `G` the gradient of `out` and `Γ = c · G ⊙ E / (2 sqrt(V + 1e-8))`, 0 where `V < 0`:
///
/// ```text
/// dmean = G,   dq = Γ w,   dw = Γᵀ q,   dt = Γ 1
/// ```
///
/// # Shapes
///
/// | Name              | Shape    | Meaning for the tied additive family, `docs/math/moments.md` |
/// |-------------------|----------|---------------------------------------------------------------|
/// | `mean`, *returns* | `[n, d]` | activations                                                |
/// | `q`               | `[n]`    | squared norm of each input                                 |
/// | `w`               | `[d]`    | `Σ_i var_i B[k,i]²`, plus the cross term if it is used |
/// | `t`               | `[n]`    | `Σ_i var_i S[n,i]²`                                        |
///
/// # Numerics
///
/// The noise is recomputed in the backward pass: saved are `q`, `w`, `t` and the key of the noise. Sums over rows
/// are taken in chunks that depend on the shape alone.
///
/// # Panics
///
/// If the shapes are not those of the table.
pub fn add_rank_two_noise(
    mean: Tensor<2>,
    q: Tensor<1>,
    w: Tensor<1>,
    t: Tensor<1>,
    noise: Noise,
) -> Tensor<2> {
    op::fused(RankTwoNoise(noise), rank_two_operands(mean, [q, w, t]))
}

/// [`add_rank_two_noise`] from Burn's operations and noise made on the host.
///
/// # Panics
///
/// As [`add_rank_two_noise`].
pub fn add_rank_two_noise_composite(
    mean: Tensor<2>,
    q: Tensor<1>,
    w: Tensor<1>,
    t: Tensor<1>,
    noise: Noise,
) -> Tensor<2> {
    op::composite(RankTwoNoise(noise), rank_two_operands(mean, [q, w, t]))
}

fn rank_two_operands(mean: Tensor<2>, [q, w, t]: [Tensor<1>; 3]) -> Operands<Dispatch> {
    let [n, d] = mean.dims();
    assert_eq!(q.dims(), [n], "shape of `q`");
    assert_eq!(w.dims(), [d], "shape of `w`");
    assert_eq!(t.dims(), [n], "shape of `t`");
    let [q, w, t] = [q, w, t].map(Tensor::into_dispatch);
    Operands::of([mean.into_dispatch(), q, w, t])
}

/// `mean` plus Gaussian noise of the given variance.
///
/// # Formula
///
/// ```text
/// out = mean + c · E ⊙ sqrt(max(variance, 0) + 1e-8)
/// dmean = G,   dvariance = c · G ⊙ E / (2 sqrt(variance + 1e-8)),  0 where variance < 0
/// ```
///
/// `E` as in [`add_rank_two_noise`]; all tensors are `[n, d]`. Saved for the backward pass: `variance`.
///
/// # Panics
///
/// If the shapes differ.
pub fn add_gaussian_noise(mean: Tensor<2>, variance: Tensor<2>, noise: Noise) -> Tensor<2> {
    op::fused(GaussianNoise(noise), gaussian_operands(mean, variance))
}

/// [`add_gaussian_noise`] from Burn's operations and noise made on the host.
///
/// # Panics
///
/// As [`add_gaussian_noise`].
pub fn add_gaussian_noise_composite(
    mean: Tensor<2>,
    variance: Tensor<2>,
    noise: Noise,
) -> Tensor<2> {
    op::composite(GaussianNoise(noise), gaussian_operands(mean, variance))
}

fn gaussian_operands(mean: Tensor<2>, variance: Tensor<2>) -> Operands<Dispatch> {
    assert_eq!(variance.dims(), mean.dims(), "shape of `variance`");
    Operands::of([mean, variance].map(Tensor::into_dispatch))
}

#[derive(Clone, Debug)]
pub(super) struct RankTwoNoise(pub(super) Noise);

impl FusedOp for RankTwoNoise {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [mean, q, w, t] = x.all();
        if mean.shape().num_elements() == 0 {
            return mean;
        }
        let [q, w, t] = [q, w, t].map(Value::<B>);
        let (n, d) = (q.shape()[0], w.shape()[0]);
        let variance = q.reshape([n, 1]) * w.reshape([1, d]) + t.reshape([n, 1]);
        GaussianNoise(self.0).composite(Operands::<B>::of([mean, variance.0]))
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{rank_two, rank_two_gradient})
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(op::Form { forward: cube::rank_two, gradient: Some(cube::rank_two_gradient) })
    }
}

#[derive(Clone, Debug)]
struct GaussianNoise(Noise);

impl FusedOp for GaussianNoise {
    /// The root's own floor holds where ε is below the format's numbers.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [mean, variance] = x.all();
        if mean.shape().num_elements() == 0 {
            return mean;
        }
        let normal = StandardNormal { shape: mean.shape(), key: self.0.key };
        let normal = normal.composite(Operands::<B>::of([mean.clone()]));
        let variance = Value::<B>(variance).at_least(0.0) + VARIANCE_EPSILON;
        let std = variance.sqrt().at_least(VARIANCE_EPSILON.sqrt());
        (Value(mean) + Value(normal) * self.0.scale * std).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{gaussian, gaussian_gradient})
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(op::Form { forward: cube::gaussian, gradient: Some(cube::gaussian_gradient) })
    }
}
