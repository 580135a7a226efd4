//! Attention with relative positions.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{Tensor, TensorData};
use lrvd_core::noise::NoiseKey;

use super::dropout::Dropout;
use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, masked_softmax};

/// Projected position rows, `shared + hidden·up`: matrices for all sequences or one for each; their sum is
/// never held.
#[derive(Clone, Debug)]
pub struct PositionRows {
    /// `[1 | B, rows, heads·d]`.
    pub shared: Tensor<3>,
    /// `[1 | B, rows, rank]` and `[1 | B, rank, heads·d]`.
    pub low: Option<(Tensor<3>, Tensor<3>)>,
}

/// Heads, positions, scale and dropout of the scores.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionLayout {
    /// Number of heads.
    pub heads: usize,
    /// Row of the position rows for each offset `i − j + L − 1`, `2L − 1` of them; empty without positions.
    pub rows: Arc<[u32]>,
    /// Factor of the scores.
    pub scale: f64,
    /// Drop probability of the attention probabilities, and the key of the mask.
    pub dropout: Option<(f64, NoiseKey)>,
}

/// Disentangled self-attention of all heads, before the output projection.
///
/// # Formula
///
/// ```text
/// score(i, j) = (q_i·k_j + q_i·pk[n] + k_j·pq[n]) · scale       n = rows[i − j + L − 1]
/// P(i, ·)     = softmax of score(i, ·) over the keys j with mask[j] = 1
/// out_i       = Σ_j dropout(P)(i, j) · v_j
/// ```
///
/// Masked keys get probability exactly 0; a row without any key gives zeros.
///
/// # Shapes
///
/// | Name | Shape | |
/// |---|---|---|
/// | `query`, `key`, `value`, *returns* | `[B, L, heads·d]` | |
/// | `keys`, `queries` | [`PositionRows`] | `pk` and `pq`; a term without rows is left out |
/// | `mask` | `[B, L]` | 1 for keys to attend to, 0 for padding; no gradient |
///
/// # Numerics
///
/// Scores meet the position rows themselves, not a copy for every offset, and are read at their places
/// inside the softmax: nothing is gathered, scattered or shifted in memory. The backward pass saves the
/// arguments and `P`; with `dS = P ⊙ (dP − rowsum(dP ⊙ P)) · scale`, the gradient of a position term sums
/// `dS` over the places that read it.
///
/// # Panics
///
/// If the shapes are not those of the table, or a row number is beyond the rows.
///
/// # References
///
/// He et al. 2021 (`DeBERTa`), arXiv:2006.03654, equation 4.
pub fn disentangled_attention(
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    keys: Option<PositionRows>,
    queries: Option<PositionRows>,
    mask: Option<Tensor<2>>,
    layout: AttentionLayout,
) -> Tensor<3> {
    check([&query, &key, &value], [keys.as_ref(), queries.as_ref()], mask.as_ref(), &layout);
    let mut operands = [query, key, value].map(Some).to_vec();
    for term in [keys, queries] {
        let (shared, low) = term.map(|rows| (rows.shared, rows.low)).unzip();
        let (hidden, up) = low.flatten().unzip();
        operands.extend([shared, hidden, up]);
    }
    let mut operands: Vec<_> = operands.into_iter().map(|x| x.map(Tensor::into_dispatch)).collect();
    operands.push(mask.map(Tensor::into_dispatch));
    op::fused(DisentangledAttention(layout), operands.into())
}

fn check(
    operands: [&Tensor<3>; 3],
    positions: [Option<&PositionRows>; 2],
    mask: Option<&Tensor<2>>,
    layout: &AttentionLayout,
) {
    let [batch, tokens, width] = operands[0].dims();
    for (name, operand) in ["query", "key", "value"].into_iter().zip(operands) {
        assert_eq!(operand.dims(), [batch, tokens, width], "shape of `{name}`");
    }
    assert!(
        layout.heads > 0 && width.is_multiple_of(layout.heads),
        "{width} features in {} heads",
        layout.heads
    );
    for (name, term) in ["keys", "queries"].into_iter().zip(positions) {
        let Some(PositionRows { shared, low }) = term else { continue };
        let [copies, count, features] = shared.dims();
        assert!(
            copies == 1 || copies == batch,
            "{copies} copies of `{name}` for {batch} sequences"
        );
        assert_eq!(features, width, "features of `{name}`");
        assert_eq!(layout.rows.len(), (2 * tokens).saturating_sub(1), "number of offsets");
        assert!(layout.rows.iter().all(|&row| (row as usize) < count), "rows of `{name}`");
        if let Some((hidden, up)) = low {
            let [copies, _, rank] = hidden.dims();
            assert!(
                copies == 1 || copies == batch,
                "{copies} factors of `{name}` for {batch} sequences"
            );
            assert_eq!(hidden.dims(), [copies, count, rank], "shape of `hidden` of `{name}`");
            assert_eq!(up.dims(), [copies, rank, width], "shape of `up` of `{name}`");
        }
    }
    if let Some(mask) = mask {
        assert_eq!(mask.dims(), [batch, tokens], "shape of `mask`");
    }
}

