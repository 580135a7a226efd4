//! Gaussian noise added to activations with the moments of the posterior.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
pub(crate) mod launch;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use lrvd_core::family::EPS_VARIANCE;
use lrvd_core::noise::NoiseKey;

use super::backend::LrvdBackend;

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
    check(&mean, &q, &w, &t);
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_rank_two_noise(
        mean.into_dispatch(),
        q.into_dispatch(),
        w.into_dispatch(),
        t.into_dispatch(),
        noise,
    ))
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
    check(&mean, &q, &w, &t);
    Tensor::from_dispatch(composite::forward::<Dispatch>(
        mean.into_dispatch(),
        q.into_dispatch(),
        w.into_dispatch(),
        t.into_dispatch(),
        noise,
    ))
}

fn check(mean: &Tensor<2>, q: &Tensor<1>, w: &Tensor<1>, t: &Tensor<1>) {
    let [n, d] = mean.dims();
    assert_eq!(q.dims(), [n], "shape of `q`");
    assert_eq!(w.dims(), [d], "shape of `w`");
    assert_eq!(t.dims(), [n], "shape of `t`");
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
    assert_eq!(variance.dims(), mean.dims(), "shape of `variance`");
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_gaussian_noise(
        mean.into_dispatch(),
        variance.into_dispatch(),
        noise,
    ))
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
    assert_eq!(variance.dims(), mean.dims(), "shape of `variance`");
    Tensor::from_dispatch(composite::gaussian_forward::<Dispatch>(
        mean.into_dispatch(),
        variance.into_dispatch(),
        noise,
    ))
}
