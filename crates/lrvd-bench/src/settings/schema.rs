//! The JSON schema of settings files for editors, and a template of a file.

use std::fmt::Write as _;

use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform as _};
use serde_json::{Value, json};

use super::config::root;
use super::layers::{Layers, TASK, pointer, unusable};
use super::names::{Preset, Training};
use super::table::{Range, at, below, schema_of};
use crate::error::Result;

/// The one setting that follows from another where it is not set.
const DERIVED: &str = "evaluate_every";

/// The JSON schema (draft 2020-12) of a settings file for `--config`.
///
/// Keys, words and descriptions are those of the types that are read, ranges those of the table. A default is stated where
/// all presets agree on it. What holds between two settings is not in it.
pub fn schema() -> Result<Value> {
    let mut schema = root().clone();
    schema["properties"][TASK] = schema_of::<Training>();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "lrvd settings".into();
    schema["description"] = "Settings of a training run, for `--config`; each is optional.".into();
    let mut schema = Schema::try_from(schema)?;
    RecursiveTransform(tidy).transform(&mut schema);
    let mut schema = schema.to_value();
    complete("", &mut schema, &presets()?);
    Ok(schema)
}

/// The settings of every preset.
fn presets() -> Result<Vec<Value>> {
    let config = |(training, preset)| Ok(Layers::new(Some(training), Some(preset), None)?.document);
    Training::presets().map(config).collect()
}

/// The default of `key`, if it is the same in every one of `presets`.
fn default(key: &str, presets: &[Value]) -> Option<Value> {
    let pointer = pointer(key);
    let mut values = presets.iter().map(|config| config.pointer(&pointer));
    let first = values.next()??;
    let agreed = key != DERIVED && values.all(|value| value == Some(first));
    agreed.then(|| if first.is_null() { "none".into() } else { first.clone() })
}

/// Makes the schema of `key`, as its type derives it, that of a settings file.
fn complete(key: &str, schema: &mut Value, presets: &[Value]) {
    let Some(map) = schema.as_object_mut() else { return };
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        let each = properties.iter_mut();
        each.for_each(|(name, schema)| complete(&below(key, name), schema, presets));
        map.remove("required");
    } else if let Some(default) = default(key, presets) {
        map.insert("default".to_owned(), default);
    }
}

/// Leaves out what a type says of Rust alone, and its defaults, which presets change; `"none"` for null, which TOML does
/// not have.
fn tidy(schema: &mut Schema) {
    let Some(map) = schema.as_object_mut() else { return };
    map.remove("format");
    map.remove("default");
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text.replace("`None`", "`\"none\"`");
    }
    if let Some(Value::Array(forms)) = map.get_mut("anyOf") {
        let absent = forms.iter_mut().filter(|form| form["type"] == "null");
        absent.for_each(|form| *form = json!({ "const": "none" }));
    }
    let Some(Value::Array(types)) = map.get("type") else { return };
    let Some(of) = types.iter().find(|name| *name != "null").cloned() else { return };
    map.insert("type".to_owned(), of);
    // Any text includes that word.
    if map["type"] != "string" {
        let description = map.remove("description");
        let value = std::mem::take(map);
        map.insert("anyOf".to_owned(), json!([value, { "const": "none" }]));
        map.extend(description.map(|text| ("description".to_owned(), text)));
    }
}

/// What is set most often, in the order of a file: plain settings first, then those of sections.
const COMMON: &str = include_str!("common.txt");
/// Settings of ranks that are cut at a constant KL weight. `rank_search` has those of the cut by held-out rows.
const AT_CONSTANT_WEIGHT: [&str; 3] = ["prune.log_alpha_threshold", "prune.start", "prune.every"];
/// Language models keep their own head.
const HEAD: &str = "head_learning_rate";

/// A settings file for `training` with the common settings as they are in `preset`, each under the first sentence of its
/// description in the [schema], which the file names `./lrvd.schema.json`.
pub fn template(training: Training, preset: Preset) -> Result<String> {
    let schema = schema()?;
    let mut config = Layers::new(Some(training), Some(preset), None)?.document;
    config[TASK] = training.name().into();
    let by_held_out_rows = config["kl_weight"] == "auto";
    let own = |key: &&str| match *key {
        HEAD => training == Training::Classifier,
        key if AT_CONSTANT_WEIGHT.contains(&key) => !by_held_out_rows,
        key => by_held_out_rows || !key.starts_with("rank_search."),
    };
    let mut text = "#:schema ./lrvd.schema.json\n".to_owned();
    for key in ["preset", TASK].into_iter().chain(COMMON.lines().filter(own)) {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let header = format!("\n[{section}]\n");
        if !section.is_empty() && !text.contains(&header) {
            text.push_str(&header);
        }
        let described =
            schema.pointer(&format!("/properties/{}", key.replace('.', "/properties/")));
        let range = at(root(), key).and_then(Range::of);
        let about = comment(described.unwrap_or(&Value::Null), range);
        let value = match config.pointer(&pointer(key)) {
            None | Some(Value::Null) => "none".into(),
            Some(value) => {
                toml::Value::try_from(value).map_err(|error| unusable(key, value, error))?
            }
        };
        let _ = write!(text, "\n# {about}\n{name} = {value}\n");
    }
    Ok(text)
}

