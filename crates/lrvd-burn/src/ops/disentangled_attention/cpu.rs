//! Disentangled attention on slices, in `f32`: one task per example and head.

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::composite::arguments;
use super::places::Places;
use super::rows::{Scores, masked_softmax};
use super::{AttentionLayout, DisentangledAttention};
use crate::ops::cpu::{
    Matrix, Panels, Parts, Product, Real, contiguous, pack_wide, run, softmax_gradient_rows, zeros,
};
use crate::ops::dropout;
use crate::ops::op::{Fused, Operands};

type Term = [Option<FlexTensor>; 3];

/// Position rows of all heads.
struct Rows<'a> {
    /// `[1 | B, count, H·d]`.
    shared: &'a [f32],
    copies: usize,
    /// `[1 | B, count, rank]` and `[1 | B, rank, H·d]`.
    low: Option<(&'a [f32], &'a [f32])>,
    factors: usize,
    count: usize,
    rank: usize,
    places: Places,
}

impl<'a> Rows<'a> {
    fn new(term: &'a Term, layout: &AttentionLayout, falling: bool) -> Option<Self> {
        let [Some(shared), hidden, up] = term else { return None };
        let low = hidden.as_ref().zip(up.as_ref());
        let count = shared.shape()[1];
        Some(Self {
            shared: f32::slice(shared),
            copies: shared.shape()[0],
            low: low.map(|(hidden, up)| (f32::slice(hidden), f32::slice(up))),
            factors: low.map_or(1, |(hidden, _)| hidden.shape()[0]),
            count,
            rank: low.map_or(0, |(hidden, _)| hidden.shape()[2]),
            places: Places::new(&layout.rows, count, falling),
        })
    }
}

/// One call: arguments in row-major order, and sizes.
struct Call<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    keys: Option<Rows<'a>>,
    queries: Option<Rows<'a>>,
    layout: &'a AttentionLayout,
    batch: usize,
    tokens: usize,
    width: usize,
}

/// What one head adds to the gradient of a position term.
struct TermGradient {
    /// `[count, d]`.
    rows: Vec<f32>,
    /// `[count, rank]`.
    hidden: Vec<f32>,
    /// `[rank, d]`.
    up: Vec<f32>,
}

/// Gradients of one head: query, key and value, `[L, d]`, and the two position terms.
struct HeadGradients {
    operands: [Vec<f32>; 3],
    terms: [Option<TermGradient>; 2],
}

