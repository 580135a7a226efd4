//! The table of methods (names, kind, constructor, abilities), and methods by name.

use std::fmt;

use anyhow::bail;
use lrvd_burn::train::{Method, RankSearch};
use lrvd_models::AutoModel;
use lrvd_models::deberta::Pooling;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::c_lora::CLora;
use super::laplace::Laplace;
use super::linear::Linear;
use super::lora_ensemble::LoraEnsemble;
use super::noisy::{Alternating, Bbb};
use super::point::{Map, McDropout};
use super::setup::RankRequest;
use super::swag::Swag;
use super::tfb::Tfb;
use super::{lrvd, rslora};
use crate::error::Result;
use crate::settings::{Config, KlWeight};
use crate::text::{UnknownName, same};

pub type DynMethod = dyn Method<AutoModel>;

#[derive(Debug)]
pub struct MethodEntry {
    pub name: &'static str,
    /// Name on the command line and of its settings: lower-case letters, digits and dashes.
    pub key: &'static str,
    pub summary: &'static str,
    /// Publication.
    pub source: &'static str,
    pub(crate) family: Family,
    pub form: MethodForm,
    pub can: Can,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact")]
pub struct Can {
    /// Its outcome is an adapter that can be saved, with nothing fitted or kept beside it but a temperature.
    pub saved: bool,
    pub posterior: bool,
    pub draws: bool,
    pub prunes: bool,
    pub budget: bool,
    pub post_hoc: bool,
    /// It takes optimizer steps; without them it is fitted to the features of the frozen encoder, with its temperature.
    pub steps: bool,
    /// `true` if other answers than the trained ones can be read; not with a fit to those, such as a curvature of the head's rows.
    pub other_answers: bool,
    /// Share of the training examples that is kept out of training for it, without a temperature ([`Holdout`](super::Holdout)).
    pub holdout: fn(&Config) -> f64,
}

impl Can {
    /// Trained in one run, answers with one set of weights, and cannot be saved as an adapter.
    const NONE: Self = Self {
        saved: false,
        posterior: false,
        draws: false,
        prunes: false,
        budget: false,
        post_hoc: false,
        steps: true,
        other_answers: true,
        holdout: |_| 0.0,
    };
    const PLAIN: Self = Self { saved: true, ..Self::NONE };
    /// Fitted to features at once.
    const FROZEN: Self = Self { steps: false, ..Self::PLAIN };
    /// Answers with draws of a noise that adapter files do not hold.
    const DRAWS: Self = Self { draws: true, ..Self::NONE };
    const LRVD: Self = Self { posterior: true, draws: true, prunes: true, ..Self::PLAIN };
    const POST_HOC: Self = Self { draws: true, post_hoc: true, ..Self::NONE };
    const CURVATURE: Self = Self { draws: false, other_answers: false, ..Self::POST_HOC };
}

/// Representation of the uncertainty about weights.
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

type New = fn(&Config, RankRequest) -> Result<Box<DynMethod>>;

#[derive(Clone, Copy, Debug)]
pub enum MethodForm {
    /// Trained in one run; also on texts, if it is for a `language` model.
    Single { new: New, language: bool },
    /// Averaged probabilities of several runs of another method.
    Ensemble { member: &'static str, members: usize },
}

macro_rules! form {
    (any($new:expr)) => {
        form!($new, true)
    };
    (classifier($new:expr)) => {
        form!($new, false)
    };
    ($new:expr, $language:literal) => {
        MethodForm::Single {
            new: |config, rank| Ok(Box::new($new(config, rank)?)),
            language: $language,
        }
    };
    (mean_of($members:literal, $member:literal)) => {
        MethodForm::Ensemble { member: $member, members: $members }
    };
}

macro_rules! methods {
    ($($name:literal, $key:literal, $family:ident, $form:ident($($part:tt)+), $can:expr, $summary:literal, $source:literal;)+) => {
        /// Every method, in the order of tables. One more method is one more row.
        static METHODS: &[MethodEntry] = &[$(MethodEntry {
            name: $name,
            key: $key,
            summary: $summary,
            source: $source,
            family: Family::$family,
            form: form!($form($($part)+)),
            can: $can,
        }),+];
    };
}

// Name, key, kind, constructor, what it can do; one line of words; the publication. A constructor is for `any` model or for a
// `classifier`.
methods! {
    "LoRA", "lora", Point, any(lrvd::lora), Can::PLAIN,
        "maximum likelihood at a uniform rank",
        "Hu et al. 2021, arXiv:2106.09685";
    "rsLoRA", "rslora", Point, any(rslora::new), Can::PLAIN,
        "LoRA with the scale lora_alpha/√rank in place of lora_alpha/rank",
        "Kalajdzievski 2023, arXiv:2312.03732";
    "MAP", "map", Point, classifier(Map::new), Can::PLAIN,
        "maximum likelihood with weight decay, or a Gaussian prior in the loss",
        "Wang et al. 2024, arXiv:2406.11675";
    "MCD", "mcd", Ensemble, classifier(McDropout::new), Can { saved: true, ..Can::DRAWS },
        "dropout on the adapter's input, in training and in prediction",
        "Gal and Ghahramani 2016, arXiv:1506.02142";
    "ENS-3", "ens-3", Ensemble, mean_of(3, "lora"), Can::NONE,
        "three independent LoRA runs, probabilities averaged",
        "Lakshminarayanan et al. 2017, arXiv:1612.01474";
    "ENS-10", "ens-10", Ensemble, mean_of(10, "lora"), Can::NONE,
        "ten independent LoRA runs, probabilities averaged",
        "Lakshminarayanan et al. 2017, arXiv:1612.01474";
    "LoRA-Ensemble", "lora-ensemble", Ensemble, classifier(LoraEnsemble::new), Can::NONE,
        "several adapters on one backbone, in one batched pass",
        "Mühlematter et al. 2024, arXiv:2405.14438";
    "BBB", "bbb", Variance, classifier(Bbb::on_both), Can::DRAWS,
        "Bayes by backprop on the entries of A and B",
        "Blundell et al. 2015, arXiv:1505.05424";
    "BBB-A", "bbb-a", Variance, classifier(Bbb::on_a), Can::DRAWS,
        "Bayes by backprop on the entries of A",
        "Blundell et al. 2015, arXiv:1505.05424";
    "LAP", "laplace", PostHoc, classifier(Laplace::new), Can { holdout: Laplace::holdout, ..Can::CURVATURE },
        "Laplace-LoRA: curvature around a trained LoRA, linearised predictive",
        "Yang et al. 2024, arXiv:2308.13111";
    "SWAG", "swag", PostHoc, classifier(Swag::new), Can::POST_HOC,
        "a Gaussian from the tail of LoRA's path at a constant rate",
        "Onal et al. 2024, arXiv:2405.03425";
    "MultiSWAG", "multiswag", PostHoc, mean_of(3, "swag"), Can::POST_HOC,
        "three independent SWAG runs, probabilities averaged",
        "Onal et al. 2024, arXiv:2405.03425";
    "BLoB", "blob", Variance, classifier(Alternating::blob), Can::DRAWS,
        "noise on the entries of A with flipout and two optimizers",
        "Wang et al. 2024, arXiv:2406.11675";
    "ScalaBL", "scalabl", Variance, classifier(Alternating::scala_bl), Can::DRAWS,
        "noise on one scale per rank direction, in an orthonormal basis",
        "Samplawski et al. 2025, arXiv:2506.21408";
    "TFB", "tfb", PostHoc, classifier(Tfb::new), Can::POST_HOC,
        "the most noise on a trained LoRA that its predictions tolerate",
        "Shi et al. 2024, arXiv:2412.05723";
    "C-LoRA", "c-lora", Variance, classifier(CLora::new), Can::DRAWS,
        "a random rank matrix whose law a small network reads off the input",
        "Rahmati et al. 2025, arXiv:2505.17773";
    "AdaLoRA", "adalora", Point, any(lrvd::adalora), Can { prunes: true, budget: true, ..Can::PLAIN },
        "rank directions masked to a falling budget by their sensitivity",
        "Zhang et al. 2023, arXiv:2303.10512";
    "BayesLoRA", "bayeslora", LowRank, any(lrvd::bayes_lora), Can::LRVD,
        "one posterior variance per rank direction; ranks cut by held-out rows or by the posterior",
        "Doyle et al. 2025, arXiv:2506.22809";
    "BayesLoRA-fixed", "bayeslora-fixed", LowRank, any(lrvd::fixed), Can { prunes: false, ..Can::LRVD },
        "BayesLoRA at its initial rank, without pruning",
        "Doyle et al. 2025, arXiv:2506.22809";
    "LRVD-NTS", "lrvd-nts", LowRank, any(lrvd::nts), Can::LRVD,
        "BayesLoRA with one noise-to-signal ratio per rank direction",
        "Doyle et al. 2025, arXiv:2506.22809";
    "LRVD-element", "lrvd-element", LowRank, any(lrvd::element), Can::LRVD,
        "BayesLoRA with one variance per entry of A and B",
        "Molchanov et al. 2017, arXiv:1701.05369";
    "LRVD-A-only", "lrvd-a-only", LowRank, any(lrvd::a_only), Can::LRVD,
        "BayesLoRA with noise on A only",
        "Doyle et al. 2025, arXiv:2506.22809";
    "LRVD-ARD", "lrvd-ard", LowRank, any(lrvd::ard), Can::LRVD,
        "BayesLoRA under a Gaussian prior whose scale per rank direction is learnt",
        "MacKay 1995";
    "Linear", "linear", Point, classifier(Linear::new), Can::FROZEN,
        "regression on features of the frozen encoder, in seconds, with its temperature",
        "Cox 1966";
}

/// Suffix of a name for temperature scaling.
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
    pub const LINEAR: Self = Self::known("linear");
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

