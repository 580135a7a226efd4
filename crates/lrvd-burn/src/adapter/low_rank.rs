//! The low-rank update `c·A·B` of one linear layer.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::noise::{NoiseKey, Stream};

use super::posterior::{Posterior, select};
use crate::ops::standard_normal;
use crate::sampling::DrawPer;

/// Standard deviations of the factors, each broadcastable against its factor.
#[derive(Debug)]
pub(super) struct Deviations {
    /// Of A.
    pub(super) a: Tensor<2>,
    /// Of B; `None` if B is not random.
    pub(super) b: Option<Tensor<2>>,
}

/// Factors of a low-rank update, with an optional posterior around them.
///
/// # Formula
///
/// ```text
/// update(x) = scaling · ((x·A) ⊙ E)·B        E = 1 unless the adapter is an AdaLoRA one
/// ```
///
/// # Shapes
///
/// | Name | Shape | In a PEFT file |
/// |---|---|---|
/// | `a` | `[d_input, rank]` | `lora_A`, transposed |
/// | `b` | `[rank, d_output]` | `lora_B`, transposed |
/// | `e` | `[rank]` | `lora_E` |
///
/// # Invariants
///
/// `scaling` belongs to the initial rank and never changes, also not when ranks are pruned.
#[derive(Module, Debug)]
pub struct LowRankAdapter {
    /// Down-projection (posterior mean).
    pub a: Param<Tensor<2>>,
    /// Up-projection (posterior mean).
    pub b: Param<Tensor<2>>,
    /// AdaLoRA's singular values.
    pub e: Option<Param<Tensor<1>>>,
    /// Noise around the means; `None` for plain LoRA and AdaLoRA.
    pub posterior: Option<Posterior>,
    /// The factor `c`.
    pub scaling: f64,
    /// Drop probability of the adapter's input in training.
    pub dropout: f64,
}

impl LowRankAdapter {
    /// Current rank.
    pub fn rank(&self) -> usize {
        self.a.val().dims()[1]
    }

    /// Features in.
    pub fn d_input(&self) -> usize {
        self.a.val().dims()[0]
    }

    /// Features out.
    pub fn d_output(&self) -> usize {
        self.b.val().dims()[1]
    }

    /// What multiplies the rank activations: `[1, rank]` singular values times `c`, or `c` alone.
    pub(super) fn scale_rank<const D: usize>(&self, s: Tensor<D>) -> Tensor<D> {
        let s = s.mul_scalar(self.scaling);
        match &self.e {
            Some(e) => s * e.val().unsqueeze(),
            None => s,
        }
    }

    /// Standard deviations under the posterior, if there is one.
    pub(super) fn deviations(&self) -> Option<Deviations> {
        let (a, b) = self.posterior.as_ref()?.deviations(&self.a.val(), &self.b.val());
        Some(Deviations { a, b })
    }

    /// One weight draw `[1 | n, ...]` of both factors, or their means without `deviations`.
    ///
    /// ```text
    /// A = mean_a + std_a ⊙ eps_a,   B = mean_b + std_b ⊙ eps_b
    /// ```
    ///
    /// The noise is keyed by (seed, step or draw, module, factor, element), so a repeated call
    /// returns the same weights.
    pub(super) fn draw(
        &self,
        deviations: Option<Deviations>,
        per: DrawPer,
        n: usize,
        key: NoiseKey,
    ) -> (Tensor<3>, Tensor<3>) {
        let (a, b) = (self.a.val(), self.b.val());
        let n = match per {
            DrawPer::Sequence => n,
            DrawPer::Batch | DrawPer::Token => 1,
        };
        let Some(std) = deviations else {
            return (a.unsqueeze_dim(0), b.unsqueeze_dim(0));
        };
        let a = drawn(a, Some(std.a), n, key.on_stream(Stream::WEIGHT_A));
        let b = drawn(b, std.b, n, key.on_stream(Stream::WEIGHT_B));
        (a, b)
    }

    /// Keeps the rank directions `kept`, in order; everything else stays as it is.
    #[must_use]
    pub fn select_ranks(self, kept: &[usize]) -> Self {
        Self {
            a: select(self.a, 1, kept),
            b: select(self.b, 0, kept),
            e: self.e.map(|e| select(e, 0, kept)),
            posterior: self.posterior.map(|p| p.select(kept)),
            scaling: self.scaling,
            dropout: self.dropout,
        }
    }
}

fn drawn(mean: Tensor<2>, std: Option<Tensor<2>>, n: usize, key: NoiseKey) -> Tensor<3> {
    let [rows, columns] = mean.dims();
    let Some(std) = std else { return mean.unsqueeze_dim(0) };
    let eps = standard_normal(&mean, [n, rows, columns], key);
    mean.unsqueeze_dim::<3>(0) + eps * std.unsqueeze_dim::<3>(0)
}
