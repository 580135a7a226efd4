//! Which axis of a flattened adapter tensor runs over rank directions.

use burn::tensor::Tensor;

use crate::adapter::select_plain;

/// The rank axis of an adapter parameter in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankAxis {
    /// `[rank]` or `[rank, d_output]`.
    First,
    /// `[d_input, rank]`.
    Last,
}

impl RankAxis {
    /// The axis of the adapter parameter with the last name component `suffix`, if it is one.
    pub(crate) fn of(suffix: &str) -> Option<Self> {
        match suffix {
            "lora_A" | "log_sigma2_a" => Some(Self::Last),
            "lora_B" | "lora_E" | "rank_log_sigma2" | "rank_log_alpha" | "log_sigma2_b" => {
                Some(Self::First)
            }
            _ => None,
        }
    }

    /// The entries of rank directions `kept` of a tensor flattened from `shape`.
    pub(crate) fn select(self, flat: Tensor<1>, shape: &[usize], kept: &[usize]) -> Tensor<1> {
        match (shape, self) {
            ([_], _) => select_plain(flat, 0, kept),
            ([rows, columns], axis) => {
                let dim = usize::from(axis == Self::Last);
                let matrix = select_plain(flat.reshape([*rows, *columns]), dim, kept);
                let len = matrix.shape().num_elements();
                matrix.reshape([len])
            }
            _ => flat,
        }
    }
}
