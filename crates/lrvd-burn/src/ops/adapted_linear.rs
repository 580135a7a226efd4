//! A frozen linear layer and its low-rank update.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::packed::Packed;
use super::value::{Value, as_row};

/// The factors of an update and what multiplies their product.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// Down-projections, `[groups, d_input, rank]`.
    pub a: Tensor<3>,
    /// Up-projections, `[groups, rank, d_output]`.
    pub b: Tensor<3>,
    /// The factor `c`.
    pub scale: f64,
}

/// A linear layer and a low-rank update with separate factors for each group of sequences.
///
/// # Formula
///
/// ```text
/// s = c · x·A_g        y = x·W + bias + s·B_g        g: the group of the row
/// h = c · dy·B_gᵀ      dx = dy·Wᵀ + h·A_gᵀ           dA_g = Σ x·hᵀ      dB_g = Σ s·dyᵀ
/// ```
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `x` | `[n, tokens, d_input]` |
/// | `weight` | `[d_input, d_output]` |
/// | `bias` | `[d_output]` |
/// | *returns* | `[n, tokens, d_output]` |
///
/// The first `n / groups` sequences are the first group's, and so on: one group for an ordinary adapter,
/// `n` groups for a draw of weights per sequence.
///
/// # Numerics
///
/// On the CPU `x` is packed once for both products, and `s` never leaves the cache before it meets B; up to eight
/// rows meet the weight in place, which is read once and not packed, and up to 128 rows meet a weight that is stored by its
/// inputs panel by panel, packed in the cache. In `f32` every element is one chain of fused multiply-adds in a fixed order: the
/// same bits for every number of threads, every vector width and every batch around a row. In `bf16` a product without
/// factors is that chain, rounded once. The backward pass saves `x`, the factors and `s`, and computes the gradient of a
/// weight or a bias only where one is needed.
///
/// # Panics
///
/// If shapes do not fit, or `n` is no multiple of `groups`.
pub fn adapted_linear(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    low: Option<LowRank>,
) -> Tensor<3> {
    packed_linear(x, (weight, None), bias, low)
}

/// As [`adapted_linear()`], with the weight also in the form that its product reads; a form of another weight is left out.
pub(crate) fn packed_linear(
    x: Tensor<3>,
    (weight, packed): (Tensor<2>, Option<Arc<Packed>>),
    bias: Option<Tensor<1>>,
    low: Option<LowRank>,
) -> Tensor<3> {
    let op = AdaptedLinear { scale: low.as_ref().map_or(1.0, |low| low.scale), packed };
    op::fused(op, operands(x, weight, bias, low))
}

/// The checked operands of [`AdaptedLinear`].
pub(super) fn operands(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    low: Option<LowRank>,
) -> Operands<Dispatch> {
    let ([n, _, features], [d_input, d_output]) = (x.dims(), weight.dims());
    assert_eq!(features, d_input, "features of `x`");
    if let Some(bias) = &bias {
        assert_eq!(bias.dims(), [d_output], "shape of `bias`");
    }
    if let Some(LowRank { a, b, .. }) = &low {
        let [groups, _, rank] = a.dims();
        assert!(groups > 0 && n.is_multiple_of(groups), "{n} sequences in {groups} groups");
        assert_eq!(a.dims(), [groups, d_input, rank], "shape of `a`");
        assert_eq!(b.dims(), [groups, rank, d_output], "shape of `b`");
    }
    let [a, b] = low.map_or([None, None], |low| [Some(low.a), Some(low.b)]);
    Operands::some([
        Some(x.into_dispatch()),
        Some(weight.into_dispatch()),
        bias.map(Tensor::into_dispatch),
        a.map(Tensor::into_dispatch),
        b.map(Tensor::into_dispatch),
    ])
}

/// Of `x`, `weight`, `bias`, `a` and `b`, the last three optional.
#[derive(Clone, Debug)]
pub(super) struct AdaptedLinear {
    pub(super) scale: f64,
    #[cfg_attr(not(feature = "flex"), expect(dead_code, reason = "read by the form on the CPU"))]
    pub(super) packed: Option<Arc<Packed>>,
}

