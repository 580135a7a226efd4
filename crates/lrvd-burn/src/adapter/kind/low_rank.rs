//! LoRA: the low-rank update `c·A·B` of one linear layer.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::family::INITIAL_B_BOUND;
use lrvd_core::noise::Stream;

use super::Extension;
use super::posterior::Posterior;
use crate::adapter::layer_noise::LayerNoise;
use crate::adapter::schema::{Axis, ParameterSchema, Parameters};
use crate::parameters::{Group, ParameterValue};

/// The factor A.
pub(super) const A: ParameterSchema = ParameterSchema {
    name: "lora_A",
    group: Group::AdapterMean,
    transposed: true,
    axes: &[Axis::Input, Axis::Rank],
    initial_use: 0,
};

/// The factor B.
pub(super) const B: ParameterSchema = ParameterSchema {
    name: "lora_B",
    group: Group::AdapterMean,
    transposed: true,
    axes: &[Axis::Rank, Axis::Output],
    initial_use: 1,
};

/// Half-width of the uniform initial values of B under a posterior: zero would put the noise-to-signal
/// ratio of every entry at its floor.
pub(super) const POSTERIOR_B_BOUND: f64 = INITIAL_B_BOUND;

/// Standard deviations of the factors, each broadcastable against its factor.
#[derive(Debug)]
pub(in crate::adapter) struct Deviations {
    /// Of A.
    pub(in crate::adapter) a: Tensor<2>,
    /// Of B; `None` if B is not random.
    pub(in crate::adapter) b: Option<Tensor<2>>,
}

/// Factors of a low-rank update, and what a kind adds to them.
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
    /// What stands between or around the factors; `None` for plain LoRA.
    pub extension: Option<Extension>,
    /// The factor `c`.
    pub scaling: f64,
    /// Drop probability of the adapter's input in training.
    pub dropout: f64,
}

impl LowRankAdapter {
    /// Plain factors, without dropout; they train if they ask for gradients.
    pub fn new(a: Param<Tensor<2>>, b: Param<Tensor<2>>, scaling: f64) -> Self {
        Self { a, b, extension: None, scaling, dropout: 0.0 }
    }

    /// AdaLoRA's singular values, if there are any.
    pub fn singular_values(&self) -> Option<&Param<Tensor<1>>> {
        match &self.extension {
            Some(Extension::SingularValues(e)) => Some(e),
            _ => None,
        }
    }

    /// The same, mutably.
    pub fn singular_values_mut(&mut self) -> Option<&mut Param<Tensor<1>>> {
        match &mut self.extension {
            Some(Extension::SingularValues(e)) => Some(e),
            _ => None,
        }
    }

    /// The posterior whose means the factors are, if there is one.
    pub fn posterior(&self) -> Option<&Posterior> {
        match &self.extension {
            Some(Extension::Posterior(posterior)) => Some(posterior),
            _ => None,
        }
    }

    /// Takes the posterior off and leaves its mean; other extensions stay.
    pub fn take_posterior(&mut self) -> Option<Posterior> {
        match self.extension.take() {
            Some(Extension::Posterior(posterior)) => Some(posterior),
            other => {
                self.extension = other;
                None
            }
        }
    }

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
    pub(in crate::adapter) fn scale_rank<const D: usize>(&self, s: Tensor<D>) -> Tensor<D> {
        let s = s.mul_scalar(self.scaling);
        match self.singular_values() {
            Some(e) => s * e.val().unsqueeze(),
            None => s,
        }
    }

    /// The means of both factors, `[1, ...]`.
    pub(in crate::adapter) fn means(&self) -> (Tensor<3>, Tensor<3>) {
        (self.a.val().unsqueeze_dim(0), self.b.val().unsqueeze_dim(0))
    }

    /// Weight draws `[draws, ...]` of both factors; one that is not random is its mean, `[1, ...]`, or
    /// repeated where a batch holds several draws.
    ///
    /// ```text
    /// A = mean_a + std_a ⊙ eps_a,   B = mean_b + std_b ⊙ eps_b
    /// ```
    ///
    /// The noise is keyed by (seed, step or draw, module, factor, element), so a repeated call
    /// returns the same weights.
    pub(in crate::adapter) fn draw(
        &self,
        std: Deviations,
        noise: &LayerNoise<'_>,
    ) -> (Tensor<3>, Tensor<3>) {
        let drawn = |mean: Tensor<2>, std: Option<Tensor<2>>, stream| match std {
            Some(std) => noise.drawn(&mean, &std, stream),
            None => noise.for_sets(mean.unsqueeze_dim(0)),
        };
        let a = drawn(self.a.val(), Some(std.a), Stream::WEIGHT_A);
        (a, drawn(self.b.val(), std.b, Stream::WEIGHT_B))
    }

    /// Keeps the rank directions `kept`, in order; everything else stays as it is.
    #[must_use]
    pub fn select_ranks(mut self, kept: &[usize]) -> Self {
        Parameters::select_ranks(&mut self, kept);
        self
    }
}

impl Parameters for LowRankAdapter {
    fn each(&self, visit: &mut dyn FnMut(&'static ParameterSchema, &dyn ParameterValue)) {
        visit(&A, &self.a);
        visit(&B, &self.b);
        if let Some(extension) = &self.extension {
            extension.each(visit);
        }
    }

    fn each_mut(
        &mut self,
        visit: &mut dyn FnMut(&'static ParameterSchema, &mut dyn ParameterValue),
    ) {
        visit(&A, &mut self.a);
        visit(&B, &mut self.b);
        if let Some(extension) = &mut self.extension {
            extension.each_mut(visit);
        }
    }
}
