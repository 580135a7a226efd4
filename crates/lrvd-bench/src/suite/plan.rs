//! Which runs there will be, and what they would take, before anything is trained.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lrvd_core::baselines::LayerShape;
use serde::Serialize;

use super::kind::Suite;
use super::options::SuiteOptions;
use super::summary::wordings;
use crate::backbone::Architecture;
use crate::data::Wording;
use crate::error::Result;
use crate::method::{MethodForm, MethodName, RankRequest};
use crate::settings::Config;
use crate::task::Task;
use crate::text::grouped;

/// Members of an ensemble take their seeds from here: `MEMBER_SEEDS · seed + member`.
const MEMBER_SEEDS: u64 = 1000;
/// Largest seed: those of members, and what is mixed into the higher bits, must stay apart.
pub(super) const MAX_SEED: u64 = (1 << 40) / MEMBER_SEEDS - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    pub task: Task,
    pub method: MethodName,
    pub seed: u64,
    /// Whether it is only a part of other rows.
    pub is_member: bool,
}

impl PlannedRun {
    pub fn label(&self) -> String {
        format!("{} / {} / seed {}", self.task.display_name(), self.method, self.seed)
    }

    /// The runs that this row is made of; empty for a separate run. Temperature scaling on top of
    /// the row is on top of each of them.
    pub fn parts(&self) -> Vec<Self> {
        let member = |key: &str| {
            let found = MethodName::from_name(key).unwrap_or(self.method);
            if self.method.is_tempered() { found.tempered() } else { found }
        };
        match self.method.entry().form {
            MethodForm::Single { .. } => Vec::new(),
            MethodForm::Ensemble { member: key, members } => (0..members as u64)
                .map(|i| Self {
                    method: member(key),
                    seed: MEMBER_SEEDS * self.seed + i,
                    is_member: true,
                    ..*self
                })
                .collect(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub runs: Vec<PlannedRun>,
}

impl Plan {
    /// Task by task. Where ranks are matched, BayesLoRA comes first for every seed, since AdaLoRA is
    /// matched to each of its seeds and LoRA to the median of AdaLoRA's budgets. The parts of a row
    /// come before it, once.
    pub fn new(options: &SuiteOptions) -> Self {
        let mut methods = options.methods.clone();
        if options.suite == Suite::Glue {
            let first = MethodName::FIRST_TABLE;
            let place = |m: &MethodName| first.iter().rev().position(|f| f == m);
            methods.sort_by_key(|m| place(m).unwrap_or(first.len()));
        }
        let mut runs: Vec<PlannedRun> = Vec::new();
        for &task in &options.tasks {
            for &method in &methods {
                let row = |&seed: &u64| PlannedRun { task, method, seed, is_member: false };
                let rows: Vec<PlannedRun> = options.seeds.iter().map(row).collect();
                for part in rows.iter().flat_map(PlannedRun::parts) {
                    if !runs.contains(&part) {
                        runs.push(part);
                    }
                }
                runs.extend(rows);
            }
        }
        Self { runs }
    }
}

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
    /// Every run, in the order in which they are made.
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

impl DryRun {
    pub(super) fn new(
        options: &SuiteOptions,
        config: Config,
        name: String,
        architecture: &Architecture,
    ) -> Result<Self> {
        let plan = Plan::new(options);
        let layers = architecture.adapted_layers(&config.target_modules);
        let (depth, hidden) = architecture.depth_and_width();
        let parameters = architecture.parameters();
        let mut methods: Vec<PlannedMethod> = Vec::new();
        let mut made: Vec<PlannedRun> = Vec::new();
        // Of one run: members of an ensemble are trained one after another.
        let mut largest = 0;
        for run in plan.runs.iter().filter(|run| !run.is_member) {
            let parts = run.parts();
            let own = if parts.is_empty() { vec![*run] } else { parts };
            let sizes = own
                .iter()
                .map(|part| size(part, &config, &layers))
                .collect::<Result<Vec<_>, _>>()?;
            largest = largest.max(sizes.iter().max().copied().unwrap_or(0));
            let new: Vec<PlannedRun> = own.into_iter().filter(|r| !made.contains(r)).collect();
            let name = run.method.name();
            match methods.iter_mut().find(|row| row.method == name) {
                Some(row) => row.trainings += new.len(),
                None => methods.push(PlannedMethod {
                    method: name,
                    parameters: sizes.iter().sum(),
                    trainings: new.len(),
                }),
            }
            made.extend(new);
        }
        let at_once = config.batch_size.div_ceil(config.accumulation) * config.max_length;
        Ok(Self {
            suite: options.suite.name().to_owned(),
            profile: options.profile.name().to_owned(),
            device: options.device.clone(),
            model: PlannedModel { name, layers: depth, hidden, parameters },
            modules: layers.len(),
            methods,
            memory: PlannedMemory {
                base: parameters as f64 * config.base_precision.bytes() as f64 / GIB,
                state: 16.0 * largest as f64 / GIB,
                // About 16 activations of the hidden width a layer and token, in single precision.
                activations: (at_once * depth * 16 * hidden * 4) as f64 / GIB,
            },
            runs: plan.runs.iter().map(described).collect(),
            wording: wordings(options, &config, architecture)?,
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
             {:.2} GiB, activations at most {:.1} GiB\n",
            memory.base, memory.state, memory.activations,
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

fn size(run: &PlannedRun, config: &Config, layers: &[LayerShape]) -> Result<usize> {
    let adapter = run.method.build(config, RankRequest::Initial)?.adapter();
    let of = |layer: &LayerShape| adapter.parameter_count(layer.d_input, layer.d_output);
    Ok(layers.iter().map(of).sum())
}

fn described(run: &PlannedRun) -> String {
    let made = if run.parts().is_empty() { "" } else { " (from other runs)" };
    let member = if run.is_member { " (member)" } else { "" };
    format!("{}{made}{member}", run.label())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::PathBuf;

    use super::super::kind::{Profile, Suite};
    use super::super::run::planned;
    use super::*;

    fn runs_of(methods: &[&str]) -> Vec<PlannedRun> {
        let mut options =
            SuiteOptions::new(Suite::Reasoning, Profile::Quick, PathBuf::from("unused"));
        options.tasks = vec![Suite::Reasoning.task("obqa").unwrap()];
        options.seeds = vec![1, 2];
        options.methods = methods.iter().map(|m| MethodName::from_name(m).unwrap()).collect();
        Plan::new(&options).runs
    }

    #[test]
    fn members_come_first_and_once() {
        let runs = runs_of(&["ens-3", "lora"]);
        let seeds = |member: bool| -> Vec<u64> {
            runs.iter().filter(|run| run.is_member == member).map(|run| run.seed).collect()
        };
        assert_eq!(seeds(true), [1000, 1001, 1002, 2000, 2001, 2002]);
        assert_eq!(seeds(false), [1, 2, 1, 2]);
        assert!(runs[..6].iter().all(|run| run.is_member));
    }

    #[test]
    fn a_temperature_on_a_row_is_on_its_parts() {
        for run in runs_of(&["ens-3+ts", "bayeslora+ts"]) {
            assert!(run.method.is_tempered(), "{}", run.label());
        }
    }

    #[test]
    fn the_reproduction_with_llama_2_is_planned_without_its_files() {
        let out = PathBuf::from("unused");
        let plan = planned(SuiteOptions::new(Suite::Reasoning, Profile::Paper, out)).unwrap();
        assert_eq!((plan.model.parameters, plan.modules), (6_738_415_616, 65));
        let count =
            |name: &str| plan.methods.iter().find(|row| row.method == name).unwrap().parameters;
        // Exact counts of the published configuration.
        assert_eq!(count("LoRA"), 4_483_072);
        assert_eq!(count("BayesLoRA"), 4_483_592);
        assert_eq!(count("BLoB"), 6_612_992);
        assert_eq!(count("BBB"), 8_966_144);
        assert_eq!(count("ENS-3"), 13_449_216);
        assert_eq!(count("ENS-10"), 44_830_720);
        assert!((plan.memory.base - 6.738_415_616 * 2.0 / 1.073_741_824).abs() < 1e-9);
        let text = plan.render_text();
        for part in ["4,483,072", "bf16", "WG-S / LoRA / seed 1\n", "(member)", "activations"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(plan.runs.len(), text.matches(" / seed ").count());
    }
}
