//! A prediction: its examples, its draws, and the passes that give the logits.

use std::fmt;
use std::ops::Range;

use burn::tensor::Tensor;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;

use super::data::{Examples, Model, Subset};
use super::draw_policy::{DrawPolicy, adaptive_error};
use super::order::{evaluation_batches, restore_order};
use super::predict::{DrawSeed, Logits, PredictionDraws};
use crate::error::Error;
use crate::model::{check_scheme, members};
use crate::sampling::{DrawPer, DrawSet, Pass, Scheme};

/// Follows a long prediction pass by pass, and may end it.
#[derive(Clone, Copy, Default)]
pub struct PassWatch<'a>(Option<&'a dyn Fn(usize) -> bool>);

impl<'a> PassWatch<'a> {
    /// Calls `answered` after every pass with the number of answers in it (examples times draws). Once it returns `false`
    /// the prediction ends with [`Error::Stopped`].
    pub fn new(answered: &'a dyn Fn(usize) -> bool) -> Self {
        Self(Some(answered))
    }

    /// A pass gave `answers`.
    pub(super) fn passed(self, answers: usize) -> Result<(), Error> {
        match self.0 {
            Some(answered) if !answered(answers) => Err(Error::Stopped),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for PassWatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PassWatch").field(&self.0.is_some()).finish()
    }
}

/// The pass of a draw in a batch.
type PassOfDraw<'a> = dyn Fn(usize, usize) -> Pass + 'a;

/// Examples to be predicted, and how.
pub struct Inputs<'a, I> {
    /// The examples.
    pub examples: &'a dyn Examples<Input = I>,
    /// Examples per batch, at least 1.
    pub batch_size: usize,
    /// Addresses the draws. Draws per batch also use the bits above [`MAX_SEED`](super::MAX_SEED), for the number of the batch.
    pub seed: u64,
    /// Kind of the draws.
    pub kind: PredictionDraws,
    /// How draws are made, and when fewer of them are enough.
    pub policy: DrawPolicy,
    /// Follows the passes.
    pub watch: PassWatch<'a>,
}

impl<I> Clone for Inputs<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Inputs<'_, I> {}

impl<'a, I> Inputs<'a, I> {
    /// `examples` in batches of 32, with weight draws of seed 0.
    pub fn new(examples: &'a dyn Examples<Input = I>) -> Self {
        let (kind, policy) = (PredictionDraws::Weights, DrawPolicy::default());
        Self { examples, batch_size: 32, seed: 0, kind, policy, watch: PassWatch::default() }
    }

    /// Logits under one pass, one member or as many as the adapters hold side by side.
    pub fn logits<M: Model<Input = I>>(&self, model: &M, pass: &Pass) -> Result<Logits, Error> {
        self.ask(model, 0..1, &|_, _| *pass)
    }

    /// The posterior mean for 0 draws, else draws of the [kind](Self::kind).
    pub fn predict<M: Model<Input = I>>(&self, model: &M, draws: usize) -> Result<Logits, Error> {
        let outputs = Scheme::MomentMatched(CrossTerm::Exact);
        let scheme = match self.kind {
            PredictionDraws::Activation if check_scheme(model, outputs).is_ok() => outputs,
            _ => Scheme::Weights(DrawPer::Batch),
        };
        self.predict_by(scheme, model, draws)
    }

    /// The mean for 0 draws, else passes of `scheme`.
    pub fn predict_by<M: Model<Input = I>>(
        &self,
        scheme: Scheme,
        model: &M,
        draws: usize,
    ) -> Result<Logits, Error> {
        self.predict_with(model, draws, |key| Pass::sampled(scheme, key))
    }

