//! Ids, types, masks, tokens and decoded texts, from every vocabulary file of a folder.
//!
//! Everything is encoded anew from the texts and options. Unknown fields are errors, so that a folder that holds was
//! compared in full.

use anyhow::{Context, Result, bail, ensure};
use lrvd_models::tokenizer::{Encoding, TextStream, TextTokenizer};
use serde_json::{Value, json};
use tokenizers::PaddingDirection;

use crate::case::{Case, Json};

/// Each is compared if it is there.
const FILES: [&str; 5] =
    ["tokenizer.json", "spm.model", "tokenizer.model", "vocab.txt", "vocab.json"];

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

/// Values of every recorded field of an item, which has one text or pair, or of a batch of `inputs`.
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
    // No vocabulary file holds the padding token and side: the folder states them.
    let truncation = match &entry["truncation"] {
        Value::Null => None,
        stated if stated == "longest_first" => Some(entry.read("max_length")?),
        stated => bail!("`truncation` = {stated}"),
    };
    let least: Option<usize> = match &entry["padding"] {
        Value::Null => None,
        stated if stated == "longest" => Some(0),
        stated if stated == "max_length" => Some(entry.read("max_length")?),
        stated => bail!("`padding` = {stated}"),
    };
    let run = |inputs: &[(&str, Option<&str>)]| -> Result<Vec<Encoding>> {
        let encode =
            |(text, pair): &(&str, Option<&str>)| tokenizer.encode(text, *pair, truncation);
        let mut rows = inputs.iter().map(encode).collect::<lrvd_models::Result<Vec<_>>>()?;
        let Some(least) = least else { return Ok(rows) };
        let side: &str = entry.read("padding_side").or_else(|_| folder.read("padding_side"))?;
        let direction =
            if side == "left" { PaddingDirection::Left } else { PaddingDirection::Right };
        let pad = folder.read("special_ids/pad").ok().or(tokenizer.special_tokens().pad);
        let pad: u32 = pad.context("no padding token")?;
        let length = rows.iter().map(Encoding::len).fold(least, usize::max);
        for row in &mut rows {
            row.pad(length, pad, 0, &tokenizer.token(pad)?, direction);
        }
        Ok(rows)
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
            "decoded_without_special" => {
                let whole = tokenizer.decode(rows[0].get_ids(), true)?;
                let mut stream = TextStream::after(tokenizer, &[])?;
                let pieces = rows[0].get_ids().iter().map(|&id| stream.push(tokenizer, id));
                let joined = pieces.collect::<lrvd_models::Result<String>>()?;
                // Word pieces are cleaned up over several tokens, and no language model here has them.
                let is_word_pieces = tokenizer.id("##s").is_some();
                ensure!(joined == whole || is_word_pieces, "pieces {joined:?}, text {whole:?}");
                json!(whole)
            }
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
