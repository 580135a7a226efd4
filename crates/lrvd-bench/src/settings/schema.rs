//! The JSON schema of settings files for editors, and a template of a file.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::config::{Config, field};
use super::layers::{Layers, TASK, pointer, unusable};
use super::names::{Preset, Training};
use super::resolve::{FOLLOWING, Facts};
use super::table::{Field, Setting as _, section};
use crate::error::Result;

/// The setting that only a file has.
const FOR: Field = Field::new::<Training>(
    TASK,
    "Kind of model that `lrvd train` makes of the data with these settings.",
    || None,
);

/// The JSON schema (draft 2020-12) of a settings file for `--config`.
///
/// Keys, words, descriptions and ranges are those of the table. A default is stated where all presets agree on it. What holds
/// between two settings is not in it.
pub fn schema() -> Result<Value> {
    let mut schema = Config::schema();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "lrvd settings".into();
    schema["description"] = "Settings of a training run, for `--config`; each is optional.".into();
    schema["properties"][TASK] = section(&[FOR])["properties"][TASK].take();
    schema["properties"]["preset"]["enum"] = json!(Preset::ALL.map(Preset::name));
    let resolved = |(training, preset)| {
        Layers::new(Some(training), Some(preset), None)?.resolve(&Facts::default())
    };
    let presets = Training::presets().map(resolved).collect::<Result<Vec<_>>>()?;
    for (i, (key, value, _)) in presets[0].settings.iter().enumerate() {
        let agreed = !FOLLOWING.contains(&&**key)
            && presets.iter().all(|preset| preset.settings[i].1 == *value);
        if let (true, Some(schema)) = (
            agreed,
            schema.pointer_mut(&format!("/properties/{}", key.replace('.', "/properties/"))),
        ) {
            schema["default"] = if value.is_null() { "none".into() } else { value.clone() };
        }
    }
    Ok(schema)
}

/// Settings that are set most often, in the order of a file: plain settings first, then those of sections.
const COMMON: &str = include_str!("common.txt");
/// Settings of ranks that are cut at a constant KL weight. `rank_search` has those of the cut by held-out rows.
const AT_CONSTANT_WEIGHT: [&str; 3] = ["prune.log_alpha_threshold", "prune.start", "prune.every"];
/// Language models keep their own head.
const HEAD: &str = "head_learning_rate";

/// A settings file for `training` with the common settings as they are in `preset`, each under the first sentence of its
/// description and its range or words; those that follow from others are comments. Its first line names the [schema], `./lrvd.schema.json`.
pub fn template(training: Training, preset: Preset) -> Result<String> {
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
        let value = match config.pointer(&pointer(key)) {
            None | Some(Value::Null) => "none".into(),
            Some(value) => {
                toml::Value::try_from(value).map_err(|error| unusable(key, value, error))?
            }
        };
        let about = field(key).map_or_else(|| comment(&FOR), comment);
        // A value that is in the file is taken as it is.
        let mark = if FOLLOWING.contains(&key) { "# " } else { "" };
        let _ = write!(text, "\n# {about}\n{mark}{name} = {value}\n");
    }
    Ok(text)
}

/// The first sentence of a description, and the words or numbers that there are.
fn comment(field: &Field) -> String {
    let described = field.doc().replace('\n', " ");
    let sentence = described.split_inclusive(". ").next().unwrap_or_default().trim_end();
    let presets = Preset::ALL.map(Preset::name);
    let words = if field.key == "preset" { &presets } else { (field.words)() };
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match (field.range)() {
        Some(range) => format!("{sentence} Range: {range}."),
        None if words.is_empty() => sentence.to_owned(),
        None => format!("{sentence} {}.", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::table::below;

    /// The words that a schema allows.
    fn words(schema: &Value) -> Vec<Value> {
        let list = |name: &str| schema[name].as_array().into_iter().flatten();
        let forms = list("oneOf").chain(list("anyOf")).flat_map(words);
        list("enum").chain(schema.get("const")).cloned().chain(forms).collect()
    }

    /// Every setting, its key and its schema.
    fn settings(key: &str, schema: &Value) -> Vec<(String, Value)> {
        let below = |(name, schema): (&String, &Value)| settings(&below(key, name), schema);
        match schema["properties"].as_object() {
            Some(properties) => properties.iter().flat_map(below).collect(),
            None => vec![(key.to_owned(), schema.clone())],
        }
    }

    #[test]
    fn what_the_schema_allows_is_read() {
        let mut count = 0;
        for (key, schema) in settings("", &schema().unwrap()) {
            for word in words(&schema).iter().filter(|_| !["preset", TASK].contains(&&*key)) {
                count += 1;
                let mut layers = Layers::new(None, None, None).unwrap();
                layers.set(&key, toml::Value::try_from(word).unwrap()).unwrap();
                // Two settings that do not go together are beyond a schema.
                let Err(error) = layers.finish() else { continue };
                let text = error.to_string();
                let is_read = text.starts_with("setting ") && !text.contains(" cannot be ");
                assert!(is_read, "{key}: {text}");
            }
        }
        assert!(count > 60, "{count}");
    }

    #[test]
    fn words_ranges_and_defaults_are_stated() {
        let schema = schema().unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        let text = schema.to_string();
        assert!(["null", "](", "`None`"].iter().all(|part| !text.contains(part)), "{text}");
        let line = |(key, mut schema): (String, Value)| {
            schema.as_object_mut().unwrap().remove("description");
            format!("{key}: {schema}\n")
        };
        let found: String = settings("", &schema).into_iter().map(line).collect();
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