/// Of query, key and value, then shared rows, `hidden` and `up` of either term, and the mask.
#[derive(Clone, Debug)]
struct DisentangledAttention(AttentionLayout);

impl FusedOp for DisentangledAttention {
    /// The shift that aligns relative positions with keys is a reinterpretation of memory: with one column of padding, rows of
    /// `2L` numbers read as rows of `2L-1` start one place earlier each.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let AttentionLayout { heads, scale, .. } = self.0;
        let ([query, key, value], [keys, queries], mask) = arguments(x);
        let [batch, tokens, _] = query.shape().dims();
        if query.shape().num_elements() == 0 {
            return value;
        }
        let [q, k, v] = [query, key, value].map(|x| split(Value::<B>(x), heads));
        let sizes = [batch, heads, tokens];
        let mut score = q.clone().matmul(k.clone().swap(2, 3));
        if let Some(rows) = self.columns(&keys, true) {
            score = score + align(q.matmul(rows.swap(2, 3)), sizes);
        }
        if let Some(rows) = self.columns(&queries, false) {
            score = score + align(k.matmul(rows.swap(2, 3)), sizes).swap(2, 3);
        }
        score = score * scale;
        let p = if let Some(mask) = mask {
            masked_softmax(score, Value::<B>(mask).reshape([batch, 1, 1, tokens]))
        } else {
            let weight = (score.clone() - score.max(3).detach()).exp();
            weight.clone() / weight.sum(3)
        };
        let p = self.dropped::<B>(p);
        join(p.matmul(v)).0
    }

    op::forms!(cpu, cube);
}

impl DisentangledAttention {
    fn dropped<B: LrvdBackend>(&self, p: Value<B>) -> Value<B> {
        match self.0.dropout {
            Some((rate, key)) => Value(B::fused(Dropout { rate, key }, Operands::of([p.0]))),
            None => p,
        }
    }

    /// The rows of a term, one for every column of its scores, `[1 | B, heads, 2L−1, d]`: falling offsets for keys, rising
    /// ones for queries.
    fn columns<B: Backend>(&self, term: &Term<B>, falling: bool) -> Option<Value<B>> {
        let all = whole::<B>(term)?;
        let mut rows: Vec<i32> = self.0.rows.iter().map(|&row| row as i32).collect();
        if falling {
            rows.reverse();
        }
        let count = rows.len();
        let rows = B::int_from_data(TensorData::new(rows, [count]), &all.0.device());
        Some(split(Value(B::float_select(all.0, 1, rows)), self.0.heads))
    }
}

/// Shared rows, `hidden` and `up` of one position term.
type Term<B> = [Option<FloatTensor<B>>; 3];

/// Query, key and value, both terms, and the mask.
type Arguments<B> = ([FloatTensor<B>; 3], [Term<B>; 2], Option<FloatTensor<B>>);

fn arguments<B: Backend>(x: Operands<B>) -> Arguments<B> {
    let (operands, [k0, k1, k2, q0, q1, q2, mask]) = x.parts();
    (operands, [[k0, k1, k2], [q0, q1, q2]], mask)
}

/// `[n, rows, heads·d]` as `[n, heads, rows, d]`.
fn split<B: Backend>(x: Value<B>, heads: usize) -> Value<B> {
    let shape = x.shape();
    x.reshape([shape[0], shape[1], heads, shape[2] / heads]).swap(1, 2)
}

/// The transpose of [`split`].
fn join<B: Backend>(x: Value<B>) -> Value<B> {
    let shape = x.shape();
    x.swap(1, 2).reshape([shape[0], shape[2], shape[1] * shape[3]])
}

/// All rows of a term, `[1 | B, rows, heads·d]`.
fn whole<B: Backend>(term: &Term<B>) -> Option<Value<B>> {
    let [shared, hidden, up] = term.clone();
    let shared = Value::<B>(shared?);
    let low = hidden.zip(up).map(|(hidden, up)| Value::<B>(hidden).matmul(Value(up)));
    Some(if let Some(low) = low { low + shared } else { shared })
}

/// `out[i, j] = position[i, (L-1-i)+j]` of scores `[B, H, L, 2L−1]`.
fn align<B: Backend>(position: Value<B>, [b, h, l]: [usize; 3]) -> Value<B> {
    let columns = 2 * l - 1;
    position
        .pad_last_axis(0, 1)
        .reshape([b, h, l * 2 * l])
        .last_axis(l - 1..l - 1 + l * columns)
        .reshape([b, h, l, columns])
        .last_axis(0..l)
}

