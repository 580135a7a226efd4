//! The two suites, their defaults in each profile, and the options that change them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use lrvd_core::error::check_range;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::backbone::{self, Architecture, Backbone, ModelLocation, locate_model};
use crate::data::{Wording, shipped};
use crate::error::{Error, Result};
use crate::method::MethodName;
use crate::settings::{
    BasePrecision, Config, KlWeight, Layers, MethodSettings, ModelFacts as _, Preset,
};
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
            Self::Reasoning => &Preset::REASONING,
        }
    }

    /// Settings of `preset` for the suite.
    pub fn config(self, preset: Preset) -> Config {
        match self {
            Self::Glue => preset.config(),
            Self::Reasoning => preset.reasoning_config(),
        }
    }

    /// The recommended settings, used if no preset is named.
    pub const fn default_preset(self) -> Preset {
        self.presets()[0]
    }

    pub(super) fn defaults(self, profile: Profile) -> Result<Defaults> {
        let table = PROFILES.parse::<toml::Table>()?;
        let defaults = table[self.name()][profile.name()].clone().try_into();
        defaults.context("`profiles.toml`")
    }

    /// The pretrained model of the suite if none is named.
    pub(crate) fn model(self, profile: Profile) -> Result<ModelLocation> {
        let Defaults { model, .. } = self.defaults(profile)?;
        match profile {
            Profile::Paper => locate_model(&model),
            Profile::Quick => backbone::shipped(&model),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    model: String,
    pub tasks: Vec<Task>,
    /// Tasks with a data folder, if other ones.
    pub read_tasks: Option<Vec<Task>>,
    /// `None`: all.
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
    /// Multiplies the weight of every tempered divergence by `kl`, and the rate of every noise parameter that follows the
    /// likelihood by `noise`, for every method.
    ///
    /// Terms that already have the full weight of the evidence bound stay: the KL of Bayes by backprop (`1/N`), and the
    /// second optimizers of BLoB and `ScalaBL`, whose cycles keep their number in a short run. Rates that follow from the
    /// length of the run stay, too: those of Bayes by backprop and `lrvd-nts`.
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

/// Factor of the seeds of an ensemble's members: `MEMBER_SEEDS · seed + member`.
pub(super) const MEMBER_SEEDS: u64 = 1000;
/// Largest seed, which keeps the seeds of members apart from each other and from values mixed into the higher bits.
const MAX_SEED: u64 = (1 << 40) / MEMBER_SEEDS - 1;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuiteOptions {
    /// Name of the arm; `None` for the whole suite.
    pub arm: Option<String>,
    pub suite: Suite,
    pub profile: Profile,
    pub preset: Preset,
    /// Tasks; empty for those of the profile.
    pub tasks: Vec<Task>,
    /// Methods; empty for those of the suite.
    pub methods: Vec<MethodName>,
    /// Seeds; empty for those of the profile.
    pub seeds: Vec<u64>,
    pub device: String,
    /// Folder or repository; `None` for that of the profile.
    pub model: Option<String>,
    /// Folder of data; `None` means the shipped tasks (`quick`) or is an error (`paper`).
    pub data_dir: Option<PathBuf>,
    pub out: PathBuf,
    pub resume: bool,
    pub compare: Option<PathBuf>,
    /// `true` if trained adapters are saved with their records.
    pub keep: bool,
    pub steps: Option<usize>,
    pub draws: Option<Vec<usize>>,
    /// Settings of an arms file, applied after preset and profile.
    pub patches: Vec<toml::Table>,
    pub config: Option<PathBuf>,
    pub set: Vec<String>,
    pub command: String,
    pub git_revision: Option<String>,
}

impl SuiteOptions {
    pub fn new(suite: Suite, profile: Profile, out: PathBuf) -> Self {
        Self {
            suite,
            profile,
            preset: suite.default_preset(),
            device: "cpu".to_owned(),
            out,
            keep: true,
            ..Self::default()
        }
    }

    /// Fills in the profile's defaults and rejects what appears twice.
    pub fn resolved(mut self) -> Result<Self> {
        let Defaults { tasks, read_tasks, methods, seeds, .. } =
            self.suite.defaults(self.profile)?;
        if self.tasks.is_empty() {
            self.tasks = read_tasks.filter(|_| self.data_dir.is_some()).unwrap_or(tasks);
        }
        if self.seeds.is_empty() {
            self.seeds = seeds;
        }
        if self.methods.is_empty() {
            let all = || MethodName::all().chain([MethodName::LORA.tempered()]).collect();
            self.methods = methods.unwrap_or_else(all);
        }
        self.methods.sort();
        no_repeats("task", &self.tasks, |t| t.name().to_owned())?;
        no_repeats("method", &self.methods, ToString::to_string)?;
        no_repeats("seed", &self.seeds, ToString::to_string)?;
        for &seed in &self.seeds {
            check_range("seed", seed, 0..=MAX_SEED)?;
        }
        Ok(self)
    }

    /// Returns an error for the paper profile without data, and for the quick one without data of a task that is not shipped.
    /// `profile` is that of the command; the profile of an arm is `paper`, also with generated data.
    pub(super) fn check_data(&self, profile: Profile) -> Result<()> {
        let (own, files) = match self.suite {
            Suite::Glue => (&shipped::GLUE, "CoLA, MNLI, MRPC, QNLI, QQP, RTE and SST-2"),
            Suite::Reasoning => (&shipped::REASONING, "WinoGrande, ARC, OpenBookQA and BoolQ"),
        };
        match (profile, &self.data_dir) {
            (_, Some(_)) => Ok(()),
            (Profile::Quick, None) => self.tasks.iter().try_for_each(|task| own.check(task.name())),
            (Profile::Paper, None) => bail!(
                "the paper profile needs `--data-dir`: the folder that holds {files} in their original layouts"
            ),
        }
    }

    pub(super) fn in_arm(&self, error: Error) -> Error {
        match &self.arm {
            Some(arm) => error.context(format!("arm `{arm}`")),
            None => error,
        }
    }

    /// Resolved settings for a model: preset, profile, changes for its architecture, then the user's.
    pub(super) fn config(&self, architecture: &Architecture) -> Result<Config> {
        let mut config = self.profile.shorten(self.suite, self.suite.config(self.preset))?;
        if let Some(steps) = self.steps {
            config.evaluate_every = config.evaluate_every.min(steps);
            config.steps = steps;
        }
        if let Some(draws) = &self.draws {
            config.draws.clone_from(draws);
        }
        // A preset is for one architecture. In the other, targets have other names; an encoder is in single precision.
        config.target_modules = architecture.target_modules(&config.target_modules);
        match (self.suite, architecture) {
            (_, Architecture::Deberta(_)) => config.base_precision = BasePrecision::F32,
            (Suite::Glue, Architecture::Llama(_)) => {
                // Rate and length of a profile are for a tiny encoder and for texts without a question.
                let preset = self.suite.config(self.preset);
                config.learning_rate = preset.learning_rate;
                config.max_length = preset.max_length;
            }
            (Suite::Reasoning, Architecture::Llama(_)) => {}
        }
        let layers = Layers::over(&config)?;
        let config = layers.apply(&self.patches, self.config.as_deref(), &self.set)?.finish()?;
        if let Some(key) = config.wording.given() {
            let several = self.tasks.len() > 1;
            let reason = match self.suite {
                Suite::Glue if several => "it words one task, and several are run",
                Suite::Glue => return Ok(config),
                Suite::Reasoning => "reasoning sets are asked by the prompts of `prompt`",
            };
            bail!("setting `{key}` is set: {reason}");
        }
        Ok(config)
    }

    /// Contents of `settings.json` without the data files.
    pub(super) fn settings(&self, config: &Config, backbone: &Backbone) -> Result<Value> {
        let mut settings = json!({
            "suite": self.suite.name(),
            "profile": self.profile.name(),
            "preset": self.preset.name(),
            "tasks": self.tasks.iter().map(|t| t.name()).collect::<Vec<_>>(),
            "methods": self.methods,
            "seeds": self.seeds,
            "device": self.device,
            "model": backbone.location.name,
            "weights": backbone.hashes,
            "data_dir": self.data_dir,
            "experiment": config,
        });
        let wordings = self.wordings(config, &backbone.architecture)?;
        if !wordings.is_empty() {
            settings["wording"] = json!(wordings);
        }
        Ok(settings)
    }

    /// Wordings for a language model, by task; empty for an encoder.
    pub(super) fn wordings(
        &self,
        config: &Config,
        architecture: &Architecture,
    ) -> Result<BTreeMap<String, Wording>> {
        let worded = self.tasks.iter().map(|task| {
            let found = wording(*task, architecture, config)?;
            Ok(found.map(|wording| (task.name().to_owned(), wording)))
        });
        worded.filter_map(Result::transpose).collect()
    }
}

/// Wording of a GLUE task for a model of this architecture; questions have their prompts.
pub(super) fn wording(
    task: Task,
    architecture: &Architecture,
    config: &Config,
) -> Result<Option<Wording>> {
    if task.is_question() {
        return Ok(None);
    }
    architecture.wording(&config.wording, &task.goal(), Some(task), task.is_pair())
}

fn no_repeats<T: PartialEq>(
    what: &'static str,
    list: &[T],
    name: impl Fn(&T) -> String,
) -> Result<()> {
    for (i, item) in list.iter().enumerate() {
        if list[..i].contains(item) {
            bail!("{what} `{}` is given twice", name(item));
        }
    }
    Ok(())
}