    /// The methods whose outcome is an adapter that can be saved.
    pub fn saved() -> impl Iterator<Item = Self> {
        Self::all().filter(|method| method.can().saved)
    }

    pub fn can(self) -> Can {
        let can = self.entry().can;
        Can { post_hoc: can.post_hoc || self.tempered, ..can }
    }

    /// The requested rank: with a budget the `target`, or half the initial rank.
    pub(crate) fn request(self, initial_rank: usize, target: Option<usize>) -> RankRequest {
        if self.can().budget {
            RankRequest::Average(target.unwrap_or((initial_rank / 2).max(1)))
        } else {
            RankRequest::Initial
        }
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

    /// Reads a name or key in any letter case; `+ts` puts temperature scaling on top.
    pub fn from_name(name: &str) -> Option<Self> {
        let lower = name.to_lowercase();
        let (base, tempered) = match lower.strip_suffix(&TEMPERED.to_lowercase()) {
            Some(base) => (base, true),
            None => (lower.as_str(), false),
        };
        let found = |entry: &MethodEntry| entry.key == base || entry.name.to_lowercase() == base;
        METHODS.iter().position(found).map(|row| Self { row, tempered })
    }

    /// Quantities that the method learns.
    pub fn learns(self) -> &'static str {
        let Can { prunes, draws, steps, .. } = self.can();
        if !steps {
            return "the head";
        }
        match (self.entry().family, prunes) {
            (Family::Point, true) => "weights, ranks",
            (Family::Point | Family::Other, _) => "weights",
            // MC dropout draws thinnings of one set.
            (Family::Ensemble, _) if draws => "weights",
            (Family::Ensemble, _) => "several sets of weights",
            (Family::PostHoc, _) => "weights, then a distribution",
            (Family::LowRank, true) => "weights, variances, ranks",
            (Family::Variance, _) | (Family::LowRank, false) => "weights, variances",
        }
    }

