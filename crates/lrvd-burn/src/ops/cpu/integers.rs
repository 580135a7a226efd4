//! Products of eight bits.

use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix};
use rten_tensor::NdTensorView;

use super::panels::Matrix;
use super::{run, wide};

/// Largest magnitude of a weight: 2·255·63 fits in 16 bits.
const LARGEST: f32 = 63.0;

/// The kernel of this processor.
type Kernel = GemmExecutor<u8, i8, i32>;

/// A weight `[d_input, d_output]` in eight bits with a scale for each output.
pub(crate) struct Integers {
    values: PackedBMatrix<i8>,
    outputs: Outputs,
}

/// Of each output.
struct Outputs {
    scales: Vec<f32>,
    /// Sum of the weights in eight bits.
    sums: Vec<i32>,
}

impl Integers {
    pub(crate) fn new(weight: Matrix<'_>) -> Self {
        let Matrix { values, rows, columns, strides: [down, along] } = weight;
        let at = |row: usize, column: usize| values[row * down + column * along];
        let mut scales = vec![0.0f32; columns];
        for row in 0..rows {
            for (column, scale) in scales.iter_mut().enumerate() {
                // A number that is not finite makes its output so.
                let size = at(row, column).abs();
                *scale = if size <= *scale || scale.is_nan() { *scale } else { size };
            }
        }
        for scale in &mut scales {
            *scale /= LARGEST;
        }
        let (mut quantized, mut sums) = (vec![0i8; rows * columns], vec![0; columns]);
        for (row, line) in quantized.chunks_exact_mut(columns.max(1)).enumerate() {
            for (column, (out, sum)) in line.iter_mut().zip(&mut sums).enumerate() {
                let scale = scales[column];
                let value = if scale > 0.0 { at(row, column) / scale } else { 0.0 };
                *out = value.round_ties_even().clamp(-LARGEST, LARGEST) as i8;
                *sum += i32::from(*out);
            }
        }
        let matrix = NdTensorView::from_data([rows, columns], quantized.as_slice());
        let values = Kernel::default().prepack_b(matrix);
        Self { values, outputs: Outputs { scales, sums } }
    }

    fn columns(&self) -> usize {
        self.outputs.scales.len()
    }

    /// `out = x·W + bias` of `rows` rows.
    pub(crate) fn product(&self, x: &[f32], rows: usize, bias: Option<&[f32]>, out: &mut [f32]) {
        let (depth, columns) = (self.values.rows(), self.columns());
        if rows == 0 || depth == 0 || columns == 0 {
            return;
        }
        // Fewer rows leave threads to the kernel, more leave the cache between its steps.
        let lines = rows.div_ceil(2 * rayon::current_num_threads()).clamp(64, 96);
        let parts = x.chunks(lines * depth).zip(out.chunks_mut(lines * columns)).collect();
        run(parts, |(x, out)| self.part(x, bias.unwrap_or(&[]), out));
    }

    fn part(&self, x: &[f32], bias: &[f32], out: &mut [f32]) {
        let depth = self.values.rows();
        let rows = x.len() / depth;
        let (mut quantized, mut sums) = (vec![0u8; x.len()], vec![0i32; out.len()]);
        let (mut scales, mut zeros) = (vec![0.0f32; rows], vec![0u8; rows]);
        quantize_rows(x, depth, &mut quantized, &mut scales, &mut zeros);
        let a = NdTensorView::from_data([rows, depth], quantized.as_slice());
        // What stands for zero is taken off by the sums of the weights: version 0.27 reads it of the first eight rows of a block only.
        let (a, b) = (GemmInputA::Unpacked(a), GemmInputB::Packed(&self.values));
        Kernel::default()
            .gemm(&mut sums, a, b, GemmOptions::default())
            .expect("shapes of one layer");
        scale_rows(&sums, &scales, &zeros, &self.outputs, bias, out);
    }
}

wide! {
    /// Rows of `depth` numbers in eight bits, each with its scale and what stands for zero.
    fn quantize_rows<'a>(
        x: &'a [f32],
        depth: usize,
        out: &'a mut [u8],
        scales: &'a mut [f32],
        zeros: &'a mut [u8],
    ) {
        let lines = x.chunks_exact(depth.max(1)).zip(out.chunks_exact_mut(depth.max(1)));
        for ((x, out), (scale, zero)) in lines.zip(scales.iter_mut().zip(zeros)) {
            // Not `f32::min`, whose rule for what is not a number does not vectorise.
            let least = super::reduce(x, 0.0, |a, b| if b < a { b } else { a });
            let most = super::reduce(x, 0.0, |a, b| if b > a { b } else { a });
            // Not a number, where one of the row is not finite.
            *scale = (most - least) / 255.0 + 0.0 * super::sum(x);
            let inverse = if *scale > 0.0 { 1.0 / *scale } else { 0.0 };
            let shift = (-least * inverse).round_ties_even();
            *zero = shift as u8;
            for (out, &x) in out.iter_mut().zip(x) {
                // The sum is not negative: the cast cuts off, so that a half rounds up.
                *out = (x * inverse + (shift + 0.5)) as u8;
            }
        }
    }

    fn scale_rows<'a>(
        sums: &'a [i32],
        scales: &'a [f32],
        zeros: &'a [u8],
        outputs: &'a Outputs,
        bias: &'a [f32],
        out: &'a mut [f32],
    ) {
        let columns = outputs.scales.len();
        let lines = sums.chunks_exact(columns).zip(out.chunks_exact_mut(columns));
        for ((sums, out), (&scale, &zero)) in lines.zip(scales.iter().zip(zeros)) {
            let of_outputs = outputs.scales.iter().zip(&outputs.sums);
            for ((out, &sum), (&column, &weights)) in out.iter_mut().zip(sums).zip(of_outputs) {
                *out = (sum - i32::from(zero) * weights) as f32 * (scale * column);
            }
            for (out, &bias) in out.iter_mut().zip(bias) {
                *out += bias;
            }
        }
    }
}
