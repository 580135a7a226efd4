//! Rotary settings of a `config.json`.

use crate::config_reader::Reader;
use crate::error::Result;

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

/// The keys of one object of rotary settings.
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

macro_rules! keys {
    ($object:literal) => {
        Keys {
            object: $object,
            kind: concat!($object, ".rope_type"),
            older_kind: concat!($object, ".type"),
            theta: concat!($object, ".rope_theta"),
            factor: concat!($object, ".factor"),
            low: concat!($object, ".low_freq_factor"),
            high: concat!($object, ".high_freq_factor"),
            length: concat!($object, ".original_max_position_embeddings"),
            part: concat!($object, ".partial_rotary_factor"),
        }
    };
}

/// Base and stretching, from whichever spelling the file has; where it has both they must agree.
pub(super) fn read(reader: &Reader<'_>) -> Result<(f64, Option<Llama3Scaling>)> {
    whole(reader, "partial_rotary_factor")?;
    let theta = |key| reader.float(key, 1.0..=LARGEST_THETA);
    let mut base = theta("rope_theta")?;
    let mut found: Option<Option<Llama3Scaling>> = None;
    for keys in &[keys!("rope_scaling"), keys!("rope_parameters")] {
        let Some(value) = reader.get(keys.object) else { continue };
        if !value.is_object() {
            return Err(reader.wrong(keys.object, "an object or null", value));
        }
        let scaling = read_object(reader, keys)?;
        if found.is_some_and(|found| found != scaling) {
            let expected = "the same as `rope_scaling`";
            return Err(reader.wrong(keys.object, expected, value));
        }
        found = Some(scaling);
        let inner = theta(keys.theta)?;
        if let (Some(outer), Some(inner)) = (base, inner)
            && outer != inner
        {
            return Err(reader.wrong(keys.theta, format!("{outer}, as elsewhere"), inner));
        }
        base = base.or(inner);
    }
    Ok((base.unwrap_or(THETA), found.flatten()))
}

fn read_object(reader: &Reader<'_>, keys: &Keys) -> Result<Option<Llama3Scaling>> {
    whole(reader, keys.part)?;
    let kind = match reader.text(keys.kind)? {
        Some(kind) => {
            reader.text(keys.older_kind)?;
            kind
        }
        None => {
            reader.text(keys.older_kind)?.ok_or_else(|| reader.missing(keys.kind, "a string"))?
        }
    };
    match kind {
        "default" => return Ok(None),
        "llama3" => {}
        other => return Err(reader.unsupported(keys.kind, other, "`default`, `llama3`")),
    }
    let number = |key, least: f64| {
        reader.float(key, least..=1e9)?.ok_or_else(|| reader.missing(key, "a number"))
    };
    let scaling = Llama3Scaling {
        factor: number(keys.factor, 1.0)?,
        low_freq_factor: number(keys.low, f64::MIN_POSITIVE)?,
        high_freq_factor: number(keys.high, f64::MIN_POSITIVE)?,
        original_max_position_embeddings: reader.required(keys.length)?,
    };
    if scaling.high_freq_factor <= scaling.low_freq_factor {
        let expected = format!("more than `low_freq_factor` = {}", scaling.low_freq_factor);
        return Err(reader.wrong(keys.high, expected, scaling.high_freq_factor));
    }
    Ok(Some(scaling))
}

/// All features of a head are rotated.
fn whole(reader: &Reader<'_>, key: &'static str) -> Result<()> {
    match reader.float(key, 0.0..=1.0)? {
        Some(part) if part < 1.0 => Err(reader.unsupported(key, part, "1")),
        _ => Ok(()),
    }
}