/// The first sentence of a description, and the words or numbers that there are.
fn comment(schema: &Value, range: Option<Range>) -> String {
    let described = schema["description"].as_str().unwrap_or_default();
    let described = described.replace('\n', " ");
    let sentence = described.split_inclusive(". ").next().unwrap_or_default().trim_end();
    let consts =
        schema["oneOf"].as_array().into_iter().flatten().filter_map(|one| one.get("const"));
    let words = schema["enum"].as_array().into_iter().flatten().chain(consts);
    let words: Vec<String> = words.map(Value::to_string).collect();
    match range {
        Some(range) => format!("{sentence} Range: {range}."),
        None if words.is_empty() => sentence.to_owned(),
        None => format!("{sentence} {}.", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that a schema allows.
    fn words(schema: &Value) -> Vec<Value> {
        let list = |name: &str| schema[name].as_array().into_iter().flatten();
        let forms = list("oneOf").chain(list("anyOf")).flat_map(words);
        list("enum").chain(schema.get("const")).cloned().chain(forms).collect()
    }

    /// What reading a file with `value` at `key` says.
    fn read(key: &str, value: &Value) -> Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        let nested = key.rsplit('.').fold(value.clone(), |value, name| json!({ name: value }));
        std::fs::write(&file, toml::to_string(&nested).unwrap()).unwrap();
        Layers::new(None, None, Some(&file))?.finish().map(|_| ())
    }

    fn settings<'a>(key: &str, schema: &'a Value, found: &mut Vec<(String, &'a Value)>) {
        match schema["properties"].as_object() {
            Some(properties) => {
                for (name, schema) in properties {
                    settings(&below(key, name), schema, found);
                }
            }
            _ => found.push((key.to_owned(), schema)),
        }
    }

    #[test]
    fn what_the_schema_allows_is_read() {
        let schema = schema().unwrap();
        let mut all = Vec::new();
        settings("", &schema, &mut all);
        for document in &presets().unwrap() {
            let has = |key: &str| key == TASK || document.pointer(&pointer(key)).is_some();
            assert!(all.len() > 140 && all.iter().all(|(key, _)| has(key)), "{document}");
        }
        let words = all.into_iter().flat_map(|(key, schema)| {
            words(schema).into_iter().map(move |word| (key.clone(), word))
        });
        let words: Vec<(String, Value)> = words.collect();
        assert!(words.len() > 60, "{}", words.len());
        for (key, word) in words {
            // Two settings that do not go together are beyond a schema.
            let Err(error) = read(&key, &word) else { continue };
            let text = error.to_string();
            assert!(
                text.starts_with("setting ") && !text.contains(" cannot be "),
                "{key}: {error}"
            );
        }
    }

    #[test]
    fn words_ranges_and_defaults_are_stated() {
        let schema = schema().unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        let text = schema.to_string();
        assert!(["null", "](", "`None`"].iter().all(|part| !text.contains(part)), "{text}");
        let mut all = Vec::new();
        settings("", &schema, &mut all);
        let line = |(key, schema): (String, &Value)| {
            let mut facts = schema.clone();
            facts.as_object_mut().unwrap().remove("description");
            format!("{key}: {facts}\n")
        };
        let found: String = all.into_iter().map(line).collect();
        insta::assert_snapshot!(found);
    }

    #[test]
    fn a_template_changes_nothing_and_explains_every_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run.toml");
        for (training, preset) in Training::presets() {
            let text = template(training, preset).unwrap();
            std::fs::write(&file, &text).unwrap();
            let read = Layers::new(None, None, Some(&file)).unwrap();
            assert_eq!(read.training, training);
            let base = Layers::new(Some(training), Some(preset), None).unwrap();
            assert_eq!(read.finish().unwrap(), base.finish().unwrap(), "{text}");
            assert!(text.starts_with("#:schema ./lrvd.schema.json\n"));
            assert!(text.contains(" Range: 0 to 1000000.\nkl_weight = "), "{text}");
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let explained = pair[0].starts_with("# ") && pair[0].ends_with('.');
                let is_setting = !pair[1].starts_with('#') && pair[1].contains(" = ");
                assert!(!is_setting || explained, "{pair:?}");
            }
        }
    }
}
