//! Methods by name, and the table of what each can do.

use std::cmp::Ordering;
use std::fmt;

use anyhow::bail;

use Capabilities as Can;
use lrvd_core::adalora::matched_target_rank;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Config;
use crate::error::Result;

/// What stands behind a name for temperature scaling on top of it.
const TEMPERED: &str = "+TS";

#[derive(Clone, Copy, Debug)]
pub struct MethodName {
    entry: &'static MethodEntry,
    tempered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankRequest {
    Initial,
    /// A uniform rank (LoRA) or an average target rank (AdaLoRA).
    Average(usize),
}

impl RankRequest {
    /// What `method` is asked for on a user's own data: half the initial rank on average where it keeps to a budget and
    /// none is given.
    pub(crate) fn own(method: MethodName, initial_rank: usize, target: Option<usize>) -> Self {
        if method.can().budget {
            Self::Average(target.unwrap_or((initial_rank / 2).max(1)))
        } else {
            Self::Initial
        }
    }

    pub fn rank(self, config: &Config) -> usize {
        match self {
            Self::Initial => config.initial_rank,
            Self::Average(rank) => rank,
        }
    }

    /// The numerator of the scaling at that rank: `c = lora_alpha / rank` stays that of the settings' rank.
    ///
    /// A row at another rank then differs in rank alone; with the settings' numerator it would also learn
    /// `initial_rank / rank` times as fast.
    pub fn lora_alpha(self, config: &Config) -> f64 {
        match self {
            Self::Initial => config.lora_alpha,
            Self::Average(rank) => config.lora_alpha * rank as f64 / config.initial_rank as f64,
        }
    }
}

impl MethodName {
    pub const LORA: Self = Self::known("lora");
    pub const ADALORA: Self = Self::known("adalora");
    pub const BAYES_LORA: Self = Self::known("bayeslora");

    /// The methods of the paper's first table, as it orders them.
    pub const FIRST_TABLE: [Self; 3] = [Self::LORA, Self::ADALORA, Self::BAYES_LORA];

    const fn plain(entry: &'static MethodEntry) -> Self {
        Self { entry, tempered: false }
    }

    /// The method of `key`, which is looked up when this is compiled.
    const fn known(key: &str) -> Self {
        let mut i = 0;
        while !same(METHODS[i].key, key) {
            i += 1;
        }
        Self::plain(&METHODS[i])
    }

    /// Every method, without temperature scaling, in the order of tables.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        METHODS.iter().map(Self::plain)
    }

    /// The methods whose outcome is an adapter that can be saved: those of a user's own classifier, each also with
    /// temperature scaling on top.
    pub fn saved() -> impl Iterator<Item = Self> {
        Self::all().filter(|method| method.can().saved)
    }

