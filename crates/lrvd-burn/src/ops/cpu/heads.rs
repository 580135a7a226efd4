//! Heads of attention beside each other.

use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::real::Real;

/// Where the parts of the heads go.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    /// Query heads of an example, one part each.
    pub(crate) heads: usize,
    /// Groups of them that share a place.
    pub(crate) groups: usize,
    /// Whether all examples share their places too.
    pub(crate) shared: bool,
    /// Lines of a part, and numbers in a line.
    pub(crate) size: [usize; 2],
}

impl Parts {
    /// The parts beside each other as a tensor of `shape`.
    pub(crate) fn tensor<'a>(
        self,
        parts: impl ExactSizeIterator<Item = &'a [f32]>,
        shape: Shape,
    ) -> FlexTensor {
        let empty = shape.num_elements() == 0;
        f32::tensor(if empty { Vec::new() } else { self.join(parts) }, shape)
    }

    /// `[1 | B, lines, groups, width]` from one `[lines, width]` per example and head; parts of one place are
    /// summed in order.
    fn join<'a>(self, parts: impl ExactSizeIterator<Item = &'a [f32]>) -> Vec<f32> {
        let Self { heads, groups, shared, size: [lines, width] } = self;
        let examples = if shared { 1 } else { parts.len() / heads };
        let mut values = vec![0.0; examples * lines * groups * width];
        for (task, part) in parts.enumerate() {
            let example = if shared { 0 } else { task / heads };
            let group = task % heads / (heads / groups);
            for (line, row) in part.chunks_exact(width).enumerate() {
                let first = ((example * lines + line) * groups + group) * width;
                for (out, &x) in values[first..first + width].iter_mut().zip(row) {
                    *out += x;
                }
            }
        }
        values
    }
}
