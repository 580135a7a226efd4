//! Predictions with draws, by each way of drawing.

use std::error::Error;

use burn::tensor::{Int, Tensor};
use clap::ValueEnum;
use lrvd_burn::train::{DrawPolicy, Examples, Inputs, Prediction};
use lrvd_models::{AutoModel, TokenBatch};

/// A way of making the passes of a prediction with several draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// One pass for each draw.
    Sequential,
    /// Several draws in a pass, after what they share.
    Batched,
    /// Several draws in a pass, for texts whose answer at the mean is undecided.
    Cascade,
}

/// Margin of a cascade.
const MARGIN: f64 = 0.5;

impl Way {
    /// The policy of this way.
    pub fn policy(self) -> DrawPolicy {
        let usual = DrawPolicy::default();
        match self {
            Self::Sequential => DrawPolicy { tokens_per_pass: 0, ..usual },
            Self::Batched => usual,
            Self::Cascade => DrawPolicy { cascade: Some(MARGIN), ..usual },
        }
    }
}

/// Texts of one length that are ready to be read.
struct Texts<'a>(&'a TokenBatch);

impl Examples for Texts<'_> {
    type Input = TokenBatch;

    fn len(&self) -> usize {
        self.0.ids.dims()[0]
    }

    fn size(&self, _index: usize) -> usize {
        self.0.ids.dims()[1]
    }

    fn input(&self, indices: &[usize]) -> Result<TokenBatch, lrvd_burn::Error> {
        let rows: Vec<i32> = indices.iter().map(|&i| i as i32).collect();
        let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), &self.0.ids.device());
        let [ids, type_ids] =
            [&self.0.ids, &self.0.type_ids].map(|tensor| tensor.clone().select(0, rows.clone()));
        Ok(TokenBatch::new(ids, type_ids, self.0.mask.clone().select(0, rows)))
    }
}

/// Logits of `draws` draws on one batch; 0 for the mean.
pub fn predict(
    way: Way,
    model: &AutoModel,
    input: &TokenBatch,
    draws: usize,
) -> Result<Prediction, lrvd_burn::Error> {
    let texts = Texts(input);
    let policy = way.policy();
    let inputs = Inputs { batch_size: texts.len(), policy, ..Inputs::new(&texts) };
    inputs.drawn(draws).predict(model)
}

/// Holds a way against one pass for each draw, before it is timed.
pub fn prove(
    way: Way,
    model: &AutoModel,
    input: &TokenBatch,
    draws: usize,
) -> Result<(), Box<dyn Error>> {
    let expected = predict(Way::Sequential, model, input, draws)?;
    if way != Way::Sequential && predict(way, model, input, draws)? != expected {
        return Err(format!("{way:?} draws give other numbers than one pass for each").into());
    }
    Ok(())
}
