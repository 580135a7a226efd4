//! What a suite would train, before anything is: runs, parameters, memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lrvd_core::baselines::LayerShape;
use serde::Serialize;

use super::arms::Arms;
use super::kind::Profile;
use super::options::SuiteOptions;
use super::runs::{PlannedRun, add_runs};
use crate::backbone::{self, Architecture, locate_config};
use crate::data::Wording;
use crate::error::Result;
use crate::method::{MethodName, RankRequest};
use crate::settings::Config;
use crate::text::grouped;

const GIB: f64 = 1_073_741_824.0;

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
    /// Every run, in the order in which one process makes them.
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
}

/// Estimated memory, GiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlannedMemory {
    pub base: f64,
    /// Trained parameters, their gradients and two moments in single precision.
    pub state: f64,
    /// What a training step keeps of its activations, at most.
    pub activations: f64,
}

impl PlannedMemory {
    pub(super) fn total(self) -> f64 {
        self.base + self.state + self.activations
    }
}

/// Sizes of a model with the settings of an experiment.
pub(super) struct Sizes {
    config: Config,
    layers: Vec<LayerShape>,
    depth: usize,
    hidden: usize,
    parameters: u64,
}

impl Sizes {
    pub(super) fn new(architecture: &Architecture, config: &Config) -> Self {
        let backbone::Sizes { layers: depth, hidden, .. } = architecture.sizes();
        Self {
            config: config.clone(),
            layers: architecture.adapted_layers(&config.target_modules),
            depth,
            hidden,
            parameters: architecture.parameters(),
        }
    }

    /// Trained parameters of one run before pruning.
    fn trained(&self, method: MethodName) -> Result<usize> {
        let adapter = method.build(&self.config, RankRequest::Initial)?.adapter();
        let of = |layer: &LayerShape| adapter.parameter_count(layer.d_input, layer.d_output);
        Ok(self.layers.iter().map(of).sum())
    }

    pub(super) fn memory(&self, method: MethodName) -> Result<PlannedMemory> {
        self.trained(method).map(|trained| self.memory_of(trained))
    }

    fn memory_of(&self, trained: usize) -> PlannedMemory {
        let Self { config, depth, hidden, .. } = self;
        let at_once = config.batch_size.div_ceil(config.accumulation) * config.max_length;
        PlannedMemory {
            base: self.parameters as f64 * config.base_precision.bytes() as f64 / GIB,
            state: 16.0 * trained as f64 / GIB,
            // About 16 activations of the hidden width a layer and token, in single precision.
            activations: (at_once * depth * 16 * hidden * 4) as f64 / GIB,
        }
    }
}

impl DryRun {
    /// What `options` would train. Reads the model's `config.json` at most, and nothing where the paper's
    /// own model is meant.
    pub fn new(options: SuiteOptions) -> Result<Self> {
        let options = options.resolved()?;
        let (name, architecture) = match (&options.model, options.profile) {
            (Some(name), _) => {
                let location = locate_config(name)?;
                (location.name, Architecture::read(&location.folder)?)
            }
            (None, Profile::Paper) => options.suite.published_sizes()?,
            (None, Profile::Quick) => {
                let location = options.suite.model(options.profile)?;
                (location.name, Architecture::read(&location.folder)?)
            }
        };
        let config = options.config(&architecture)?;
        let mut runs: Vec<PlannedRun> = Vec::new();
        add_runs(&mut runs, 0, &options);
        let sizes = Sizes::new(&architecture, &config);
        let mut methods: Vec<PlannedMethod> = Vec::new();
        let mut made: Vec<usize> = Vec::new();
        // Of one run: members of an ensemble are trained one after another.
        let mut largest = 0;
        for (place, run) in runs.iter().enumerate().filter(|(_, run)| !run.is_member) {
            let own = if run.is_combined() { run.needs.clone() } else { vec![place] };
            let trained: Vec<usize> =
                own.iter().map(|&run| sizes.trained(runs[run].method)).collect::<Result<_>>()?;
            largest = largest.max(trained.iter().max().copied().unwrap_or(0));
            let new: Vec<usize> = own.into_iter().filter(|run| !made.contains(run)).collect();
            let name = run.method.name();
            match methods.iter_mut().find(|row| row.method == name) {
                Some(row) => row.trainings += new.len(),
                None => methods.push(PlannedMethod {
                    method: name,
                    parameters: trained.iter().sum(),
                    trainings: new.len(),
                }),
            }
            made.extend(new);
        }
        Ok(Self {
            suite: options.suite.name().to_owned(),
            profile: options.profile.name().to_owned(),
            device: options.device.clone(),
            model: PlannedModel {
                name,
                layers: sizes.depth,
                hidden: sizes.hidden,
                parameters: sizes.parameters,
            },
            modules: sizes.layers.len(),
            methods,
            memory: sizes.memory_of(largest),
            runs: runs.iter().map(described).collect(),
            wording: options.wordings(&config, &architecture)?,
            settings: config,
        })
    }

