//! The kinds of training that settings are for.

use schemars::JsonSchema;

use super::{ExperimentConfig, Preset};

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

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|training| training.name() == name)
    }

    pub(super) fn presets() -> impl Iterator<Item = (Self, Preset)> {
        Self::ALL.into_iter().flat_map(|training| Preset::ALL.map(|preset| (training, preset)))
    }

    pub(super) fn config(self, preset: Preset) -> ExperimentConfig {
        match self {
            Self::Classifier => preset.config(),
            Self::Language => preset.language_config(),
        }
    }
}
