//! What an experiment would take, without making it.

use std::fmt::Write as _;

use super::options::SuiteOptions;
use super::plan::Plan;
use crate::backbone::{Architecture, Backbone};
use crate::experiment::ExperimentConfig;

/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;
/// Floating-point operations per second that a training step reaches on one H100 in bf16, about a
/// third of its peak: an assumption for the estimate of time, stated with it.
const ASSUMED_FLOPS: f64 = 3e14;

/// Sizes of one adapted layer: features in and out.
struct Target {
    d_input: usize,
    d_output: usize,
    layers: usize,
}

/// The plan as a person reads it: runs, parameters, memory and time.
pub(super) fn describe(
    options: &SuiteOptions,
    config: &ExperimentConfig,
    backbone: &Backbone,
) -> String {
    let plan = Plan::new(options);
    let targets = targets(backbone, config);
    let modules: usize = targets.iter().map(|t| t.layers).sum();
    let per_rank: usize = targets.iter().map(|t| (t.d_input + t.d_output) * t.layers).sum();
    let rank = config.initial_rank;
    let adapter = rank * per_rank;
    let base = backbone.parameters() as f64;
    let tokens = (config.batch_size * config.max_length) as f64;
    let (layers, hidden) = depth(backbone);
    // Two operations a weight and token forwards, two backwards to the inputs; none to the weights.
    let step = 4.0 * base * tokens;
    let trained = plan.runs.iter().filter(|run| run.parts().is_empty()).count();
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!(
        "suite {}, profile {}, preset {}, device {}",
        options.suite.name(),
        options.profile.name(),
        config.preset,
        options.device
    ));
    line(format!(
        "model {}: {layers} layers, hidden {hidden}, {:.3} billion parameters",
        backbone.location.name,
        base / 1e9
    ));
    line(format!(
        "{trained} runs of {} steps, batch {}, at most {} tokens",
        config.steps, config.batch_size, config.max_length
    ));
    line(format!(
        "initial rank {rank} on {modules} modules: {adapter} adapter parameters, {} more for one \
         variance per rank",
        rank * modules
    ));
    // Adapter, gradient and two moments in single precision.
    let state = 16.0 * adapter as f64;
    // What autodiff keeps of a layer: about 16 activations of the hidden width a token.
    let activations = tokens * (layers * 16 * hidden) as f64;
    line(format!(
        "memory, estimated: base {:.1} GiB in single precision ({:.1} GiB in half), adapter with \
         optimiser {:.2} GiB, activations at most {:.1} GiB in single precision",
        4.0 * base / GIB,
        2.0 * base / GIB,
        state / GIB,
        4.0 * activations / GIB,
    ));
    line(format!(
        "time, estimated: {:.1} h a run and {:.0} h in all at an assumed {:.0} TFLOP/s; padding to \
         the longest of a batch makes it less",
        step * config.steps as f64 / ASSUMED_FLOPS / 3600.0,
        trained as f64 * step * config.steps as f64 / ASSUMED_FLOPS / 3600.0,
        ASSUMED_FLOPS / 1e12,
    ));
    for run in &plan.runs {
        let made = if run.parts().is_empty() { "" } else { " (from other runs)" };
        let member = if run.is_member { " (member)" } else { "" };
        let _ = writeln!(text, "  {}{made}{member}", run.label());
    }
    text
}

fn depth(backbone: &Backbone) -> (usize, usize) {
    match &backbone.architecture {
        Architecture::Deberta(c) => (c.num_hidden_layers, c.hidden_size),
        Architecture::Llama(c) => (c.num_hidden_layers, c.hidden_size),
    }
}

/// The layers that `config` adapts, by shape.
fn targets(backbone: &Backbone, config: &ExperimentConfig) -> Vec<Target> {
    let one = |name: &str, d_input, d_output, layers| {
        let wanted = |target: &String| name == target || name.ends_with(&format!(".{target}"));
        config.target_modules.iter().any(wanted).then_some(Target { d_input, d_output, layers })
    };
    let all = match &backbone.architecture {
        Architecture::Deberta(c) => {
            let (d, wide, n) = (c.hidden_size, c.intermediate_size, c.num_hidden_layers);
            vec![
                one("attention.self.query_proj", d, d, n),
                one("attention.self.key_proj", d, d, n),
                one("attention.self.value_proj", d, d, n),
                one("attention.output.dense", d, d, n),
                one("intermediate.dense", d, wide, n),
                one("output.dense", wide, d, n),
            ]
        }
        Architecture::Llama(c) => {
            let (d, wide, n) = (c.hidden_size, c.intermediate_size, c.num_hidden_layers);
            let query = c.num_attention_heads * c.head_dim;
            let key = c.num_key_value_heads * c.head_dim;
            vec![
                one("self_attn.q_proj", d, query, n),
                one("self_attn.k_proj", d, key, n),
                one("self_attn.v_proj", d, key, n),
                one("self_attn.o_proj", query, d, n),
                one("mlp.gate_proj", d, wide, n),
                one("mlp.up_proj", d, wide, n),
                one("mlp.down_proj", wide, d, n),
                one("lm_head", d, c.vocab_size, 1),
            ]
        }
    };
    all.into_iter().flatten().collect()
}
