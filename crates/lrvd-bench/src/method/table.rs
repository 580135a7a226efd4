//! The table of methods: names, kind, constructor, abilities.

use lrvd_burn::train::Method;
use lrvd_models::AutoModel;

use super::laplace::Laplace;
use super::noisy::{Alternating, Bbb, CLora};
use super::point::{LoraEnsemble, Map, McDropout};
use super::setup::RankRequest;
use super::swag::Swag;
use super::tfb::Tfb;
use super::{lrvd, rslora};
use crate::error::Result;
use crate::settings::Config;

/// A method, whichever it is.
pub type DynMethod = dyn Method<AutoModel>;

/// One row of the table.
#[derive(Debug)]
pub struct MethodEntry {
    pub name: &'static str,
    /// Name on the command line and of its settings: lower-case letters, digits and dashes.
    pub key: &'static str,
    pub summary: &'static str,
    pub(crate) family: Family,
    pub form: MethodForm,
    /// What it can do.
    pub can: Can,
}

/// What a method can do.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact")]
pub struct Can {
    /// Its outcome is an adapter that can be saved, with nothing fitted or kept beside it but a temperature.
    pub saved: bool,
    pub posterior: bool,
    pub draws: bool,
    pub prunes: bool,
    pub budget: bool,
    /// Something is fitted once training is over.
    pub post_hoc: bool,
    /// Share of the training examples that is kept out of training for it.
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
        holdout: |_| 0.0,
    };
    const PLAIN: Self = Self { saved: true, ..Self::NONE };
    /// Answers with draws of a noise that adapter files do not hold.
    const DRAWS: Self = Self { draws: true, ..Self::NONE };
    /// An adapter with a posterior over its ranks.
    const LRVD: Self = Self { posterior: true, draws: true, prunes: true, ..Self::PLAIN };
    /// Fitted around a trained adapter, answers with draws.
    const POST_HOC: Self = Self { draws: true, post_hoc: true, ..Self::NONE };
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

type New = fn(&Config, RankRequest) -> Result<Box<DynMethod>>;

/// How a row is made.
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
    ($($name:literal, $key:literal, $family:ident, $form:ident($($part:tt)+), $can:expr, $summary:literal;)+) => {
        /// Every method, in the order of tables. One more method is one more row.
        pub(super) static METHODS: &[MethodEntry] = &[$(MethodEntry {
            name: $name,
            key: $key,
            summary: $summary,
            family: Family::$family,
            form: form!($form($($part)+)),
            can: $can,
        }),+];
    };
}

// Name, key, kind, constructor, what it can do; and one line of words. A constructor is for `any` model or for a
// `classifier`.
methods! {
    "LoRA", "lora", Point, any(lrvd::lora), Can::PLAIN,
        "maximum likelihood at a uniform rank";
    "rsLoRA", "rslora", Point, any(rslora::new), Can::PLAIN,
        "LoRA with the scale lora_alpha/√rank in place of lora_alpha/rank";
    "MAP", "map", Point, classifier(Map::new), Can::PLAIN,
        "maximum likelihood with weight decay, or a Gaussian prior in the loss";
    "MCD", "mcd", Ensemble, classifier(McDropout::new), Can { saved: true, ..Can::DRAWS },
        "dropout on the adapter's input, in training and in prediction";
    "ENS-3", "ens-3", Ensemble, mean_of(3, "lora"), Can::NONE,
        "three independent LoRA runs, probabilities averaged";
    "ENS-10", "ens-10", Ensemble, mean_of(10, "lora"), Can::NONE,
        "ten independent LoRA runs, probabilities averaged";
    "LoRA-Ensemble", "lora-ensemble", Ensemble, classifier(LoraEnsemble::new), Can::NONE,
        "several adapters on one backbone, in one batched pass";
    "BBB", "bbb", Variance, classifier(Bbb::on_both), Can::DRAWS,
        "Bayes by backprop on the entries of A and B";
    "BBB-A", "bbb-a", Variance, classifier(Bbb::on_a), Can::DRAWS,
        "Bayes by backprop on the entries of A";
    "LAP", "laplace", PostHoc, classifier(Laplace::new), Can { draws: false, holdout: Laplace::holdout, ..Can::POST_HOC },
        "Laplace-LoRA: curvature around a trained LoRA, linearised predictive";
    "SWAG", "swag", PostHoc, classifier(Swag::new), Can::POST_HOC,
        "a Gaussian from the tail of LoRA's path at a constant rate";
    "MultiSWAG", "multiswag", PostHoc, mean_of(3, "swag"), Can::POST_HOC,
        "three independent SWAG runs, probabilities averaged";
    "BLoB", "blob", Variance, classifier(Alternating::blob), Can::DRAWS,
        "noise on the entries of A with flipout and two optimisers";
    "ScalaBL", "scalabl", Variance, classifier(Alternating::scala_bl), Can::DRAWS,
        "noise on one scale per rank direction, in an orthonormal basis";
    "TFB", "tfb", PostHoc, classifier(Tfb::new), Can::POST_HOC,
        "the most noise on a trained LoRA that its predictions tolerate";
    "C-LoRA", "c-lora", Variance, classifier(CLora::new), Can::DRAWS,
        "a random rank matrix whose law a small network reads off the input";
    "AdaLoRA", "adalora", Point, any(lrvd::adalora), Can { prunes: true, budget: true, ..Can::PLAIN },
        "rank directions masked to a falling budget by their sensitivity";
    "BayesLoRA", "bayeslora", LowRank, any(lrvd::bayes_lora), Can::LRVD,
        "one posterior variance per rank direction; ranks cut by held-out rows or by the posterior";
    "BayesLoRA-fixed", "bayeslora-fixed", LowRank, any(lrvd::fixed), Can { prunes: false, ..Can::LRVD },
        "BayesLoRA at its initial rank, without pruning";
    "LRVD-NTS", "lrvd-nts", LowRank, any(lrvd::nts), Can::LRVD,
        "BayesLoRA with one noise-to-signal ratio per rank direction";
    "LRVD-element", "lrvd-element", LowRank, any(lrvd::element), Can::LRVD,
        "BayesLoRA with one variance per entry of A and B";
    "LRVD-A-only", "lrvd-a-only", LowRank, any(lrvd::a_only), Can::LRVD,
        "BayesLoRA with noise on A only";
    "LRVD-ARD", "lrvd-ard", LowRank, any(lrvd::ard), Can::LRVD,
        "BayesLoRA under a Gaussian prior whose scale per rank direction is learnt";
}
