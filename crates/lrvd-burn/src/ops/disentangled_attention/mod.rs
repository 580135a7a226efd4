//! Attention with relative positions.

mod composite;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "flex")]
mod places;
#[cfg(feature = "flex")]
mod rows;

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;

use super::op::{self, FusedOp, LrvdBackend, Operands};

/// Projected position rows, `shared + hidden·up`: matrices for all sequences or one for each; their sum is
/// never held.
#[derive(Clone, Debug)]
pub struct PositionRows {
    /// `[1 | B, rows, heads·d]`.
    pub shared: Tensor<3>,
    /// `[1 | B, rows, rank]` and `[1 | B, rank, heads·d]`.
    pub low: Option<(Tensor<3>, Tensor<3>)>,
}

/// How scores come about.
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
    let x = operands([query, key, value], [keys, queries], mask, &layout);
    op::fused(DisentangledAttention(layout), x)
}

/// [`disentangled_attention()`](fn@disentangled_attention) from Burn's operations.
///
/// # Panics
///
/// As [`disentangled_attention()`](fn@disentangled_attention).
pub fn disentangled_attention_composite(
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    keys: Option<PositionRows>,
    queries: Option<PositionRows>,
    mask: Option<Tensor<2>>,
    layout: AttentionLayout,
) -> Tensor<3> {
    let x = operands([query, key, value], [keys, queries], mask, &layout);
    op::composite(DisentangledAttention(layout), x)
}

/// Query, key and value, then shared rows, `hidden` and `up` of either term, and the mask.
fn operands(
    operands: [Tensor<3>; 3],
    terms: [Option<PositionRows>; 2],
    mask: Option<Tensor<2>>,
    layout: &AttentionLayout,
) -> Operands<Dispatch> {
    check(operands.each_ref(), terms.each_ref().map(Option::as_ref), mask.as_ref(), layout);
    let mut all: Vec<_> = operands.into_iter().map(Some).collect();
    for term in terms {
        let (shared, low) = term.map(|rows| (rows.shared, rows.low)).unzip();
        let (hidden, up) = low.flatten().unzip();
        all.extend([shared, hidden, up]);
    }
    let mut all: Vec<_> = all.into_iter().map(|x| x.map(Tensor::into_dispatch)).collect();
    all.push(mask.map(Tensor::into_dispatch));
    all.into()
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

#[derive(Clone, Debug)]
struct DisentangledAttention(AttentionLayout);

impl FusedOp for DisentangledAttention {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        composite::forward(&self.0, x)
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        let form = op::Form { forward: cpu::forward, gradient: Some(cpu::gradient) };
        (dtype == burn::tensor::DType::F32).then_some(form)
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(op::Form { forward: cube::forward, gradient: Some(cube::gradient) })
    }
}
