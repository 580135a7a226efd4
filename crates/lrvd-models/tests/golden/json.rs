//! Reading `expected.json`, with errors that name what was expected.

use anyhow::{Context, Result};
use serde_json::Value;

/// Access to a JSON value by keys and by type.
pub(crate) trait Json {
    /// The entry below `keys`; null counts as absent.
    fn at(&self, keys: &[&str]) -> Result<&Value>;
    /// A number; `"inf"`, `"-inf"` and `"nan"` are numbers, too.
    fn number(&self) -> Result<f64>;
    /// All numbers of a list, nested lists included, in order; of a number the number.
    fn numbers(&self) -> Result<Vec<f64>>;
    /// A whole number, 0 or more.
    fn count(&self) -> Result<usize>;
    fn text(&self) -> Result<&str>;
    fn flag(&self) -> Result<bool>;
    fn list(&self) -> Result<&Vec<Value>>;
    /// The entries of an object.
    fn entries(&self) -> Result<Vec<(&str, &Value)>>;
}

impl Json for Value {
    fn at(&self, keys: &[&str]) -> Result<&Value> {
        let entry = keys.iter().try_fold(self, |value, key| value.get(key));
        entry.filter(|v| !v.is_null()).with_context(|| format!("no entry `{}`", keys.join(".")))
    }

    fn number(&self) -> Result<f64> {
        let named = self.as_str().filter(|text| matches!(*text, "inf" | "-inf" | "nan"));
        let number = self.as_f64().or_else(|| named.and_then(|text| text.parse().ok()));
        number.with_context(|| format!("expected a number, found `{self}`"))
    }

    fn numbers(&self) -> Result<Vec<f64>> {
        let Some(list) = self.as_array() else { return Ok(vec![self.number()?]) };
        Ok(list.iter().map(Json::numbers).collect::<Result<Vec<_>>>()?.concat())
    }

    fn count(&self) -> Result<usize> {
        // Python writes some counts as floats.
        let whole = self.as_f64().filter(|v| v.fract() == 0.0 && (0.0..9e15).contains(v));
        whole.map(|v| v as usize).with_context(|| format!("expected a count, found `{self}`"))
    }

    fn text(&self) -> Result<&str> {
        self.as_str().with_context(|| format!("expected a text, found `{self}`"))
    }

    fn flag(&self) -> Result<bool> {
        self.as_bool().with_context(|| format!("expected true or false, found `{self}`"))
    }

    fn list(&self) -> Result<&Vec<Value>> {
        self.as_array().with_context(|| format!("expected a list, found `{self}`"))
    }

    fn entries(&self) -> Result<Vec<(&str, &Value)>> {
        let object = self.as_object();
        let object = object.with_context(|| format!("expected an object, found `{self}`"))?;
        Ok(object.iter().map(|(key, value)| (key.as_str(), value)).collect())
    }
}