impl FusedOp for AdaptedLinear {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let ([x, weight], [bias, a, b]) = x.parts();
        let (x, weight) = (Value::<B>(x), Value::<B>(weight));
        let (shape, d_output) = (x.shape(), weight.shape()[1]);
        let rows = shape[0] * shape[1];
        let mut out = x.clone().reshape([rows, shape[2]]).matmul(weight);
        if let Some(bias) = bias {
            out = out + as_row(bias, 2);
        }
        let out = out.reshape([shape[0], shape[1], d_output]);
        let Some((a, b)) = a.zip(b) else { return out.0 };
        let (a, b) = (Value::<B>(a), Value::<B>(b));
        let groups = a.shape()[0];
        let s = x.reshape([groups, rows / groups, shape[2]]).matmul(a) * self.scale;
        (out + s.matmul(b).reshape([shape[0], shape[1], d_output])).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        use burn::tensor::DType;
        match dtype {
            DType::F32 => {
                let derivative = op::Derivative::ByHand(cpu::gradient);
                Some(op::Form { forward: cpu::forward, derivative })
            }
            DType::BF16 => {
                let derivative = op::Derivative::OfComposite;
                Some(op::Form { forward: cpu::forward_half, derivative })
            }
            _ => None,
        }
    }
}

/// One pass over packed rows, or for a few rows over the weight in place.
#[cfg(feature = "flex")]
pub(super) mod cpu {
    use burn::tensor::DType;
    use half::bf16;

    use super::AdaptedLinear;
    use crate::ops::cpu::prelude::*;
    use crate::ops::op::FusedOp;
    use crate::ops::packed::cpu::Kind;

    /// `x·W + bias + scale · x·A·B` with the matrices or their transposes.
    struct Layer<'a> {
        /// `[rows, depth]`, row-major.
        x: &'a [f32],
        rows: usize,
        /// The dense matrix; without it only the product with the first factor is computed.
        weight: Option<&'a FlexTensor>,
        /// The dense matrix as a product reads it, if that was made before.
        packed: Option<&'a Kind>,
        transposed: bool,
        bias: Option<&'a [f32]>,
        /// Both factors of each group of rows.
        factors: Option<[Vec<Matrix<'a>>; 2]>,
        scale: f64,
        /// `true` if the products are added to what is there.
        adds: bool,
    }

