//! LoRA-Ensemble: several adapters on one layer, in one product.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::low_rank::LowRankAdapter;
use crate::adapter::schema::{Axis, ParameterSchema};

pub(super) const A: ParameterSchema =
    ParameterSchema::mean("lora_A_members", &[Axis::Members, Axis::Input, Axis::Rank], 16);
pub(super) const B: ParameterSchema =
    ParameterSchema::mean("lora_B_members", &[Axis::Members, Axis::Rank, Axis::Output], 16);

/// Factors of several members, each for its share of the batch.
///
/// # Formula
///
/// ```text
/// update(x of member m) = scaling · x·A_m·B_m
/// ```
///
/// The caller repeats a batch of `n` examples member by member, as
/// [`repeat_for_members`] does: rows `m·n .. (m+1)·n` belong to member `m`. The layer computes all of
/// them in one batched product.
///
/// # References
///
/// Halbheer et al. 2024, arXiv:2405.14438.
#[derive(Module, Debug)]
pub struct AdapterMembers {
    /// Down-projections, `[members, d_input, rank]`; `lora_A_members` in a checkpoint.
    pub a: Param<Tensor<3>>,
    /// Up-projections, `[members, rank, d_output]`; `lora_B_members`.
    pub b: Param<Tensor<3>>,
    /// The factor `c`.
    pub scaling: f64,
    /// Drop probability of the adapters' input in training.
    pub dropout: f64,
}

impl AdapterMembers {
    /// Number of members.
    pub fn count(&self) -> usize {
        self.a.val().dims()[0]
    }

    /// Member `index` as a plain adapter with frozen factors, for files or for a closer look;
    /// `None` if there is no such member.
    pub fn member(&self, index: usize) -> Option<LowRankAdapter> {
        if index >= self.count() {
            return None;
        }
        let of = |p: &Param<Tensor<3>>| {
            Param::from_tensor(p.val().without_autodiff().narrow(0, index, 1).squeeze_dim::<2>(0))
                .set_require_grad(false)
        };
        let adapter = LowRankAdapter::new(of(&self.a), of(&self.b), self.scaling);
        Some(LowRankAdapter { dropout: self.dropout, ..adapter })
    }
}

/// The batch repeated member by member, `[n, ...]` to `[members·n, ...]`.
///
/// Row `m·n + i` is example `i` for member `m`. Works on token identifiers, masks and activations
/// alike.
pub fn repeat_for_members<const D: usize, K: burn::tensor::kind::Basic>(
    batch: Tensor<D, K>,
    members: usize,
) -> Tensor<D, K> {
    batch.repeat_dim(0, members)
}
