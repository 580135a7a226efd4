//! A layer with the randomness of one forward pass fixed.

use burn::module::Param;
use burn::tensor::module::linear;
use burn::tensor::{DType, Tensor};
use lrvd_core::noise::NoiseKey;

use super::initialisation::adapter_dtype;
use super::kind::{Gaussian, LowRankAdapter, Variances};
use super::linear::AdaptedLinear;
use super::noise::{FlippedDraw, LayerNoise, SHARED, TOKENS, each_repeated};
use super::op::{OpLayer, PreparedUpdate};
use crate::ops::disentangled_attention::PositionRows;
use crate::ops::{
    LowRank, adapted_linear, dropout, moment_matched_linear, packed_linear, quantized_linear,
};
use crate::sampling::{Pass, Scheme};

/// The adapter's part of a prepared layer.
#[expect(clippy::large_enum_variant, reason = "one lives on the stack for the time of a forward")]
enum Update<'a> {
    /// Nothing to add.
    None,
    /// Means or drawn weights, `[groups, d_input, rank]` and `[groups, rank, d_output]`: one for all, for
    /// each sequence, or for each draw that the batch holds.
    Weights { adapter: &'a LowRankAdapter, a: Tensor<3>, b: Tensor<3> },
    /// One draw, turned by signs for every token.
    Flipped { adapter: &'a LowRankAdapter, draw: FlippedDraw },
    /// Noise on activations, resampled for each use.
    Activations { adapter: &'a LowRankAdapter, gaussian: &'a Gaussian, key: NoiseKey },
    /// Update of another method.
    Op(Box<PreparedUpdate<'a>>),
    /// Update of another method with a draw for each token, prepared for each use.
    OpPerToken(OpLayer<'a>),
}

impl<'a> Update<'a> {
    fn new(layer: &'a AdaptedLinear, pass: &Pass, sequences: usize) -> Self {
        let Some(adapter) = layer.low_rank() else { return Self::None };
        let module = layer.noise_id();
        if let (Scheme::MomentMatched(_) | Scheme::Nested, Some(gaussian)) =
            (pass.scheme, adapter.gaussian())
        {
            let key = pass.noise.for_module(module);
            return Self::Activations { adapter, gaussian, key };
        }
        let noise = |scheme: Scheme| {
            let noise = LayerNoise { pass: *pass, module, scheme, sequences, use_index: TOKENS };
            scheme.draws_weights().then_some(noise)
        };
        if let Some(extension) = adapter.op() {
            let LowRankAdapter { a, b, scaling, .. } = adapter;
            let of_op =
                |noise| OpLayer { a, b, scaling: *scaling, extension, module, sequences, noise };
            let op = &extension.op;
            let has_draw = pass.scheme.draws_weights() && op.draws_by(pass.scheme);
            return if has_draw || pass.scheme == Scheme::Mean || !op.is_random() {
                Self::Op(op.prepare(of_op(noise(pass.scheme))))
            } else {
                Self::OpPerToken(of_op(noise(Scheme::PerSequence)))
            };
        }
        let noise = noise(pass.scheme);
        let drawn = noise.and_then(|noise| Some((noise, adapter.deviations()?)));
        let (a, b) = match drawn {
            None => adapter.means(),
            Some((noise, std)) if noise.scheme == Scheme::PerToken => {
                return Self::Flipped {
                    adapter,
                    draw: FlippedDraw::new([adapter.a.val(), adapter.b.val()], std, noise.key()),
                };
            }
            Some((noise, std)) => adapter.draw(std, &noise),
        };
        Self::Weights { adapter, a, b }
    }
}

/// A layer with the randomness of one forward pass fixed.
///
/// `DeBERTa` with shared keys sends both the tokens and the relative positions through its query and
/// key projections: the weight draw made here serves both, while activation noise is separate.
pub struct PreparedLinear<'a> {
    layer: &'a AdaptedLinear,
    update: Update<'a>,
    pass: Pass,
    /// `true` if the batch holds several draws that this layer tells apart.
    diverges: bool,
}

impl AdaptedLinear {
    /// Base product plus update, `[n, ..., d_input]` to `[n, ..., d_output]` as `burn::nn::Linear`: at the
    /// mean, or under the pass that [`with_pass`](crate::model::with_pass) gave the model.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let pass = self.attached().map_or_else(Pass::mean, |attached| attached.pass);
        self.forward_with(x, &pass)
    }

    /// As [`AdaptedLinear::forward`] under `pass`; the first axis counts sequences for draws per sequence.
    pub fn forward_with<const D: usize>(&self, x: Tensor<D>, pass: &Pass) -> Tensor<D> {
        self.prepare(pass, x.dims()[0]).forward(x)
    }

    /// Draws this pass's weights once, for layers that are used more than once in a forward.
    ///
    /// `sequences` is the number of examples, used by draws per sequence and by member ensembles,
    /// for which it counts every member's.
    ///
    /// Every adapter has every [`Scheme`].
    pub fn prepare(&self, pass: &Pass, sequences: usize) -> PreparedLinear<'_> {
        let diverges = self.is_stochastic(pass);
        let sequences = if diverges { pass.draws * pass.rows } else { sequences };
        let update = Update::new(self, &pass.of_layer(), sequences);
        PreparedLinear { layer: self, update, pass: *pass, diverges }
    }
}

