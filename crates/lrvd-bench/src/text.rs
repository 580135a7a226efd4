//! Words and numbers of messages.

pub(crate) use lrvd_burn::text::{cell, code};
pub use lrvd_burn::text::{printable, printable_json};
pub(crate) use lrvd_core::error::quoted;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior};

/// Equality of texts in constants.
pub(crate) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

pub(crate) fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

/// The first `limit` characters (not bytes) of a text.
pub(crate) fn head(text: &str, limit: usize) -> &str {
    text.char_indices().nth(limit).map_or(text, |(end, _)| &text[..end])
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{found}`; expected one of {expected}{}", meant(.suggestion.as_deref()))]
pub struct UnknownName {
    /// Kind of name: `task`, `method`, `preset`.
    pub what: &'static str,
    pub found: String,
    pub expected: String,
    pub suggestion: Option<String>,
}

impl UnknownName {
    /// Looks for what was probably meant among the `known` names.
    pub fn new<T: AsRef<str>>(
        what: &'static str,
        found: &str,
        known: impl IntoIterator<Item = T>,
    ) -> Self {
        let known: Vec<T> = known.into_iter().collect();
        let suggestion = nearest(found, &known).map(str::to_owned);
        Self { what, found: found.to_owned(), expected: quoted(known), suggestion }
    }

    /// The one of `all` whose name is `found`.
    pub fn find<T: Copy>(
        what: &'static str,
        found: &str,
        all: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<T, Self> {
        let one = all.iter().copied().find(|one| name(*one) == found);
        one.ok_or_else(|| Self::new(what, found, all.iter().map(|one| name(*one))))
    }
}

/// The `known` names for a message about `found`: at most ten, and the nearest one.
pub(crate) fn one_of<T: AsRef<str>>(found: &str, known: &[T]) -> String {
    format!("one of {}{}", quoted(known), meant(nearest(found, known)))
}

fn meant(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// The known name within a third of its length in edits, fewer than its characters, the earliest of equals.
pub(crate) fn nearest<'a, T: AsRef<str>>(found: &str, known: &'a [T]) -> Option<&'a str> {
    let found = found.to_lowercase();
    known
        .iter()
        .map(AsRef::as_ref)
        .map(|name| (strsim::levenshtein(&found, &name.to_lowercase()), name))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, name)| {
            let length = name.chars().count();
            *distance <= length.div_ceil(3) && *distance < length
        })
        .map(|(_, name)| name)
}

/// A number with `digits` decimals; what rounds to nothing has no sign.
pub fn decimals(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|byte| matches!(byte, b'0' | b'.')) => rest.to_owned(),
        _ => text,
    }
}

/// A share in per cent, without digits that only its binary form has: 90 of 1 − 0.1.
pub fn percent(share: f64) -> f64 {
    (1e6 * share).round() / 1e4
}

pub fn grouped(n: u64, separator: char) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

/// Templates keep their text as it is; what is undefined is an error.
pub(crate) fn templates() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_syntax(SyntaxConfig::builder().keep_trailing_newline(true).build()?);
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_texts_and_lists_are_written_for_people() {
        let names = ["a", "b", "c"];
        let found = [&names[..0], &names[..1], &names[..2], &names].map(listed);
        assert_eq!(found, ["", "a", "a and b", "a, b and c"]);
        let found = [-0.0, -0.004, -0.006, 1.5, f64::NEG_INFINITY].map(|n| decimals(n, 2));
        assert_eq!(found, ["0.00", "0.00", "-0.01", "1.50", "-inf"]);
        assert_eq!([0, 3, 5, usize::MAX].map(|n| head("naïve", n)), ["", "naï", "naïve", "naïve"]);
    }

    #[test]
    fn of_many_names_ten_and_the_nearest_are_shown() {
        let names: Vec<String> = (0..77).map(|i| format!("intent_{i:02}")).collect();
        let expected = (0..10).map(|i| format!("`intent_{i:02}`")).collect::<Vec<_>>().join(", ");
        let expected = format!("one of {expected} and 67 more; did you mean `intent_40`?");
        assert_eq!(one_of("intent_4O", &names), expected);
        assert_eq!(one_of("other", &names[..2]), "one of `intent_00`, `intent_01`");
    }

    #[test]
    fn only_a_close_name_is_suggested() {
        let names = ["cola", "sst2", "mrpc", "BayesLoRA"];
        let found = ["MRCP", "bayeslorra", "imagenet"].map(|found| nearest(found, &names));
        assert_eq!(found, [Some("mrpc"), Some("BayesLoRA"), None]);
        assert_eq!(
            UnknownName::new("task", "colla", names).to_string(),
            "unknown task `colla`; expected one of `cola`, `sst2`, `mrpc`, `BayesLoRA`; did you mean `cola`?"
        );
    }
}