/// One task per example and head.
#[cfg(feature = "flex")]
mod cpu {
    use super::{AttentionLayout, DisentangledAttention, arguments};
    use crate::ops::cpu::prelude::*;
    use crate::ops::dropout::{self, Dropout};
    use crate::ops::window::Window;

    /// Rows of scores handled together, so that what their columns read stays in the first cache.
    const ROWS: usize = 16;

    /// One call: arguments in row-major order, and sizes.
    struct Call<'a> {
        operands: [&'a [f32]; 3],
        heads: Heads,
        terms: [Option<Rows<'a>>; 2],
        layout: &'a AttentionLayout,
    }

    /// Position rows of all heads, and where scores read them.
    struct Rows<'a> {
        /// Shared rows `[1 | B, count, H·d]`, `hidden` `[1 | B, count, rank]` and `up` `[1 | B, rank, H·d]`.
        parts: [Option<(&'a FlexTensor, Heads)>; 3],
        count: usize,
        /// Token `r` meets its partner `c` at place `c − r + L − 1`: keys by falling, queries by rising row numbers, so that
        /// neighbours read neighbours.
        places: Vec<u32>,
        /// `true` if the transposes of the rows are packed, for scores; `false` for gradients.
        transposed: bool,
        /// Packed rows of each head, where all examples share them.
        packed: Vec<Panels>,
    }

    /// Gradients of one head: query, key and value, `[L, d]`, and the parts of the two position terms.
    struct HeadGradients {
        operands: [Vec<f32>; 3],
        terms: [Option<[Vec<f32>; 3]>; 2],
    }

    impl<'a> Rows<'a> {
        fn new(
            term: &'a [Option<FlexTensor>; 3],
            layout: &AttentionLayout,
            [falling, transposed]: [bool; 2],
        ) -> Option<Self> {
            let count = term[0].as_ref()?.shape()[1];
            let heads = layout.heads;
            let parts = std::array::from_fn(|i| {
                // `hidden` has no heads.
                let groups = if i == 1 { 1 } else { heads };
                let tensor = term[i].as_ref()?;
                let [copies, lines, features] = tensor.shape().dims();
                let (shared, width) = (copies == 1, features / groups);
                Some((tensor, Heads { count: heads, groups, shared, lines, width }))
            });
            let mut places = layout.rows.to_vec();
            if falling {
                places.reverse();
            }
            let mut rows = Self { parts, count, places, transposed, packed: Vec::new() };
            if parts.iter().flatten().all(|(_, heads)| heads.shared) {
                rows.packed = run((0..heads).collect(), |head| rows.pack(head));
            }
            Some(rows)
        }

        /// Rows of part `i` that `task` reads.
        fn part(&self, i: usize, task: usize) -> Option<Matrix<'a>> {
            self.parts[i].map(|(tensor, heads)| heads.part(slice(tensor), task))
        }

        fn pack(&self, task: usize) -> Panels {
            let values = self.values(task);
            let rows = Matrix::new(&values, self.count, values.len() / self.count);
            pack_wide(if self.transposed { rows.transposed() } else { rows })
        }

        /// `run` with the packed rows that `task` reads.
        fn with_packed<T>(&self, task: usize, run: impl FnOnce(&Panels) -> T) -> T {
            match self.packed.len() {
                0 => run(&self.pack(task)),
                heads => run(&self.packed[task % heads]),
            }
        }

        /// The rows that `task` reads, `[count, d]`.
        fn values(&self, task: usize) -> Vec<f32> {
            let Matrix { values, rows, columns, strides } =
                self.part(0, task).expect("a term has shared rows");
            let mut out = Vec::with_capacity(rows * columns);
            for row in 0..rows {
                out.extend_from_slice(&values[row * strides[0]..][..columns]);
            }
            if let Some((hidden, up)) = self.part(1, task).zip(self.part(2, task)) {
                Product::plain(hidden, &pack_wide(up)).added().run_here(&mut out);
            }
            out
        }

        /// `x·rowsᵀ`, `[L, count]`.
        fn scores(&self, x: Matrix<'_>, task: usize) -> Vec<f32> {
            self.with_packed(task, |rows| product(x, rows))
        }

        /// The rows that token `r` reads for partners `first..first + count`.
        fn read(&self, r: usize, tokens: usize, first: usize, count: usize) -> &[u32] {
            &self.places[tokens - 1 - r + first..][..count]
        }

        /// Sums of each row of `[L, L]`, or of each column if `of_columns`, by the position row that its entries read,
        /// `[L, count]`.
        fn sums(&self, scores: &[f32], tokens: usize, of_columns: bool) -> Vec<f32> {
            let mut sums = vec![0.0; tokens * self.count];
            for (i, scores) in scores.chunks_exact(tokens).enumerate() {
                if of_columns {
                    let tokens_of = scores.iter().zip(sums.chunks_exact_mut(self.count));
                    for (r, (&score, sums)) in tokens_of.enumerate() {
                        sums[self.places[tokens - 1 - r + i] as usize] += score;
                    }
                } else {
                    let sums = &mut sums[i * self.count..][..self.count];
                    for (&score, &place) in scores.iter().zip(self.read(i, tokens, 0, tokens)) {
                        sums[place as usize] += score;
                    }
                }
            }
            sums
        }
    }

    impl<'a> Call<'a> {
        fn new(
            operands: &'a [FlexTensor; 3],
            terms: &'a [[Option<FlexTensor>; 3]; 2],
            layout: &'a AttentionLayout,
            backward: bool,
        ) -> Self {
            let (heads, [_, lines, features]) = (layout.heads, operands[0].shape().dims());
            let width = features / heads;
            Self {
                operands: operands.each_ref().map(slice),
                heads: Heads { count: heads, groups: heads, shared: false, lines, width },
                terms: [
                    Rows::new(&terms[0], layout, [true, !backward]),
                    Rows::new(&terms[1], layout, [false, !backward]),
                ],
                layout,
            }
        }

        /// The matrices `[L, d]` of query, key and value that `task` reads.
        fn heads(&self, task: usize) -> [Matrix<'a>; 3] {
            self.operands.map(|tensor| self.heads.part(tensor, task))
        }

        /// Writes the probabilities of one head and returns its output, `[L, d]`.
        fn forward(&self, mask: Option<&[f32]>, task: usize, p: &mut [f32]) -> Vec<f32> {
            let [query, key, value] = self.heads(task);
            let tokens = self.heads.lines;
            Product::plain(query, &pack_wide(key.transposed())).run_here(p);
            self.add_positions(p, query, key, task);
            softmax_rows(p, tokens, mask, Window::ALL, 0, self.layout.scale as f32);
            let kept = self.dropped(p, task);
            let kept = Matrix::new(kept.as_deref().unwrap_or(p), tokens, tokens);
            product(kept, &pack_wide(value))
        }

        /// Adds the position scores to the content scores of one head.
        fn add_positions(&self, p: &mut [f32], query: Matrix<'_>, key: Matrix<'_>, task: usize) {
            let tokens = self.heads.lines;
            let [c2p, p2c] = [(&self.terms[0], query), (&self.terms[1], key)]
                .map(|(rows, x)| rows.as_ref().map(|rows| (rows, rows.scores(x, task))));
            for (block, scores) in p.chunks_mut(ROWS * tokens).enumerate() {
                let first = block * ROWS;
                if let Some((rows, values)) = &p2c {
                    let count = scores.len() / tokens;
                    for (j, row) in values.chunks_exact(rows.count).enumerate() {
                        for (k, &place) in rows.read(j, tokens, first, count).iter().enumerate() {
                            scores[k * tokens + j] += row[place as usize];
                        }
                    }
                }
                if let Some((rows, values)) = &c2p {
                    for (k, scores) in scores.chunks_exact_mut(tokens).enumerate() {
                        let row = &values[(first + k) * rows.count..][..rows.count];
                        let places = rows.read(first + k, tokens, 0, tokens);
                        for (score, &place) in scores.iter_mut().zip(places) {
                            *score += row[place as usize];
                        }
                    }
                }
            }
        }

        /// The values after dropout, if there is any.
        fn dropped(&self, values: &[f32], task: usize) -> Option<Vec<f32>> {
            let (rate, key) = self.layout.dropout?;
            let mut values = values.to_vec();
            let first = task * values.len();
            dropout::cpu::apply(&mut values, first, &Dropout { rate, key });
            Some(values)
        }

        /// Gradients of one head from its probabilities and that of the whole output.
        fn backward(&self, p: &[f32], grad: &[f32], task: usize) -> HeadGradients {
            let tokens = self.heads.lines;
            let square = |values| Matrix::new(values, tokens, tokens);
            let grad = self.heads.part(grad, task);
            let [query, key, value] = self.heads(task);

            let kept = self.dropped(p, task);
            let kept = square(kept.as_deref().unwrap_or(p)).transposed();
            let d_value = product(kept, &pack_wide(grad));

            let mut d_score = product(grad, &pack_wide(value.transposed()));
            if let Some(dropped) = self.dropped(&d_score, task) {
                d_score = dropped;
            }
            softmax_gradient_rows(&mut d_score, p, tokens, self.layout.scale as f32);

            let (query, key) = (pack_wide(query), pack_wide(key));
            let mut d_query = product(square(&d_score), &key);
            let mut d_key = product(square(&d_score).transposed(), &query);
            let [keys, queries] = self.terms.each_ref().map(Option::as_ref);
            let of_keys = keys.map(|rows| {
                let sums = rows.sums(&d_score, tokens, false);
                self.term(rows, &sums, &query, &mut d_query, task)
            });
            let of_queries = queries.map(|rows| {
                let sums = rows.sums(&d_score, tokens, true);
                self.term(rows, &sums, &key, &mut d_key, task)
            });
            HeadGradients { operands: [d_query, d_key, d_value], terms: [of_keys, of_queries] }
        }

        /// Adds what the position scores of `x` give to its gradient, and returns those of the rows' parts; `sums` is the
        /// gradient of the scores, `[L, count]`.
        fn term(
            &self,
            rows: &Rows<'_>,
            sums: &[f32],
            x: &Panels,
            d_x: &mut [f32],
            task: usize,
        ) -> [Vec<f32>; 3] {
            let (tokens, width) = (self.heads.lines, self.heads.width);
            let sums = Matrix::new(sums, tokens, rows.count);
            rows.with_packed(task, |rows| Product::plain(sums, rows).added().run_here(d_x));
            let d_rows = product(sums.transposed(), x);
            let (mut d_hidden, mut d_up) = (Vec::new(), Vec::new());
            if let Some((hidden, up)) = rows.part(1, task).zip(rows.part(2, task)) {
                let d_rows = Matrix::new(&d_rows, rows.count, width);
                d_hidden = product(d_rows, &pack_wide(up.transposed()));
                d_up = product(hidden.transposed(), &pack_wide(d_rows));
            }
            [d_rows, d_hidden, d_up]
        }
    }

    /// Saved are the operands but for the mask, and the probabilities before dropout.
    pub(crate) fn forward(
        op: &DisentangledAttention,
        x: Operands<Flex>,
        save: bool,
    ) -> Fused<Flex> {
        let mut saved = x.keep(save, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let (operands, terms, mask) = arguments(x);
        let operands = operands.map(contiguous);
        let terms = terms.map(|term| term.map(|tensor| tensor.map(contiguous)));
        let mask = mask.map(contiguous);
        let call = Call::new(&operands, &terms, &op.0, false);
        let (shape, heads) = (operands[0].shape(), op.0.heads);
        let (batch, tokens) = (shape[0], shape[1]);
        let mut probabilities = zeros(batch * heads * tokens * tokens);
        let mask = mask.as_ref().map(slice);
        let tasks = probabilities.chunks_exact_mut(tokens * tokens).enumerate().collect();
        let parts = run(tasks, |(task, p): (usize, &mut [f32])| {
            let mask = mask.map(|mask| &mask[task / heads * tokens..][..tokens]);
            call.forward(mask, task, p)
        });
        let out = call.heads.join(parts.iter().map(Vec::as_slice), shape);
        if save {
            saved.tensors.push(Some(tensor(probabilities, [batch, heads, tokens, tokens])));
        }
        Fused { out, saved }
    }

    pub(crate) fn gradient(op: &DisentangledAttention, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad } = x;
        let (operands, terms, probability) = arguments(saved);
        let operands = operands.map(contiguous);
        let terms = terms.map(|term| term.map(|tensor| tensor.map(contiguous)));
        let probability = contiguous(probability.expect("the forward pass saves them"));
        let grad = contiguous(grad);
        let call = Call::new(&operands, &terms, &op.0, true);
        let tokens = call.heads.lines;
        let p = slice(&probability).chunks_exact(tokens * tokens).enumerate().collect();
        let parts = run(p, |(task, p): (usize, &[f32])| call.backward(p, slice(&grad), task));
        let mut all: Vec<_> = (0..3)
            .map(|i| {
                let parts = parts.iter().map(|part| part.operands[i].as_slice());
                needs_grad[i].then(|| call.heads.join(parts, operands[i].shape()))
            })
            .collect();
        for (term, rows) in call.terms.iter().enumerate() {
            for i in 0..3 {
                let part = rows.as_ref().and_then(|rows| rows.parts[i]);
                all.push(part.filter(|_| needs_grad[3 * (term + 1) + i]).map(|(like, heads)| {
                    let parts = parts.iter().filter_map(|part| part.terms[term].as_ref());
                    heads.join(parts.map(|parts| parts[i].as_slice()), like.shape())
                }));
            }
        }
        all.into()
    }
}

/// Burn's products, and kernels for what lies between them: the softmax of content and position scores has one cube per
/// row, and sums in `f32`.
///
/// Position scores stay as the products leave them, one column for every row of the table, and are read
/// at their places. What reads a place is summed by the place itself, in the order of the offsets, so
/// that no two units write to one number.
#[cfg(feature = "cube")]
mod cube {
    use burn::backend::cubecl::dtype_to_storage_type;
    use burn::backend::ops::IntTensorOps;
    use burn::tensor::{Shape, TensorData};

