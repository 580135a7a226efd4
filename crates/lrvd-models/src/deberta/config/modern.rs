//! Settings of a ModernBERT that no other encoder has.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{DebertaConfig, Pooling};
use crate::error::{Error, Result};
use crate::json::{JsonObject, Size, head_width, ranged, shown};

/// Names of `layer_types`.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];
/// Keys of transformers that change nothing here: of the head for masked tokens, of another implementation of the attention, and
/// of initial values.
const UNUSED: &str = "decoder_bias deterministic_flash_attn initializer_cutoff_factor reference_compile \
    repad_logits_with_grad sparse_pred_ignore_index sparse_prediction";

/// Attention of one layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerAttention {
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// Most tokens between a query and a key, on either side; none in a global layer.
    pub window: Option<usize>,
}

/// Settings that only the `config.json` of a ModernBERT has.
pub(super) struct ModernSettings {
    /// Attention of global layers, and of the others.
    kinds: [LayerAttention; 2],
    /// Kind of every layer, if the file has a list.
    listed: Option<Vec<String>>,
    /// One layer in so many is global where there is no list.
    global_every: usize,
    pub(super) pooling: Pooling,
}

#[derive(Deserialize)]
struct Theta(#[serde(deserialize_with = "theta")] f64);

fn theta<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    ranged(deserializer, 1.0..=1e12, "a number from 1 to 1e12")
}

/// Removes the keys that only a ModernBERT has, and sets those of other encoders.
pub(super) fn read(json: &mut JsonObject<'_>) -> Result<ModernSettings> {
    json.take_only(&[
        ("attention_bias", json!(false)),
        ("attention_dropout", json!(0)),
        ("classifier_activation", json!("gelu")),
        ("classifier_bias", json!(false)),
        ("embedding_dropout", json!(0)),
        ("mlp_bias", json!(false)),
        ("mlp_dropout", json!(0)),
        ("norm_bias", json!(false)),
        ("rope_scaling", Value::Null),
    ])?;
    json.map.retain(|key, _| !UNUSED.split_whitespace().any(|unused| unused == key));
    for (key, value) in [
        ("attention_probs_dropout_prob", json!(0)),
        ("hidden_dropout_prob", json!(0)),
        ("type_vocab_size", json!(0)),
    ] {
        json.map.insert(key.to_owned(), value);
    }
    json.map.entry("max_position_embeddings").or_insert(json!(8192));
    let pooling = match json.name("classifier_pooling", &["cls", "mean"])? {
        Some("mean") => Pooling::PooledMean,
        _ => Pooling::First,
    };
    json.map.remove("classifier_pooling");
    let [global, local] = thetas(json)?;
    let attention = |rope_theta, window| LayerAttention { rope_theta, window };
    Ok(ModernSettings {
        kinds: [attention(global, None), attention(local, Some(window(json)?))],
        listed: json.take("layer_types")?,
        global_every: json.take("global_attn_every_n_layers")?.map_or(3, |Size(every)| every),
        pooling,
    })
}

/// Removes the bases of the rotary wavelengths of global and of other layers, in either spelling.
fn thetas(json: &mut JsonObject<'_>) -> Result<[f64; 2]> {
    // A written null means those of the global layers.
    let is_same = json.map.get("local_rope_theta").is_some_and(Value::is_null);
    let mut found = [None; 2];
    for (theta, key) in found.iter_mut().zip(["global_rope_theta", "local_rope_theta"]) {
        *theta = json.take(key)?.map(|Theta(theta)| theta);
    }
    if let Some(mut both) = json.take_object("rope_parameters")? {
        for (theta, kind) in found.iter_mut().zip(KINDS) {
            let Some(mut own) = both.take_object(kind)? else { continue };
            own.take_only(&[
                ("rope_type", json!("default")),
                ("type", json!("default")),
                ("partial_rotary_factor", json!(1)),
            ])?;
            let stated = own.take("rope_theta")?.map(|Theta(theta)| theta);
            if let (Some(theta), Some(stated)) = (*theta, stated)
                && theta != stated
            {
                let (key, expected) = (own.key("rope_theta"), format!("{theta}, as elsewhere"));
                return Err(Error::format(json.file, key, expected, shown(stated)));
            }
            *theta = theta.or(stated);
            let path = |key: String| format!("rope_parameters.{kind}.{key}");
            json.map.extend(own.map.into_iter().map(|(key, value)| (path(key), value)));
        }
        let path = |key: String| format!("rope_parameters.{key}");
        json.map.extend(both.map.into_iter().map(|(key, value)| (path(key), value)));
    }
    let global = found[0].unwrap_or(160_000.0);
    Ok([global, found[1].unwrap_or(if is_same { global } else { 10_000.0 })])
}

/// Removes the width of the window of layers that are not global: `local_attention` is that of both sides together.
fn window(json: &mut JsonObject<'_>) -> Result<usize> {
    let both = json.take("local_attention")?.map(|Size(both)| both / 2);
    let one = json.take("sliding_window")?.map(|Size(one)| one);
    match (both, one) {
        (Some(half), Some(one)) if half != one => {
            let expected = format!("{half}, half of `local_attention`");
            Err(Error::format(json.file, "sliding_window", expected, shown(one)))
        }
        (both, one) => Ok(one.or(both).unwrap_or(64)),
    }
}

impl ModernSettings {
    /// Attention of each of so many layers.
    pub(super) fn layers(
        &self,
        json: &JsonObject<'_>,
        count: usize,
    ) -> Result<Vec<LayerAttention>> {
        let [global, local] = self.kinds;
        let Some(listed) = &self.listed else {
            let of = |i: usize| if i.is_multiple_of(self.global_every) { global } else { local };
            return Ok((0..count).map(of).collect());
        };
        if listed.len() != count {
            let expected = format!("a list of {count} names, one for each layer");
            return Err(Error::format(json.file, "layer_types", expected, listed.len()));
        }
        let of = |(i, name): (usize, &String)| {
            let kind = KINDS.iter().position(|kind| kind == name);
            let wrong = || {
                let expected = format!("`{}` or `{}`", KINDS[0], KINDS[1]);
                Error::format(json.file, format!("layer_types[{i}]"), expected, shown(name))
            };
            kind.map(|kind| self.kinds[kind]).ok_or_else(wrong)
        };
        listed.iter().enumerate().map(of).collect()
    }
}

/// Checks that a head's features are pairs, which are rotated.
pub(super) fn check_pairs(config: &DebertaConfig, file: &std::path::Path) -> Result<()> {
    let heads = config.num_attention_heads;
    if head_width(file, config.hidden_size, heads)?.is_multiple_of(2) {
        return Ok(());
    }
    let expected = format!("a multiple of 2·`num_attention_heads` = {}", 2 * heads);
    Err(Error::format(file, "hidden_size", expected, shown(config.hidden_size)))
}
