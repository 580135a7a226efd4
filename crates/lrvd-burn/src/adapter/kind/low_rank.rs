//! LoRA: the low-rank update `c·A·B` of one linear layer.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::noise::Stream;
use lrvd_core::{Factors, Posterior};

use super::{Extension, Gaussian};
use crate::adapter::noise::{Deviations, LayerNoise};
use crate::adapter::op::OpExtension;
use crate::adapter::schema::{Axis, ParameterSchema, Visit};
use crate::parameters::values;

pub(in crate::adapter) const A: ParameterSchema =
    ParameterSchema::mean("lora_A", &[Axis::Input, Axis::Rank], 0);
pub(in crate::adapter) const B: ParameterSchema =
    ParameterSchema::mean("lora_B", &[Axis::Rank, Axis::Output], 1);
/// AdaLoRA's singular values.
pub(in crate::adapter) const E: ParameterSchema = ParameterSchema::mean("lora_E", &[Axis::Rank], 0);

/// Factors of a low-rank update, with the extension of a kind.
///
/// # Formula
///
/// ```text
/// update(x) = scaling · ((x·A) ⊙ E)·B        E = 1 unless the adapter is an AdaLoRA one
/// ```
#[derive(Module, Debug)]
pub struct LowRankAdapter {
    /// Down-projection (posterior mean), `[d_input, rank]`; `lora_A` in a PEFT file, transposed.
    pub a: Param<Tensor<2>>,
    /// Up-projection (posterior mean), `[rank, d_output]`; `lora_B`, transposed.
    pub b: Param<Tensor<2>>,
    /// Noise or singular values; `None` for plain LoRA.
    pub extension: Option<Extension>,
    /// The factor `c`, which belongs to the initial rank and never changes, also not when ranks are pruned.
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

    /// The posterior of `BayesLoRA` whose means the factors are, if there is one.
    pub fn posterior(&self) -> Option<&Gaussian> {
        self.gaussian().filter(|noise| noise.family().is_some())
    }

    /// Gaussian noise on the factors, if there is any.
    pub(in crate::adapter) fn gaussian(&self) -> Option<&Gaussian> {
        match &self.extension {
            Some(Extension::Gaussian(noise)) => Some(noise),
            _ => None,
        }
    }

    /// The factors on the host, in f64 and in the orientation of files.
    pub fn host_factors(&self) -> Factors {
        let adapter = self.valid();
        Factors {
            rank: self.rank(),
            d_input: self.d_input(),
            d_output: self.d_output(),
            a: values(adapter.a.val().transpose()),
            b: values(adapter.b.val().transpose()),
        }
    }

    /// The posterior on the host, if there is one.
    pub fn host_posterior(&self) -> Result<Option<Posterior>, lrvd_core::Error> {
        let noise = self.valid().posterior().and_then(Gaussian::host);
        noise.map(|noise| Posterior::new(self.host_factors(), noise)).transpose()
    }

    /// Update of another method, if there is one.
    pub(in crate::adapter) fn op(&self) -> Option<&OpExtension> {
        match &self.extension {
            Some(Extension::Op(op)) => Some(op),
            _ => None,
        }
    }

    /// Takes the posterior off and leaves its mean; other extensions stay.
    pub fn take_posterior(&mut self) {
        if self.posterior().is_some() {
            self.extension = None;
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

    /// Rank activations times `c`, and times the singular values if there are any.
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

    /// Standard deviations of the factors, if they are random; only for a pass that draws.
    ///
    /// They are part of the graph. Where the loss does not reach them, Burn keeps them as long as the parameter
    /// lives, and visits all of them after every backward pass: a step would cost more with every step.
    pub(in crate::adapter) fn deviations(&self) -> Option<Deviations> {
        Some(self.gaussian()?.deviations(&self.a.val(), &self.b.val()))
    }

    /// Weight draws `[draws, ...]` of both factors; one that is not random is its mean, `[1, ...]`, or
    /// repeated where a batch holds several draws.
    ///
    /// ```text
    /// A = mean_a + std_a ⊙ eps_a,   B = mean_b + std_b ⊙ eps_b
    /// ```
    pub(in crate::adapter) fn draw(
        &self,
        (std_a, std_b): Deviations,
        noise: &LayerNoise,
    ) -> (Tensor<3>, Tensor<3>) {
        let a = noise.drawn(&self.a.val(), &std_a, Stream::WEIGHT_A);
        let b = match (std_b, noise.pass.draws) {
            (Some(std), _) => noise.drawn(&self.b.val(), &std, Stream::WEIGHT_B),
            (None, 1) => self.b.val().unsqueeze_dim(0),
            (None, count) => self.b.val().unsqueeze_dim::<3>(0).repeat_dim(0, count),
        };
        (a, b)
    }

    /// Keeps the rank directions `kept`, in order; everything else stays as it is.
    #[must_use]
    pub fn select_ranks(mut self, kept: &[usize]) -> Self {
        self.each(&mut |schema, value| schema.cut(value, kept));
        self
    }

    /// Calls `visit` for every parameter, always in the same order.
    pub(crate) fn each(&mut self, visit: &mut Visit<'_>) {
        visit(&A, &mut self.a);
        visit(&B, &mut self.b);
        match &mut self.extension {
            Some(Extension::SingularValues(e)) => visit(&E, e),
            Some(Extension::Gaussian(e)) => e.each(visit),
            Some(Extension::Op(e)) => e.each(visit),
            None => {}
        }
    }
}
