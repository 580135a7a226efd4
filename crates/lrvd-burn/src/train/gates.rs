//! How every logit of every example changes with one multiplier per rank.
//!
//! The update `c·B·A·x` with gates `g`, all 1, is `c·B·diag(g)·A·x`. Their gradients need no separate parameter:
//! with the activations of rank space `h = A·x` and the gradients that arrive there,
//!
//! ```text
//! ∂L/∂g_r = Σ_rows h_r · ∂L/∂h_r
//! ```
//!
//! summed over the rows of one example. The posterior over gates, and what it says of the classes, is
//! [`lrvd_core::gates`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use lrvd_core::noise::NoiseKey;

use super::data::Model;
use super::inputs::Inputs;
use super::order::{evaluation_batches, restore_order};
use crate::adapter::{AdaptedLinear, Extension, Observer, Posterior, RankParameters};
use crate::error::Error;
use crate::host::values;
use crate::sampling::{DrawPer, Pass, Scheme};

/// `ln α` of a posterior without noise: its exponential is 0 in every float type.
const NO_NOISE: f64 = -1e4;

/// A copy of a model at its posterior mean whose adapters show an observer what they do, example by example.
///
/// Rows that all sequences of a batch share (`DeBERTa`'s table of relative positions) pass through an adapter
/// once, and the gradient there is a sum over the batch. Such adapters get a posterior without noise and are
/// drawn once a sequence, which keeps their values and gives every example its own rows.
#[derive(Debug)]
pub struct Observed<M> {
    /// The model; no parameter of it asks for a gradient.
    pub model: M,
    /// What its adapters show.
    pub observer: Observer,
    /// The pass under which they do.
    pub pass: Pass,
    /// Width of the model's answer.
    pub width: usize,
}

impl<M: Model> Observed<M> {
    /// Observes the adapters that `meant` names, with their posterior mean in place of a posterior; `input`,
    /// of any examples, shows which of them meet rows that sequences share.
    pub fn new(
        model: &M,
        input: &M::Input,
        meant: impl Fn(&AdaptedLinear) -> bool,
    ) -> Result<Self, Error> {
        let mut model = model.clone().valid();
        let observer = Observer::of_gradients();
        let mut outcome = Ok(());
        model.visit_layers_mut(&mut |_, layer| {
            if outcome.is_ok() && matches!(layer.extension(), Some(Extension::Posterior(_))) {
                outcome = layer.extend(None).map(drop);
            }
            let meant = layer.low_rank().is_some() && meant(layer);
            layer.observe(meant.then(|| observer.clone()));
        });
        outcome?;
        let [_, width] = model.logits(input, &Pass::mean()).dims();
        let uses = observer.take_uses();
        let shared: BTreeSet<u32> =
            uses.into_iter().filter(|used| used.use_index != 0).map(|used| used.module).collect();
        let mut outcome = Ok(());
        model.visit_layers_mut(&mut |_, layer| {
            let Some(adapter) = layer.low_rank() else { return };
            if shared.contains(&layer.noise_id()) && outcome.is_ok() {
                let a = adapter.a.val();
                let value =
                    Tensor::full([adapter.rank()], NO_NOISE, (&a.device().inner(), a.dtype()));
                let value = Param::from_tensor(value).set_require_grad(false);
                let noise = Posterior::NoiseToSignal(RankParameters { value });
                outcome = layer.extend(Some(Extension::Posterior(noise))).map(drop);
            }
        });
        outcome?;
        let pass = Pass::sampled(Scheme::Weights(DrawPer::Sequence), NoiseKey::new(0));
        Ok(Self { model, observer, pass, width })
    }
}

/// Gradients of the logits by one gate per rank.
#[derive(Clone, Debug, PartialEq)]
pub struct GateGradients {
    /// Number of examples.
    pub rows: usize,
    /// Number of classes.
    pub width: usize,
    /// Logits at the posterior mean, `[rows, width]`.
    pub logits: Vec<f64>,
    /// `∂(f_c − f_last)/∂g_r`, `[rows, width, gates]`: the last class is 0 throughout, since softmax sees
    /// differences alone.
    pub jacobians: Vec<f64>,
    /// Which gates are a module's, by path.
    pub modules: BTreeMap<String, Range<usize>>,
    /// Number of gates: the sum of the ranks.
    pub gates: usize,
}

