//! Which runs there will be, before anything is trained.

use crate::backbone::Backbone;
use crate::experiment::ExperimentConfig;
use crate::method::MethodName;
use crate::task::GlueTask;

use super::options::GlueOptions;

/// One fine-tuning run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    /// Task.
    pub task: GlueTask,
    /// Method.
    pub method: MethodName,
    /// Seed.
    pub seed: u64,
}

impl PlannedRun {
    /// `task / method / seed N`.
    pub fn label(&self) -> String {
        format!("{} / {} / seed {}", self.task.spec().display_name, self.method, self.seed)
    }
}

/// All runs, in the order in which they are made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<PlannedRun>,
}

impl Plan {
    /// Task by task: BayesLoRA for every seed first, since AdaLoRA is matched to each of its seeds
    /// and LoRA to the median of AdaLoRA's budgets.
    pub fn new(options: &GlueOptions) -> Self {
        let order = [MethodName::BayesLora, MethodName::AdaLora, MethodName::Lora];
        let mut runs = Vec::new();
        for &task in &options.tasks {
            for method in order.into_iter().filter(|m| options.methods.contains(m)) {
                for &seed in &options.seeds {
                    runs.push(PlannedRun { task, method, seed });
                }
            }
        }
        Self { runs }
    }

    /// The plan as a person reads it: runs, parameters, steps.
    pub fn describe(
        &self,
        options: &GlueOptions,
        config: &ExperimentConfig,
        backbone: &Backbone,
    ) -> String {
        let c = &backbone.config;
        let (d, wide, layers) = (c.hidden_size, c.intermediate_size, c.num_hidden_layers);
        let rank = config.initial_rank;
        let per_layer = 4 * 2 * d + 2 * (d + wide);
        let adapter = rank * per_layer * layers;
        let mut text = format!(
            "profile {}, preset {}, device {}\nmodel {} ({layers} layers, hidden {d})\n\
             {} runs of {} steps, batch {}, at most {} tokens\n\
             initial rank {rank} on {} modules: {adapter} adapter parameters\n",
            options.profile.name(),
            config.preset,
            options.device,
            backbone.location.name,
            self.runs.len(),
            config.steps,
            config.batch_size,
            config.max_length,
            6 * layers,
        );
        for run in &self.runs {
            text.push_str("  ");
            text.push_str(&run.label());
            text.push('\n');
        }
        text
    }
}
