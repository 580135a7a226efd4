//! Floating-point operations of the products of a step, from the shapes of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::model::NamedModule;
use lrvd_models::deberta::{DebertaConfig, RelativePositions};

use crate::model::Architecture;

/// Linear layers of a transformer layer, by the last parts of their names: those that read the same input share a number, and the
/// numbers rise with the order of use.
const STAGES: [(usize, &[&str]); 4] = [
    (
        0,
        &[
            "query",
            "key",
            "value",
            "query_proj",
            "key_proj",
            "value_proj",
            "q_proj",
            "k_proj",
            "v_proj",
        ],
    ),
    (1, &["attention.output.dense", "o_proj", "output"]),
    (2, &["intermediate.dense", "gate_proj", "up_proj", "inner"]),
    (3, &["output.dense", "down_proj", "outer"]),
];
/// Suffixes of the layers that also project the relative positions, in the order of the terms.
const POSITIONS: [&str; 2] = ["key_proj", "query_proj"];

/// What a pass reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Texts.
    pub rows: usize,
    /// Tokens of each.
    pub tokens: usize,
    /// `true` if a token sees those before it alone.
    causal: bool,
    /// `true` if behind the attention of the last layer only one token of each text is computed.
    one_last: bool,
    /// Rows of relative positions that texts of this length read.
    positions: usize,
}

impl Reading {
    /// `rows` texts of `tokens` tokens by an encoder whose head reads all of them.
    pub fn plain(rows: usize, tokens: usize) -> Self {
        Self { rows, tokens, ..Self::default() }
    }

    /// The same by a model of `architecture`.
    pub fn of(
        architecture: Architecture,
        rows: usize,
        tokens: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let plain = Self::plain(rows, tokens);
        if architecture.is_decoder() {
            return Ok(Self { causal: true, ..plain });
        }
        let text = architecture.config(None)?.to_string();
        let config = DebertaConfig::parse(text.as_bytes(), Path::new("config.json"))?;
        let last = tokens as i64 - 1;
        let used = |layout: RelativePositions| {
            (-last..=last).map(|distance| layout.row(distance)).collect::<BTreeSet<_>>().len()
        };
        let positions = config.relative_positions().map_or(0, used);
        Ok(Self { one_last: true, positions, ..plain })
    }
}

/// Operations of the two halves of a step, each multiplication and each addition of a product counted as one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Operations {
    /// From the texts to the logits.
    pub forward: f64,
    /// Gradients of what is trained, and of the inputs on the way to it.
    pub backward: f64,
}

impl Operations {
    /// Those of one step.
    pub fn step(self) -> f64 {
        self.forward + self.backward
    }

    fn add(&mut self, forward: f64, backward: f64) {
        self.forward += forward;
        self.backward += backward;
    }

    /// Of `model` in one training step.
    ///
    /// # Formula
    ///
    /// A product of `[m, k]` and `[k, n]` has `2mkn`. With `m` rows, a linear layer `[k, n]` with an adapter of rank `r` has
    ///
    /// ```text
    /// forward    2mkn + 2mr(k + n)
    /// backward   2mkn                     gradient of the input; the frozen weight has none
    ///          + 2mr(k + n) + 2mrn        of both factors, and of the input of the second
    ///          + 2mrk                     of the input, by the adapter
    /// ```
    ///
    /// Inputs have a gradient behind the first adapter. Attention of `h` features has `4h` for each query with each of its keys,
    /// and `8h` backward; a term of relative positions `2h` for each query with each row of the table in use, and `4h`
    /// backward; the projections that make these rows are counted as further rows of their layers, without the gradient of
    /// the table. Of the last layer of an encoder only the first token is computed behind the attention.
    ///
    /// Left out: everything that is no product (norms, activations, softmax, embeddings, the optimiser), what a method draws
    /// beside LoRA, the head, products that a backward pass makes again, and padding.
    pub fn of(model: &impl NamedModule, reading: Reading) -> Self {
        let Reading { rows, tokens, causal, one_last, positions } = reading;
        let mut layers: BTreeMap<(usize, usize), Vec<Shape>> = BTreeMap::new();
        model.visit_layers(&mut |path, layer| {
            if let Some((place, shape)) = Shape::of(path, layer) {
                layers.entry(place).or_default().push(shape);
            }
        });
        let last = layers.keys().next_back().map_or(0, |&(layer, _)| layer);
        let is_live = |shapes: &Vec<Shape>| shapes.iter().any(|shape| shape.rank > 0);
        let first = layers.iter().find(|(_, shapes)| is_live(shapes)).map(|(&place, _)| place);
        let mut all = Self::default();
        for (&(layer, stage), shapes) in &layers {
            let place = (layer, stage);
            let has_gradient = first.is_some_and(|first| first <= place);
            let input_has_one = first.is_some_and(|first| first < place);
            let alone = one_last && layer == last && stage > 0;
            let m = if alone { rows } else { rows * tokens };
            for shape in shapes {
                all.linear(*shape, m, input_has_one);
            }
            if stage > 0 {
                continue;
            }
            let terms = shapes.iter().filter(|shape| shape.projects_positions && positions > 0);
            for shape in terms {
                all.linear(*shape, positions, false);
                let scores = 2.0 * (rows * tokens * positions * shape.d_output) as f64;
                all.add(scores, if has_gradient { 2.0 * scores } else { 0.0 });
            }
            let features = shapes.iter().map(|shape| shape.d_output).max().unwrap_or(0);
            let keys = if causal { (tokens + 1) as f64 / 2.0 } else { tokens as f64 };
            let mixed = 4.0 * (rows * tokens * features) as f64 * keys;
            all.add(mixed, if has_gradient { 2.0 * mixed } else { 0.0 });
        }
        all
    }

