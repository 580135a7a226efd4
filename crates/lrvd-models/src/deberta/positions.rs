//! Relative-position rows of one forward pass, shared by all layers.

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData};

use super::relative_position::RelativePositions;

/// The rows of the (normalised) relative embedding table that a sequence length needs, each once.
pub(super) struct Positions {
    /// `[rows, hidden]`, in the order of the table.
    pub table: Tensor<2>,
    /// Row of each rising offset `i − j` from `−(L−1)`, `2L−1` of them.
    pub rows: Arc<[u32]>,
}

impl Positions {
    pub(super) fn new(table: Tensor<2>, tokens: usize, layout: RelativePositions) -> Self {
        let offsets = layout.offset_rows(tokens);
        let used: Vec<i32> = offsets.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let place = |row: &i32| used.partition_point(|other| other < row) as u32;
        let rows = offsets.iter().map(place).collect();
        if used.len() == table.dims()[0] {
            return Self { table, rows };
        }
        let count = used.len();
        let device = table.device().inner();
        let used = Tensor::<1, Int>::from_data(TensorData::new(used, [count]), &device);
        Self { table: table.select(0, used), rows }
    }
}
