//! Gradients at the adapters of a model, every sequence apart.

use burn::tensor::{Gradients, Int, Tensor, TensorData};
use lrvd_burn::adapter::{AdaptedLinear, ObservedUse};
use lrvd_burn::host::values;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::train::{Examples, Model, Observed};
use lrvd_models::{AutoModel, TokenBatch};

use crate::error::Burn;
use crate::settings::LaplaceLayers as Layers;

/// A model whose adapters are observed, every sequence apart.
pub(super) struct Watch {
    observed: Observed<AutoModel>,
    modules: Vec<u32>,
}

pub(super) struct Seen {
    /// Logits, `[n, labels]`.
    pub(super) logits: Vec<f64>,
    /// Every use of an observed adapter that the loss reached.
    pub(super) uses: Vec<Used>,
}

/// One use of an adapter.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `input` | `[n, rows, d_input]` |
/// | `rank_input` | `[n, rows, rank]` |
/// | `rank_gradient` | `[s·n, rows, rank]` |
/// | `output_gradient` | `[s·n, rows, d_output]` |
///
/// Rows that are padding, or that no example's loss reaches, are 0 in all of them.
pub(super) struct Used {
    /// Place of the layer among the observed ones.
    pub(super) module: usize,
    pub(super) input: Tensor<3>,
    pub(super) rank_input: Tensor<3>,
    pub(super) rank_gradient: Tensor<3>,
    pub(super) output_gradient: Tensor<3>,
    pub(super) rows: usize,
}

impl Watch {
    /// Observes the adapters of a copy of `model` that `layers` names; any of `examples`
    /// shows which of them are used with rows that sequences share.
    pub(super) fn new(
        model: &AutoModel,
        layers: Layers,
        examples: &dyn Examples<Input = TokenBatch>,
    ) -> Burn<Self> {
        let mut modules = Vec::new();
        model.visit_layers(&mut |_, layer| {
            if layer.low_rank().is_some() {
                modules.push(layer.noise_id());
            }
        });
        if layers == Layers::Last {
            modules.drain(..modules.len().saturating_sub(1));
        }
        let meant = |layer: &AdaptedLinear| modules.contains(&layer.noise_id());
        let observed = Observed::new(model, &examples.input(&[0])?, meant)?;
        Ok(Self { observed, modules })
    }

    pub(super) fn model(&self) -> &AutoModel {
        &self.observed.model
    }

    pub(super) fn labels(&self) -> usize {
        self.observed.width
    }

    pub(super) fn modules(&self) -> &[u32] {
        &self.modules
    }

    /// Gradients of `Σ_c seed[k, i, c]·logit[i, c]` for every seed `k` and example `i` of `batch`.
    ///
    /// `seeds` gives `[s, n, labels]` for the logits `[n, labels]`. All of them take one backward
    /// pass, over `s` copies of the batch.
    pub(super) fn gradients(
        &self,
        batch: &TokenBatch,
        s: usize,
        seeds: impl FnOnce(&[f64]) -> Vec<f64>,
    ) -> Seen {
        let [n, _] = batch.ids.dims();
        let Observed { model, observer, pass, width: labels } = &self.observed;
        let logits = model.logits(&batch.repeat(s), pass);
        let host = values(logits.clone().inner().narrow(0, 0, n));
        let seeds = TensorData::new(seeds(&host), [s * n, *labels]);
        let seeds = Tensor::<2>::from_data(seeds, (&logits.device().inner(), logits.dtype()));
        let gradients = (logits * seeds).sum().backward();
        let uses = observer.take_uses();
        let uses = uses.iter().filter_map(|used| self.used(used, &gradients, &batch.mask, s));
        Seen { logits: host, uses: uses.collect() }
    }

    fn used(
        &self,
        used: &ObservedUse,
        gradients: &Gradients,
        mask: &Tensor<2>,
        s: usize,
    ) -> Option<Used> {
        let module = self.modules.iter().position(|&id| id == used.module)?;
        let [n, length] = mask.dims();
        let first = |rows: &Tensor<3>| rows.clone().narrow(0, 0, n);
        let (mut input, mut rank_input) = (first(&used.input), first(&used.rank_input));
        let mut rank_gradient = used.rank_gradient(gradients)?;
        let mut output_gradient = used.output_gradient(gradients)?;
        let rows = input.dims()[1];
        let live = if used.use_index != 0 {
            if let Some(merge) = Merge::of_equal_rows(&input) {
                input = merge.pick(input);
                rank_input = merge.pick(rank_input);
                rank_gradient = merge.sum(rank_gradient);
                output_gradient = merge.sum(output_gradient);
            }
            reached(&output_gradient, s)
        } else if rows == length {
            mask.clone().cast(input.dtype()).unsqueeze_dim(2)
        } else {
            // The last token alone, as the head of a language model sees it.
            Tensor::ones([n, rows, 1], (&input.device(), input.dtype()))
        };
        let count: f64 = values(live.clone()).iter().sum();
        let copies = live.clone().repeat_dim(0, s);
        Some(Used {
            module,
            input: input * live.clone(),
            rank_input: rank_input * live,
            rank_gradient: rank_gradient * copies.clone(),
            output_gradient: output_gradient * copies,
            rows: count.round() as usize,
        })
    }
}

/// 1 for rows of an example that any of its `s` losses reaches, else 0, `[n, rows, 1]`: a table of positions has more rows than
/// a short text has distances.
fn reached(gradient: &Tensor<3>, s: usize) -> Tensor<3> {
    let [copies, rows, _] = gradient.dims();
    let size: Tensor<3> = gradient.clone().abs().sum_dim(2).reshape([s, copies / s, rows]);
    let size: Tensor<2> = size.sum_dim(0).squeeze_dim(0);
    size.sign().unsqueeze_dim(2)
}

/// Rows that are one and the same input, to be seen as one use: distances that share a bucket read the same row of the table,
/// which the encoder projects once or once a distance, depending on the length of the batch.
struct Merge {
    first: Tensor<1, Int>,
    /// `[1, groups, rows]`, 1 where a row belongs to a group.
    groups: Tensor<3>,
}

impl Merge {
    /// Groups of neighbouring equal rows of `input [n, rows, width]`, which all examples share;
    /// `None` if no two are equal.
    fn of_equal_rows(input: &Tensor<3>) -> Option<Self> {
        let [_, rows, width] = input.dims();
        let host = values(input.clone().narrow(0, 0, 1));
        let row = |i: usize| &host[i * width..(i + 1) * width];
        let first: Vec<usize> = (0..rows).filter(|&i| i == 0 || row(i) != row(i - 1)).collect();
        if first.len() == rows {
            return None;
        }
        let mut groups = vec![0.0; first.len() * rows];
        for i in 0..rows {
            let group = first.partition_point(|&start| start <= i) - 1;
            groups[group * rows + i] = 1.0;
        }
        let device = input.device();
        let shape = [1, first.len(), rows];
        let groups = Tensor::from_data(TensorData::new(groups, shape), (&device, input.dtype()));
        let first: Vec<i32> = first.into_iter().map(|i| i as i32).collect();
        Some(Self { first: Tensor::from_ints(first.as_slice(), &device), groups })
    }

    fn pick(&self, rows: Tensor<3>) -> Tensor<3> {
        rows.select(1, self.first.clone())
    }

    fn sum(&self, rows: Tensor<3>) -> Tensor<3> {
        let n = rows.dims()[0];
        self.groups.clone().repeat_dim(0, n).matmul(rows)
    }
}
