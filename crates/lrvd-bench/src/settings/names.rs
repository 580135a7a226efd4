//! What settings and presets are called, and settings that are a word or a value in its place.

use std::fmt;
use std::ops::RangeInclusive;

use lrvd_burn::Selection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::table::{self, settings, values};
use crate::answers::Readout;
use crate::error::Result;
use crate::text::UnknownName;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Trained whole, cut by held-out rows and refined with sampling and the exact KL; last checkpoint.
    #[default]
    Default,
    /// Published KL weight, pruned at the published steps; otherwise as `default`.
    ConstantWeight,
    /// The paper's text read literally. Its noise parameters cannot reach the threshold within the
    /// published steps, so it prunes nothing; kept as a documented test case.
    PaperGlue,
    /// Behaviour of the authors' public script, quirks included.
    AuthorGlue,
    /// The paper's text on the reasoning sets; what it leaves open is as in `default`.
    PaperReasoning,
    /// The authors' fine-tuning script for language models.
    AuthorLlm,
    /// The protocol that the published baselines were run under: data in file order, the last
    /// incomplete batch dropped.
    BlobCompat,
}

impl Preset {
    /// Presets of `lrvd train` and of the suite GLUE.
    pub const ALL: [Self; 4] =
        [Self::Default, Self::ConstantWeight, Self::PaperGlue, Self::AuthorGlue];
    /// Presets of the reasoning sets.
    pub const REASONING: [Self; 5] = [
        Self::Default,
        Self::ConstantWeight,
        Self::PaperReasoning,
        Self::AuthorLlm,
        Self::BlobCompat,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::ConstantWeight => "constant-weight",
            Self::PaperReasoning => "paper-reasoning",
            Self::AuthorLlm => "author-llm",
            Self::BlobCompat => "blob-compat",
            Self::PaperGlue => "paper-glue",
            Self::AuthorGlue => "author-glue",
        }
    }

    pub fn named(name: &str) -> Result<Self, UnknownName> {
        UnknownName::find("preset", name, &Self::ALL, Self::name)
    }
}

/// Kind of model that `lrvd train` makes of the data with these settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Training {
    /// A classifier or a regression, from texts with labels.
    #[default]
    Classifier,
    /// A language model, from texts.
    Language,
}

impl Training {
    pub const ALL: [Self; 2] = [Self::Classifier, Self::Language];

    /// Its name in settings files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classifier => "classifier",
            Self::Language => "language",
        }
    }

    /// Fewest and most steps of a run by default.
    ///
    /// Few rows take as many steps as many do until a new head has learnt: runs on 2,000 and 3,000 rows had 520 and 600 steps
    /// (`docs/results/default.md`). Every token of a text is a target, and a language model has no new head. At most as many
    /// as the published runs on GLUE have.
    pub(super) const fn steps(self) -> RangeInclusive<usize> {
        match self {
            Self::Classifier => 500..=10_000,
            Self::Language => 100..=10_000,
        }
    }

    pub fn named(name: &str) -> Result<Self, UnknownName> {
        UnknownName::find("task", name, &Self::ALL, Self::name)
    }
}

/// Factor of the KL, written as a number or as `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", expecting = "expected a number or \"auto\"")]
pub enum KlWeight {
    /// The model is trained whole without divergence, cut by held-out training rows and refined, by the settings of
    /// `rank_search`.
    Auto,
    /// A fixed weight.
    #[serde(untagged)]
    Fixed(f64),
}

/// The linear layers that get an adapter, written as a list of names or as `"all-linear"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", expecting = "expected a list of names or \"all-linear\"")]
pub enum TargetModules {
    /// All but the output layer of a language model, as PEFT reads this word.
    AllLinear,
    /// Layers whose path ends in one of the names.
    #[serde(untagged)]
    Names(Vec<String>),
}

impl TargetModules {
    pub fn names<T: ToString>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Names(names.into_iter().map(|name| name.to_string()).collect())
    }

    pub fn layers(&self) -> Selection {
        match self {
            Self::Names(names) => Selection::Names(names.clone()),
            Self::AllLinear => Selection::AllLinear,
        }
    }
}

/// A family of prompts with its labels.
///
/// | | `blob` | `laplace` | `clean` |
/// |---|---|---|---|
/// | choices | `{text}) {label}`, text first; for a blank `A) {text}` | `A. {Text.}` | `A) {text}` |
/// | labels of a choice | as in the file, digits stay | letters | letters |
/// | classes, ARC | 5 | 4, other items are left out | 5 |
/// | labels, yes/no | `True`, `False`: *true* is scored at `False` | `False`, `True` | `False`, `True` |
/// | end-of-text token | blanks and yes/no | yes/no | never |
/// | too long | cut from the right, the cue goes first | likewise | passage or question is cut, then choices |
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PromptSet {
    /// Bit-exact as in the `BLoB` code.
    Blob,
    /// As in the Laplace-LoRA code.
    Laplace,
    Clean,
}

impl PromptSet {
    pub const ALL: [Self; 3] = [Self::Blob, Self::Laplace, Self::Clean];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Laplace => "laplace",
            Self::Clean => "clean",
        }
    }
}

impl fmt::Display for PromptSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

settings! {
    /// Question to a language model, in place of the usual one of the task; an encoder has no use for it.
    #[derive(Eq)]
    pub struct WordingSettings {
        /// Prompt: `{text}` and, for pairs, `{pair}` stand for the texts, `\n` for a line break.
        template: Option<String> = None;
        /// The word that stands for each class, in class order; each follows the prompt after one space.
        answers: Option<Vec<String>> = None;
        /// Place at which the answer to a question with options is read; `options` if none is given.
        readout: Option<Readout> = None;
    }
}

impl WordingSettings {
    /// `true` if the task's own wording is left as it is.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The first setting that is given, by its key.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("wording.template", self.template.is_some()),
            ("wording.answers", self.answers.is_some()),
            ("wording.readout", self.readout.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }
}

values! {
    Training; TargetModules; PromptSet; Readout;
    KlWeight = |weight, key, range| match weight {
        Self::Auto => Ok(()),
        Self::Fixed(weight) => weight.check(key, range),
    };
}
