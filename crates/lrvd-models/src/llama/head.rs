//! The head over a few tokens only.
//!
//! A head of 32 000 rows is most of the work behind a short text, and of its memory in training. A question with a
//! handful of possible answers needs a handful of rows: those of the base weight, and those of whatever the adapter
//! has for each output.
//!
//! # Noise
//!
//! With one weight draw a batch or a sequence the noise is that of the full head: entry `(k, id)` of a draw of B is
//! element `(draw·rank + k)·vocab + id` of the head's stream, and a counter-based generator computes a single element
//! as easily as a run. Only those of the answers are generated, on the host, so that the cost does not depend on the
//! vocabulary (a full draw at rank 8 of 32 000 tokens would be 256 000 numbers a sequence); on devices with their own
//! generator the two differ by its rounding, about `1e-6`. Noise on activations and signs per token have the same
//! distribution and are numbered by the outputs that exist: they are those of a head that has the answers' rows only.

use burn::tensor::{DType, Int, Tensor, TensorData};
use lrvd_burn::adapter::{AdaptedLinear, Extension, LowRankAdapter};
use lrvd_burn::ops::{dropout, standard_normal};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal, fill_normal_f64};

/// Logits of `answers` for the states `[batch, 1, hidden]`, `[batch, answers]`.
///
/// `weight` holds the answers' columns of the head's base weight, `[hidden, answers]`.
pub(super) fn answer_logits(
    head: &AdaptedLinear,
    weight: Tensor<2>,
    x: Tensor<3>,
    answers: &[u32],
    pass: &Pass,
) -> Tensor<2> {
    let mut small = head.with_outputs(weight, &indices(answers, &x));
    let logits = match Draw::of_b(head, &small, answers, x.dims()[0], pass) {
        None => small.forward_with(x, pass),
        Some(draw) => {
            let update = draw.update(&small, x.clone(), pass);
            small.detach();
            let [base, update] = pass.aligned([small.forward_with(x, pass), update]);
            base + update
        }
    };
    logits.squeeze_dim(1)
}

/// Token ids as indices on the device of `like`.
pub(super) fn indices<const D: usize>(answers: &[u32], like: &Tensor<D>) -> Tensor<1, Int> {
    let ids: Vec<i32> = answers.iter().map(|&id| id as i32).collect();
    Tensor::from_ints(ids.as_slice(), &like.device().inner())
}

/// Drawn factors, `[groups, hidden, rank]` and `[groups, rank, answers]`: one group, one for each sequence, or one for
/// each draw that the batch holds.
struct Draw {
    a: Tensor<3>,
    b: Tensor<3>,
}

impl Draw {
    /// The draw of `head` at the outputs of `small`, if the pass draws weights once a batch or a sequence and B is
    /// random. Where B is not, nothing random has an axis for the outputs, and the layer's own pass will do.
    fn of_b(
        head: &AdaptedLinear,
        small: &AdaptedLinear,
        answers: &[u32],
        batch: usize,
        pass: &Pass,
    ) -> Option<Self> {
        let draws = match pass.scheme {
            Scheme::Weights(DrawPer::Sequence) => batch,
            Scheme::Weights(DrawPer::Batch) => 1,
            _ => return None,
        };
        let adapter = small.low_rank()?;
        let (a, b) = (adapter.a.val(), adapter.b.val());
        let (std_a, std_b) = match &adapter.extension {
            Some(Extension::Posterior(posterior)) => posterior.deviations(&a, &b),
            Some(Extension::Gaussian(noise)) => noise.deviations(),
            Some(Extension::SingularValues(_) | Extension::Scale(_) | Extension::Contextual(_))
            | None => return None,
        };
        let std_b = std_b?;
        let vocab = head.low_rank().map(LowRankAdapter::d_output)?;
        let [d_input, rank] = a.dims();
        let eps_a = pass.noise_of(head.noise_id(), |key| -> Tensor<3> {
            standard_normal(&a, [draws, d_input, rank], key.on_stream(Stream::WEIGHT_A))
        });
        let eps_b = pass.noise_of(head.noise_id(), |key| {
            columns(&b, draws, vocab, answers, key.on_stream(Stream::WEIGHT_B))
        });
        Some(Self {
            a: a.unsqueeze_dim::<3>(0) + eps_a * std_a.unsqueeze_dim::<3>(0),
            b: b.unsqueeze_dim::<3>(0) + eps_b * std_b.unsqueeze_dim::<3>(0),
        })
    }

    /// The update of `[batch, 1, hidden]`, `[batch, 1, answers]`.
    fn update(self, small: &AdaptedLinear, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let (rate, scaling) =
            small.low_rank().map_or((0.0, 1.0), |adapter| (adapter.dropout, adapter.scaling));
        let x = match pass.adapter_dropout_key(small.noise_id()) {
            Some(key) if rate > 0.0 => dropout(x, rate, key.with_use(0)),
            _ => x,
        };
        let groups = self.a.dims()[0];
        if pass.draws.count == 1 {
            return x.matmul(self.a).mul_scalar(scaling).matmul(self.b);
        }
        let x = pass.repeated(x, groups * pass.draws.rows);
        let [rows, tokens, hidden] = x.dims();
        let x = x.reshape([groups, rows / groups * tokens, hidden]);
        let update = x.matmul(self.a).mul_scalar(scaling).matmul(self.b);
        let answers = update.dims()[2];
        update.reshape([rows, tokens, answers])
    }
}

/// Columns `answers` of the noise `[draws, rank, vocab]`, in the type and on the device of `like` `[rank, answers]`.
fn columns(
    like: &Tensor<2>,
    draws: usize,
    vocab: usize,
    answers: &[u32],
    key: NoiseKey,
) -> Tensor<3> {
    let rank = like.dims()[0];
    let rows = 0..(draws * rank) as u64;
    let elements = rows.flat_map(|row| answers.iter().map(move |&id| (row, id)));
    let elements = elements.map(|(row, id)| row * vocab as u64 + u64::from(id));
    let shape = [draws, rank, answers.len()];
    let data = if like.dtype() == DType::F64 {
        let number = |element| {
            let mut one = [0.0_f64];
            fill_normal_f64(key, element, &mut one);
            one[0]
        };
        TensorData::new(elements.map(number).collect::<Vec<_>>(), shape)
    } else {
        let number = |element| {
            let mut one = [0.0_f32];
            fill_normal(key, element, &mut one);
            one[0]
        };
        TensorData::new(elements.map(number).collect::<Vec<_>>(), shape)
    };
    Tensor::from_data(data, (&like.device().inner(), like.dtype()))
}
