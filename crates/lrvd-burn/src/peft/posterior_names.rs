//! Names of families and schemes in the header of a posterior file.
//!
//! They are those of the first version of the file, not those of settings: `a_only` for
//! [`VariationalFamily::AsymRankVariance`], and one name for moment matching with and without its
//! cross term.

use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::CrossTerm;

use crate::sampling::{DrawPer, Scheme};

/// Families by name.
const FAMILIES: [(&str, VariationalFamily); 4] = [
    ("rank_variance", VariationalFamily::RankVariance),
    ("noise_to_signal", VariationalFamily::NoiseToSignal),
    ("element_variance", VariationalFamily::ElementVariance),
    ("a_only", VariationalFamily::AsymRankVariance),
];

/// Schemes by name; of two with one name the first is read.
const SCHEMES: [(&str, Scheme); 7] = [
    ("mean", Scheme::Mean),
    ("weight_per_sequence", Scheme::Weights(DrawPer::Sequence)),
    ("weight_per_batch", Scheme::Weights(DrawPer::Batch)),
    ("weight_per_token", Scheme::Weights(DrawPer::Token)),
    ("moment_matched", Scheme::MomentMatched(CrossTerm::Exact)),
    ("moment_matched", Scheme::MomentMatched(CrossTerm::Omitted)),
    ("nested", Scheme::Nested),
];

/// The name of `family` in posterior files.
pub fn posterior_family_name(family: VariationalFamily) -> &'static str {
    name_of(&FAMILIES, family)
}

fn name_of<T: PartialEq + Copy>(table: &[(&'static str, T)], value: T) -> &'static str {
    let entry = table.iter().find(|(_, known)| *known == value);
    entry.expect("the table has every value of its type").0
}

/// Serde's `with` for a table of names.
macro_rules! by_name {
    ($(#[$doc:meta])* $module:ident, $table:ident, $value:ty) => {
        $(#[$doc])*
        pub(super) mod $module {
            use serde::{Deserialize as _, Deserializer, Serializer, de};

            pub(in crate::peft) fn serialize<S: Serializer>(
                value: &$value,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(super::name_of(&super::$table, *value))
            }

            pub(in crate::peft) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$value, D::Error> {
                let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
                let entry = super::$table.iter().find(|(known, _)| *known == name);
                entry.map(|(_, value)| *value).ok_or_else(|| {
                    let known = super::$table.map(|(known, _)| known).join("`, `");
                    de::Error::custom(format!("unknown name `{name}`, expected one of `{known}`"))
                })
            }
        }
    };
}

by_name!(
    /// The `family` of a header.
    family, FAMILIES, super::VariationalFamily
);
by_name!(
    /// The `scheme` of a header.
    scheme, SCHEMES, super::Scheme
);
