//! What the command line asks for.

use std::path::PathBuf;

use super::profile::Profile;
use crate::error::BenchError;
use crate::experiment::Preset;
use crate::method::MethodName;
use crate::task::GlueTask;

/// Everything that `lrvd bench glue` can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct GlueOptions {
    /// `quick` or `paper`.
    pub profile: Profile,
    /// Named settings.
    pub preset: Preset,
    /// Tasks; empty for the profile's own.
    pub tasks: Vec<GlueTask>,
    /// Methods, in table order.
    pub methods: Vec<MethodName>,
    /// Seeds; empty for the profile's own.
    pub seeds: Vec<u64>,
    /// Device name.
    pub device: String,
    /// Folder or repository; `None` for the profile's own.
    pub model: Option<String>,
    /// Folder of GLUE data; `None` generates tasks (`quick`) or is an error (`paper`).
    pub data_dir: Option<PathBuf>,
    /// Output folder.
    pub out: PathBuf,
    /// Go on in an output folder that holds a run.
    pub resume: bool,
    /// Published table to compare with.
    pub compare: Option<PathBuf>,
    /// Override of the number of optimiser steps.
    pub steps: Option<usize>,
    /// The command as typed, for the record.
    pub command: String,
}

impl GlueOptions {
    /// The profile's defaults, written to `out`.
    pub fn new(profile: Profile, out: PathBuf) -> Self {
        Self {
            profile,
            preset: Preset::Default,
            tasks: Vec::new(),
            methods: MethodName::ALL.to_vec(),
            seeds: Vec::new(),
            device: "cpu".to_owned(),
            model: None,
            data_dir: None,
            out,
            resume: false,
            compare: None,
            steps: None,
            command: String::new(),
        }
    }

    /// Fills in the profile's defaults and refuses what appears twice.
    ///
    /// # Errors
    ///
    /// [`BenchError::Repeated`].
    pub fn resolved(mut self) -> Result<Self, BenchError> {
        if self.tasks.is_empty() {
            self.tasks = self.profile.tasks(self.data_dir.is_some());
        }
        if self.seeds.is_empty() {
            self.seeds = self.profile.seeds();
        }
        if self.methods.is_empty() {
            self.methods = MethodName::ALL.to_vec();
        }
        self.methods.sort();
        no_repeats("task", &self.tasks, |t| t.spec().name.to_owned())?;
        no_repeats("method", &self.methods, ToString::to_string)?;
        no_repeats("seed", &self.seeds, ToString::to_string)?;
        Ok(self)
    }
}

fn no_repeats<T: PartialEq>(
    what: &'static str,
    list: &[T],
    name: impl Fn(&T) -> String,
) -> Result<(), BenchError> {
    for (i, item) in list.iter().enumerate() {
        if list[..i].contains(item) {
            return Err(BenchError::Repeated { what, found: name(item) });
        }
    }
    Ok(())
}
