//! A linear layer and its update in one pass over packed rows.

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::AdaptedLinear;
use crate::ops::cpu::{
    Low, Matrix, Panels, Product, Real, contiguous, lanes, pack_wide, transposed_product, zeros,
};
use crate::ops::op::{Fused, Operands};

/// One factor for each group, as matrices.
struct Factor {
    tensor: FlexTensor,
    shape: [usize; 3],
}

impl Factor {
    fn new(tensor: FlexTensor) -> Self {
        let tensor = contiguous(tensor);
        let shape = tensor.shape();
        Self { shape: [shape[0], shape[1], shape[2]], tensor }
    }

    /// Every group's matrix, packed by `pack`.
    fn packed(&self, pack: impl Fn(Matrix<'_>) -> Panels) -> Vec<Panels> {
        let [_, rows, columns] = self.shape;
        let size = (rows * columns).max(1);
        let matrices = f32::slice(&self.tensor).chunks_exact(size);
        matrices.map(|values| pack(Matrix::new(values, rows, columns))).collect()
    }
}

/// `weight` packed as it is stored or transposed, whichever way its numbers lie.
fn packed_weight(weight: &FlexTensor, transposed: bool) -> Panels {
    let shape = weight.shape();
    let turned = weight.transpose(0, 1);
    // A transposed view of a checkpoint is packed from where it lies.
    let (tensor, matrix_shape, view) = if !weight.is_contiguous() && turned.is_contiguous() {
        (turned, [shape[1], shape[0]], true)
    } else {
        (contiguous(weight.clone()), [shape[0], shape[1]], false)
    };
    let matrix = Matrix::new(f32::slice(&tensor), matrix_shape[0], matrix_shape[1]);
    pack_wide(if view == transposed { matrix } else { matrix.transposed() })
}

pub(super) fn forward(op: &AdaptedLinear, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let mut saved = x.keep(save, &[0, 1, 3, 4]);
    let (out, hidden) = layer(x, op.scale);
    if save {
        saved.tensors.push(hidden);
    }
    Fused { out, saved }
}

/// The output and, with factors, `s` as `[groups, rows, rank]`.
pub(in crate::ops) fn layer(x: Operands<Flex>, scale: f64) -> (FlexTensor, Option<FlexTensor>) {
    let ([x, weight], [bias, a, b]) = x.parts();
    let (x, bias) = (contiguous(x), bias.map(contiguous));
    let [n, tokens, depth] = [0, 1, 2].map(|axis| x.shape()[axis]);
    let columns = weight.shape()[1];
    let base = packed_weight(&weight, false);
    let factors = a.map(Factor::new).zip(b.map(Factor::new));
    let packed = factors
        .as_ref()
        .map(|(a, b)| (a.packed(|m| Panels::pack(m, lanes())), b.packed(pack_wide)));
    let [groups, _, rank] = factors.as_ref().map_or([1, 0, 0], |(a, _)| a.shape);
    let mut out = zeros(n * tokens * columns);
    let mut hidden = vec![0.0; n * tokens * rank];
    let low = packed.as_ref().map(|(down, up)| Low { down, up, scale: scale as f32 });
    let rows = Matrix::new(f32::slice(&x), n * tokens, depth);
    let bias = bias.as_ref().map(f32::slice);
    Product { x: rows, base: Some(&base), bias, low, adds: false }.run(&mut out, &mut hidden);
    let hidden = low
        .is_some()
        .then(|| f32::tensor(hidden, Shape::new([groups, n / groups.max(1) * tokens, rank])));
    (f32::tensor(out, Shape::new([n, tokens, columns])), hidden)
}

/// Gradient of `x` with a plain weight, `dy·Wᵀ`.
pub(in crate::ops) fn input_gradient(weight: &FlexTensor, grad: &FlexTensor) -> FlexTensor {
    let (grad, base) = (contiguous(grad.clone()), packed_weight(weight, true));
    let [n, tokens, d_output] = [0, 1, 2].map(|axis| grad.shape()[axis]);
    let d_input = weight.shape()[0];
    let mut d_x = zeros(n * tokens * d_input);
    Product::plain(Matrix::new(f32::slice(&grad), n * tokens, d_output), &base)
        .run(&mut d_x, &mut []);
    f32::tensor(d_x, Shape::new([n, tokens, d_input]))
}

/// Gradient of a bias, the sum over rows.
pub(in crate::ops) fn bias_gradient(grad: &FlexTensor) -> FlexTensor {
    let grad = contiguous(grad.clone());
    let d_output = grad.shape()[2];
    let ones = vec![1.0; f32::slice(&grad).len() / d_output];
    let sum = transposed_product(&ones, f32::slice(&grad), 1, d_output, 1);
    f32::tensor(sum, Shape::new([d_output]))
}

pub(super) fn gradient(
    op: &AdaptedLinear,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    Operands::some(layer_gradients(saved, grad, op.scale, needs_grad, [None, None]))
}

/// Gradients of `x`, `weight`, `bias`, `a` and `b`, where needed, from `x`, `weight`, `a`, `b` and `s`; those of `x`
/// and of `x·A` are added to what another path has accumulated.
pub(super) fn layer_gradients(
    saved: Operands<Flex>,
    grad: FlexTensor,
    scale: f64,
    needs_grad: &[bool],
    acc: [Option<FlexTensor>; 2],
) -> [Option<FlexTensor>; 5] {
    let ([x, weight], [a, b, hidden]) = saved.parts();
    let (x, grad) = (contiguous(x), contiguous(grad));
    let [n, tokens, d_input] = [0, 1, 2].map(|axis| x.shape()[axis]);
    let (rows, d_output) = (n * tokens, weight.shape()[1]);
    let (x_values, g) = (f32::slice(&x), f32::slice(&grad));
    let factors = a.map(Factor::new).zip(b.map(Factor::new));
    let [groups, _, rank] = factors.as_ref().map_or([1, 0, 0], |(a, _)| a.shape);
    let adds = acc.iter().any(Option::is_some);
    let [grad_x_acc, grad_h_acc] = acc;
    let start = |acc: Option<FlexTensor>, shape: [usize; 3]| {
        let empty = || f32::tensor(zeros(shape.iter().product()), Shape::new(shape));
        acc.map_or_else(empty, contiguous)
    };
    let mut d_x = needs_grad[0].then(|| start(grad_x_acc, [n, tokens, d_input]));
    let mut h = start(grad_h_acc, [groups, rows / groups.max(1), rank]);
    if needs_grad[0] || needs_grad[3] {
        let base = needs_grad[0].then(|| packed_weight(&weight, true));
        let packed = factors.as_ref().map(|(a, b)| {
            let down = b.packed(|m| Panels::pack(m.transposed(), lanes()));
            (down, a.packed(|m| pack_wide(m.transposed())))
        });
        let low = packed.as_ref().map(|(down, up)| Low { down, up, scale: scale as f32 });
        let g = Matrix::new(g, rows, d_output);
        Product { x: g, base: base.as_ref(), bias: None, low, adds }
            .run(d_x.as_mut().map(f32::slice_mut).unwrap_or_default(), f32::slice_mut(&mut h));
    }
    let d_a = needs_grad[3].then(|| {
        let turned = transposed_product(f32::slice(&h), x_values, rank, d_input, groups);
        f32::tensor(turned, Shape::new([groups, rank, d_input])).transpose(1, 2)
    });
    let d_b = hidden.filter(|_| needs_grad[4]).map(|s| {
        let s = contiguous(s);
        let d_b = transposed_product(f32::slice(&s), g, rank, d_output, groups);
        f32::tensor(d_b, Shape::new([groups, rank, d_output]))
    });
    let d_weight = needs_grad[1].then(|| {
        let grad = pack_wide(Matrix::new(g, rows, d_output));
        let mut d_weight = zeros(d_input * d_output);
        let x = Matrix::new(x_values, rows, d_input).transposed();
        Product::plain(x, &grad).run(&mut d_weight, &mut []);
        f32::tensor(d_weight, Shape::new([d_input, d_output]))
    });
    let d_bias = needs_grad[2].then(|| bias_gradient(&grad));
    [d_x, d_weight, d_bias, d_a, d_b]
}
