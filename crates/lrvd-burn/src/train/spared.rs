//! Draws for those examples only that need them.

use super::examples::Subset;
use super::inputs::{Inputs, PassOfDraw};
use super::model::Model;
use super::predict::Logits;
use crate::error::Error;
use crate::model::members;
use crate::sampling::Pass;

/// The settings that lead here.
const SPARING: &str = "cascade` or `tolerance";

impl<I> Inputs<'_, I> {
    /// Every draw of the undecided examples until they are settled, `[draws, rows, width]`.
    ///
    /// Members that were not drawn repeat those that were, as often as each other, so that every mean over
    /// the members is that of the draws that were made.
    pub(super) fn spared<M: Model<Input = I>>(
        &self,
        model: &M,
        draws: usize,
        pass: &PassOfDraw<'_>,
    ) -> Result<Logits, Error> {
        if members(model)? > 1 {
            let what = "is for one adapter, and the model holds several side by side";
            return Err(Error::Argument(format!("`{SPARING}` {what}")));
        }
        let n = self.examples.len();
        let mut open: Vec<usize> = (0..n).collect();
        let mut width = 0;
        let mut at_mean = Vec::new();
        if self.policy.cascade.is_some() {
            let logits = self.ask(model, 0..1, &|_, _| Pass::mean())?;
            width = classes(&logits)?;
            let undecided = self.policy.undecided(&logits)?;
            open.retain(|&index| undecided[index]);
            at_mean = logits.values;
        }
        let mut drawn = vec![Vec::new(); n];
        let mut done = 0;
        for stage in self.policy.stages(draws) {
            if open.is_empty() {
                break;
            }
            let part = Subset { of: self.examples, rows: open.clone() };
            let more = Inputs { examples: &part, ..*self }.ask(model, done..stage, pass)?;
            width = classes(&more)?;
            for (row, values) in more.values.chunks_exact(width).enumerate() {
                drawn[open[row % open.len()]].extend_from_slice(values);
            }
            done = stage;
            if stage < draws {
                let mut still = Vec::with_capacity(open.len());
                for index in open {
                    if self.policy.unsettled(&drawn[index], width)? {
                        still.push(index);
                    }
                }
                open = still;
            }
        }
        let made: Vec<usize> = drawn.iter().map(|values| values.len() / width.max(1)).collect();
        let mut values = Vec::with_capacity(draws * n * width);
        for draw in 0..draws {
            for (index, of_draws) in drawn.iter().enumerate() {
                let (from, row) = match made[index] {
                    0 => (&at_mean, index),
                    made => (of_draws, draw % made),
                };
                values.extend_from_slice(&from[row * width..][..width]);
            }
        }
        Ok(Logits { made: Some(made), ..Logits::new(values, n, width) })
    }
}

/// Classes of the answers, which must not be scores.
fn classes(logits: &Logits) -> Result<usize, Error> {
    if logits.width < 2 && logits.rows > 0 {
        let what = "is for classifiers, and the answers are scores";
        return Err(Error::Argument(format!("`{SPARING}` {what}")));
    }
    Ok(logits.width)
}
