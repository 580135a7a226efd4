//! The names of presets, and what a run is trained for.

use schemars::JsonSchema;

use crate::text::UnknownName;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Trained whole, cut by held-out rows and refined with sampling and the exact KL; last checkpoint.
    #[default]
    Default,
    /// The same at the published KL weight, pruned at the published steps.
    ConstantWeight,
    /// The paper's text read literally. Its noise parameters cannot reach the threshold within the
    /// published steps, so it prunes nothing; kept as a documented test case.
    PaperGlue,
    /// What the authors' public script executes, quirks included.
    AuthorGlue,
    /// Our recommendation for the reasoning sets; its name is `default` too.
    DefaultReasoning,
    /// The same at a constant KL weight, as the paper has it; its name is `constant-weight` too.
    ConstantWeightReasoning,
    /// The paper's text on the reasoning sets; what it leaves open is as in `default`.
    PaperReasoning,
    /// The authors' fine-tuning script for language models.
    AuthorLlm,
    /// The protocol that the published baselines were run under: data in file order, the last
    /// incomplete batch dropped.
    BlobCompat,
}

impl Preset {
    pub const ALL: [Self; 4] =
        [Self::Default, Self::ConstantWeight, Self::PaperGlue, Self::AuthorGlue];

    pub fn name(self) -> &'static str {
        match self {
            Self::Default | Self::DefaultReasoning => "default",
            Self::ConstantWeight | Self::ConstantWeightReasoning => "constant-weight",
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

/// What `lrvd train` makes of the data with these settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "kebab-case")]
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

    pub fn named(name: &str) -> Result<Self, UnknownName> {
        UnknownName::find("task", name, &Self::ALL, Self::name)
    }
}
