//! The methods there are: names, kinds and what each can do.

use Capabilities as Can;

use super::Family;

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
        "the most noise on a trained LoRA that its predictions bear";
    "C-LoRA", "c-lora", Variance, SINGLE, Can::DRAWS,
        "a random rank matrix whose law a small network reads off the input";
    "AdaLoRA", "adalora", Point, SINGLE, Can { prunes: true, budget: true, ..Can::PLAIN },
        "rank directions masked to a falling budget by their sensitivity";
    "BayesLoRA", "bayeslora", LowRank, SINGLE, Can::LRVD,
        "one posterior variance per rank direction, pruned while it trains";
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