impl<'a> Call<'a> {
    fn new(
        [query, key, value]: [&'a FlexTensor; 3],
        terms: &'a [Term; 2],
        layout: &'a AttentionLayout,
    ) -> Self {
        let shape = query.shape();
        Self {
            query: f32::slice(query),
            key: f32::slice(key),
            value: f32::slice(value),
            keys: Rows::new(&terms[0], layout, true),
            queries: Rows::new(&terms[1], layout, false),
            layout,
            batch: shape[0],
            tokens: shape[1],
            width: shape[2] / layout.heads,
        }
    }

    /// Features of all heads.
    fn features(&self) -> usize {
        self.width * self.layout.heads
    }

    /// The matrix `[L, d]` that `task` reads of a tensor `[B, L, H·d]`.
    fn head<'t>(&self, tensor: &'t [f32], task: usize) -> Matrix<'t> {
        let (example, head) = (task / self.layout.heads, task % self.layout.heads);
        let first = example * self.tokens * self.features() + head * self.width;
        Matrix::spaced(&tensor[first..], self.tokens, self.width, self.features())
    }

    /// `hidden` and `up` of a term that `task` reads, `[count, rank]` and `[rank, d]`.
    fn low<'t>(&self, rows: &Rows<'t>, task: usize) -> Option<(Matrix<'t>, Matrix<'t>)> {
        let (example, head) = (task / self.layout.heads, task % self.layout.heads);
        let (hidden, up) = rows.low?;
        let (count, rank) = (rows.count, rows.rank);
        let example = if rows.factors == 1 { 0 } else { example };
        let hidden = Matrix::new(&hidden[example * count * rank..], count, rank);
        let up = &up[example * rank * self.features() + head * self.width..];
        Some((hidden, Matrix::spaced(up, rank, self.width, self.features())))
    }

    /// The rows of a term that `task` reads, `[count, d]`.
    fn position_rows(&self, rows: &Rows<'_>, task: usize) -> Vec<f32> {
        let (example, head) = (task / self.layout.heads, task % self.layout.heads);
        let first = head * self.width;
        let size = rows.count * self.features();
        let shared = &rows.shared[if rows.copies == 1 { 0 } else { example * size }..][..size];
        let mut out = Vec::with_capacity(rows.count * self.width);
        for row in shared.chunks_exact(self.features()) {
            out.extend_from_slice(&row[first..first + self.width]);
        }
        if let Some((hidden, up)) = self.low(rows, task) {
            Product::plain(hidden, &pack_wide(up)).added().run_here(&mut out);
        }
        out
    }

    /// `x·rowsᵀ`, `[L, count]`.
    fn position_scores(&self, rows: &Rows<'_>, x: Matrix<'_>, task: usize) -> Vec<f32> {
        let values = self.position_rows(rows, task);
        let matrix = Matrix::new(&values, rows.count, self.width);
        let mut scores = vec![0.0; self.tokens * rows.count];
        Product::plain(x, &pack_wide(matrix.transposed())).run_here(&mut scores);
        scores
    }

    /// Writes the probabilities of one head and returns its output, `[L, d]`.
    fn forward(&self, mask: Option<&[f32]>, task: usize, p: &mut [f32]) -> Vec<f32> {
        let (query, key) = (self.head(self.query, task), self.head(self.key, task));
        Product::plain(query, &pack_wide(key.transposed())).run_here(p);
        let c2p = self.keys.as_ref().map(|rows| Scores {
            values: self.position_scores(rows, query, task),
            places: &rows.places,
        });
        let p2c = self.queries.as_ref().map(|rows| Scores {
            values: self.position_scores(rows, key, task),
            places: &rows.places,
        });
        masked_softmax(p, c2p.as_ref(), p2c.as_ref(), mask, self.layout.scale as f32);
        let kept = self.dropped(p, task);
        let kept = Matrix::new(kept.as_deref().unwrap_or(p), self.tokens, self.tokens);
        let mut out = vec![0.0; self.tokens * self.width];
        Product::plain(kept, &pack_wide(self.head(self.value, task))).run_here(&mut out);
        out
    }

    /// The values after dropout, if there is any.
    fn dropped(&self, values: &[f32], task: usize) -> Option<Vec<f32>> {
        let (rate, key) = self.layout.dropout?;
        let mut values = values.to_vec();
        dropout::cpu::apply(&mut values, task * self.tokens * self.tokens, rate, key);
        Some(values)
    }

    /// Gradients of one head from its probabilities and that of the whole output.
    fn backward(&self, p: &[f32], grad: &[f32], task: usize) -> HeadGradients {
        let (tokens, square) =
            (self.tokens, |values| Matrix::new(values, self.tokens, self.tokens));
        let grad = self.head(grad, task);
        let (query, key) = (self.head(self.query, task), self.head(self.key, task));
        let new = || vec![0.0; tokens * self.width];

        let mut d_value = new();
        let kept = self.dropped(p, task);
        let kept = square(kept.as_deref().unwrap_or(p)).transposed();
        Product::plain(kept, &pack_wide(grad)).run_here(&mut d_value);

        let mut d_score = vec![0.0; tokens * tokens];
        let value = self.head(self.value, task).transposed();
        Product::plain(grad, &pack_wide(value)).run_here(&mut d_score);
        if let Some(dropped) = self.dropped(&d_score, task) {
            d_score = dropped;
        }
        softmax_gradient_rows(&mut d_score, p, tokens, self.layout.scale as f32);

        let (packed_query, packed_key) = (pack_wide(query), pack_wide(key));
        let (mut d_query, mut d_key) = (new(), new());
        Product::plain(square(&d_score), &packed_key).run_here(&mut d_query);
        Product::plain(square(&d_score).transposed(), &packed_query).run_here(&mut d_key);
        let of_keys = self.keys.as_ref().map(|rows| {
            let sums = rows.places.sums_of_rows(&d_score, tokens);
            self.term(rows, &sums, &packed_query, &mut d_query, task)
        });
        let of_queries = self.queries.as_ref().map(|rows| {
            let sums = rows.places.sums_of_columns(&d_score, tokens);
            self.term(rows, &sums, &packed_key, &mut d_key, task)
        });
        HeadGradients { operands: [d_query, d_key, d_value], terms: [of_keys, of_queries] }
    }

    /// Adds what the position scores of `x` give to its gradient; `sums` is the gradient of the scores,
    /// `[L, count]`.
    fn term(
        &self,
        rows: &Rows<'_>,
        sums: &[f32],
        x: &Panels,
        d_x: &mut [f32],
        task: usize,
    ) -> TermGradient {
        let (count, rank) = (rows.count, rows.rank);
        let sums = Matrix::new(sums, self.tokens, count);
        let values = self.position_rows(rows, task);
        let panels = pack_wide(Matrix::new(&values, count, self.width));
        Product::plain(sums, &panels).added().run_here(d_x);
        let mut d_rows = values;
        Product::plain(sums.transposed(), x).run_here(&mut d_rows);
        let (mut d_hidden, mut d_up) = (vec![0.0; count * rank], vec![0.0; rank * self.width]);
        if let Some((hidden, up)) = self.low(rows, task) {
            let d_rows = Matrix::new(&d_rows, count, self.width);
            Product::plain(d_rows, &pack_wide(up.transposed())).run_here(&mut d_hidden);
            Product::plain(hidden.transposed(), &pack_wide(d_rows)).run_here(&mut d_up);
        }
        TermGradient { rows: d_rows, hidden: d_hidden, up: d_up }
    }
}

