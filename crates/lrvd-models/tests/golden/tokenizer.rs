//! Ids, types, masks, tokens and decoded texts, from every vocabulary file of a folder.
//!
//! Everything is encoded anew from the texts and options. Unknown fields are errors, so that a folder that holds was
//! compared in full.

use anyhow::{Context, Result, bail, ensure};
use lrvd_models::tokenizer::{
    Encoding, PaddingDirection, PaddingParams, PaddingStrategy, TextTokenizer, TruncationParams,
    TruncationStrategy,
};
use serde_json::{Value, json};

use crate::case::{Case, Json};

/// Each is compared if it is there.
const FILES: [&str; 3] = ["tokenizer.json", "spm.model", "tokenizer.model"];

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    let files: Vec<&str> = FILES.into_iter().filter(|f| case.dir.join(f).is_file()).collect();
    ensure!(!files.is_empty(), "none of {FILES:?}");
    let (mut compared, json) = (0, case.json.clone());
    for file in files {
        let tokenizer = TextTokenizer::from_file(&case.dir.join(file))?;
        let mut equal = |name: &str, expected: &Value, found: Value| {
            let same = *expected == found;
            let note = if same { String::new() } else { format!("{expected}, found {found}") };
            case.statement(&format!("{file}: {name}"), same, note);
        };
        for kind in ["items", "batches"] {
            for (index, entry) in json[kind].as_array().into_iter().flatten().enumerate() {
                let name = match kind {
                    "items" => entry.read("name")?,
                    _ => format!("batch {index}"),
                };
                let fields = encode(&tokenizer, &json, entry)
                    .with_context(|| format!("{kind}: `{name}`"))?;
                compared += fields.len();
                for (field, found) in fields {
                    equal(&format!("{name}.{field}"), &entry[field], found);
                }
            }
        }
    }
    ensure!(compared > 0, "no items");
    Ok(())
}

/// What is found for every recorded field of an item, which has one text or pair, or of a batch of `inputs`.
fn encode<'a>(
    tokenizer: &TextTokenizer,
    folder: &Value,
    entry: &'a Value,
) -> Result<Vec<(&'a str, Value)>> {
    let is_batch = entry.get("inputs").is_some();
    let inputs: Vec<(&str, Option<&str>)> = if is_batch {
        entry.read("inputs")?
    } else {
        vec![(entry.read("text")?, entry["pair"].as_str())]
    };
    let truncation = truncation(tokenizer, entry)?;
    let padding = padding(tokenizer, folder, entry)?;
    let run = |inputs: &[(&str, Option<&str>)]| {
        tokenizer.encode_batch(inputs, truncation.as_ref(), padding.as_ref())
    };
    let rows = run(&inputs)?;
    let each = |of: &dyn Fn(&Encoding) -> Value| {
        let mut found: Vec<Value> = rows.iter().map(of).collect();
        if is_batch { found.into() } else { found.remove(0) }
    };
    let mut found = Vec::new();
    for (field, expected) in entry.entries()? {
        let value = match field {
            // Offsets are no part of the contract.
            "offsets" => continue,
            _ if expected.is_null() => continue,
            "name" | "text" | "pair" | "inputs" | "truncation" | "padding" | "max_length"
            | "padding_side" | "note" => continue,
            "ids" => each(&|row| json!(row.get_ids())),
            "type_ids" => each(&|row| json!(row.get_type_ids())),
            "attention_mask" => each(&|row| json!(row.get_attention_mask())),
            "tokens" => each(&|row| json!(row.get_tokens())),
            "decoded_without_special" => json!(tokenizer.decode(rows[0].get_ids(), true)?),
            // An empty second text counts as none.
            "transformers_python_ids" => {
                let (text, pair) = inputs[0];
                json!(run(&[(text, pair.filter(|text| !text.is_empty()))])?[0].get_ids())
            }
            _ => bail!("unknown field `{field}`"),
        };
        found.push((field, value));
    }
    Ok(found)
}

/// `truncation` and `max_length` in the spelling of transformers.
fn truncation(tokenizer: &TextTokenizer, entry: &Value) -> Result<Option<TruncationParams>> {
    let known = [
        TruncationStrategy::LongestFirst,
        TruncationStrategy::OnlyFirst,
        TruncationStrategy::OnlySecond,
    ];
    let strategy = match &entry["truncation"] {
        Value::Null | Value::Bool(false) => return Ok(None),
        Value::Bool(true) => known[0],
        other if other == "do_not_truncate" => return Ok(None),
        other => known
            .into_iter()
            .find(|strategy| other == strategy.as_ref())
            .with_context(|| format!("`truncation` = {other}"))?,
    };
    let max_length = entry.read("max_length")?;
    Ok(Some(TruncationParams { strategy, ..tokenizer.truncation(max_length) }))
}

/// `padding` and `padding_side` in the spelling of transformers. No vocabulary file holds the padding token and side:
/// the folder states them.
fn padding(
    tokenizer: &TextTokenizer,
    folder: &Value,
    entry: &Value,
) -> Result<Option<PaddingParams>> {
    let strategy = match &entry["padding"] {
        Value::Null | Value::Bool(false) => return Ok(None),
        Value::Bool(true) => PaddingStrategy::BatchLongest,
        other => match other.as_str() {
            Some("do_not_pad") => return Ok(None),
            Some("longest") => PaddingStrategy::BatchLongest,
            Some("max_length") => PaddingStrategy::Fixed(entry.read("max_length")?),
            _ => bail!("`padding` = {other}"),
        },
    };
    let padding = tokenizer.padding(folder.read("special_ids/pad").ok())?;
    let stated = [entry, folder].into_iter().find_map(|json| json["padding_side"].as_str());
    let direction = match stated {
        None => padding.direction,
        Some("left") => PaddingDirection::Left,
        Some("right") => PaddingDirection::Right,
        Some(other) => bail!("`padding_side` = `{other}`"),
    };
    Ok(Some(PaddingParams { strategy, direction, ..padding }))
}