impl PreparedLinear<'_> {
    /// The layer applied to tokens, `[sequences, ..., d_input]` to `[sequences, ..., d_output]`.
    ///
    /// If the batch has several draws and this layer is the first in which they differ, its input has the sequences
    /// of one draw and its output those of all draws ([`Pass::draws`]).
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        const { assert!(D >= 2, "the first axis counts sequences, the last features") };
        let mut shape = x.dims();
        let (sequences, features) = (shape[0], shape[D - 1]);
        let tokens = shape[1..D - 1].iter().product();
        let x: Tensor<3> = if D == 3 {
            Tensor::from_dispatch(x.into_dispatch())
        } else {
            x.reshape([sequences, tokens, features])
        };
        let Pass { draws, rows, .. } = self.pass;
        // The rows of every draw, where this layer tells them apart.
        let x = if self.diverges { self.pass.repeated(x, draws * rows) } else { x };
        let out = self.apply(x, TOKENS);
        if D == 3 {
            return Tensor::from_dispatch(out.into_dispatch());
        }
        (shape[0], shape[D - 1]) = (out.dims()[0], out.dims()[2]);
        out.reshape(shape)
    }

    /// In one operator where the update's mean is a product of two factors ; else the base
    /// product, and the update beside it.
    fn apply(&self, x: Tensor<3>, use_index: u32) -> Tensor<3> {
        let low = self.factors(x.dtype());
        // Rows that all sequences share cannot meet factors of each.
        if let Some(low) = low.filter(|low| use_index == TOKENS || low.a.dims()[0] == 1) {
            return self.with_factors(x, low, use_index);
        }
        let base = self.base(x.clone());
        match self.update(x, use_index) {
            Some(update) => base + update,
            None => base,
        }
    }

    fn with_factors(&self, x: Tensor<3>, low: LowRank, use_index: u32) -> Tensor<3> {
        let (weight, bias) = (self.layer.packed(), self.layer.bias.as_ref().map(Param::val));
        let (Update::Activations { adapter, gaussian, key }, Scheme::MomentMatched(cross)) =
            (&self.update, self.pass.scheme)
        else {
            return packed_linear(x, weight, bias, Some(low));
        };
        let key = (*key, use_index);
        match gaussian.variances(&adapter.b.val()) {
            Variances::Rank(variance, both) if adapter.rank() > 0 && adapter.scaling != 0.0 => {
                let noise = adapter.output_noise(key, cross, both);
                moment_matched_linear(x, weight.0, bias, low, variance, noise)
            }
            variances => {
                let mean = packed_linear(x.clone(), weight, bias, Some(low));
                adapter.moment_matched(mean, x, variances, cross, key)
            }
        }
    }

    /// The factors of an update without dropout, all in the type of the activations.
    fn factors(&self, activations: DType) -> Option<LowRank> {
        let (adapter, a, b) = match &self.update {
            Update::Weights { adapter, a, b } => (adapter, a.clone(), b.clone()),
            Update::Activations { adapter, .. }
                if matches!(self.pass.scheme, Scheme::MomentMatched(_)) =>
            {
                let (a, b) = adapter.means();
                (adapter, a, b)
            }
            _ => return None,
        };
        let dropped =
            adapter.dropout > 0.0 && self.pass.adapter_dropout_key(self.layer.noise_id()).is_some();
        let one_type = self.layer.weight.base().dtype() == activations && a.dtype() == activations;
        if dropped || !one_type || a.dims()[0] != b.dims()[0] {
            return None;
        }
        let a = match adapter.singular_values() {
            Some(e) => a * e.val().unsqueeze(),
            None => a,
        };
        Some(LowRank { a, b, scale: adapter.scaling })
    }

    /// The layer applied to rows that all sequences share (relative positions):
    /// `[rows, d_input]` to `[1 | sequences, rows, d_output]`, sequences of all draws that the batch holds.
    ///
    /// The base product is computed once; with draws per sequence, and for members, only the
    /// rank-space update is per sequence.
    pub fn forward_shared(&self, rows: Tensor<2>) -> Tensor<3> {
        self.of_sequences(self.apply(rows.unsqueeze_dim(0), SHARED))
    }

    /// Repeats a tensor with one entry for each draw, once for each sequence of the batch.
    fn of_sequences(&self, x: Tensor<3>) -> Tensor<3> {
        let Pass { draws, rows, .. } = self.pass;
        if self.diverges && x.dims()[0] == draws { each_repeated(x, rows) } else { x }
    }

    /// [`PreparedLinear::forward_shared`] with the update of each sequence still in its factors, if it
    /// has two.
    pub fn position_rows(&self, rows: Tensor<2>) -> PositionRows {
        let x: Tensor<3> = rows.clone().unsqueeze_dim(0);
        // Noise on activations is of each row: there are no factors to leave it in.
        let is_product = matches!(self.update, Update::Weights { .. });
        match is_product.then(|| self.factors(x.dtype())).flatten() {
            None => PositionRows { shared: self.forward_shared(rows), low: None },
            Some(LowRank { a, b, scale }) => {
                // One product for all sequences, whose factors stand side by side.
                let ([groups, d_input, rank], count) = (a.dims(), rows.dims()[0]);
                let a = a.swap_dims(0, 1).reshape([d_input, groups * rank]);
                let hidden = adapted_linear(x.clone(), a, None, None).mul_scalar(scale);
                let hidden = hidden.reshape([count, groups, rank]).swap_dims(0, 1);
                let low = (self.of_sequences(hidden), self.of_sequences(b));
                PositionRows { shared: self.base(x), low: Some(low) }
            }
        }
    }

    /// The base product runs in the type in which the weight is stored, as in any half-precision model,
    /// and its result has that of the activations. The graph keeps a handle of the weight and no
    /// widened copy of it.
    fn base(&self, x: Tensor<3>) -> Tensor<3> {
        let (dtype, (weight, packed)) = (x.dtype(), self.layer.packed());
        let bias = self.layer.bias.as_ref().map(Param::val);
        if matches!(weight.dtype(), DType::QFloat(_)) {
            return quantized_linear(x, weight, bias);
        }
        let x = x.cast(weight.dtype());
        packed_linear(x, (weight, packed), bias, None).cast(dtype)
    }

    /// The update is computed in the type of the adapter, and has that of the activations.
    fn update(&self, x: Tensor<3>, use_index: u32) -> Option<Tensor<3>> {
        let dtype = x.dtype();
        let x = x.cast(adapter_dtype(self.layer.weight.base().dtype()));
        let rate = self.layer.low_rank().map_or(0.0, |adapter| adapter.dropout);
        let x = match self.pass.adapter_dropout_key(self.layer.noise_id()) {
            Some(key) if rate > 0.0 => dropout(x, rate, key.with_use(use_index)),
            _ => x,
        };
        let update = match &self.update {
            Update::None => return None,
            Update::Weights { adapter, a, b } => {
                let groups = a.dims()[0].max(b.dims()[0]);
                // Rows shared by all sequences meet one weight draw each.
                let is_shared = groups > 1 && x.dims()[0] == 1;
                let x = if is_shared { x.expand([groups as i64, -1, -1]) } else { x };
                grouped(adapter.scale_rank(grouped(x, a)), b)
            }
            Update::Flipped { adapter, draw } => {
                let s = adapter.scale_rank(draw.down(x, use_index));
                draw.up(s, use_index)
            }
            Update::Activations { adapter, gaussian, key } => {
                let key = (*key, use_index);
                if let Scheme::MomentMatched(cross) = self.pass.scheme {
                    let s = adapter.scale_rank(linear(x.clone(), adapter.a.val(), None));
                    let mean = linear(s, adapter.b.val(), None);
                    let variances = gaussian.variances(&adapter.b.val());
                    adapter.moment_matched(mean, x, variances, cross, key)
                } else {
                    adapter.nested(x, gaussian, key)
                }
            }
            Update::Op(update) => update(x, use_index),
            Update::OpPerToken(layer) => {
                let [n, tokens, features] = x.dims();
                let sequences = n * tokens;
                let noise = layer.noise.map(|noise| LayerNoise { sequences, use_index, ..noise });
                let layer = OpLayer { sequences, noise, ..*layer };
                let update = layer.extension.op.prepare(layer);
                let update = update(x.reshape([sequences, 1, features]), TOKENS);
                let d_output = update.dims()[2];
                update.reshape([n, tokens, d_output])
            }
        };
        Some(update.cast(dtype))
    }
}

/// `x·factor` for each group of sequences, or with the one factor of all.
fn grouped(x: Tensor<3>, factor: &Tensor<3>) -> Tensor<3> {
    let [groups, depth, width] = factor.dims();
    if groups == 1 {
        return linear(x, factor.clone().squeeze_dim(0), None);
    }
    let [sequences, tokens, _] = x.dims();
    let x = x.reshape([groups, sequences / groups * tokens, depth]);
    x.matmul(factor.clone()).reshape([sequences, tokens, width])
}
