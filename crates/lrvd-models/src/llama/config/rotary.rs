//! Rotary settings of a `config.json`.

use super::ConfigError;
use crate::config_reader::Reader;

/// Stretching of the long rotary wavelengths, type `llama3`; the formula is that of
/// [`Rotary::new`](crate::llama::Rotary::new).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3Scaling {
    /// By how much the longest wavelengths grow; at least 1.
    pub factor: f64,
    /// Wavelengths of more than the training length divided by this grow by `factor`.
    pub low_freq_factor: f64,
    /// Wavelengths of less than the training length divided by this stay; above `low_freq_factor`.
    pub high_freq_factor: f64,
    /// Length of the training before stretching, in tokens.
    pub original_max_position_embeddings: usize,
}

/// transformers' default.
const THETA: f64 = 10_000.0;
/// Bases beyond this leave nothing to rotate.
const LARGEST_THETA: f64 = 1e15;

/// The spelling of one object of rotary settings.
struct Keys {
    object: &'static str,
    kind: &'static str,
    older_kind: &'static str,
    theta: &'static str,
    factor: &'static str,
    low: &'static str,
    high: &'static str,
    length: &'static str,
    part: &'static str,
}

const SCALING: Keys = Keys {
    object: "rope_scaling",
    kind: "rope_scaling.rope_type",
    older_kind: "rope_scaling.type",
    theta: "rope_scaling.rope_theta",
    factor: "rope_scaling.factor",
    low: "rope_scaling.low_freq_factor",
    high: "rope_scaling.high_freq_factor",
    length: "rope_scaling.original_max_position_embeddings",
    part: "rope_scaling.partial_rotary_factor",
};

const PARAMETERS: Keys = Keys {
    object: "rope_parameters",
    kind: "rope_parameters.rope_type",
    older_kind: "rope_parameters.type",
    theta: "rope_parameters.rope_theta",
    factor: "rope_parameters.factor",
    low: "rope_parameters.low_freq_factor",
    high: "rope_parameters.high_freq_factor",
    length: "rope_parameters.original_max_position_embeddings",
    part: "rope_parameters.partial_rotary_factor",
};

/// Base and stretching, from whichever spelling the file has; where it has both they must agree.
pub(super) fn read(reader: &Reader<'_>) -> Result<(f64, Option<Llama3Scaling>), ConfigError> {
    whole(reader, "partial_rotary_factor")?;
    let theta = |key| reader.float(key, 1.0..=LARGEST_THETA);
    let mut base = theta("rope_theta")?;
    let mut found: Option<Option<Llama3Scaling>> = None;
    for keys in [&SCALING, &PARAMETERS] {
        let Some(value) = reader.get(keys.object) else { continue };
        if !value.is_object() {
            return Err(reader.wrong_type(keys.object, "an object or null", value));
        }
        let scaling = read_object(reader, keys)?;
        if found.is_some_and(|found| found != scaling) {
            let wanted = "the settings of `rope_scaling`, which stand beside it";
            return Err(reader.out_of_range(keys.object, value, wanted));
        }
        found = Some(scaling);
        let inner = theta(keys.theta)?;
        if let (Some(outer), Some(inner)) = (base, inner)
            && outer != inner
        {
            return Err(reader.out_of_range(keys.theta, inner, format!("{outer}, as elsewhere")));
        }
        base = base.or(inner);
    }
    Ok((base.unwrap_or(THETA), found.flatten()))
}

fn read_object(reader: &Reader<'_>, keys: &Keys) -> Result<Option<Llama3Scaling>, ConfigError> {
    whole(reader, keys.part)?;
    let kind = match reader.text(keys.kind)? {
        Some(kind) => {
            reader.text(keys.older_kind)?;
            kind
        }
        None => reader.text(keys.older_kind)?.ok_or_else(|| reader.missing(keys.kind))?,
    };
    match kind {
        "default" => return Ok(None),
        "llama3" => {}
        other => return Err(reader.unsupported(keys.kind, other, "`default`, `llama3`")),
    }
    let number =
        |key, least: f64| reader.float(key, least..=1e9)?.ok_or_else(|| reader.missing(key));
    let scaling = Llama3Scaling {
        factor: number(keys.factor, 1.0)?,
        low_freq_factor: number(keys.low, f64::MIN_POSITIVE)?,
        high_freq_factor: number(keys.high, f64::MIN_POSITIVE)?,
        original_max_position_embeddings: reader.required(keys.length)?,
    };
    if scaling.high_freq_factor <= scaling.low_freq_factor {
        let wanted = format!("more than `low_freq_factor` = {}", scaling.low_freq_factor);
        return Err(reader.out_of_range(keys.high, scaling.high_freq_factor, wanted));
    }
    Ok(Some(scaling))
}

/// All features of a head are rotated.
fn whole(reader: &Reader<'_>, key: &'static str) -> Result<(), ConfigError> {
    match reader.float(key, 0.0..=1.0)? {
        Some(part) if part < 1.0 => Err(reader.unsupported(key, part, "1")),
        _ => Ok(()),
    }
}
