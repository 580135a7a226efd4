//! Texts of which some tokens are to be predicted.
//!
//! The head over a vocabulary is most of the work for a short text, and its logits most of the memory of a training
//! step. Only the hidden states whose next token is predicted reach it: a prompt costs the decoder alone.

use burn::tensor::{Device, Int, Tensor, TensorData};
use lrvd_burn::sampling::Pass;

use super::causal_lm::LlamaForCausalLm;
use crate::batch::TokenBatch;

impl LlamaForCausalLm {
    /// Logits at the [columns](TokenBatch::columns) of `input`, row after row, `[asked, vocab]`; for a pass that holds several draws
    /// `[draws · asked, vocab]`, draw after draw, unless no layer draws.
    ///
    /// Other columns do not reach the head. An adapter on the head draws per sequence as other layers do: its states then
    /// stay apart by row, and short rows are filled up.
    ///
    /// # Panics
    ///
    /// If a column is not one of the batch.
    pub fn logits_at(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        let TokenBatch { ids, mask, .. } = input.clone();
        let states = self.model().run(ids, mask, None, pass, &mut |_| ());
        let [rows, tokens, hidden] = states.dims();
        let device = states.device().inner();
        let states = states.reshape([rows * tokens, hidden]);
        let copies = rows / input.columns.len().max(1);
        if !self.head_draws() {
            let asked = input.places(copies, tokens, 0);
            let states = states.select(0, indices(asked, &device)).unsqueeze_dim(0);
            return self.head(self.model().normed(states), pass).squeeze_dim(0);
        }
        let width = input.columns.iter().map(Vec::len).max().unwrap_or(0);
        let filled = input.places(copies, tokens, width);
        let states = states.select(0, indices(filled, &device)).reshape([rows, width, hidden]);
        let logits = self.head(self.model().normed(states), pass);
        // The head may be the first layer that draws.
        let [rows, _, vocab] = logits.dims();
        let copies = rows / input.columns.len().max(1);
        let real = (0..copies * input.columns.len()).flat_map(|row| {
            let asked = input.columns[row % input.columns.len()].len();
            (0..asked).map(move |place| row * width + place)
        });
        let real = indices(real.collect(), &device);
        logits.reshape([rows * width, vocab]).select(0, real)
    }
}

impl TokenBatch {
    /// The columns of `copies` of the batch as places in its `[rows · tokens]` states; a row of fewer than `width`
    /// is filled up by its first column.
    fn places(&self, copies: usize, tokens: usize, width: usize) -> Vec<usize> {
        let rows = (0..copies).flat_map(|_| &self.columns).enumerate();
        let place = |(row, columns): (usize, &Vec<usize>)| -> Vec<usize> {
            let filled =
                (0..width.max(columns.len())).map(|i| columns.get(i).copied().unwrap_or(0));
            filled.map(|column| row * tokens + column).collect()
        };
        rows.flat_map(place).collect()
    }
}

fn indices(places: Vec<usize>, device: &Device) -> Tensor<1, Int> {
    let n = places.len();
    let places: Vec<i64> = places.into_iter().map(|place| place as i64).collect();
    Tensor::from_data(TensorData::new(places, [n]), device)
}
