//! What the command line asks for.

use std::path::PathBuf;

use anyhow::{anyhow, bail};

use super::kind::{Profile, Suite};
use super::plan::MAX_SEED;
use crate::data::quick;
use crate::error::Result;
use crate::method::MethodName;
use crate::settings::Preset;
use crate::task::Task;

#[derive(Clone, Debug, PartialEq)]
pub struct SuiteOptions {
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
    /// Continue a run in its output folder.
    pub resume: bool,
    pub compare: Option<PathBuf>,
    /// Whether trained adapters stay beside their records.
    pub keep: bool,
    /// Override of the number of optimiser steps.
    pub steps: Option<usize>,
    /// Override of the numbers of draws.
    pub draws: Option<Vec<usize>>,
    /// Settings of an arms file, which come after preset and profile.
    pub patches: Vec<toml::Table>,
    pub config: Option<PathBuf>,
    /// Settings `key=value` that come last.
    pub set: Vec<String>,
    pub command: String,
    /// The revision that the program was built from, for the record.
    pub git_revision: Option<String>,
}

impl SuiteOptions {
    pub fn new(suite: Suite, profile: Profile, out: PathBuf) -> Self {
        Self {
            suite,
            profile,
            preset: suite.default_preset(),
            tasks: Vec::new(),
            methods: Vec::new(),
            seeds: Vec::new(),
            device: "cpu".to_owned(),
            model: None,
            data_dir: None,
            out,
            resume: false,
            compare: None,
            keep: true,
            steps: None,
            draws: None,
            patches: Vec::new(),
            config: None,
            set: Vec::new(),
            command: String::new(),
            git_revision: None,
        }
    }

    /// Fills in the profile's defaults and rejects what appears twice.
    pub fn resolved(mut self) -> Result<Self> {
        if self.tasks.is_empty() {
            self.tasks = self.suite.tasks(self.profile, self.data_dir.is_some());
        }
        if self.seeds.is_empty() {
            self.seeds = self.suite.seeds(self.profile);
        }
        if self.methods.is_empty() {
            self.methods = self.suite.methods(self.profile);
        }
        self.methods.sort();
        no_repeats("task", &self.tasks, |t| t.name().to_owned())?;
        no_repeats("method", &self.methods, ToString::to_string)?;
        no_repeats("seed", &self.seeds, ToString::to_string)?;
        if let Some(&seed) = self.seeds.iter().find(|&&seed| seed > MAX_SEED) {
            return Err(lrvd_core::Error::OutOfRange {
                name: "seed",
                value: seed as f64,
                low: 0.0,
                high: MAX_SEED as f64,
            }
            .into());
        }
        Ok(self)
    }

    /// Returns an error for the paper profile without data, and for the quick one without data of a task that is not shipped.
    pub(super) fn check_data(&self) -> Result<()> {
        match (self.profile, &self.data_dir, self.suite) {
            (_, Some(_), _) => Ok(()),
            (Profile::Quick, None, _) => {
                let shipped = match self.suite {
                    Suite::Glue => &quick::GLUE,
                    Suite::Reasoning => &quick::REASONING,
                };
                self.tasks.iter().try_for_each(|task| shipped.check(task.name()))
            }
            (Profile::Paper, None, Suite::Glue) => Err(anyhow!(
                "the paper profile needs `--data-dir`: the folder that holds CoLA, MNLI, MRPC, QNLI, QQP, RTE \
                 and SST-2 in their original layouts"
            )),
            (Profile::Paper, None, Suite::Reasoning) => Err(anyhow!(
                "the paper profile needs `--data-dir`: the folder that holds WinoGrande, ARC, OpenBookQA and \
                 BoolQ in their original layouts"
            )),
        }
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
