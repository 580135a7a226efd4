//! Methods by name.

use std::fmt;

use anyhow::bail;
use lrvd_core::adalora::matched_target_rank;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::setup::RankRequest;
use super::table::{Can, DynMethod, METHODS, MethodEntry, MethodForm};
use super::temperature::HOLDOUT as TEMPERATURE_HOLDOUT;
use crate::error::Result;
use crate::settings::{Config, KlWeight};
use crate::text::same;

/// What stands behind a name for temperature scaling on top of it.
const TEMPERED: &str = "+TS";

/// A row of the table of methods, with or without a temperature on top. Methods are ordered as in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MethodName {
    row: usize,
    tempered: bool,
}

impl MethodName {
    pub const LORA: Self = Self::known("lora");
    pub const ADALORA: Self = Self::known("adalora");
    pub const BAYES_LORA: Self = Self::known("bayeslora");

    /// The methods of the paper's first table, as it orders them.
    pub const FIRST_TABLE: [Self; 3] = [Self::LORA, Self::ADALORA, Self::BAYES_LORA];

    /// The method of `key`, which is looked up when this is compiled.
    const fn known(key: &str) -> Self {
        let mut i = 0;
        while !same(METHODS[i].key, key) {
            i += 1;
        }
        Self { row: i, tempered: false }
    }

    /// Every method, without temperature scaling, in the order of tables.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..METHODS.len()).map(|row| Self { row, tempered: false })
    }

    /// The methods whose outcome is an adapter that can be saved: those of a user's own classifier, each also with
    /// temperature scaling on top.
    pub fn saved() -> impl Iterator<Item = Self> {
        Self::all().filter(|method| method.can().saved)
    }

    pub fn can(self) -> Can {
        let can = self.entry().can;
        Can { post_hoc: can.post_hoc || self.tempered, ..can }
    }

    /// What it is asked for on a user's own data: half the initial rank on average where it keeps to a budget and no `target`
    /// is given.
    pub(crate) fn request(self, initial_rank: usize, target: Option<usize>) -> RankRequest {
        if self.can().budget {
            RankRequest::Average(target.unwrap_or((initial_rank / 2).max(1)))
        } else {
            RankRequest::Initial
        }
    }

    /// Returns an error for a target rank of a method that has none.
    pub(crate) fn check_target(self, rank: Option<usize>) -> Result<()> {
        if rank.is_some() && !self.can().budget {
            bail!("a target rank is for the method `adalora` only");
        }
        Ok(())
    }

    /// Numbers of draws that make sense beside the deterministic answer.
    pub fn draws(self, config: &Config) -> Vec<usize> {
        if self.can().draws { config.draws.clone() } else { Vec::new() }
    }

    #[must_use]
    pub const fn tempered(self) -> Self {
        Self { tempered: true, ..self }
    }

    pub const fn is_tempered(self) -> bool {
        self.tempered
    }

    pub fn entry(self) -> &'static MethodEntry {
        &METHODS[self.row]
    }

    pub fn name(self) -> String {
        format!("{}{}", self.entry().name, if self.tempered { TEMPERED } else { "" })
    }

    pub fn key(self) -> String {
        let suffix = if self.tempered { TEMPERED.to_lowercase() } else { String::new() };
        format!("{}{suffix}", self.entry().key)
    }

    /// Reads a name of a table or of the command line: letter case does not matter, and `+ts` puts
    /// temperature scaling on top.
    pub fn from_name(name: &str) -> Option<Self> {
        let lower = name.to_lowercase();
        let (base, tempered) = match lower.strip_suffix(&TEMPERED.to_lowercase()) {
            Some(base) => (base, true),
            None => (lower.as_str(), false),
        };
        let found = |entry: &MethodEntry| entry.key == base || entry.name.to_lowercase() == base;
        METHODS.iter().position(found).map(|row| Self { row, tempered })
    }

    pub fn build(self, config: &Config, rank: RankRequest) -> Result<Box<DynMethod>> {
        match self.entry().form {
            MethodForm::Single { new, .. } => new(config, rank),
            MethodForm::Ensemble { .. } => {
                bail!("{} is made of runs of another method: use `lrvd bench`", self.name())
            }
        }
    }

    /// Whether a language model can be trained on texts by it.
    pub fn is_for_language(self) -> bool {
        let form = self.entry().form;
        !self.tempered && matches!(form, MethodForm::Single { language: true, .. })
    }

    /// Share of the training examples that is kept out of training, for what is fitted after it.
    pub fn holdout(self, config: &Config) -> f64 {
        let own = (self.entry().can.holdout)(config);
        if self.tempered { own.max(TEMPERATURE_HOLDOUT) } else { own }
    }

    /// Whether ranks are cut by held-out rows after the last step.
    pub(crate) fn searches(self, config: &Config) -> bool {
        let can = self.can();
        can.posterior && can.prunes && config.kl_weight == KlWeight::Auto
    }

    /// The rank request that matches a BayesLoRA run: the average of its final ranks over the
    /// modules, rounded half to even, and at least 1.
    pub fn matched_to(total_rank: usize, n_modules: usize) -> RankRequest {
        RankRequest::Average(matched_target_rank(total_rank, n_modules))
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl Serialize for MethodName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for MethodName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("`{name}` is not a method")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_keys_are_unique_and_go_there_and_back() {
        let mut seen = BTreeSet::new();
        for method in MethodName::all().chain(MethodName::all().map(MethodName::tempered)) {
            assert!(seen.insert(method.key()), "{method}");
            for text in [method.name(), method.key(), method.name().to_uppercase()] {
                assert_eq!(MethodName::from_name(&text), Some(method), "{text}");
            }
            let json = serde_json::to_string(&method).unwrap();
            assert_eq!(serde_json::from_str::<MethodName>(&json).unwrap(), method);
        }
        assert_eq!(MethodName::from_name("nothing"), None);
        assert_eq!(MethodName::from_name("+ts"), None);
    }
}
