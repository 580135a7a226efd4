//! Softmax of disentangled attention scores.

pub(crate) mod backward;
pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::backend::{LrvdBackend, Maybe};

/// Attention probabilities from content and relative-position scores.
///
/// # Formula
///
/// ```text
/// score[b,h,i,j] = (content[b,h,i,j] + c2p[b,h,i, (L-1-i)+j] + p2c[b,h,j, (L-1-j)+i]) · scale
/// out[b,h,i,·]   = softmax of score[b,h,i,·] over the keys j with mask[b,j] = 1
/// ```
///
/// Column `L-1` of the position scores is distance 0. Masked keys get probability exactly 0; a row
/// without any key is all zeros.
///
/// # Shapes
///
/// | Name         | Shape            | Contents                                                  |
/// |--------------|------------------|-----------------------------------------------------------|
/// | `content`    | `[B, H, L, L]`   | query times key                                           |
/// | `c2p`        | `[B, H, L, 2L-1]`| query `i` times position; column `(L-1-i)+j` is key `j`   |
/// | `p2c`        | `[B, H, L, 2L-1]`| key `j` times position; column `(L-1-j)+i` is query `i`   |
/// | `mask`       | `[B, L]`         | 1 for keys to attend to, 0 for padding; no gradient       |
/// | *returns*    | `[B, H, L, L]`   | probabilities                                             |
///
/// # Numerics
///
/// The backward pass saves the output alone: with `P = out`, `dS = P ⊙ (dP - rowsum(dP ⊙ P)) · scale`,
/// and `dc2p`, `dp2c` are shifted copies of `dS`.
///
/// # Panics
///
/// If the shapes are not those of the table.
///
/// # References
///
/// He et al. 2021 (`DeBERTa`), arXiv:2006.03654, equation 4.
pub fn relative_softmax(
    content: Tensor<4>,
    c2p: Option<Tensor<4>>,
    p2c: Option<Tensor<4>>,
    mask: Option<Tensor<2>>,
    scale: f64,
) -> Tensor<4> {
    check(&content, c2p.as_ref(), p2c.as_ref(), mask.as_ref());
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_relative_softmax(
        content.into_dispatch(),
        Maybe::from(c2p.map(Tensor::into_dispatch)),
        Maybe::from(p2c.map(Tensor::into_dispatch)),
        Maybe::from(mask.map(Tensor::into_dispatch)),
        scale,
    ))
}

/// [`relative_softmax()`](fn@relative_softmax) from Burn's operations.
///
/// # Panics
///
/// As [`relative_softmax()`](fn@relative_softmax).
pub fn relative_softmax_composite(
    content: Tensor<4>,
    c2p: Option<Tensor<4>>,
    p2c: Option<Tensor<4>>,
    mask: Option<Tensor<2>>,
    scale: f64,
) -> Tensor<4> {
    check(&content, c2p.as_ref(), p2c.as_ref(), mask.as_ref());
    Tensor::from_dispatch(composite::forward::<Dispatch>(
        content.into_dispatch(),
        c2p.map(Tensor::into_dispatch),
        p2c.map(Tensor::into_dispatch),
        mask.map(Tensor::into_dispatch),
        scale,
    ))
}

fn check(
    content: &Tensor<4>,
    c2p: Option<&Tensor<4>>,
    p2c: Option<&Tensor<4>>,
    mask: Option<&Tensor<2>>,
) {
    let [batch, heads, length, keys] = content.dims();
    assert_eq!(length, keys, "`content` must have as many keys as queries");
    let wanted = [batch, heads, length, (2 * length).saturating_sub(1)];
    for (name, term) in [("c2p", c2p), ("p2c", p2c)] {
        if let Some(term) = term {
            assert_eq!(term.dims(), wanted, "shape of `{name}`");
        }
    }
    if let Some(mask) = mask {
        assert_eq!(mask.dims(), [batch, length], "shape of `mask`");
    }
}