    /// The method of a name or key; an error that lists the known ones.
    pub fn named(name: &str) -> Result<Self, UnknownName> {
        Self::from_name(name)
            .ok_or_else(|| UnknownName::new("method", name, Self::all().map(Self::key)))
    }

    pub fn build(self, config: &Config, rank: RankRequest) -> Result<Box<DynMethod>> {
        self.check_temperature()?;
        match self.entry().form {
            MethodForm::Single { new, .. } => new(config, rank),
            MethodForm::Ensemble { .. } => {
                bail!("{} is made of runs of another method: use `lrvd bench`", self.name())
            }
        }
    }

    /// Rejects a temperature on top of a method that fits its temperature itself.
    pub(crate) fn check_temperature(self) -> Result<()> {
        if self.tempered && !self.can().steps {
            let key = self.entry().key;
            bail!(
                "`{key}` fits its temperature without rows that are held out: leave out `+ts` (`--method {key}`)"
            );
        }
        Ok(())
    }

    /// Input of the head: that of the settings, without the pooler of a method that could not train it.
    pub(crate) fn pooling(self, config: &Config) -> Pooling {
        match config.pooling {
            Pooling::First if !self.can().steps => Pooling::FirstToken,
            Pooling::PooledMean if !self.can().steps => Pooling::Mean,
            pooling => pooling,
        }
    }