    use super::{AttentionLayout, DisentangledAttention, Term, arguments, join, split, whole};
    use crate::ops::cube::prelude::*;

    /// Score of query `i` with key `j` of the head whose first query has row `first`, before its scale.
    #[cube]
    fn score<F: Float>(
        content: &Tensor<F>,
        c2p: ComptimeOption<&Tensor<F>>,
        p2c: ComptimeOption<&Tensor<F>>,
        rows: &Tensor<i32>,
        first: usize,
        i: usize,
        j: usize,
    ) -> f32 {
        let tokens = content.shape(3);
        let row = usize::cast_from(rows[i + tokens - 1 - j]);
        let mut score = f32::cast_from(content[(first + i) * tokens + j]);
        #[comptime]
        match c2p {
            ComptimeOption::Some(c2p) => {
                score += f32::cast_from(c2p[(first + i) * c2p.shape(3) + row]);
            }
            ComptimeOption::None => {}
        }
        #[comptime]
        match p2c {
            ComptimeOption::Some(p2c) => {
                score += f32::cast_from(p2c[(first + j) * p2c.shape(3) + row]);
            }
            ComptimeOption::None => {}
        }
        score
    }

    /// `true` if query `i` of `example` sees key `j`.
    #[cube]
    fn sees<F: Float>(
        mask: ComptimeOption<&Tensor<F>>,
        example: usize,
        tokens: usize,
        j: usize,
    ) -> bool {
        #[comptime]
        match mask {
            ComptimeOption::Some(mask) => f32::cast_from(mask[example * tokens + j]) != 0.0f32,
            ComptimeOption::None => true.runtime(),
        }
    }

