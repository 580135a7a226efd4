//! What a suite would train, before anything is: runs, parameters, memory.

use std::collections::BTreeMap;

use minijinja::context;
use minijinja::value::Serde;
use serde::Serialize;

use super::arms::Arms;
use super::kind::{Profile, Suite};
use super::options::SuiteOptions;
use super::runs::{PlannedRun, add_runs};
use crate::backbone::{self, Architecture, locate_config};
use crate::data::Wording;
use crate::error::Result;
use crate::memory::{PlannedMemory, Sizes};
use crate::settings::Config;
use crate::text::{grouped, templates};

#[derive(Clone, Debug, Serialize)]
pub struct DryRun {
    pub suite: String,
    pub profile: String,
    pub device: String,
    pub model: PlannedModel,
    pub modules: usize,
    /// Every method once, in the order of the tables.
    pub methods: Vec<PlannedMethod>,
    /// Estimated memory at the peak of the largest method.
    pub memory: PlannedMemory,
    pub runs: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wording: BTreeMap<String, Wording>,
    pub settings: Config,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedModel {
    pub name: String,
    pub layers: usize,
    pub hidden: usize,
    pub parameters: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedMethod {
    pub method: String,
    /// Trained parameters before pruning; of an ensemble those of all members.
    pub parameters: usize,
    /// Trainings that no row before it has made.
    pub trainings: usize,
    /// Optimiser steps of one of them, those of a refinement included.
    pub steps: usize,
}

impl DryRun {
    /// What `options` would train. Reads the model's `config.json` at most, and nothing where the paper's
    /// own model is meant.
    pub fn new(options: SuiteOptions) -> Result<Self> {
        let options = options.resolved()?;
        let location = match (&options.model, options.profile) {
            (Some(name), _) => Some(locate_config(name)?),
            (None, Profile::Quick) => Some(options.suite.model(options.profile)?),
            (None, Profile::Paper) => None,
        };
        let published = |name: &str| format!("{name}, sizes as published");
        let (name, architecture) = match (location, options.suite) {
            (Some(location), _) => (location.name, Architecture::read(&location.folder)?),
            (None, Suite::Glue) => (published("DeBERTa-v3-base"), Architecture::deberta_v3_base()?),
            (None, Suite::Reasoning) => (published("Llama-2-7B"), Architecture::llama_2_7b()?),
        };
        let config = options.config(&architecture)?;
        let mut runs: Vec<PlannedRun> = Vec::new();
        add_runs(&mut runs, 0, &options)?;
        let sizes = Sizes::new(&architecture, &config);
        let mut methods: Vec<PlannedMethod> = Vec::new();
        let mut made: Vec<usize> = Vec::new();
        // Of one run: members of an ensemble are trained one after another.
        let mut largest = 0;
        for (place, run) in runs.iter().enumerate().filter(|(_, run)| !run.is_member) {
            let own = if run.is_combined() { run.needs.clone() } else { vec![place] };
            let initial = |&run: &usize| sizes.trained(runs[run].method, None);
            let trained: Vec<usize> = own.iter().map(initial).collect::<Result<_>>()?;
            largest = largest.max(trained.iter().max().copied().unwrap_or(0));
            let steps = own.first().map_or(0, |&run| runs[run].steps(&config));
            let new: Vec<usize> = own.into_iter().filter(|run| !made.contains(run)).collect();
            let name = run.method.name();
            match methods.iter_mut().find(|row| row.method == name) {
                Some(row) => row.trainings += new.len(),
                None => methods.push(PlannedMethod {
                    method: name,
                    parameters: trained.iter().sum(),
                    trainings: new.len(),
                    steps,
                }),
            }
            made.extend(new);
        }
        let described = |run: &PlannedRun| {
            let made = if run.is_combined() { " (from other runs)" } else { "" };
            let member = if run.is_member { " (member)" } else { "" };
            format!("{}{made}{member}", run.label())
        };
        let backbone::Sizes { layers, hidden, .. } = architecture.sizes();
        Ok(Self {
            suite: options.suite.name().to_owned(),
            profile: options.profile.name().to_owned(),
            device: options.device.clone(),
            modules: sizes.layers.len(),
            methods,
            memory: sizes.memory(largest),
            runs: runs.iter().map(described).collect(),
            wording: options.wordings(&config, &architecture)?,
            model: PlannedModel { name, layers, hidden, parameters: architecture.parameters() },
            settings: config,
        })
    }

    pub fn render_text(&self) -> Result<String> {
        let width = self.methods.iter().map(|row| row.method.len()).max().unwrap_or(0).max(6);
        let head =
            format!("{:width$}  {:>19}  trainings  steps each", "method", "parameters, at most");
        let rows = self.methods.iter().map(|row| {
            let count = grouped(row.parameters as u64, ',');
            let steps = grouped(row.steps as u64, ',');
            format!("{:width$}  {count:>19}  {:>9}  {steps:>10}", row.method, row.trainings)
        });
        let wording = |(task, own): (&String, &Wording)| format!("{task}: {}\n", own.describe());
        let values = context! {
            plan => Serde(self),
            trainings => self.methods.iter().map(|row| row.trainings).sum::<usize>(),
            steps => self.methods.iter().map(|row| row.trainings * row.steps).sum::<usize>(),
            methods => std::iter::once(head).chain(rows).collect::<Vec<_>>(),
            wordings => self.wording.iter().map(wording).collect::<String>(),
        };
        Ok(templates()?.render_str(include_str!("dry_run.txt.jinja"), values)?)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct ArmsDryRun {
    pub arms: Vec<(String, DryRun)>,
}

impl ArmsDryRun {
    pub fn new(arms: &Arms, options: &SuiteOptions) -> Result<Self> {
        let plan = |options: SuiteOptions| {
            let plan = DryRun::new(options.clone()).map_err(|error| options.in_arm(error))?;
            Ok((options.arm.unwrap_or_default(), plan))
        };
        let plans = arms.experiments(options)?.into_iter().map(plan);
        Ok(Self { arms: plans.collect::<Result<_>>()? })
    }

    pub fn render_text(&self) -> String {
        let runs = |plan: &DryRun| plan.runs.iter().map(|run| format!("  {run}")).collect();
        let arm = |(name, plan): &(String, DryRun)| [vec![name.clone()], runs(plan)].concat();
        self.arms.iter().flat_map(arm).map(|line| line + "\n").collect()
    }
}
