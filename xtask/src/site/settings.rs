//! The table of settings, from their JSON schema and the presets that the program prints.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use super::help::escaped;
use super::print;

/// A preset: its name, and its settings as TOML.
type Preset = (String, toml::Table);

/// The page of all settings.
pub(super) fn page(program: &Path) -> Result<String> {
    let schema: Value = serde_json::from_str(&print(program, &["config", "schema"])?)
        .context("`lrvd config schema`")?;
    let names = schema["properties"]["preset"]["enum"].as_array().cloned().unwrap_or_default();
    let mut presets = Vec::new();
    for name in names.iter().filter_map(Value::as_str) {
        let text = print(program, &["config", "show", "--preset", name])?;
        let table = toml::from_str(&text).with_context(|| format!("preset {name}"))?;
        presets.push((name.to_owned(), table));
    }
    let mut page = "# Settings\n\nA setting is a line of a file for `--config`, or `--set NAME=VALUE`. \
                    [Presets and settings](../guides/presets.md) explains the choices. Where no default is given, \
                    the model, the data or another setting decides; `lrvd train --dry-run` prints each value with its origin.\n\n"
        .to_owned();
    section(&mut page, "", &schema, &presets);
    Ok(page)
}

/// Writes the settings of an object of the schema, then the objects in it, each below a heading.
fn section(page: &mut String, prefix: &str, schema: &Value, presets: &[Preset]) {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let is_object = |schema: &Value| schema["properties"].is_object();
    for (key, setting) in properties.iter().filter(|(_, setting)| !is_object(setting)) {
        let name = format!("{prefix}{key}");
        let mut text = description(setting);
        let _ = write!(text, "  \nValues: {}.", values(setting));
        let default = default(&name, setting, presets);
        if !default.is_empty() {
            let _ = write!(text, " Default: {default}.");
        }
        for value in setting["oneOf"].as_array().into_iter().flatten() {
            let _ = write!(text, "\n- {}: {}", values(value), description(value));
        }
        let _ = writeln!(page, "`{name}`\n: {}\n", text.replace('\n', "\n  "));
    }
    for (key, part) in properties.iter().filter(|(_, setting)| is_object(setting)) {
        let name = format!("{prefix}{key}");
        let _ = writeln!(page, "## {name}\n\n{}\n", description(part));
        section(page, &format!("{name}."), part, presets);
    }
}

fn description(schema: &Value) -> String {
    escaped(schema["description"].as_str().unwrap_or_default())
}

fn literal(value: &Value) -> String {
    format!("`{value}`")
}

/// What a setting may be: words, or a kind with its range.
fn values(schema: &Value) -> String {
    let list = |key: &str| schema[key].as_array().map(Vec::as_slice).unwrap_or_default();
    if !list("anyOf").is_empty() {
        return list("anyOf").iter().map(values).collect::<Vec<_>>().join(", or ");
    }
    if !schema["const"].is_null() {
        return literal(&schema["const"]);
    }
    let words = list("enum").iter().map(literal).chain(list("oneOf").iter().map(values));
    let words: Vec<String> = words.collect();
    if !words.is_empty() {
        return words.join(", ");
    }
    let bound = |key: &str, word: &str| {
        schema[key].as_number().map(|bound| format!(" {word} {bound}")).unwrap_or_default()
    };
    let range = [
        bound("minimum", "from"),
        bound("exclusiveMinimum", "above"),
        bound("maximum", "to"),
        bound("exclusiveMaximum", "below"),
    ];
    match schema["type"].as_str().unwrap_or_default() {
        "integer" => format!("whole number{}", range.concat()),
        "number" => format!("number{}", range.concat()),
        "boolean" => "`true`, `false`".to_owned(),
        "array" if schema["prefixItems"].is_array() => {
            format!("{} numbers", list("prefixItems").len())
        }
        "array" => format!("list of: {}", values(&schema["items"])),
        "object" => {
            let keys = schema["properties"].as_object();
            let keys = keys.into_iter().flatten().map(|(key, value)| (key, values(value)));
            let keys: Vec<_> = keys.map(|(key, value)| format!("`{key}` = {value}")).collect();
            format!("table of {}", keys.join(", "))
        }
        _ => "text".to_owned(),
    }
}

/// The value of all presets, or that of each; without presets that set it, the default of the schema.
fn default(name: &str, schema: &Value, presets: &[Preset]) -> String {
    let value = |table: &toml::Table| {
        let mut keys = name.split('.');
        let first = table.get(keys.next().unwrap_or_default())?;
        keys.try_fold(first, |value, key| value.get(key)).map(|value| format!("`{value}`"))
    };
    let set: Vec<_> =
        presets.iter().filter_map(|(name, table)| Some((name, value(table)?))).collect();
    match set.first() {
        None if schema["default"].is_null() => String::new(),
        None => literal(&schema["default"]),
        Some((_, first)) if set.iter().all(|(_, value)| value == first) => first.clone(),
        Some(_) if name == "preset" => "`\"default\"`".to_owned(),
        Some(_) => {
            let each = set.iter().map(|(preset, value)| format!("{value} in `{preset}`"));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_ranges_and_the_values_of_presets() {
        let schema = json!({"properties": {
            "kind": {"description": "Kind.", "oneOf": [{"const": "a", "description": "First."}], "default": "a"},
            "rate": {"description": "Rate of a_b.", "type": "number", "exclusiveMinimum": 0.0, "maximum": 1.0, "default": 0.5},
            "steps": {"description": "Steps.", "anyOf": [{"type": "integer", "minimum": 1}, {"const": "none"}]},
            "part": {"description": "Part.", "properties": {"on": {"description": "On.", "type": "boolean"}}},
        }});
        let preset = |name: &str, text: &str| (name.to_owned(), toml::from_str(text).unwrap());
        let presets = [
            preset("x", "rate = 0.25\n[part]\non = true"),
            preset("y", "rate = 0.5\n[part]\non = true"),
        ];
        let mut page = String::new();
        section(&mut page, "", &schema, &presets);
        let expected = "\
`kind`
: Kind.  
  Values: `\"a\"`. Default: `\"a\"`.
  - `\"a\"`: First.

`rate`
: Rate of a\\_b.  
  Values: number above 0.0 to 1.0. Default: `0.25` in `x`, `0.5` in `y`.

`steps`
: Steps.  
  Values: whole number from 1, or `\"none\"`.

## part

Part.

`part.on`
: On.  
  Values: `true`, `false`. Default: `true`.

";
        assert_eq!(page, expected);
    }
}
