//! Disentangled attention from Burn's operations.
//!
//! The shift that aligns relative positions with keys is a reinterpretation of memory: with one
//! column of padding, rows of `2L` numbers read as rows of `2L-1` start one place earlier each.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::TensorData;

use super::AttentionLayout;
use crate::ops::dropout::Dropout;
use crate::ops::op::{FusedOp, LrvdBackend, Operands};
use crate::ops::value::{Value, masked_softmax};

/// Shared rows, `hidden` and `up` of one position term.
pub(crate) type Term<B> = [Option<FloatTensor<B>>; 3];

/// Query, key and value, both terms, and the mask.
pub(super) type Arguments<B> = ([FloatTensor<B>; 3], [Term<B>; 2], Option<FloatTensor<B>>);

/// By their places among the operands.
pub(super) fn arguments<B: Backend>(x: Operands<B>) -> Arguments<B> {
    let (operands, [k0, k1, k2, q0, q1, q2, mask]) = x.parts();
    (operands, [[k0, k1, k2], [q0, q1, q2]], mask)
}

/// `[n, rows, heads·d]` as `[n, heads, rows, d]`.
pub(super) fn split<B: Backend>(x: Value<B>, heads: usize) -> Value<B> {
    let shape = x.shape();
    x.reshape([shape[0], shape[1], heads, shape[2] / heads]).swap(1, 2)
}

/// The transpose of [`split`].
pub(super) fn join<B: Backend>(x: Value<B>) -> Value<B> {
    let shape = x.shape();
    x.swap(1, 2).reshape([shape[0], shape[2], shape[1] * shape[3]])
}

/// The row of each column of position scores: falling offsets for keys, rising ones for queries.
fn columns<B: Backend>(layout: &AttentionLayout, falling: bool, like: &Value<B>) -> IntTensor<B> {
    let mut rows: Vec<i32> = layout.rows.iter().map(|&row| row as i32).collect();
    if falling {
        rows.reverse();
    }
    let count = rows.len();
    B::int_from_data(TensorData::new(rows, [count]), &like.0.device())
}

/// All rows of a term, `[1 | B, rows, heads·d]`.
pub(super) fn whole<B: Backend>(term: &Term<B>) -> Option<Value<B>> {
    let [shared, hidden, up] = term.clone();
    let shared = Value::<B>(shared?);
    let low = hidden.zip(up).map(|(hidden, up)| Value::<B>(hidden).matmul(Value(up)));
    Some(if let Some(low) = low { low + shared } else { shared })
}

/// The rows of a term, one for every column of its scores, `[1 | B, heads, 2L−1, d]`.
fn rows<B: Backend>(term: &Term<B>, layout: &AttentionLayout, falling: bool) -> Option<Value<B>> {
    let all = whole::<B>(term)?;
    let selected = B::float_select(all.0.clone(), 1, columns(layout, falling, &all));
    Some(split(Value(selected), layout.heads))
}

pub(super) fn forward<B: LrvdBackend>(layout: &AttentionLayout, x: Operands<B>) -> FloatTensor<B> {
    let ([query, key, value], [keys, queries], mask) = arguments(x);
    if query.shape().num_elements() == 0 {
        return value;
    }
    let [q, k, v] = [query, key, value].map(|x| split(Value::<B>(x), layout.heads));
    let c2p = rows(&keys, layout, true).map(|rows| q.clone().matmul(rows.swap(2, 3)));
    let p2c = rows(&queries, layout, false).map(|rows| k.clone().matmul(rows.swap(2, 3)));
    let p = probabilities(q.matmul(k.swap(2, 3)), c2p, p2c, mask, layout.scale);
    let p = match layout.dropout {
        Some((rate, key)) => Value(Dropout { rate, key }.composite(Operands::<B>::of([p.0]))),
        None => p,
    };
    join(p.matmul(v)).0
}

/// `out[i, j] = position[i, (L-1-i)+j]`.
fn align<B: Backend>(position: Value<B>, [b, h, l]: [usize; 3]) -> Value<B> {
    let columns = 2 * l - 1;
    position
        .pad_last_axis(0, 1)
        .reshape([b, h, l * 2 * l])
        .last_axis(l - 1..l - 1 + l * columns)
        .reshape([b, h, l, columns])
        .last_axis(0..l)
}

/// Probabilities of `content + shifted c2p + shifted p2c`, `[B, H, L, L]`; the position scores are
/// `[B, H, L, 2L−1]`.
fn probabilities<B: Backend>(
    content: Value<B>,
    c2p: Option<Value<B>>,
    p2c: Option<Value<B>>,
    mask: Option<FloatTensor<B>>,
    scale: f64,
) -> Value<B> {
    let mut score = content;
    let &[b, h, l, _] = score.shape().as_slice() else { unreachable!("made with rank 4") };
    if let Some(c2p) = c2p {
        score = score + align(c2p, [b, h, l]);
    }
    if let Some(p2c) = p2c {
        score = score + align(p2c, [b, h, l]).swap(2, 3);
    }
    score = score * scale;
    if let Some(mask) = mask {
        return masked_softmax(score, Value::<B>(mask).reshape([b, 1, 1, l]));
    }
    let reference = score.clone().max(3);
    let weight = (score - reference.detach()).exp();
    weight.clone() / weight.sum(3)
}
