//! Ids, types, masks, tokens and decoded texts, from every vocabulary file of a folder.
//!
//! Everything is encoded anew from the texts and options. Unknown fields are errors, so that a folder that holds was
//! compared in full.

use anyhow::{Context, Result, bail, ensure};
use lrvd_models::tokenizer::{
    Encoding, PaddingDirection, PaddingParams, PaddingStrategy, TextTokenizer,
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
        let tokenizer = TextTokenizer::from_file(&case.dir.join(file))?;
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
        for kind in ["items", "batches"] {
            for (index, entry) in json[kind].as_array().into_iter().flatten().enumerate() {
                let name = match kind {
                    "items" => entry.at(&["name"])?.text()?.to_owned(),
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
    let inputs: Vec<(String, Option<String>)> = if is_batch {
        serde_json::from_value(entry["inputs"].clone())?
    } else {
        let pair = entry.at(&["pair"]).ok().map(Json::text).transpose()?;
        vec![(entry.at(&["text"])?.text()?.to_owned(), pair.map(str::to_owned))]
    };
    let inputs: Vec<_> = inputs.iter().map(|(text, pair)| (&**text, pair.as_deref())).collect();
    let truncation = truncation(entry)?;
    let padding = padding(tokenizer, folder, entry)?;
    let run = |inputs: &[(&str, Option<&str>)]| {
        tokenizer.encode_batch(inputs, truncation, padding.as_ref())
    };
    let rows = run(&inputs)?;
    let each = |of: &dyn Fn(&Encoding) -> Value| {
        let mut found: Vec<Value> = rows.iter().map(of).collect();
        if is_batch { found.into() } else { found.remove(0) }
    };
    let mut found = Vec::new();
    for (field, expected) in entry.entries()? {
        let value = match field {
            _ if expected.is_null() => continue,
            "name" | "text" | "pair" | "inputs" | "truncation" | "padding" | "max_length"
            | "padding_side" | "note" => continue,
            "ids" => each(&|row| json!(row.get_ids())),
            "type_ids" => each(&|row| json!(row.get_type_ids())),
            "attention_mask" => each(&|row| json!(row.get_attention_mask())),
            "tokens" => each(&|row| json!(row.get_tokens())),
            "offsets" => each(&|row| json!(row.get_offsets())),
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
fn truncation(entry: &Value) -> Result<Option<usize>> {
    match &entry["truncation"] {
        Value::Null => Ok(None),
        stated if stated == "longest_first" => entry.at(&["max_length"])?.count().map(Some),
        stated => bail!("`truncation` = {stated}"),
    }
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
            Some("max_length") => PaddingStrategy::Fixed(entry.at(&["max_length"])?.count()?),
            _ => bail!("`padding` = {other}"),
        },
    };
    let pad = folder.at(&["special_ids", "pad"]).ok().map(Json::count).transpose()?;
    let padding = tokenizer.padding(pad.map(|id| id as u32))?;
    let stated = [entry, folder].into_iter().find_map(|json| json["padding_side"].as_str());
    let direction = match stated {
        None => padding.direction,
        Some("left") => PaddingDirection::Left,
        Some("right") => PaddingDirection::Right,
        Some(other) => bail!("`padding_side` = `{other}`"),
    };
    Ok(Some(PaddingParams { strategy, direction, ..padding }))
}
