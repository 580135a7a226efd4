//! One setting of a GGUF file.

/// A setting. Integers and floats keep only their kind, not their width.
#[derive(Debug, Clone, PartialEq)]
pub enum GgufValue {
    /// A whole number, which fits into 64 bits with or without a sign.
    Integer(i128),
    /// A number; one of single precision is the decimal number that it was written for, so that an epsilon of 1e-5
    /// is read as 1e-5.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(String),
    /// Whole numbers of 32 or 64 bits.
    Integers(Vec<i64>),
    /// Whole numbers of 8 or 16 bits, of which only the count is kept: no setting that is used here has such a list.
    SmallIntegers(u64),
    /// Numbers, in single precision.
    Floats(Vec<f32>),
    /// Truth values.
    Bools(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
}

impl GgufValue {
    /// A few words for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Integer(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Bool(value) => value.to_string(),
            Self::Text(text) if text.chars().count() > 40 => {
                format!("`{}…`", text.chars().take(40).collect::<String>())
            }
            Self::Text(text) => format!("`{text}`"),
            Self::Integers(list) => format!("a list of {} whole numbers", list.len()),
            Self::SmallIntegers(count) => {
                format!("a list of {count} whole numbers of 8 or 16 bits")
            }
            Self::Floats(list) => format!("a list of {} numbers", list.len()),
            Self::Bools(list) => format!("a list of {} truth values", list.len()),
            Self::Texts(list) => format!("a list of {} texts", list.len()),
        }
    }
}

/// The shortest decimal number that is `value` in single precision.
pub(super) fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}
