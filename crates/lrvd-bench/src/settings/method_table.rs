//! The methods there are: names, kinds and what each can do.

use super::Family;

/// A method as settings, plans and reports know it; how it trains is in `method`.
#[derive(Debug)]
pub struct MethodEntry {
    /// Name in tables.
    pub name: &'static str,
    /// Name on the command line and of its settings: lower-case letters, digits and dashes.
    pub key: &'static str,
    /// One line for `--help` and reports.
    pub summary: &'static str,
    /// Its kind, which colours and orders reports.
    pub(crate) family: Family,
    /// How it comes to be.
    pub form: MethodForm,
    /// What it can do.
    pub can: Capabilities,
}

/// How a method comes to be.
#[derive(Clone, Copy, Debug)]
pub enum MethodForm {
    /// One training run.
    Single,
    /// Independent runs of another method, whose predictions are averaged.
    Ensemble {
        /// Key of that method.
        member: &'static str,
        /// Number of runs.
        members: usize,
        /// What is averaged.
        average: Average,
    },
    /// Runs of another method at several initial ranks; the one whose parameters come nearest to
    /// those of `like` is reported.
    Matched {
        /// Key of that method.
        member: &'static str,
        /// The initial ranks, as multiples of the settings' one.
        factors: &'static [f64],
        /// Key of the method whose parameter count is the target.
        like: &'static str,
    },
}

/// What the members of an ensemble average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// Probabilities.
    Probabilities,
    /// Logits, as published code does.
    Logits,
}

/// What a method can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact")]
pub struct Capabilities {
    /// Its outcome is an adapter that can be saved, with nothing fitted or kept beside it.
    pub saved: bool,
    /// The saved adapter has a posterior.
    pub posterior: bool,
    /// It answers with draws.
    pub draws: bool,
    /// It removes ranks while it trains.
    pub prunes: bool,
    /// Its average rank is asked for.
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
    /// A plain adapter.
    const PLAIN: Self = Self { saved: true, ..Self::NONE };
    /// Answers with draws of a noise that adapter files do not hold.
    const DRAWS: Self = Self { draws: true, ..Self::NONE };
    /// An adapter with a posterior over its ranks.
    const LRVD: Self = Self { posterior: true, draws: true, prunes: true, ..Self::PLAIN };
    /// Fitted around a trained adapter, answers with draws.
    const POST_HOC: Self = Self { draws: true, post_hoc: true, ..Self::NONE };
}

impl MethodEntry {
    /// Whether the method is a row of its own where all methods are asked for: one that only exists
    /// for another row to choose from ([`MethodForm::Matched`]) is not.
    pub(super) fn is_listed(&self) -> bool {
        let chosen_from = |entry: &MethodEntry| matches!(entry.form, MethodForm::Matched { member, .. } if member == self.key);
        !METHODS.iter().any(chosen_from)
    }
}