    pub fn is_for_language(self) -> bool {
        let form = self.entry().form;
        !self.tempered && matches!(form, MethodForm::Single { language: true, .. })
    }

    /// `true` if it learns several labels of a row: its loss is the likelihood of any targets.
    pub fn is_for_labels(self) -> bool {
        matches!(self.entry().form, MethodForm::Single { language: true, .. }) || !self.can().steps
    }

    /// The statistic at or above which a direction is noise and removed, where ranks are cut by it.
    pub fn threshold(self, config: &Config) -> Option<f64> {
        let can = self.can();
        let is_cut_by_it = can.posterior && can.prunes && self.search(config).is_none();
        is_cut_by_it.then_some(config.prune.log_alpha_threshold)
    }

    /// The search that cuts ranks by held-out rows after the last step, if there is one.
    pub fn search(self, config: &Config) -> Option<RankSearch> {
        let can = self.can();
        let searches = can.posterior && can.prunes && config.kl_weight == KlWeight::Auto;
        searches.then(|| lrvd::search(config))
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

    use lrvd_burn::adapter::AdapterKind;

    use super::*;
    use crate::settings::Preset;

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

    #[test]
    fn the_table_says_what_the_code_does() {
        let config = Preset::ConstantWeight.config().checked().unwrap();
        for name in MethodName::all() {
            for name in [name, name.tempered()] {
                let can = name.can();
                let built = name.build(&config, RankRequest::Initial);
                let Ok(method) = built else {
                    let is_ensemble = matches!(name.entry().form, MethodForm::Ensemble { .. });
                    assert!(is_ensemble || (name.is_tempered() && !can.steps), "{name}");
                    continue;
                };
                let setup = method.setup(&config.training(1)).unwrap();
                let plain = setup.op.is_none()
                    && matches!(
                        setup.adapter.kind,
                        AdapterKind::Lora { .. }
                            | AdapterKind::AdaLora
                            | AdapterKind::Variational { .. }
                    );
                assert_eq!(can.saved, plain && !name.entry().can.post_hoc, "{name}");
                assert_eq!(can.posterior, setup.posterior.is_some(), "{name}");
                let search = name.search(&Preset::Default.config());
                assert_eq!(search.is_some(), can.posterior && can.prunes, "{name}");
                // Ranks that held-out rows cut have no threshold; a method that prunes by the statistic has that of its rule.
                assert_eq!(name.threshold(&Preset::Default.config()), None, "{name}");
                let threshold = name.threshold(&config);
                assert_eq!(threshold, (can.posterior && can.prunes).then_some(4.0), "{name}");
            }
        }
    }
}