    impl Layer<'_> {
        /// Writes the output and the scaled products with the first factor.
        fn run(self, out: &mut [f32], hidden: &mut [f32]) {
            let Self { x, rows, transposed, bias, adds, .. } = self;
            if x.is_empty() {
                return;
            }
            let (depth, scale) = (x.len() / rows, self.scale as f32);
            let factors = self.factors.as_ref();
            #[cfg(feature = "int8")]
            if let Some(Kind::Integer(weight)) = self.packed {
                weight.product(x, rows, bias, out);
                return factors.into_iter().for_each(|factors| {
                    add_update((x, rows), factors, scale, (&mut *out, &mut *hidden));
                });
            }
            let weight = self.weight.map(Weight::new);
            if rows <= THIN {
                let base = weight.as_ref().map(|weight| weight.dense(transposed));
                let low = factors.map(|[down, up]| ThinLow { down, up, scale });
                return ThinProduct { x, base, bias, low, adds }.run(rows, out, hidden);
            }
            let pack = |factor: &[Matrix<'_>], width| -> Vec<_> {
                factor.iter().map(|&matrix| Panels::pack(matrix, width)).collect()
            };
            let packed = factors.map(|[down, up]| (pack(down, lanes()), pack(up, panel_width())));
            let low = packed.as_ref().map(|(down, up)| Low { down, up, scale });
            let x = Matrix::new(x, rows, depth);
            let product = Product { x, base: None, bias, low, adds };
            let matrix = weight.as_ref().map(|weight| weight.matrix(transposed));
            let one_group = low.is_none_or(|low| low.down.len() == 1);
            match (self.packed, matrix) {
                (Some(Kind::Panels(base)), _) if rows <= FEW && one_group => {
                    product.run_in_strips(StripBase::Panels(base), out, hidden);
                }
                (Some(Kind::Panels(base)), _) => {
                    Product { base: Some(base), ..product }.run(out, hidden);
                }
                (_, Some(matrix)) if rows <= FEW && one_group && matrix.strides[1] == 1 => {
                    product.run_in_strips(StripBase::Rows(matrix), out, hidden);
                }
                (_, matrix) => {
                    let base = matrix.map(pack_wide);
                    Product { base: base.as_ref(), ..product }.run(out, hidden);
                }
            }
        }
    }

    /// The matrix of every group.
    fn matrices(factor: &FlexTensor) -> Vec<Matrix<'_>> {
        let [groups, rows, columns] = factor.shape().dims();
        let values = slice(factor);
        let size = rows * columns;
        (0..groups).map(|i| Matrix::new(&values[i * size..][..size], rows, columns)).collect()
    }

    /// Adds `scale · x·A·B` to `out` and writes `scale · x·A`.
    #[cfg(feature = "int8")]
    fn add_update(
        (x, rows): (&[f32], usize),
        [down, up]: &[Vec<Matrix<'_>>; 2],
        scale: f32,
        (out, hidden): (&mut [f32], &mut [f32]),
    ) {
        let (depth, per_group) = (x.len() / rows, rows / down.len());
        let (rank, columns) = (down[0].columns, up[0].columns);
        let packed: Vec<_> = down.iter().map(|&down| Panels::pack(down, lanes())).collect();
        let low = Some(Low { down: &packed, up: &[], scale });
        let x = Matrix::new(x, rows, depth);
        Product { x, base: None, bias: None, low, adds: false }.run(&mut [], hidden);
        let parts = out.chunks_exact_mut((per_group * columns).max(1));
        for ((up, hidden), out) in
            up.iter().zip(hidden.chunks_exact((per_group * rank).max(1))).zip(parts)
        {
            let hidden = Matrix::new(hidden, per_group, rank);
            Product::plain(hidden, &pack_wide(*up)).added().run(out, &mut []);
        }
    }

    pub(crate) fn forward(op: &AdaptedLinear, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let mut saved = x.keep(save, &[0, 1, 3, 4]);
        let packed = op.packed.as_ref().zip(x.tensors[1].as_ref());
        let packed = packed.and_then(|(packed, weight)| packed.of(weight));
        let (out, hidden) = packed_layer(x, op.scale, packed);
        if save {
            saved.tensors.push(hidden);
        }
        Fused { out, saved }
    }

    /// Sums in single precision of numbers in half precision, rounded once; with factors the composite.
    pub(crate) fn forward_half(op: &AdaptedLinear, x: Operands<Flex>, _: bool) -> Fused<Flex> {
        let saved = Operands::of([]);
        let depth = x.first().shape()[2];
        let weight = x.tensors[1].as_ref().filter(|weight| weight.dtype() == DType::BF16);
        let is_dense = x.tensors[3].is_none();
        let Some(weight) = weight.filter(|_| is_dense && depth > 0) else {
            return Fused { out: op.composite::<Flex>(x), saved };
        };
        let widen = |x: &FlexTensor| {
            let x = x.to_contiguous();
            let values: &[bf16] = x.as_slice().expect("contiguous numbers of half precision");
            let wide: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
            tensor(wide, x.shape())
        };
        let bias = x.tensors[2].as_ref().map(widen);
        let out = narrow_layer(widen(x.first()), &Weight::new(weight), bias);
        let half: Vec<bf16> = slice(&out).iter().map(|&out| bf16::from_f32(out)).collect();
        Fused { out: tensor(half, out.shape()), saved }
    }

    /// `x·W + bias` of a weight in a narrow type: a few rows widen its numbers as they meet them, more rows meet it
    /// widened.
    pub(in crate::ops) fn narrow_layer(
        x: FlexTensor,
        weight: &Weight<'_>,
        bias: Option<FlexTensor>,
    ) -> FlexTensor {
        let [n, tokens, _] = x.shape().dims();
        let rows = n * tokens;
        if rows > THIN {
            let operands = [Some(x), Some(weight.widened()), bias, None, None];
            return layer(Operands::some(operands), 1.0).0;
        }
        let (x, bias) = (contiguous(x), bias.map(contiguous));
        let base = weight.dense(false);
        let mut out = vec![0.0; rows * base.columns()];
        if !slice(&x).is_empty() {
            let bias = bias.as_ref().map(slice);
            let product =
                ThinProduct { x: slice(&x), base: Some(base), bias, low: None, adds: false };
            product.run(rows, &mut out, &mut []);
        }
        tensor(out, [n, tokens, base.columns()])
    }

    /// The output and, with factors, `s` as `[groups, rows, rank]`.
    pub(in crate::ops) fn layer(x: Operands<Flex>, scale: f64) -> (FlexTensor, Option<FlexTensor>) {
        packed_layer(x, scale, None)
    }

    /// As [`layer`], with the weight as its product reads it.
    fn packed_layer(
        x: Operands<Flex>,
        scale: f64,
        packed: Option<&Kind>,
    ) -> (FlexTensor, Option<FlexTensor>) {
        let ([x, weight], [bias, a, b]) = x.parts();
        let (x, bias) = (contiguous(x), bias.map(contiguous));
        let [n, tokens, _] = x.shape().dims();
        let (rows, columns) = (n * tokens, weight.shape()[1]);
        let factors = a.zip(b).map(|(a, b)| [contiguous(a), contiguous(b)]);
        let [groups, _, rank] = factors.as_ref().map_or([1, 0, 0], |[a, _]| a.shape().dims());
        let mut out = zeros(rows * columns);
        let mut hidden = vec![0.0; rows * rank];
        Layer {
            x: slice(&x),
            rows,
            weight: Some(&weight),
            packed,
            transposed: false,
            bias: bias.as_ref().map(slice),
            factors: factors.as_ref().map(|factors| factors.each_ref().map(matrices)),
            scale,
            adds: false,
        }
        .run(&mut out, &mut hidden);
        let hidden =
            factors.is_some().then(|| tensor(hidden, [groups, rows / groups.max(1), rank]));
        (tensor(out, [n, tokens, columns]), hidden)
    }

    /// Gradient of `x` with a plain weight, `dy·Wᵀ`.
    pub(in crate::ops) fn input_gradient(weight: &FlexTensor, grad: &FlexTensor) -> FlexTensor {
        let grad = contiguous(grad.clone());
        let [n, tokens, _] = grad.shape().dims();
        let d_input = weight.shape()[0];
        let mut d_x = zeros(n * tokens * d_input);
        Layer {
            x: slice(&grad),
            rows: n * tokens,
            weight: Some(weight),
            packed: None,
            transposed: true,
            bias: None,
            factors: None,
            scale: 1.0,
            adds: false,
        }
        .run(&mut d_x, &mut []);
        tensor(d_x, [n, tokens, d_input])
    }

    /// Gradient of a bias, the sum over rows.
    pub(in crate::ops) fn bias_gradient(grad: &FlexTensor) -> FlexTensor {
        let grad = contiguous(grad.clone());
        let d_output = grad.shape()[2];
        let ones = vec![1.0; slice(&grad).len() / d_output];
        let sum = transposed_product(&ones, slice(&grad), 1, d_output, 1);
        tensor(sum, [d_output])
    }

    pub(crate) fn gradient(op: &AdaptedLinear, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad } = x;
        Operands::some(layer_gradients(saved, grad, op.scale, needs_grad, [None, None]))
    }

    /// Gradients of `x`, `weight`, `bias`, `a` and `b`, where needed, from `x`, `weight`, `a`, `b` and `s`; those of `x`
    /// and of `x·A` are added to what another path has accumulated.
    pub(in crate::ops) fn layer_gradients(
        saved: Operands<Flex>,
        grad: FlexTensor,
        scale: f64,
        needs_grad: &[bool],
        acc: [Option<FlexTensor>; 2],
    ) -> [Option<FlexTensor>; 5] {
        let ([x, weight], [a, b, hidden]) = saved.parts();
        let (x, grad) = (contiguous(x), contiguous(grad));
        let [n, tokens, d_input] = x.shape().dims();
        let (rows, d_output) = (n * tokens, weight.shape()[1]);
        let (x_values, g) = (slice(&x), slice(&grad));
        let factors = a.zip(b).map(|(a, b)| [contiguous(b), contiguous(a)]);
        let [groups, rank, _] = factors.as_ref().map_or([1, 0, 0], |[b, _]| b.shape().dims());
        let adds = acc.iter().any(Option::is_some);
        let [grad_x_acc, grad_h_acc] = acc;
        let start = |acc: Option<FlexTensor>, shape: [usize; 3]| {
            let empty = || tensor(zeros(shape.iter().product()), shape);
            acc.map_or_else(empty, contiguous)
        };
        let mut d_x = needs_grad[0].then(|| start(grad_x_acc, [n, tokens, d_input]));
        let mut h = start(grad_h_acc, [groups, rows / groups.max(1), rank]);
        if needs_grad[0] || needs_grad[3] {
            let transposes =
                |factor| matrices(factor).into_iter().map(Matrix::transposed).collect();
            Layer {
                x: g,
                rows,
                weight: needs_grad[0].then_some(&weight),
                packed: None,
                transposed: true,
                bias: None,
                factors: factors.as_ref().map(|factors| factors.each_ref().map(transposes)),
                scale,
                adds,
            }
            .run(d_x.as_mut().map(slice_mut).unwrap_or_default(), slice_mut(&mut h));
        }
        let d_a = needs_grad[3].then(|| {
            let turned = transposed_product(slice(&h), x_values, rank, d_input, groups);
            tensor(turned, [groups, rank, d_input]).transpose(1, 2)
        });
        let d_b = hidden.filter(|_| needs_grad[4]).map(|s| {
            let s = contiguous(s);
            let d_b = transposed_product(slice(&s), g, rank, d_output, groups);
            tensor(d_b, [groups, rank, d_output])
        });
        let d_weight = needs_grad[1].then(|| {
            let grad = pack_wide(Matrix::new(g, rows, d_output));
            let mut d_weight = zeros(d_input * d_output);
            let x = Matrix::new(x_values, rows, d_input).transposed();
            Product::plain(x, &grad).run(&mut d_weight, &mut []);
            tensor(d_weight, [d_input, d_output])
        });
        let d_bias = needs_grad[2].then(|| bias_gradient(&grad));
        [d_x, d_weight, d_bias, d_a, d_b]
    }
}