    pub const fn can(self) -> Capabilities {
        if self.tempered {
            Capabilities { post_hoc: true, ..self.entry.can }
        } else {
            self.entry.can
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

    pub const fn entry(self) -> &'static MethodEntry {
        self.entry
    }

    pub fn name(self) -> String {
        format!("{}{}", self.entry.name, if self.tempered { TEMPERED } else { "" })
    }

    pub fn key(self) -> String {
        let suffix = if self.tempered { TEMPERED.to_lowercase() } else { String::new() };
        format!("{}{suffix}", self.entry.key)
    }

    /// Reads a name of a table or of the command line: letter case does not matter, and `+ts` puts
    /// temperature scaling on top.
    pub fn from_name(name: &str) -> Option<Self> {
        let lower = name.to_lowercase();
        let (base, tempered) = match lower.strip_suffix(&TEMPERED.to_lowercase()) {
            Some(base) => (base, true),
            None => (lower.as_str(), false),
        };
        let found = |entry: &&MethodEntry| entry.key == base || entry.name.to_lowercase() == base;
        METHODS.iter().find(found).map(|entry| Self { entry, tempered })
    }

    /// The rank request that matches a BayesLoRA run: the average of its final ranks over the
    /// modules, rounded half to even, and at least 1.
    pub fn matched_to(total_rank: usize, n_modules: usize) -> RankRequest {
        RankRequest::Average(matched_target_rank(total_rank, n_modules))
    }

    fn place(self) -> (usize, bool) {
        let of = |entry: &MethodEntry| std::ptr::eq(entry, self.entry);
        (METHODS.iter().position(of).unwrap_or(METHODS.len()), self.tempered)
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

impl PartialEq for MethodName {
    fn eq(&self, other: &Self) -> bool {
        (self.entry.key, self.tempered) == (other.entry.key, other.tempered)
    }
}

impl Eq for MethodName {}

impl PartialOrd for MethodName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MethodName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
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

/// A method as settings, plans and reports know it; how it trains is in `method`.
#[derive(Debug)]
pub struct MethodEntry {
    pub name: &'static str,
    /// Name on the command line and of its settings: lower-case letters, digits and dashes.
    pub key: &'static str,
    pub summary: &'static str,
    pub(crate) family: Family,
    pub form: MethodForm,
    /// What it can do.
    pub can: Capabilities,
}

#[derive(Clone, Copy, Debug)]
pub enum MethodForm {
    Single,
    Ensemble { member: &'static str, members: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact")]
pub struct Capabilities {
    /// Its outcome is an adapter that can be saved, with nothing fitted or kept beside it but a temperature.
    pub saved: bool,
    pub posterior: bool,
    pub draws: bool,
    pub prunes: bool,
    pub budget: bool,
    /// Something is fitted once training is over.
    pub post_hoc: bool,
}

impl Capabilities {
    /// Trained in one run, answers with one set of weights, and cannot be saved as an adapter.
    const NONE: Self = Self {
        saved: false,
        posterior: false,
        draws: false,
        prunes: false,
        budget: false,
        post_hoc: false,
    };
    const PLAIN: Self = Self { saved: true, ..Self::NONE };
    /// Answers with draws of a noise that adapter files do not hold.
    const DRAWS: Self = Self { draws: true, ..Self::NONE };
    /// An adapter with a posterior over its ranks.
    const LRVD: Self = Self { posterior: true, draws: true, prunes: true, ..Self::PLAIN };
    /// Fitted around a trained adapter, answers with draws.
    const POST_HOC: Self = Self { draws: true, post_hoc: true, ..Self::NONE };
}

const SINGLE: MethodForm = MethodForm::Single;

const fn averaged(member: &'static str, members: usize) -> MethodForm {
    MethodForm::Ensemble { member, members }
}

macro_rules! methods {
    ($($name:literal, $key:literal, $family:ident, $form:expr, $can:expr, $summary:literal;)+) => {
        /// Every method, in the order of tables. One more method is one more row.
        pub(super) static METHODS: &[MethodEntry] = &[$(MethodEntry {
            name: $name,
            key: $key,
            summary: $summary,
            family: Family::$family,
            form: $form,
            can: $can,
        }),+];
    };
}

// Name, key, kind, form, what it can do; and one line of words.
methods! {
    "LoRA", "lora", Point, SINGLE, Can::PLAIN,
        "maximum likelihood at a uniform rank";
    "MAP", "map", Point, SINGLE, Can::PLAIN,
        "maximum likelihood with weight decay, or a Gaussian prior in the loss";
    "MCD", "mcd", Ensemble, SINGLE, Can { saved: true, ..Can::DRAWS },
        "dropout on the adapter's input, in training and in prediction";
    "ENS-3", "ens-3", Ensemble, averaged("lora", 3), Can::NONE,
        "three independent LoRA runs, probabilities averaged";
    "ENS-10", "ens-10", Ensemble, averaged("lora", 10), Can::NONE,
        "ten independent LoRA runs, probabilities averaged";
    "LoRA-Ensemble", "lora-ensemble", Ensemble, SINGLE, Can::NONE,
        "several adapters on one backbone, in one batched pass";
    "BBB", "bbb", Variance, SINGLE, Can::DRAWS,
        "Bayes by backprop on the entries of A and B";
    "BBB-A", "bbb-a", Variance, SINGLE, Can::DRAWS,
        "Bayes by backprop on the entries of A";
    "LAP", "laplace", PostHoc, SINGLE, Can { draws: false, ..Can::POST_HOC },
        "Laplace-LoRA: curvature around a trained LoRA, linearised predictive";
    "SWAG", "swag", PostHoc, SINGLE, Can::POST_HOC,
        "a Gaussian from the tail of LoRA's path at a constant rate";
    "MultiSWAG", "multiswag", PostHoc, averaged("swag", 3), Can::POST_HOC,
        "three independent SWAG runs, probabilities averaged";
    "BLoB", "blob", Variance, SINGLE, Can::DRAWS,
        "noise on the entries of A with flipout and two optimisers";
    "ScalaBL", "scalabl", Variance, SINGLE, Can::DRAWS,
        "noise on one scale per rank direction, in an orthonormal basis";
    "TFB", "tfb", PostHoc, SINGLE, Can::POST_HOC,
        "the most noise on a trained LoRA that its predictions tolerate";
    "C-LoRA", "c-lora", Variance, SINGLE, Can::DRAWS,
        "a random rank matrix whose law a small network reads off the input";
    "AdaLoRA", "adalora", Point, SINGLE, Can { prunes: true, budget: true, ..Can::PLAIN },
        "rank directions masked to a falling budget by their sensitivity";
    "BayesLoRA", "bayeslora", LowRank, SINGLE, Can::LRVD,
        "one posterior variance per rank direction; ranks cut by held-out rows or by the posterior";
    "BayesLoRA-fixed", "bayeslora-fixed", LowRank, SINGLE, Can { prunes: false, ..Can::LRVD },
        "BayesLoRA at its initial rank, without pruning";
    "LRVD-NTS", "lrvd-nts", LowRank, SINGLE, Can::LRVD,
        "BayesLoRA with one noise-to-signal ratio per rank direction";
    "LRVD-element", "lrvd-element", LowRank, SINGLE, Can::LRVD,
        "BayesLoRA with one variance per entry of A and B";
    "LRVD-A-only", "lrvd-a-only", LowRank, SINGLE, Can::LRVD,
        "BayesLoRA with noise on A only";
    "LRVD-ARD", "lrvd-ard", LowRank, SINGLE, Can::LRVD,
        "BayesLoRA under a Gaussian prior whose scale per rank direction is learnt";
}

/// What a method does about not knowing its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Point,
    /// Several sets of weights, or several thinnings of one.
    Ensemble,
    /// A distribution over weights, learnt with them.
    Variance,
    /// Something fitted around weights that are already trained.
    PostHoc,
    /// Low-rank variational dropout: a distribution over rank directions.
    LowRank,
    /// A name that is not known here.
    Other,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