    /// The mean for 0 draws, else the pass of each of as many keys. A key serves all batches or, unless weights are
    /// drawn once for all of them, one.
    ///
    /// A model that [holds draws](Model::HOLDS_DRAWS) answers several of them in one pass, and what comes
    /// before the first adapter that draws is computed once for all of them.
    pub fn predict_with<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
        pass: impl Fn(NoiseKey) -> Pass,
    ) -> Result<Logits, Error> {
        if draws == 0 {
            return self.logits(model, &Pass::mean());
        }
        self.policy.check()?;
        let (seed, antithetic) = (DrawSeed(self.seed), self.policy.antithetic);
        let of_draw = |draw: usize, batch: usize| {
            // A pair shares the key of the first draw, and the pass says which one of all it is.
            let keyed = if antithetic { 0 } else { draw };
            let key = match self.kind {
                PredictionDraws::Weights => seed.key(keyed),
                PredictionDraws::Fresh | PredictionDraws::Activation => {
                    seed.key_in_batch(keyed, batch)
                }
            };
            let first = if antithetic { draw as u32 } else { 0 };
            pass(key).with_draws(DrawSet { first, antithetic, ..DrawSet::ONE })
        };
        if antithetic && !draws_weights(&of_draw(0, 0)) {
            let what = "`antithetic` is for weights that are drawn once a batch";
            return Err(Error::Argument(what.to_owned()));
        }
        if !self.policy.is_adaptive() {
            return self.ask(model, 0..draws, &of_draw);
        }
        if members(model)? > 1 {
            let why = "is for one adapter, and the model holds several side by side";
            return Err(adaptive_error(why));
        }
        let at_mean = || self.ask(model, 0..1, &|_, _| Pass::mean());
        self.policy.adaptive(self.examples.len(), draws, at_mean, |rows, draws| {
            let part = Subset { of: self.examples, rows: rows.to_vec() };
            Inputs { examples: &part, ..*self }.ask(model, draws, &of_draw)
        })
    }

    /// `[draws · members, rows, width]`. Batches hold examples of like size, so that nothing is spent on
    /// shared padding.
    fn ask<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: Range<usize>,
        pass: &PassOfDraw<'_>,
    ) -> Result<Logits, Error> {
        let (n, sizes) = (self.examples.len(), self.examples.sizes());
        // A pass has every example once for each member, and about as many rows as other models' passes.
        let members = members(model)?.max(1);
        let batches = evaluation_batches(&sizes, self.batch_size.div_ceil(members))?;
        let (mut rows, mut width) = (vec![Vec::with_capacity(n); draws.len() * members], 0);
        for (number, indices) in batches.iter().enumerate() {
            let input = self.examples.input(indices)?;
            let tokens = indices.iter().map(|&i| sizes[i]).max().unwrap_or(0) * indices.len();
            let most = if M::HOLDS_DRAWS && members == 1 {
                self.policy.tokens_per_pass / tokens.max(1)
            } else {
                1
            };
            let mut first = draws.start;
            while first < draws.end {
                let left = draws.end - first;
                let count = left.div_ceil(left.div_ceil(most.max(1)));
                let (pass, count) = together(&|i| pass(first + i, number), count, indices.len());
                let logits: Tensor<2> = model.logits(&input, &pass);
                let copies = logits.dims()[0] / indices.len().max(1);
                if copies * indices.len() != logits.dims()[0]
                    || ![members, count * members].contains(&copies)
                {
                    return Err(Error::token_logits());
                }
                width = logits.dims()[1];
                let values: Vec<f64> = logits.into_data().iter::<f64>().collect();
                // Where no layer draws, one answer is that of every draw.
                let parts = values.chunks(indices.len() * width).cycle();
                let rows = rows[(first - draws.start) * members..][..count * members].iter_mut();
                for (rows, values) in rows.zip(parts) {
                    rows.extend(values.chunks(width).map(<[f64]>::to_vec));
                }
                first += count;
                self.watch.passed(indices.len() * count)?;
            }
        }
        let mut values = Vec::with_capacity(draws.len() * members * n * width);
        for rows in rows {
            values.extend(restore_order(&batches, rows)?.concat());
        }
        Ok(Logits::new(values, n, width))
    }
}

/// The passes of `count` draws in one where they differ in the number of the draw alone, else the first of
/// them.
fn together(pass: &dyn Fn(usize) -> Pass, count: usize, rows: usize) -> (Pass, usize) {
    let one = pass(0);
    let of_draw = |i: usize| {
        let next = |number: u32| number.wrapping_add(i as u32);
        if one.draws.antithetic {
            one.with_draws(DrawSet { first: next(one.draws.first), ..one.draws })
        } else {
            Pass { noise: one.noise.at_step(next(one.noise.step)), ..one }
        }
    };
    if count > 1 && draws_weights(&one) && (1..count).all(|i| pass(i) == of_draw(i)) {
        return (one.with_draws(DrawSet { count, rows, ..one.draws }), count);
    }
    (one, 1)
}

/// Whether a draw is one set of weights for the whole batch.
fn draws_weights(pass: &Pass) -> bool {
    pass.scheme == Scheme::Weights(DrawPer::Batch) && pass.dropout.is_none()
}
