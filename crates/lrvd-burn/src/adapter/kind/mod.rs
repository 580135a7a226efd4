//! The kinds of adapter: each file holds what one kind adds to a layer, as a schema of parameters.
//!
//! | File | Method | Beside the two factors |
//! |---|---|---|
//! | `low_rank` | LoRA, AdaLoRA | nothing, or a diagonal between the factors (arXiv:2303.10512) |
//! | `gaussian` | BayesLoRA and its families, Bayes by backprop, BLoB | Gaussian noise around them |
//!
//! Other methods bring an [`UpdateOp`](super::UpdateOp).

mod gaussian;
mod low_rank;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::noise::{LayerNoise, TOKENS};
use super::op::OpExtension;
use crate::sampling::{Pass, Scheme};

pub(crate) use gaussian::posterior_schemas;
pub(super) use gaussian::{FactorNoise, Variances, softplus};
pub use gaussian::{Gaussian, NoiseMap};
pub use low_rank::LowRankAdapter;
pub(super) use low_rank::{A, B, E};

/// Addition of a kind of adapter to the two factors; LoRA has none.
#[derive(Module, Debug)]
pub enum Extension {
    /// A diagonal between the factors, `[rank]`: AdaLoRA.
    SingularValues(Param<Tensor<1>>),
    /// Gaussian noise on A, or on both factors.
    Gaussian(Gaussian),
    /// Update of another method.
    Op(OpExtension),
}

impl LowRankAdapter {
    /// Update as one matrix `[d_input, d_output]`: at the mean, or at one weight draw where the scheme of
    /// `pass` draws weights; `None` of an [`UpdateOp`](super::UpdateOp).
    pub(super) fn dense(&self, pass: &Pass, module: u32) -> Option<Tensor<2>> {
        if matches!(self.extension, Some(Extension::Op(_))) {
            return None;
        }
        let noise = LayerNoise {
            pass: *pass,
            module,
            scheme: Scheme::PerBatch,
            sequences: 1,
            use_index: TOKENS,
        };
        let (a, b) = match pass.scheme.draws_weights().then(|| self.deviations()).flatten() {
            Some(std) => self.draw(std, &noise),
            None => self.means(),
        };
        Some(self.scale_rank(a.squeeze_dim::<2>(0)).matmul(b.squeeze_dim(0)))
    }
}