    /// Adds a linear layer over `m` rows.
    fn linear(&mut self, shape: Shape, m: usize, input_has_gradient: bool) {
        let Shape { d_input, d_output, rank, .. } = shape;
        let product = |k: usize, n: usize| 2.0 * (m * k * n) as f64;
        let adapter = product(rank, d_input + d_output);
        let base = product(d_input, d_output);
        let mut backward = adapter + product(rank, d_output);
        if input_has_gradient {
            backward += base + product(rank, d_input);
        }
        self.add(base + adapter, backward);
    }
}

/// A linear layer of a transformer layer.
#[derive(Clone, Copy, Debug)]
struct Shape {
    d_input: usize,
    d_output: usize,
    rank: usize,
    projects_positions: bool,
}

impl Shape {
    /// The number of its layer with that of its stage, and the shape; `None` of a head.
    fn of(path: &str, layer: &AdaptedLinear) -> Option<((usize, usize), Self)> {
        let number = path.split('.').find_map(|part| part.parse().ok())?;
        let ends = |suffix: &&str| path.ends_with(&format!(".{suffix}"));
        let &(stage, _) = STAGES.iter().find(|(_, names)| names.iter().any(&ends))?;
        let shape = Self {
            d_input: layer.d_input(),
            d_output: layer.d_output(),
            rank: layer.rank(),
            projects_positions: POSITIONS.iter().any(ends),
        };
        Some(((number, stage), shape))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{DType, Device};
    use lrvd_burn::adapter::AdapterConfig;
    use lrvd_models::AutoModel;

    use super::*;
    use crate::model::{keep_last_layers, model};

    fn adapted(architecture: Architecture, layers: usize, rank: usize) -> AutoModel {
        let adapter = AdapterConfig { rank, ..AdapterConfig::default() };
        let (device, dtype) = (Device::flex(), DType::F32.into());
        model(architecture, Some(layers), Some(&adapter), &device, dtype).unwrap()
    }

    /// By hand: the one layer of 32 features and an inner width of 64 of the tiny DeBERTa, 3 texts of 5 tokens, rank 4. Distances of
    /// -4 to 4 read 9 rows of positions.
    #[test]
    fn one_tiny_layer_is_counted_by_hand() {
        let reading = Reading::of(Architecture::Tiny, 3, 5).unwrap();
        let found = Operations::of(&adapted(Architecture::Tiny, 1, 4), reading);
        let square = 32 * 32 + 4 * (32 + 32);
        let wide = 32 * 64 + 4 * (32 + 64);
        // Query, key and value of 15 tokens, two of them of 9 rows of positions; the rest of one token of each text.
        let linear = 2 * (3 * 15 * square + 2 * 9 * square + 3 * square + 2 * 3 * wide);
        // Scores and mixing of 5 queries with 5 keys, and two terms of 5 tokens with 9 rows.
        let attention = 2 * (2 * 3 * 5 * 5 * 32 + 2 * 3 * 5 * 9 * 32);
        assert_eq!(found.forward, f64::from(linear + attention));
        // The inputs of the first three layers, and the table, have no gradient.
        let first = 2 * (45 + 18) * (4 * 64 + 4 * 32);
        let square = 2 * 3 * (32 * 32 + 2 * 4 * 64);
        let wide = 2 * 2 * 3 * (32 * 64 + 2 * 4 * 96);
        assert_eq!(found.backward, f64::from(first + square + wide + 2 * attention));
        assert_eq!(found.step(), found.forward + found.backward);
    }

    /// One layer of the tiny Llama: 32 features in 4 heads over 2 of keys, an inner width of 64, adapters on queries and values.
    #[test]
    fn a_causal_layer_has_half_of_the_scores_and_no_head() {
        let reading = Reading::of(Architecture::TinyLlama, 2, 7).unwrap();
        let found = Operations::of(&adapted(Architecture::TinyLlama, 1, 4), reading);
        let tokens = 2 * 7;
        let base = 2 * tokens * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64);
        let adapters = 2 * tokens * 4 * ((32 + 32) + (32 + 16));
        let attention = 4 * 32 * tokens * 4;
        assert_eq!(found.forward, f64::from(base + adapters + attention));
        // Of queries, keys and values the inputs have no gradient.
        let inputs = 2 * tokens * (32 * 32 + 3 * 32 * 64);
        let factors = adapters + 2 * tokens * 4 * (32 + 16);
        assert_eq!(found.backward, f64::from(inputs + factors + 2 * attention));
    }

    #[test]
    fn nothing_below_the_first_adapter_has_a_gradient() {
        let reading = Reading::of(Architecture::Minilm, 2, 6).unwrap();
        let of = |layers, live| {
            let mut model = adapted(Architecture::Minilm, layers, 4);
            keep_last_layers(&mut model, live);
            Operations::of(&model, reading)
        };
        let (one, two) = (of(1, 1), of(2, 1));
        assert_eq!(two.backward, one.backward);
        assert!(two.forward > one.forward && of(2, 2).backward > 2.0 * one.backward);
        assert_eq!(of(2, 0).backward, 0.0);
    }
}