    /// `content`, `out`: `[B, H, L, L]`; `c2p`, `p2c`: `[B, H, L, count]`; `mask`: `[B, L]`; `rows`: the row of
    /// each offset `i - j + L - 1`.
    #[cube(launch)]
    fn softmax_kernel<F: Float>(
        content: &Tensor<F>,
        c2p: ComptimeOption<&Tensor<F>>,
        p2c: ComptimeOption<&Tensor<F>>,
        mask: ComptimeOption<&Tensor<F>>,
        rows: &Tensor<i32>,
        out: &mut Tensor<F>,
        scale: f32,
        #[comptime] units: usize,
        #[define(F)] _dtype: ElemType,
    ) {
        let tokens = out.shape(3);
        if CUBE_POS >= out.len() / tokens {
            terminate!();
        }
        let i = CUBE_POS % tokens;
        let first = CUBE_POS - i;
        let example = first / tokens / out.shape(1);
        let mut shared = Shared::<[f32]>::new_slice(units);
        // Every unit keeps the maximum and the sum of what it has seen.
        let mut top = LOWEST.runtime();
        let mut total = 0.0f32;
        for j in range_stepped(UNIT_POS as usize, tokens, units) {
            if sees::<F>(mask, example, tokens, j) {
                let value = score::<F>(content, c2p, p2c, rows, first, i, j) * scale;
                let higher = top.max(value);
                total = total * exp_below(top - higher) + exp_below(value - higher);
                top = higher;
            }
        }
        let all = cube_reduce(top, &mut shared, true);
        let total = cube_reduce(total * exp_below(top - all), &mut shared, false);
        let factor = select(total == 0.0f32, 0.0f32, 1.0f32 / total);
        for j in range_stepped(UNIT_POS as usize, tokens, units) {
            let mut p = 0.0f32;
            if sees::<F>(mask, example, tokens, j) {
                let value = score::<F>(content, c2p, p2c, rows, first, i, j) * scale;
                p = exp_below(value - all) * factor;
            }
            out[CUBE_POS * tokens + j] = F::cast_from(p);
        }
    }