impl GateGradients {
    /// The gradients at the posterior mean of `model` for every example of `inputs`.
    ///
    /// One forward and one backward pass for every class but the last. Gates are those of plain factors and of
    /// factors with a posterior; other adapters have none.
    pub fn new<M: Model>(model: &M, inputs: &Inputs<'_, M::Input>) -> Result<Self, Error> {
        let undefined = |what: &str| Error::Undefined(format!("rank gates: {what}"));
        let examples = inputs.examples;
        let sizes: Vec<usize> = (0..examples.len()).map(|i| examples.size(i)).collect();
        let batches = evaluation_batches(&sizes, inputs.batch_size)?;
        let Some(first) = batches.first() else { return Err(undefined("there is no example")) };
        let plain = |layer: &AdaptedLinear| {
            matches!(layer.extension(), None | Some(Extension::Posterior(_)))
        };
        let mut layers = BTreeMap::new();
        let (mut modules, mut gates) = (BTreeMap::new(), 0);
        model.visit_layers(&mut |path, layer| {
            let Some(adapter) = layer.low_rank().filter(|a| plain(layer) && a.scaling != 0.0)
            else {
                return;
            };
            let range = gates..gates + adapter.rank();
            gates = range.end;
            layers.insert(layer.noise_id(), (range.clone(), adapter.scaling));
            modules.insert(path.to_owned(), range);
        });
        if gates == 0 {
            return Err(undefined("no adapter is a pair of factors"));
        }
        let observed = Observed::new(model, &examples.input(&first[..1])?, plain)?;
        let width = observed.width;
        if width < 2 {
            return Err(undefined("gates are for classes, and the answers are scores"));
        }
        let mut all = Vec::with_capacity(examples.len());
        for indices in &batches {
            let input = examples.input(indices)?;
            let mut rows = vec![(Vec::new(), vec![0.0; width * gates]); indices.len()];
            for class in 0..width - 1 {
                let logits = observed.model.logits(&input, &observed.pass);
                let seed: Vec<f64> = (0..indices.len() * width)
                    .map(|i| f64::from(i % width == class) - f64::from(i % width == width - 1))
                    .collect();
                let place = (&logits.device().inner(), logits.dtype());
                let seed =
                    Tensor::<2>::from_data(TensorData::new(seed, [indices.len(), width]), place);
                if class == 0 {
                    let host = values(logits.clone());
                    for (row, logits) in rows.iter_mut().zip(host.chunks_exact(width)) {
                        row.0 = logits.to_vec();
                    }
                }
                let gradients = (logits * seed).sum().backward();
                for used in observed.observer.take_uses() {
                    let (Some((range, scaling)), Some(gradient)) =
                        (layers.get(&used.module), used.rank_gradient(&gradients))
                    else {
                        continue;
                    };
                    // What was recorded is `c·h`.
                    let product: Tensor<2> =
                        (used.rank_input.clone() * gradient).sum_dim(1).squeeze_dim(1);
                    let host = values(product.div_scalar(*scaling));
                    for (row, share) in rows.iter_mut().zip(host.chunks_exact(range.len())) {
                        let place = &mut row.1[class * gates..][range.clone()];
                        place.iter_mut().zip(share).for_each(|(sum, value)| *sum += value);
                    }
                }
            }
            all.extend(rows);
        }
        let (logits, jacobians): (Vec<_>, Vec<_>) =
            restore_order(&batches, all)?.into_iter().unzip();
        let (logits, jacobians) = (logits.concat(), jacobians.concat());
        Ok(Self { rows: examples.len(), width, logits, jacobians, modules, gates })
    }

    /// The gradients by the gates `range` alone.
    #[must_use]
    pub fn only(&self, range: Range<usize>) -> Self {
        let rows = self.jacobians.chunks_exact(self.gates);
        Self {
            jacobians: rows.flat_map(|row| row[range.clone()].to_vec()).collect(),
            modules: self
                .modules
                .iter()
                .filter(|(_, r)| **r == range)
                .map(|(p, _)| (p.clone(), 0..range.len()))
                .collect(),
            gates: range.len(),
            logits: self.logits.clone(),
            ..*self
        }
    }
}
