//! Settings that are a value, or one word in its place: the factor of the divergence, and the layers to adapt.

use std::borrow::Cow;

use lrvd_burn::model::AdapterTargets;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::table::Ranged;

/// Factor of the KL, written as a number or as `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", expecting = "expected a number or \"auto\"")]
pub enum KlWeight {
    /// The model is trained whole without divergence, cut by held-out training rows and refined, by the settings of
    /// `rank_search`.
    Auto,
    /// This one.
    #[serde(untagged)]
    Fixed(f64),
}

impl KlWeight {
    /// `factor` times a fixed weight; the one that is chosen stays.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        match self {
            Self::Fixed(weight) => Self::Fixed(factor * weight),
            Self::Auto => Self::Auto,
        }
    }
}

/// The linear layers that get an adapter, written as a list of names or as `"all-linear"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", expecting = "expected a list of names or \"all-linear\"")]
pub enum TargetModules {
    /// All but the output layer of a language model, as PEFT reads this word.
    AllLinear,
    /// Those whose path ends in one of the names.
    #[serde(untagged)]
    Names(Vec<String>),
}

impl TargetModules {
    pub fn names<T: ToString>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Names(names.into_iter().map(|name| name.to_string()).collect())
    }

    pub fn layers(&self) -> AdapterTargets {
        match self {
            Self::Names(names) => AdapterTargets::Names(names.clone()),
            Self::AllLinear => AdapterTargets::AllLinear,
        }
    }
}

impl Ranged for KlWeight {
    type Number = f64;

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Self::Fixed(weight) => vec![("", weight)],
            Self::Auto => Vec::new(),
        }
    }
}

impl JsonSchema for KlWeight {
    fn schema_name() -> Cow<'static, str> {
        "KlWeight".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "number" }, { "const": "auto" }] })
    }
}

impl JsonSchema for TargetModules {
    fn schema_name() -> Cow<'static, str> {
        "TargetModules".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names = generator.subschema_for::<Vec<String>>();
        json_schema!({ "anyOf": [names, { "const": "all-linear" }] })
    }
}