    /// `p · (grad - rowsum(grad · p)) · scale`, all `[.., L]`.
    #[cube(launch)]
    fn softmax_grad_kernel<F: Float>(
        p: &Tensor<F>,
        grad: &Tensor<F>,
        out: &mut Tensor<F>,
        scale: f32,
        #[comptime] units: usize,
        #[define(F)] _dtype: ElemType,
    ) {
        let tokens = out.shape(3);
        if CUBE_POS >= out.len() / tokens {
            terminate!();
        }
        let start = CUBE_POS * tokens;
        let mut shared = Shared::<[f32]>::new_slice(units);
        let mut mean = 0.0f32;
        for j in range_stepped(UNIT_POS as usize, tokens, units) {
            mean += f32::cast_from(p[start + j]) * f32::cast_from(grad[start + j]);
        }
        let mean = cube_reduce(mean, &mut shared, false);
        for j in range_stepped(UNIT_POS as usize, tokens, units) {
            let grad = f32::cast_from(grad[start + j]) - mean;
            out[start + j] = F::cast_from(f32::cast_from(p[start + j]) * grad * scale);
        }
    }

    /// Sums of a token's scores, `[B, H, L, L]`, over the places that read each row, `[B, H, L, count]`: its
    /// scores as query, or as key if `of_keys`. Row `n` is read at `offsets[starts[n]..starts[n + 1]]`; one
    /// unit per sum.
    #[cube(launch)]
    fn place_sums_kernel<F: Float>(
        scores: &Tensor<F>,
        starts: &Tensor<i32>,
        offsets: &Tensor<i32>,
        out: &mut Tensor<F>,
        #[comptime] of_keys: bool,
        #[define(F)] _dtype: ElemType,
    ) {
        if ABSOLUTE_POS >= out.len() {
            terminate!();
        }
        let tokens = scores.shape(3);
        let count = out.shape(3);
        let row = ABSOLUTE_POS % count;
        let line = ABSOLUTE_POS / count;
        let token = line % tokens;
        let mut sum = 0.0f32;
        for k in usize::cast_from(starts[row])..usize::cast_from(starts[row + 1]) {
            let offset = usize::cast_from(offsets[k]);
            // The partner's number, with `L - 1` added so that none is negative.
            if of_keys {
                let partner = token + offset;
                if partner >= tokens - 1 && partner < 2 * tokens - 1 {
                    let query = line - token + partner - (tokens - 1);
                    sum += f32::cast_from(scores[query * tokens + token]);
                }
            } else {
                let partner = token + 2 * (tokens - 1) - offset;
                if partner >= tokens - 1 && partner < 2 * tokens - 1 {
                    sum += f32::cast_from(scores[line * tokens + partner - (tokens - 1)]);
                }
            }
        }
        out[ABSOLUTE_POS] = F::cast_from(sum);
    }

