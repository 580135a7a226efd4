//! What the command line and an arm set, resolved, and what the output folder keeps of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use lrvd_core::error::check_range;
use serde_json::{Value, json};

use super::kind::{Defaults, Profile, Suite};
use super::task::wording;
use crate::backbone::{Architecture, Backbone};
use crate::data::{Wording, quick};
use crate::error::{Error, Result};
use crate::method::MethodName;
use crate::settings::{BasePrecision, Config, Layers, Preset};
use crate::task::Task;

/// Members of an ensemble take their seeds from here: `MEMBER_SEEDS · seed + member`.
pub(super) const MEMBER_SEEDS: u64 = 1000;
/// Largest seed: those of members, and what is mixed into the higher bits, must stay apart.
const MAX_SEED: u64 = (1 << 40) / MEMBER_SEEDS - 1;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuiteOptions {
    /// Name of the arm; `None` for the whole suite.
    pub arm: Option<String>,
    pub suite: Suite,
    pub profile: Profile,
    pub preset: Preset,
    /// Tasks; empty for the profile's own.
    pub tasks: Vec<Task>,
    /// Methods; empty for the suite's own.
    pub methods: Vec<MethodName>,
    /// Seeds; empty for the profile's own.
    pub seeds: Vec<u64>,
    pub device: String,
    /// Folder or repository; `None` for the profile's own.
    pub model: Option<String>,
    /// Folder of data; `None` means the shipped tasks (`quick`) or is an error (`paper`).
    pub data_dir: Option<PathBuf>,
    pub out: PathBuf,
    pub resume: bool,
    pub compare: Option<PathBuf>,
    /// Whether trained adapters stay beside their records.
    pub keep: bool,
    pub steps: Option<usize>,
    pub draws: Option<Vec<usize>>,
    /// Settings of an arms file, which come after preset and profile.
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
    pub(super) fn check_data(&self) -> Result<()> {
        let (shipped, files) = match self.suite {
            Suite::Glue => (&quick::GLUE, "CoLA, MNLI, MRPC, QNLI, QQP, RTE and SST-2"),
            Suite::Reasoning => (&quick::REASONING, "WinoGrande, ARC, OpenBookQA and BoolQ"),
        };
        match (self.profile, &self.data_dir) {
            (_, Some(_)) => Ok(()),
            (Profile::Quick, None) => {
                self.tasks.iter().try_for_each(|task| shipped.check(task.name()))
            }
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

    /// Resolved settings for a model: preset, profile, what the model's kind asks for, then the
    /// user's own.
    pub(super) fn config(&self, architecture: &Architecture) -> Result<Config> {
        let mut config = self.profile.shorten(self.suite, self.preset.config())?;
        if let Some(steps) = self.steps {
            config.evaluate_every = config.evaluate_every.min(steps);
            config.steps = steps;
        }
        if let Some(draws) = &self.draws {
            config.draws.clone_from(draws);
        }
        // A preset is written for one architecture; on the other its targets have other names, and an
        // encoder is held in single precision.
        config.target_modules = architecture.target_modules(&config.target_modules);
        match (self.suite, architecture) {
            (_, Architecture::Deberta(_)) => config.base_precision = BasePrecision::F32,
            (Suite::Glue, Architecture::Llama(_)) => {
                // A profile's rate and length are those of a tiny encoder and of texts without a question.
                let preset = self.preset.config();
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

    /// What `settings.json` holds but for the data files.
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

    /// How a language model is asked, by task; nothing for an encoder.
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