    pub fn render_text(&self) -> String {
        let Self { model, memory, settings, .. } = self;
        let trainings: usize = self.methods.iter().map(|row| row.trainings).sum();
        let mut text = format!(
            "suite {}, profile {}, preset {}, device {}\n\
             model {}: {} layers, hidden {}, {:.3} billion parameters, held in {}\n\
             {trainings} trainings of {} steps, batch {}, at most {} tokens; initial rank {} on {} \
             modules\n\n",
            self.suite,
            self.profile,
            settings.preset,
            self.device,
            model.name,
            model.layers,
            model.hidden,
            model.parameters as f64 / 1e9,
            settings.base_precision.dtype().name(),
            settings.steps,
            settings.batch_size,
            settings.max_length,
            settings.initial_rank,
            self.modules,
        );
        let width = self.methods.iter().map(|row| row.method.len()).max().unwrap_or(0).max(6);
        let _ = writeln!(text, "{:width$}  {:>18}  trainings", "method", "trained parameters");
        for row in &self.methods {
            let count = grouped(row.parameters as u64, ',');
            let _ = writeln!(text, "{:width$}  {count:>18}  {:>9}", row.method, row.trainings);
        }
        let _ = writeln!(
            text,
            "\nmemory, estimated: base {:.1} GiB, trained parameters with gradients and optimiser \
             {:.2} GiB, activations at most {:.1} GiB\n\
             time, to be measured: `train_seconds` of one run with `--steps 50` on this device, times {}\n",
            memory.base,
            memory.state,
            memory.activations,
            (trainings * settings.steps).div_ceil(50),
        );
        for (task, wording) in &self.wording {
            let _ = writeln!(text, "{task}: {}", wording.describe());
        }
        for run in &self.runs {
            let _ = writeln!(text, "  {run}");
        }
        text
    }
}

fn described(run: &PlannedRun) -> String {
    let made = if run.is_combined() { " (from other runs)" } else { "" };
    let member = if run.is_member { " (member)" } else { "" };
    format!("{}{made}{member}", run.label())
}

/// Every arm by name.
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
        let mut text = String::new();
        for (name, plan) in &self.arms {
            let _ = writeln!(text, "{name}");
            for run in &plan.runs {
                let _ = writeln!(text, "  {run}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::kind::Suite;
    use super::*;

    #[test]
    fn the_reproduction_with_llama_2_is_planned_without_its_files() {
        let out = PathBuf::from("unused");
        let plan = DryRun::new(SuiteOptions::new(Suite::Reasoning, Profile::Paper, out)).unwrap();
        assert_eq!((plan.model.parameters, plan.modules), (6_738_415_616, 65));
        let count =
            |name: &str| plan.methods.iter().find(|row| row.method == name).unwrap().parameters;
        // Exact counts of the published configuration.
        let rows = ["LoRA", "BayesLoRA", "BLoB", "BBB", "ENS-3", "ENS-10"];
        let counts = [4_483_072, 4_483_592, 6_612_992, 8_966_144, 13_449_216, 44_830_720];
        assert_eq!(rows.map(count), counts);
        assert!((plan.memory.base - 6.738_415_616 * 2.0 / 1.073_741_824).abs() < 1e-9);
        let text = plan.render_text();
        for part in ["4,483,072", "bf16", "WG-S / LoRA / seed 1\n", "(member)", "activations"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(plan.runs.len(), text.matches(" / seed ").count());
    }
}
