//! Relative-position rows of one forward pass, shared by all layers.

use burn::tensor::{Device, Int, Tensor};

use super::relative_position::RelativePositions;

/// The rows of the (normalised) relative embedding table that a sequence length needs.
///
/// A score at query `i` and key `j` uses the row of offset `i − j`. Laying the rows out by offset
/// turns the lookup into a shifted read of the score matrix, so that neither the forward nor the
/// backward pass gathers or scatters:
///
/// ```text
/// content to position: column (L−1−i) + j of query i, offsets i − j = L−1 … −(L−1) (falling)
/// position to content: column (L−1−j) + i of key j,   offsets i − j = −(L−1) … L−1 (rising)
/// ```
pub(super) struct Positions {
    /// `[2·span, hidden]`.
    pub table: Tensor<2>,
    /// Row of the table for each column of the content-to-position scores, `[2L−1]`.
    pub falling: Tensor<1, Int>,
    /// The same for position-to-content.
    pub rising: Tensor<1, Int>,
    /// Whether rows are selected before the projection (fewer rows than the table) or after it.
    pub select_first: bool,
}

impl Positions {
    pub(super) fn new(table: Tensor<2>, tokens: usize, layout: RelativePositions) -> Self {
        let device: Device = table.device().inner();
        let rising = layout.offset_rows(tokens);
        let falling: Vec<i32> = rising.iter().rev().copied().collect();
        let select_first = rising.len() <= table.dims()[0];
        Self {
            table,
            falling: Tensor::from_ints(falling.as_slice(), &device),
            rising: Tensor::from_ints(rising.as_slice(), &device),
            select_first,
        }
    }
}