/// Every method, in the order of tables. One more method is one more entry.
pub(super) static METHODS: &[MethodEntry] = &[
    MethodEntry {
        name: "LoRA",
        key: "lora",
        summary: "maximum likelihood at a uniform rank",
        family: Family::Point,
        form: MethodForm::Single,
        can: Capabilities::PLAIN,
    },
    MethodEntry {
        name: "MAP",
        key: "map",
        summary: "maximum likelihood with weight decay, or a Gaussian prior in the loss",
        family: Family::Point,
        form: MethodForm::Single,
        can: Capabilities::PLAIN,
    },
    MethodEntry {
        name: "MCD",
        key: "mcd",
        summary: "dropout on the adapter's input, in training and in prediction",
        family: Family::Ensemble,
        form: MethodForm::Single,
        can: Capabilities { saved: true, ..Capabilities::DRAWS },
    },
    MethodEntry {
        name: "ENS-3",
        key: "ens-3",
        summary: "three independent LoRA runs, probabilities averaged",
        family: Family::Ensemble,
        form: MethodForm::Ensemble { member: "lora", members: 3, average: Average::Probabilities },
        can: Capabilities::NONE,
    },
    MethodEntry {
        name: "ENS-10",
        key: "ens-10",
        summary: "ten independent LoRA runs, probabilities averaged",
        family: Family::Ensemble,
        form: MethodForm::Ensemble { member: "lora", members: 10, average: Average::Probabilities },
        can: Capabilities::NONE,
    },
    MethodEntry {
        name: "ENS-logits",
        key: "ens-blob",
        summary: "three independent LoRA runs, logits averaged, as BLoB's code does",
        family: Family::Ensemble,
        form: MethodForm::Ensemble { member: "lora", members: 3, average: Average::Logits },
        can: Capabilities::NONE,
    },
    MethodEntry {
        name: "LoRA-Ensemble",
        key: "lora-ensemble",
        summary: "several adapters on one backbone, in one batched pass",
        family: Family::Ensemble,
        form: MethodForm::Single,
        can: Capabilities::NONE,
    },
    MethodEntry {
        name: "BBB",
        key: "bbb",
        summary: "Bayes by backprop on the entries of A and B",
        family: Family::Variance,
        form: MethodForm::Single,
        can: Capabilities::DRAWS,
    },
    MethodEntry {
        name: "BBB-A",
        key: "bbb-a",
        summary: "Bayes by backprop on the entries of A",
        family: Family::Variance,
        form: MethodForm::Single,
        can: Capabilities::DRAWS,
    },
    MethodEntry {
        name: "BBB-BT",
        key: "bbb-bt",
        summary: "Bayes by backprop with the defaults of Bayesian-Torch",
        family: Family::Variance,
        form: MethodForm::Single,
        can: Capabilities::DRAWS,
    },
    MethodEntry {
        name: "LAP",
        key: "laplace",
        summary: "Laplace-LoRA: curvature around a trained LoRA, linearised predictive",
        family: Family::PostHoc,
        form: MethodForm::Single,
        can: Capabilities { draws: false, ..Capabilities::POST_HOC },
    },
    MethodEntry {
        name: "LAP-last",
        key: "laplace-last",
        summary: "Laplace-LoRA over the adapted layer nearest to the output",
        family: Family::PostHoc,
        form: MethodForm::Single,
        can: Capabilities { draws: false, ..Capabilities::POST_HOC },
    },
    MethodEntry {
        name: "SWAG",
        key: "swag",
        summary: "a Gaussian from the tail of LoRA's path at a constant rate",
        family: Family::PostHoc,
        form: MethodForm::Single,
        can: Capabilities::POST_HOC,
    },
    MethodEntry {
        name: "MultiSWAG",
        key: "multiswag",
        summary: "three independent SWAG runs, probabilities averaged",
        family: Family::PostHoc,
        form: MethodForm::Ensemble { member: "swag", members: 3, average: Average::Probabilities },
        can: Capabilities::POST_HOC,
    },
    MethodEntry {
        name: "BLoB",
        key: "blob",
        summary: "noise on the entries of A with flipout and two optimisers",
        family: Family::Variance,
        form: MethodForm::Single,
        can: Capabilities::DRAWS,
    },
    MethodEntry {
        name: "ScalaBL",
        key: "scalabl",
        summary: "noise on one scale per rank direction, in an orthonormal basis",
        family: Family::Variance,
        form: MethodForm::Single,
        can: Capabilities::DRAWS,
    },
    MethodEntry {
        name: "TFB",
        key: "tfb",
        summary: "the most noise on a trained LoRA that its predictions bear",
        family: Family::PostHoc,
        form: MethodForm::Single,
        can: Capabilities::POST_HOC,
    },
    MethodEntry {
        name: "C-LoRA",
        key: "c-lora",
        summary: "a random rank matrix whose law a small network reads off the input",
        family: Family::Variance,
        form: MethodForm::Single,
        can: Capabilities::DRAWS,
    },
    MethodEntry {
        name: "AdaLoRA",
        key: "adalora",
        summary: "rank directions masked to a falling budget by their sensitivity",
        family: Family::Point,
        form: MethodForm::Single,
        can: Capabilities { prunes: true, budget: true, ..Capabilities::PLAIN },
    },
    MethodEntry {
        name: "BayesLoRA",
        key: "bayeslora",
        summary: "one posterior variance per rank direction, pruned while it trains",
        family: Family::LowRank,
        form: MethodForm::Single,
        can: Capabilities::LRVD,
    },
    MethodEntry {
        name: "BayesLoRA-fixed",
        key: "bayeslora-fixed",
        summary: "BayesLoRA at its initial rank, without pruning",
        family: Family::LowRank,
        form: MethodForm::Single,
        can: Capabilities { prunes: false, ..Capabilities::LRVD },
    },
    MethodEntry {
        name: "LRVD-NTS",
        key: "lrvd-nts",
        summary: "BayesLoRA with one noise-to-signal ratio per rank direction",
        family: Family::LowRank,
        form: MethodForm::Single,
        can: Capabilities::LRVD,
    },
    MethodEntry {
        name: "LRVD-element",
        key: "lrvd-element",
        summary: "BayesLoRA with one variance per entry of A and B",
        family: Family::LowRank,
        form: MethodForm::Single,
        can: Capabilities::LRVD,
    },
    MethodEntry {
        name: "LRVD-A-only",
        key: "lrvd-a-only",
        summary: "BayesLoRA with noise on A only",
        family: Family::LowRank,
        form: MethodForm::Single,
        can: Capabilities::LRVD,
    },
    MethodEntry {
        name: "LRVD-ARD",
        key: "lrvd-ard",
        summary: "BayesLoRA under a Gaussian prior whose scale per rank direction is learnt",
        family: Family::LowRank,
        form: MethodForm::Single,
        can: Capabilities::LRVD,
    },
    MethodEntry {
        name: "BayesLoRA-expanded",
        key: "bayeslora-expanded",
        summary: "BayesLoRA from a larger rank, as near as can be to BLoB's number of parameters",
        family: Family::LowRank,
        form: MethodForm::Matched {
            member: "bayeslora-expanded-run",
            // 12, 14, 16 and 20 where the settings say 8.
            factors: &[1.5, 1.75, 2.0, 2.5],
            like: "blob",
        },
        can: Capabilities { saved: false, ..Capabilities::LRVD },
    },
    MethodEntry {
        name: "BayesLoRA-expanded-run",
        key: "bayeslora-expanded-run",
        summary: "BayesLoRA with a third of the KL weight",
        family: Family::LowRank,
        form: MethodForm::Single,
        can: Capabilities::LRVD,
    },
];