/// Saved are the operands but for the mask, and the probabilities before dropout.
pub(super) fn forward(op: &DisentangledAttention, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let mut saved = x.keep(save, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let (operands, terms, mask) = arguments(x);
    let operands = operands.map(contiguous);
    let terms = terms.map(|term| term.map(|tensor| tensor.map(contiguous)));
    let mask = mask.map(contiguous);
    let call = Call::new(operands.each_ref(), &terms, &op.0);
    let (batch, tokens, heads) = (call.batch, call.tokens, op.0.heads);
    let mut probabilities = zeros(batch * heads * tokens * tokens);
    let mask = mask.as_ref().map(f32::slice);
    let tasks = probabilities.chunks_exact_mut(tokens * tokens).enumerate().collect();
    let parts = run(tasks, |(task, p): (usize, &mut [f32])| {
        let mask = mask.map(|mask| &mask[task / heads * tokens..][..tokens]);
        call.forward(mask, task, p)
    });
    let out = beside(parts.iter().map(Vec::as_slice), operands[0].shape(), heads);
    if save {
        let shape = Shape::new([batch, heads, tokens, tokens]);
        saved.tensors.push(Some(f32::tensor(probabilities, shape)));
    }
    Fused { out, saved }
}

pub(super) fn gradient(
    op: &DisentangledAttention,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let (operands, terms, probability) = arguments(saved);
    let operands = operands.map(contiguous);
    let terms = terms.map(|term| term.map(|tensor| tensor.map(contiguous)));
    let probability = contiguous(probability.expect("the forward pass saves them"));
    let grad = contiguous(grad);
    let call = Call::new(operands.each_ref(), &terms, &op.0);
    let (tokens, heads) = (call.tokens, op.0.heads);
    let p = f32::slice(&probability).chunks_exact(tokens * tokens).enumerate().collect();
    let grad = f32::slice(&grad);
    let parts = run(p, |(task, p): (usize, &[f32])| call.backward(p, grad, task));
    let mut all: Vec<_> = (0..3)
        .map(|i| {
            let parts = parts.iter().map(|part| part.operands[i].as_slice());
            needs_grad[i].then(|| beside(parts, operands[i].shape(), heads))
        })
        .collect();
    for (i, rows) in [call.keys.as_ref(), call.queries.as_ref()].into_iter().enumerate() {
        let needs_grad = &needs_grad[3 * (i + 1)..][..3];
        let Some(rows) = rows else {
            all.extend([None, None, None]);
            continue;
        };
        let parts: Vec<&TermGradient> =
            parts.iter().filter_map(|part| part.terms[i].as_ref()).collect();
        all.extend(term_gradients(&call, rows, &parts, needs_grad));
    }
    all.into()
}

/// Gradients of one position term: shared rows, `hidden` and `up`, where `needs_grad`.
fn term_gradients(
    call: &Call<'_>,
    rows: &Rows<'_>,
    parts: &[&TermGradient],
    needs_grad: &[bool],
) -> [Option<FlexTensor>; 3] {
    let (heads, width, low) = (call.layout.heads, call.width, rows.low.is_some());
    let joined =
        |of: fn(&TermGradient) -> &[f32], copies: usize, groups: usize, size: [usize; 2]| {
            let shared = copies == 1;
            let shape = Shape::new([copies, size[0], groups * size[1]]);
            Parts { heads, groups, shared, size }.tensor(parts.iter().map(|part| of(part)), shape)
        };
    [
        needs_grad[0].then(|| joined(|part| &part.rows, rows.copies, heads, [rows.count, width])),
        (needs_grad[1] && low)
            .then(|| joined(|part| &part.hidden, rows.factors, 1, [rows.count, rows.rank])),
        (needs_grad[2] && low)
            .then(|| joined(|part| &part.up, rows.factors, heads, [rows.rank, width])),
    ]
}

/// `[B, L, H·d]` from one `[L, d]` per example and head.
fn beside<'a>(
    parts: impl ExactSizeIterator<Item = &'a [f32]>,
    shape: Shape,
    heads: usize,
) -> FlexTensor {
    let size = [shape[1], shape[2] / heads];
    Parts { heads, groups: heads, shared: false, size }.tensor(parts, shape)
}
