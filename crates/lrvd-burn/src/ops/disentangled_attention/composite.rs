//! Disentangled attention from Burn's operations.

use burn::backend::Backend;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{IndexingUpdateOp, TensorData};

use super::{AttentionLayout, softmax};
use crate::ops::dropout;
use crate::ops::value::Value;

/// Shared rows, `hidden` and `up` of one position term.
pub(crate) type Term<B> = [Option<FloatTensor<B>>; 3];

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

/// The output and the probabilities before dropout.
pub(crate) fn forward<B: Backend>(
    [query, key, value]: [FloatTensor<B>; 3],
    [keys, queries]: [Term<B>; 2],
    mask: Option<FloatTensor<B>>,
    layout: &AttentionLayout,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let shape = query.shape();
    let [q, k, v] = [query, key, value].map(|x| split(Value::<B>(x), layout.heads));
    if shape.num_elements() == 0 {
        let scores = [shape[0], layout.heads, shape[1], shape[1]];
        return (join(v.clone()).0, B::float_zeros(scores.into(), &v.0.device(), v.dtype().into()));
    }
    let c2p = rows(&keys, layout, true).map(|rows| q.clone().matmul(rows.swap(2, 3)));
    let p2c = rows(&queries, layout, false).map(|rows| k.clone().matmul(rows.swap(2, 3)));
    let p = softmax::forward(q.matmul(k.swap(2, 3)), c2p, p2c, mask, layout.scale);
    let out = join(dropped(p.clone(), layout).matmul(v));
    (out.0, p.0)
}

fn dropped<B: Backend>(p: Value<B>, layout: &AttentionLayout) -> Value<B> {
    match layout.dropout {
        Some((rate, key)) => Value(dropout::composite::forward::<B>(p.0, rate, key)),
        None => p,
    }
}

/// Gradients of query, key and value, then of each term's shared rows, `hidden` and `up`, as far as
/// `needs_grad`.
pub(crate) fn backward<B: Backend>(
    [query, key, value]: [FloatTensor<B>; 3],
    terms: [Term<B>; 2],
    probability: FloatTensor<B>,
    grad: FloatTensor<B>,
    layout: &AttentionLayout,
    needs_grad: [bool; 9],
) -> Vec<Option<FloatTensor<B>>> {
    let shape = query.shape();
    let [q, k, v, grad] = [query, key, value, grad].map(|x| split(Value::<B>(x), layout.heads));
    let p = Value::<B>(probability);
    if shape.num_elements() == 0 {
        let zeros = |x: FloatTensor<B>| (Value::<B>(x) * 0.0).0;
        let [keys, queries] = terms;
        let all = [Some(join(q).0), Some(join(k).0), Some(join(v).0)];
        let all = all.into_iter().chain(keys).chain(queries).zip(needs_grad);
        return all.map(|(x, needs_grad)| x.filter(|_| needs_grad).map(zeros)).collect();
    }
    let d_v = dropped(p.clone(), layout).swap(2, 3).matmul(grad.clone());
    let d_p = dropped(grad.matmul(v.swap(2, 3)), layout);
    let present = [terms[0][0].is_some(), terms[1][0].is_some()];
    let (d_score, [d_c2p, d_p2c]) = softmax::backward(p, d_p, layout.scale, present);
    let mut d_q = d_score.clone().matmul(k.clone());
    let mut d_k = d_score.swap(2, 3).matmul(q.clone());
    let mut of_terms = Vec::new();
    let parts = [(d_c2p, &q, &mut d_q, true), (d_p2c, &k, &mut d_k, false)];
    for ((term, part), needs_grad) in terms.iter().zip(parts).zip(needs_grad[3..].chunks_exact(3)) {
        let (d_term, x, d_x, falling) = part;
        let selected = d_term.zip(rows(term, layout, falling));
        let Some((d_term, selected)) = selected else {
            of_terms.extend([None, None, None]);
            continue;
        };
        *d_x = d_x.clone() + d_term.clone().matmul(selected);
        let d_selected = join(d_term.swap(2, 3).matmul(x.clone()));
        of_terms.extend(term_gradients(term, d_selected, layout, falling, needs_grad));
    }
    let mut all = vec![
        needs_grad[0].then(|| join(d_q).0),
        needs_grad[1].then(|| join(d_k).0),
        needs_grad[2].then(|| join(d_v).0),
    ];
    all.extend(of_terms);
    all
}

/// From the gradient of the selected rows of every sequence, `[B, 2L−1, heads·d]`.
fn term_gradients<B: Backend>(
    term: &Term<B>,
    d_selected: Value<B>,
    layout: &AttentionLayout,
    falling: bool,
    needs_grad: &[bool],
) -> [Option<FloatTensor<B>>; 3] {
    let Some(shared) = &term[0] else { return [None, None, None] };
    let (count, shape) = (shared.shape()[1], d_selected.shape());
    let none = [shape[0], count, shape[2]];
    let none = B::float_zeros(none.into(), &d_selected.0.device(), d_selected.dtype().into());
    let index = columns(layout, falling, &d_selected);
    let d_rows =
        Value::<B>(B::float_select_assign(none, 1, index, d_selected.0, IndexingUpdateOp::Add));
    of_rows(term, d_rows, needs_grad)
}

/// From the gradient of the rows of every sequence, `[B, rows, heads·d]`.
pub(super) fn of_rows<B: Backend>(
    term: &Term<B>,
    d_rows: Value<B>,
    needs_grad: &[bool],
) -> [Option<FloatTensor<B>>; 3] {
    let [Some(shared), hidden, up] = term.clone() else { return [None, None, None] };
    let of_copies = |copies: usize| {
        let d_rows = d_rows.clone();
        if copies == 1 { d_rows.sum(0) } else { d_rows }
    };
    let d_shared = needs_grad[0].then(|| of_copies(shared.shape()[0]).0);
    let (Some(hidden), Some(up)) = (hidden, up) else { return [d_shared, None, None] };
    let d_low = of_copies(hidden.shape()[0]);
    let d_hidden = needs_grad[1].then(|| d_low.clone().matmul(Value(up).swap(1, 2)).0);
    let d_up = needs_grad[2].then(|| Value::<B>(hidden).swap(1, 2).matmul(d_low).0);
    [d_shared, d_hidden, d_up]
}
