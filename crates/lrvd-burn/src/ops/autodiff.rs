//! The operators as nodes of the autodiff graph, over any backend that has them.
//!
//! The gradient methods keep their composite bodies, which Burn differentiates by itself: only a
//! second derivative would ever reach them.

use std::fmt::{self, Debug};

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{AutodiffBackend, Backend};
use burn::tensor::Shape;
use lrvd_core::noise::NoiseKey;

use super::adapted_linear::OutputNoise;
use super::adapted_linear::moment_matched;
use super::backend::{LrvdBackend, Maybe};
use super::disentangled_attention::{AttentionLayout, PositionTerm};
use super::rank_two_noise::Noise;

/// Gradients of the parents from what the forward pass saved, the gradient of the output, and which parents need one.
type Rule<B, S, const N: usize> = fn(S, FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N];

/// A node with `N` parents.
struct Node<B: Backend, S, const N: usize>(Rule<B, S, N>);

impl<B: Backend, S, const N: usize> Debug for Node<B, S, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Node")
    }
}

impl<B: Backend, S, const N: usize> Backward<B, N> for Node<B, S, N>
where
    S: Clone + Send + Debug + 'static,
{
    type State = S;

    fn backward(self, ops: Ops<S, N>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let needed = ops.parents.each_ref().map(Option::is_some);
        let gradients = (self.0)(ops.state, grad, needed);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// The output of `forward`, which takes `saved`, as a node.
fn node<B: Backend, C: CheckpointStrategy, S, const N: usize>(
    parents: [NodeGuard; N],
    saved: S,
    forward: impl FnOnce(S) -> FloatTensor<B>,
    rule: Rule<B, S, N>,
) -> FloatTensor<Autodiff<B, C>>
where
    S: Clone + Send + Debug + 'static,
{
    match Node(rule).prepare::<C>(parents).compute_bound().stateful() {
        OpsKind::Tracked(node) => {
            let out = forward(saved.clone());
            node.finish(saved, out)
        }
        OpsKind::UnTracked(node) => node.finish(forward(saved)),
    }
}

/// An output as a node, where what the gradients need is made with it.
fn finished<B: Backend, C: CheckpointStrategy, S, const N: usize>(
    parents: [NodeGuard; N],
    (out, saved): (FloatTensor<B>, Option<S>),
    rule: Rule<B, S, N>,
) -> FloatTensor<Autodiff<B, C>>
where
    S: Clone + Send + Debug + 'static,
{
    match (Node(rule).prepare::<C>(parents).compute_bound().stateful(), saved) {
        (OpsKind::Tracked(node), Some(saved)) => node.finish(saved, out),
        (OpsKind::Tracked(_), None) => unreachable!("a tracked operation saves its operands"),
        (OpsKind::UnTracked(node), _) => node.finish(out),
    }
}

fn inner<B: Backend, C: CheckpointStrategy>(x: FloatTensor<Autodiff<B, C>>) -> FloatTensor<B> {
    x.into_primitive()
}

/// The node of an operand; an absent one is represented by `other`, and its gradient is never needed.
fn node_or<B: Backend, C: CheckpointStrategy>(
    operand: Option<&FloatTensor<Autodiff<B, C>>>,
    other: &FloatTensor<Autodiff<B, C>>,
) -> NodeGuard {
    operand.unwrap_or(other).node()
}

impl<B: LrvdBackend, C: CheckpointStrategy> LrvdBackend for Autodiff<B, C> {
    fn fused_adapted_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Maybe<Self>,
        a: Maybe<Self>,
        b: Maybe<Self>,
        scale: f64,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let [bias, a, b] = [bias, a, b].map(Maybe::into_option);
        let [of_bias, of_a, of_b] = [&bias, &a, &b].map(|t| node_or::<B, C>(t.as_ref(), &weight));
        let parents = [x.node(), weight.node(), of_bias, of_a, of_b];
        let (x, weight) = (inner::<B, C>(x), inner::<B, C>(weight));
        let [bias, a, b] = [bias, a, b].map(|t| t.map(inner::<B, C>));
        let has_bias = bias.is_some();
        let (out, hidden) = B::fused_adapted_linear(
            x.clone(),
            weight.clone(),
            bias.into(),
            a.clone().into(),
            b.clone().into(),
            scale,
        );
        let saved = ([x, weight], [a, b, hidden.clone()], has_bias, scale);
        let out = finished::<B, C, _, 5>(
            parents,
            (out, Some(saved)),
            |([x, weight], [a, b, hidden], has_bias, scale), grad, mut needed| {
                let present = [true, true, has_bias, a.is_some(), b.is_some()];
                needed.iter_mut().zip(present).for_each(|(needed, present)| *needed &= present);
                let (d_x, d_weight, d_bias, d_a, d_b) = B::fused_adapted_linear_grad(
                    x,
                    weight,
                    a.into(),
                    b.into(),
                    hidden.into(),
                    grad,
                    scale,
                    needed,
                    Maybe::Absent,
                    Maybe::Absent,
                );
                [d_x, d_weight, d_bias, d_a, d_b]
            },
        );
        (out, hidden.map(<Self as AutodiffBackend>::from_inner))
    }

    fn fused_moment_matched_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Maybe<Self>,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        noise: OutputNoise,
    ) -> FloatTensor<Self> {
        let bias = bias.into_option();
        let of_bias = node_or::<B, C>(bias.as_ref(), &weight);
        let parents = [x.node(), weight.node(), of_bias, a.node(), b.node(), variance.node()];
        let factors = [a, b, variance].map(inner::<B, C>);
        let (x, weight) = (inner::<B, C>(x), inner::<B, C>(weight));
        let run = moment_matched::run::<B>(x, weight, bias.map(inner::<B, C>), factors, noise);
        finished::<B, C, _, 6>(parents, run, moment_matched::gradients::<B>)
    }

    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        node::<B, C, _, 1>([x.node()], inner::<B, C>(x), B::fused_gelu, |x, grad, _| {
            [Some(B::fused_gelu_grad(x, grad))]
        })
    }

    fn fused_gated_silu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        node::<B, C, _, 2>(
            [gate.node(), up.node()],
            [gate, up].map(inner::<B, C>),
            |[gate, up]| B::fused_gated_silu(gate, up),
            |[gate, up], grad, needed| B::fused_gated_silu_grad(gate, up, grad, needed).into(),
        )
    }

    fn fused_causal_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: FloatTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        node::<B, C, _, 3>(
            [query.node(), key.node(), value.node()],
            ([query, key, value, mask].map(inner::<B, C>), scale),
            |([query, key, value, mask], scale)| {
                B::fused_causal_attention(query, key, value, mask, scale)
            },
            |([query, key, value, mask], scale), grad, needed| {
                B::fused_causal_attention_grad(query, key, value, mask, grad, scale, needed).into()
            },
        )
    }

    fn fused_disentangled_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        keys: PositionTerm<Self>,
        queries: PositionTerm<Self>,
        mask: Maybe<Self>,
        layout: AttentionLayout,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let terms = [keys.into_parts(), queries.into_parts()];
        let of_terms = terms
            .each_ref()
            .map(|term| term.each_ref().map(|tensor| node_or::<B, C>(tensor.as_ref(), &query)));
        let [[k0, k1, k2], [q0, q1, q2]] = of_terms;
        let parents = [query.node(), key.node(), value.node(), k0, k1, k2, q0, q1, q2];
        let [query, key, value] = [query, key, value].map(inner::<B, C>);
        let terms = terms.map(|term| term.map(|tensor| tensor.map(inner::<B, C>)));
        let [keys, queries] = terms.clone().map(PositionTerm::from_parts);
        let (out, p) = B::fused_disentangled_attention(
            query.clone(),
            key.clone(),
            value.clone(),
            keys,
            queries,
            mask.into_option().map(inner::<B, C>).into(),
            layout.clone(),
        );
        let saved = ([query, key, value, p.clone()], terms, layout);
        let out = finished::<B, C, _, 9>(
            parents,
            (out, Some(saved)),
            |([query, key, value, p], [keys, queries], layout), grad, mut needed| {
                for (needed, term) in needed[3..].iter_mut().zip(keys.iter().chain(&queries)) {
                    *needed &= term.is_some();
                }
                let (keys, queries) =
                    (PositionTerm::from_parts(keys), PositionTerm::from_parts(queries));
                let mut gradients = B::fused_disentangled_attention_grad(
                    query, key, value, keys, queries, p, grad, layout, needed,
                )
                .into_iter();
                std::array::from_fn(|_| gradients.next().flatten())
            },
        );
        (out, <Self as AutodiffBackend>::from_inner(p))
    }

    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        let parents = [x.node(), gamma.node(), beta.node()];
        let beta = inner::<B, C>(beta);
        node::<B, C, _, 3>(
            parents,
            ([x, gamma].map(inner::<B, C>), eps),
            |([x, gamma], eps)| B::fused_layer_norm(x, gamma, beta, eps),
            |([x, gamma], eps), grad, needed| {
                B::fused_layer_norm_grad(x, gamma, grad, eps, needed).into()
            },
        )
    }

    fn fused_rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        node::<B, C, _, 2>(
            [x.node(), gamma.node()],
            ([x, gamma].map(inner::<B, C>), eps),
            |([x, gamma], eps)| B::fused_rms_norm(x, gamma, eps),
            |([x, gamma], eps), grad, needed| {
                B::fused_rms_norm_grad(x, gamma, grad, eps, needed).into()
            },
        )
    }

    /// Linear, so that its gradient is the same operation.
    fn fused_dropout(x: FloatTensor<Self>, rate: f64, key: NoiseKey) -> FloatTensor<Self> {
        let parents = [x.node()];
        let x = inner::<B, C>(x);
        node::<B, C, _, 1>(
            parents,
            (rate, key),
            |(rate, key)| B::fused_dropout(x, rate, key),
            |(rate, key), grad, _| [Some(B::fused_dropout(grad, rate, key))],
        )
    }

    /// A constant.
    fn fused_standard_normal(
        like: FloatTensor<Self>,
        shape: Shape,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        let noise = B::fused_standard_normal(inner::<B, C>(like), shape, key);
        <Self as AutodiffBackend>::from_inner(noise)
    }

    fn fused_gaussian_draw(
        mean: FloatTensor<Self>,
        std: FloatTensor<Self>,
        count: usize,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        let parents = [mean.node(), std.node()];
        let mean = inner::<B, C>(mean);
        node::<B, C, _, 2>(
            parents,
            (inner::<B, C>(std), key),
            |(std, key)| B::fused_gaussian_draw(mean, std, count, key),
            |(std, key), grad, needed| B::fused_gaussian_draw_grad(std, grad, key, needed).into(),
        )
    }

    fn fused_row_energy(x: FloatTensor<Self>, weight: Maybe<Self>) -> FloatTensor<Self> {
        let weight = weight.into_option();
        node::<B, C, _, 2>(
            [x.node(), node_or::<B, C>(weight.as_ref(), &x)],
            (inner::<B, C>(x), weight.map(inner::<B, C>)),
            |(x, weight)| B::fused_row_energy(x, weight.into()),
            |(x, weight), grad, needed| {
                let needed = [needed[0], needed[1] && weight.is_some()];
                B::fused_row_energy_grad(x, weight.into(), grad, needed).into()
            },
        )
    }

    fn fused_rank_two_noise(
        mean: FloatTensor<Self>,
        q: FloatTensor<Self>,
        w: FloatTensor<Self>,
        t: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        let parents = [mean.node(), q.node(), w.node(), t.node()];
        let mean = inner::<B, C>(mean);
        node::<B, C, _, 4>(
            parents,
            ([q, w, t].map(inner::<B, C>), noise),
            |([q, w, t], noise)| B::fused_rank_two_noise(mean, q, w, t, noise),
            |([q, w, t], noise), grad, [_, needed @ ..]| {
                if !needed.contains(&true) {
                    return [Some(grad), None, None, None];
                }
                let (d_q, d_w, d_t) =
                    B::fused_rank_two_noise_grad(q, w, t, grad.clone(), noise, needed);
                [Some(grad), d_q, d_w, d_t]
            },
        )
    }

    fn fused_gaussian_noise(
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        let parents = [mean.node(), variance.node()];
        let mean = inner::<B, C>(mean);
        node::<B, C, _, 2>(
            parents,
            (inner::<B, C>(variance), noise),
            |(variance, noise)| B::fused_gaussian_noise(mean, variance, noise),
            |(variance, noise), grad, needed| {
                let d_variance =
                    needed[1].then(|| B::fused_gaussian_noise_grad(variance, grad.clone(), noise));
                [Some(grad), d_variance]
            },
        )
    }

    fn fused_kl_log_uniform(
        mean: FloatTensor<Self>,
        log_variance: FloatTensor<Self>,
        rank_axis: usize,
    ) -> FloatTensor<Self> {
        node::<B, C, _, 2>(
            [mean.node(), log_variance.node()],
            ([mean, log_variance].map(inner::<B, C>), rank_axis),
            |([mean, log_variance], rank_axis)| {
                B::fused_kl_log_uniform(mean, log_variance, rank_axis)
            },
            |([mean, log_variance], rank_axis), grad, needed| {
                B::fused_kl_log_uniform_grad(mean, log_variance, grad, rank_axis, needed).into()
            },
        )
    }
}
