//! Python's methods of strings, dictionaries and lists, which templates call.
//!
//! The engine's own filters take fuel for a result before they make it. These methods make the result first, so fuel is
//! taken here for those whose result can be much longer than their arguments.

use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Bytes that one unit of fuel pays for, as in the engine.
pub(super) const BYTES_PER_FUEL: usize = 64;

/// Calls `method` of `value`.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return unknown_method_callback(state, value, method, args);
    };
    let strings: Option<Vec<&str>> = args.iter().take(2).map(Value::as_str).collect();
    let bytes = match (method, args, strings.as_deref()) {
        ("join", [items], _) => {
            return state.apply_filter("join", &[items.clone(), value.clone()]);
        }
        ("replace", [_, _, ..], Some([_, _])) => {
            return state.apply_filter("replace", &[std::slice::from_ref(value), args].concat());
        }
        ("split", _, Some([by, ..])) if !by.is_empty() => pieces(text.matches(by).count()),
        ("split", ..) => pieces(text.split_whitespace().count()),
        ("splitlines", ..) => pieces(text.lines().count()),
        ("format", ..) => {
            let longest: usize = args.iter().map(length).sum();
            text.matches('{').count().saturating_mul(longest.saturating_add(largest(text)))
        }
        _ => 0,
    };
    state.consume_fuel((bytes / BYTES_PER_FUEL) as u64)?;
    unknown_method_callback(state, value, method, args)
}

/// Bytes of a list of texts.
fn pieces(separators: usize) -> usize {
    separators.saturating_add(1).saturating_mul(BYTES_PER_FUEL)
}

/// Bytes that an argument of `format` may become; of named arguments all together.
fn length(value: &Value) -> usize {
    match value.as_str() {
        Some(text) => text.len(),
        None if value.kind() == ValueKind::Map => {
            let keys = value.try_iter().into_iter().flatten();
            keys.filter_map(|key| value.get_item(&key).ok()?.as_str().map(str::len)).sum()
        }
        None => BYTES_PER_FUEL,
    }
}

/// The largest number in a text.
fn largest(text: &str) -> usize {
    let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    digits.map(|digits| digits.parse().unwrap_or(usize::MAX)).max().unwrap_or(0)
}