    type Device = Value<Cube>;

    /// The rows of a term, `[1 | B, heads, rows, d]`.
    fn rows(term: &Term<Cube>, heads: usize) -> Option<Device> {
        whole::<Cube>(term).map(|rows| split(rows, heads))
    }

    fn indices(values: Vec<i32>, like: &CubeTensor) -> CubeTensor {
        let count = values.len();
        Cube::int_from_data(TensorData::new(values, [count]), &like.device)
    }

    /// Saved are the operands but for the mask, and the probabilities before dropout.
    pub(crate) fn forward(
        op: &DisentangledAttention,
        x: Operands<Cube>,
        save: bool,
    ) -> Fused<Cube> {
        let layout = &op.0;
        let mut saved = x.keep(save, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let (operands, terms, mask) = arguments(x);
        let [q, k, v] = operands.map(|x| split::<Cube>(Value(x), layout.heads));
        let [keys, queries] =
            terms.map(|term| rows(&term, layout.heads).map(|rows| rows.swap(2, 3)));
        let c2p = keys.map(|rows| q.clone().matmul(rows));
        let p2c = queries.map(|rows| k.clone().matmul(rows));
        let p = softmax(q.matmul(k.swap(2, 3)), [c2p, p2c], mask, layout);
        if save {
            saved.tensors.push(Some(p.clone()));
        }
        Fused { out: join(op.dropped::<Cube>(Value(p)).matmul(v)).0, saved }
    }

    fn softmax(
        content: Device,
        positions: [Option<Device>; 2],
        mask: Option<CubeTensor>,
        layout: &AttentionLayout,
    ) -> CubeTensor {
        let content = into_contiguous(content.0);
        let shape = content.shape();
        let tokens = shape[3];
        let out = empty(&content, content.shape());
        let mut offsets: Vec<i32> = layout.rows.iter().map(|&row| row as i32).collect();
        // Without positions nothing uses what is read there.
        offsets.resize(2 * tokens - 1, 0);
        let offsets = indices(offsets, &out);
        let [c2p, p2c] =
            positions.map(|scores| scores.map(|x| into_contiguous(x.0).into_tensor_arg()));
        let mask = mask.map(|mask| into_contiguous(mask).into_tensor_arg());
        let (sizes, units) = row_sizes(&out, shape.num_elements() / tokens, tokens);
        if let Some((count, dim)) = sizes {
            softmax_kernel::launch(
                &out.client,
                count,
                dim,
                content.into_tensor_arg(),
                c2p.into(),
                p2c.into(),
                mask.into(),
                offsets.into_tensor_arg(),
                out.clone().into_tensor_arg(),
                layout.scale as f32,
                units,
                dtype_to_storage_type(out.dtype),
            );
        }
        out
    }

    fn softmax_gradient(p: CubeTensor, grad: Device, scale: f64) -> Device {
        let (p, grad) = (into_contiguous(p), into_contiguous(grad.0));
        let out = empty(&p, p.shape());
        let (shape, tokens) = (p.shape(), p.shape()[3]);
        let (sizes, units) = row_sizes(&out, shape.num_elements() / tokens, tokens);
        launch!(softmax_grad_kernel, sizes, out.dtype, [p, grad] => [out], scale as f32, units);
        Value(out)
    }

    /// The offsets that read each of `count` rows, in order: those of row `n` lie from `starts[n]` to
    /// `starts[n + 1]`.
    fn readers(rows: &[u32], count: usize) -> [Vec<i32>; 2] {
        let mut offsets: Vec<usize> = (0..rows.len()).collect();
        offsets.sort_by_key(|&offset| rows[offset]);
        let starts = (0..=count).map(|row| offsets.partition_point(|&o| (rows[o] as usize) < row));
        [starts.map(|start| start as i32).collect(), offsets.iter().map(|&o| o as i32).collect()]
    }

    /// Gradient of the position scores, `[B, H, L, count]`, from that of the scores, `[B, H, L, L]`.
    fn place_sums(
        scores: &Device,
        layout: &AttentionLayout,
        count: usize,
        of_keys: bool,
    ) -> Device {
        let scores = into_contiguous(scores.0.clone());
        let [starts, offsets] = readers(&layout.rows, count).map(|list| indices(list, &scores));
        let shape = scores.shape();
        let out = empty(&scores, Shape::new([shape[0], shape[1], shape[2], count]));
        let dtype = out.dtype;
        launch!(place_sums_kernel, sizes(&out, 1), dtype, [scores, starts, offsets] => [out], of_keys);
        Value(out)
    }

    pub(crate) fn gradient(op: &DisentangledAttention, x: Upstream<'_, Cube>) -> Operands<Cube> {
        let Upstream { saved, grad, needs_grad } = x;
        let layout = &op.0;
        let (operands, terms, probability) = arguments(saved);
        let probability = probability.expect("the forward pass saves them");
        let [q, k, v] = operands.map(|x| split::<Cube>(Value(x), layout.heads));
        let grad = split::<Cube>(Value(grad), layout.heads);
        let d_v = needs_grad[2].then(|| {
            let kept = op.dropped::<Cube>(Value(probability.clone()));
            join(kept.swap(2, 3).matmul(grad.clone())).0
        });
        let d_p = op.dropped::<Cube>(grad.matmul(v.swap(2, 3)));
        let d_score = softmax_gradient(probability, d_p, layout.scale);
        let mut d_q = needs_grad[0].then(|| d_score.clone().matmul(k.clone()));
        let mut d_k = needs_grad[1].then(|| d_score.clone().swap(2, 3).matmul(q.clone()));
        let mut of_terms = Vec::new();
        let parts = [(&q, &mut d_q, false), (&k, &mut d_k, true)];
        for ((term, part), needs_grad) in
            terms.iter().zip(parts).zip(needs_grad[3..].chunks_exact(3))
        {
            let (x, d_x, of_keys) = part;
            let Some(rows) = rows(term, layout.heads) else {
                of_terms.extend([None, None, None]);
                continue;
            };
            let d_term = place_sums(&d_score, layout, rows.shape()[2], of_keys);
            if let Some(d_x) = d_x {
                *d_x = d_x.clone() + d_term.clone().matmul(rows);
            }
            of_terms.extend(if needs_grad.contains(&true) {
                of_rows(term, join(d_term.swap(2, 3).matmul(x.clone())))
            } else {
                [None, None, None]
            });
        }
        let mut all = vec![d_q.map(|x| join(x).0), d_k.map(|x| join(x).0), d_v];
        all.extend(of_terms);
        all.into()
    }

    /// From the gradient of the rows of every sequence, `[B, rows, heads·d]`.
    fn of_rows(term: &Term<Cube>, d_rows: Device) -> [Option<CubeTensor>; 3] {
        let of_copies = |like: &CubeTensor| {
            let d_rows = d_rows.clone();
            if like.shape()[0] == 1 { d_rows.sum(0) } else { d_rows }
        };
        let [shared, hidden, up] = term.clone();
        let d_shared = shared.map(|shared| of_copies(&shared).0);
        let Some((hidden, up)) = hidden.zip(up) else { return [d_shared, None, None] };
        let d_low = of_copies(&hidden);
        let d_hidden = d_low.clone().matmul(Value::<Cube>(up).swap(1, 2)).0;
        let d_up = Value::<Cube>(hidden).swap(1, 2).matmul(d_low).0;
        [d_shared, Some(d_hidden), Some(d_up)]
    }
}
