//! The two suites and their profiles.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::backbone::{ModelLocation, locate_model, shipped};
use crate::error::Result;
use crate::method::MethodName;
use crate::settings::{Config, KlWeight, Layers, MethodSettings, Preset};
use crate::task::Task;
use crate::text::UnknownName;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// GLUE, the paper's first table: with an encoder, or in words with a language model.
    #[default]
    Glue,
    /// Multiple-choice questions with a language model: its uncertainty tables.
    Reasoning,
}

impl Suite {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Glue => "glue",
            Self::Reasoning => "reasoning",
        }
    }

    pub fn task(self, name: &str) -> Result<Task> {
        Ok(match self {
            Self::Glue => Task::named_glue(name)?,
            Self::Reasoning => Task::named("reasoning set", name, Task::reasoning())?,
        })
    }

    /// The preset called `name`; an error if it does not belong to the suite.
    pub fn preset(self, name: &str) -> Result<Preset, UnknownName> {
        UnknownName::find("preset", name, self.presets(), Preset::name)
    }

    pub const fn presets(self) -> &'static [Preset] {
        match self {
            Self::Glue => &Preset::ALL,
            Self::Reasoning => &[
                Preset::DefaultReasoning,
                Preset::ConstantWeightReasoning,
                Preset::PaperReasoning,
                Preset::AuthorLlm,
                Preset::BlobCompat,
            ],
        }
    }

    /// The settings where none are named: the recommended ones.
    pub const fn default_preset(self) -> Preset {
        self.presets()[0]
    }

    pub(super) fn defaults(self, profile: Profile) -> Result<Defaults> {
        let table = PROFILES.parse::<toml::Table>()?;
        let defaults = table[self.name()][profile.name()].clone().try_into();
        defaults.context("`profiles.toml`")
    }

    /// The pretrained model where none is named.
    pub(crate) fn model(self, profile: Profile) -> Result<ModelLocation> {
        let Defaults { model, .. } = self.defaults(profile)?;
        match profile {
            Profile::Paper => locate_model(&model),
            Profile::Quick => shipped(&model),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    model: String,
    pub tasks: Vec<Task>,
    /// Tasks with a data folder, if they are others.
    pub read_tasks: Option<Vec<Task>>,
    /// All if there are none.
    pub methods: Option<Vec<MethodName>>,
    pub seeds: Vec<u64>,
    /// Source of the ranks of the paper's first table's methods beside the one that learns them.
    pub matching: Option<Matching>,
    #[serde(default)]
    settings: toml::Table,
    raised: Option<(f64, f64)>,
}

/// The budget of a method that does not learn its ranks, beside one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Matching {
    /// With each seed the whole rank whose trained parameters are nearest to those of the other run.
    Parameters,
    /// As the paper has it: a fixed rank is the median of the other's average ranks over seeds, a budget that of its seed.
    MedianRank,
}

const PROFILES: &str = include_str!("profiles.toml");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Minutes on two cores, from what the repository holds.
    #[default]
    Quick,
    Paper,
}

impl Profile {
    pub const ALL: [Self; 2] = [Self::Quick, Self::Paper];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Paper => "paper",
        }
    }

    pub fn shorten(self, suite: Suite, config: Config) -> Result<Config> {
        let Defaults { settings, raised, .. } = suite.defaults(self)?;
        let config = Layers::over(&config)?.apply(&[settings], None, &[])?.finish()?;
        Ok(match raised {
            Some((kl, noise)) => config.raised(kl, noise),
            None => config,
        })
    }
}

impl Config {
    /// `kl` times the weight of every divergence that is tempered, and `noise` times the rate of every noise parameter that
    /// follows the likelihood, whatever the method.
    ///
    /// Not raised is what carries the whole evidence bound by itself, and more than it if raised: the KL of Bayes by
    /// backprop (`1/N`), and the second optimisers of BLoB and `ScalaBL`, whose cycles keep their number in a short run.
    /// Nor is a rate that follows from the length of the run: those of Bayes by backprop and `lrvd-nts`.
    fn raised(mut self, kl: f64, noise: f64) -> Self {
        let MethodSettings { blob, scalabl, c_lora, .. } = &mut self.methods;
        if let KlWeight::Fixed(weight) = &mut self.kl_weight {
            *weight *= kl;
        }
        c_lora.kl_weight *= kl;
        let log_variance = &mut self.log_variance.learning_rate_factor;
        let own = [&mut blob.noise_rate_factor, &mut scalabl.noise_rate_factor];
        for rate in own.into_iter().chain([log_variance, &mut c_lora.learning_rate]) {
            *rate *= noise;
        }
        self
    }
}
