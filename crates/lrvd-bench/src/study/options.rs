//! What the command line asks of a study.

use std::path::{Path, PathBuf};

use super::design::{Arm, Base, Study};
use super::error::StudyError;
use super::recipe::{self, Size};
use crate::settings::{MethodName, Preset};
use crate::suite::{Profile, Suite, SuiteError, SuiteOptions, SuiteTask};
use crate::text::UnknownName;

/// Everything that `lrvd study NAME` can be told.
#[derive(Clone)]
pub struct StudyOptions {
    /// Which study.
    pub study: &'static Study,
    /// How much is run.
    pub size: Size,
    /// Folder of data; `None` generates tasks.
    pub data_dir: Option<PathBuf>,
    /// Folder or repository; `None` for the shipped tiny DeBERTa.
    pub model: Option<String>,
    /// Labels of the arms that are run; empty for all.
    pub arms: Vec<String>,
    /// Tasks of GLUE; empty for SST-2.
    pub tasks: Vec<SuiteTask>,
    /// Seeds; empty for the size's own.
    pub seeds: Vec<u64>,
    /// Optimiser steps; `None` for the size's own.
    pub steps: Option<usize>,
    /// Settings `key=value` that come last in every arm.
    pub set: Vec<String>,
    /// Device name.
    pub device: String,
    /// Output folder.
    pub out: PathBuf,
    /// Go on in an output folder that holds this study.
    pub resume: bool,
    /// The command as typed, for the record.
    pub command: String,
    /// The revision that the program was built from, for the record.
    pub git_revision: Option<String>,
}

impl StudyOptions {
    /// `study` at quick size on generated text, written to `out`.
    pub fn new(study: &'static Study, out: PathBuf) -> Self {
        Self {
            study,
            size: Size::Quick,
            data_dir: None,
            model: None,
            arms: Vec::new(),
            tasks: Vec::new(),
            seeds: Vec::new(),
            steps: None,
            set: Vec::new(),
            device: "cpu".to_owned(),
            out,
            resume: false,
            command: String::new(),
            git_revision: None,
        }
    }

    /// Optimiser steps of every run.
    pub(super) fn steps(&self) -> usize {
        self.steps.unwrap_or(self.size.steps())
    }

    /// The arms that are run, in the order of the study.
    pub(super) fn arms(&self) -> Result<Vec<Arm>, UnknownName> {
        let mut arms = (self.study.arms)();
        let labels = || arms.iter().map(|arm| arm.label.as_str());
        if let Some(unknown) = self.arms.iter().find(|name| labels().all(|label| label != *name)) {
            return Err(UnknownName::new("arm", unknown, labels()));
        }
        arms.retain(|arm| self.arms.is_empty() || self.arms.contains(&arm.label));
        Ok(arms)
    }

    /// Folder of generated tasks, where none is given.
    pub(super) fn generated(&self) -> PathBuf {
        self.out.join("data")
    }

    /// Where the data are, or will be.
    pub(super) fn data(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| self.generated())
    }

    /// The runs of one arm.
    pub(super) fn suite(&self, arm: &Arm) -> Result<SuiteOptions, StudyError> {
        self.suite_of(arm)
            .map_err(|source| StudyError::Arm { arm: arm.label.clone(), source: Box::new(source) })
    }

    fn suite_of(&self, arm: &Arm) -> Result<SuiteOptions, SuiteError> {
        let preset = match arm.base {
            Base::Recipe => Preset::ConstantWeight,
            Base::Preset(preset) => preset,
        };
        let method = MethodName::from_name(arm.method).ok_or_else(|| {
            UnknownName::new("method", arm.method, MethodName::all().map(MethodName::key))
        })?;
        let model = match &self.model {
            Some(model) => model.clone(),
            None => Suite::Glue.model(Profile::Quick)?.folder.display().to_string(),
        };
        let out = self.out.join("arms").join(folder_name(&arm.label));
        let mut set = recipe::settings(arm);
        // Once: studies compare the last checkpoint.
        set.push(format!("evaluate_every={}", self.steps()));
        set.extend(self.set.iter().cloned());
        let mut options = SuiteOptions {
            preset,
            methods: vec![method],
            tasks: self.tasks.clone(),
            seeds: self.seeds.clone(),
            device: self.device.clone(),
            model: Some(model),
            data_dir: Some(self.data()),
            resume: self.resume,
            steps: Some(self.steps()),
            set,
            command: self.command.clone(),
            git_revision: self.git_revision.clone(),
            // All validation rows, and nothing of the settings but what is said here.
            ..SuiteOptions::new(Suite::Glue, Profile::Paper, out)
        };
        if options.tasks.is_empty() {
            options.tasks = vec![Suite::Glue.task("sst2")?];
        }
        if options.seeds.is_empty() {
            options.seeds = self.size.seeds();
        }
        Ok(options)
    }

    /// A file beside the page.
    pub(super) fn file(&self, ending: &str) -> PathBuf {
        Path::new(&self.out).join(format!("{}{ending}", self.study.name))
    }
}

/// `label` with nothing but letters, digits, points and dashes.
fn folder_name(label: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    label.to_lowercase().chars().map(plain).collect()
}
