//! Ids, types, masks, tokens and decoded texts, from every vocabulary file of a folder.
//!
//! Everything is encoded anew from the texts and options. Unknown fields are errors, so that a folder that holds was
//! compared in full.

use anyhow::{Context, Result, bail, ensure};
use lrvd_models::tokenizer::{
    EncodeOptions, Encoding, PaddingDirection, PaddingStrategy, TextTokenizer, TruncationStrategy,
};
use serde_json::{Value, json};

use crate::case::Case;
use crate::json::Json;

/// Each is compared if it is there.
const FILES: [&str; 3] = ["tokenizer.json", "spm.model", "tokenizer.model"];

pub(crate) fn verify(case: &mut Case) -> Result<()> {
    let files: Vec<&str> = FILES.into_iter().filter(|f| case.dir.join(f).is_file()).collect();
    ensure!(!files.is_empty(), "none of {FILES:?}");
    let (mut compared, json) = (0, case.json.clone());
    for file in files {
        // No vocabulary file holds the padding token and side.
        let mut tokenizer = TextTokenizer::from_file(&case.dir.join(file))?;
        if let Ok(pad) = json.at(&["special_ids", "pad"]) {
            tokenizer = tokenizer.with_pad_id(pad.count()? as u32)?;
        }
        tokenizer = with_side(tokenizer, &json)?;
        let mut equal = |name: &str, expected: &Value, found: Value| {
            let same = *expected == found;
            // Offsets are recorded, and no part of the contract.
            let holds = same || name.ends_with(".offsets");
            let note = if same { String::new() } else { format!("{expected}, found {found}") };
            case.statement(&format!("{file}: {name}"), holds, note);
        };
        if let Ok(size) = json.at(&["vocab_size"]) {
            equal("vocab_size", size, json!(tokenizer.vocab_size()));
        }
        // Special tokens that this tokenizer finds by itself.
        let special = tokenizer.special_tokens();
        for (role, found) in [
            ("cls", special.cls),
            ("sep", special.sep),
            ("unk", special.unk),
            ("mask", special.mask),
            ("bos", special.bos),
            ("eos", special.eos),
        ] {
            if let (Ok(id), Some(found)) = (json.at(&["special_ids", role]), found) {
                equal(&format!("special_ids.{role}"), id, json!(found));
            }
        }
        for item in json["items"].as_array().into_iter().flatten() {
            let name = item.at(&["name"])?.text()?;
            let fields = encode_item(&tokenizer, item).with_context(|| format!("item `{name}`"))?;
            compared += fields.len();
            for (f, found) in fields {
                equal(&format!("{name}.{f}"), &item[f], found);
            }
        }
        for (index, batch) in json["batches"].as_array().into_iter().flatten().enumerate() {
            let fields =
                encode_batch(&tokenizer, batch).with_context(|| format!("batch {index}"))?;
            for (f, found) in fields {
                equal(&format!("batch {index}.{f}"), &batch[f], found);
            }
        }
    }
    ensure!(compared > 0, "no items");
    Ok(())
}

/// What is found for every recorded field of an item.
fn encode_item<'a>(tokenizer: &TextTokenizer, item: &'a Value) -> Result<Vec<(&'a str, Value)>> {
    let (text, options) = (item.at(&["text"])?.text()?, options(item)?);
    let pair = item.at(&["pair"]).ok().map(Json::text).transpose()?;
    let Encoding { ids, type_ids, attention_mask, tokens, offsets, .. } =
        tokenizer.encode_with(text, pair, &options)?;
    let mut found = Vec::new();
    for (field, expected) in item.entries()? {
        let value = match field {
            _ if expected.is_null() => continue,
            "name" | "text" | "pair" | "truncation" | "padding" | "max_length" | "note" => continue,
            "ids" => json!(ids),
            "type_ids" => json!(type_ids),
            "attention_mask" => json!(attention_mask),
            "tokens" => json!(tokens),
            "offsets" => json!(offsets),
            "decoded_without_special" => json!(tokenizer.decode(&ids, true)?),
            // An empty second text counts as none.
            "transformers_python_ids" => {
                let pair = pair.filter(|text| !text.is_empty());
                json!(tokenizer.encode_with(text, pair, &options)?.ids)
            }
            _ => bail!("unknown field `{field}`"),
        };
        found.push((field, value));
    }
    Ok(found)
}

/// What is found for every recorded field of a batch.
fn encode_batch<'a>(tokenizer: &TextTokenizer, batch: &'a Value) -> Result<Vec<(&'a str, Value)>> {
    let inputs: Vec<(String, Option<String>)> =
        serde_json::from_value(batch.at(&["inputs"])?.clone())?;
    let inputs: Vec<_> = inputs.iter().map(|(text, pair)| (&**text, pair.as_deref())).collect();
    let tokenizer = with_side(tokenizer.clone(), batch)?;
    let rows = tokenizer.encode_batch(&inputs, &options(batch)?)?;
    let each = |of: fn(&Encoding) -> &Vec<u32>| json!(rows.iter().map(of).collect::<Vec<_>>());
    let mut found = Vec::new();
    for (field, expected) in batch.entries()? {
        let value = match field {
            _ if expected.is_null() => continue,
            "inputs" | "truncation" | "padding" | "max_length" | "padding_side" | "note" => {
                continue;
            }
            "ids" => each(|row| &row.ids),
            "type_ids" => each(|row| &row.type_ids),
            "attention_mask" => each(|row| &row.attention_mask),
            _ => bail!("unknown field `{field}`"),
        };
        found.push((field, value));
    }
    Ok(found)
}

/// Options of an item or a batch, in the spelling of transformers.
fn options(item: &Value) -> Result<EncodeOptions> {
    let length = || item.at(&["max_length"])?.count();
    let strategy = match &item["truncation"] {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(TruncationStrategy::LongestFirst),
        other => match other.as_str() {
            Some("do_not_truncate") => None,
            Some("longest_first") => Some(TruncationStrategy::LongestFirst),
            Some("only_first") => Some(TruncationStrategy::OnlyFirst),
            Some("only_second") => Some(TruncationStrategy::OnlySecond),
            _ => bail!("`truncation` = {other}"),
        },
    };
    let max_length = strategy.map(|_| length()).transpose()?;
    let padding = match &item["padding"] {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(PaddingStrategy::BatchLongest),
        other => match other.as_str() {
            Some("do_not_pad") => None,
            Some("longest") => Some(PaddingStrategy::BatchLongest),
            Some("max_length") => Some(PaddingStrategy::Fixed(length()?)),
            _ => bail!("`padding` = {other}"),
        },
    };
    let strategy = strategy.unwrap_or_default();
    Ok(EncodeOptions { max_length, strategy, padding })
}

/// The tokenizer with the `padding_side` that is stated, if one is.
fn with_side(tokenizer: TextTokenizer, stated: &Value) -> Result<TextTokenizer> {
    Ok(match stated["padding_side"].as_str() {
        None => tokenizer,
        Some("left") => tokenizer.with_padding_side(PaddingDirection::Left),
        Some("right") => tokenizer.with_padding_side(PaddingDirection::Right),
        Some(other) => bail!("`padding_side` = `{other}`"),
    })
}
