//! Memory of a run: an estimate of its peak by the sizes of the model, and what the process may use.

use std::fs;
use std::path::Path;

use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::train::Setup;
use lrvd_models::deberta::Family;
use serde::Serialize;

use crate::backbone::{self, Architecture};
use crate::data::batch::TokenisedExample;
use crate::error::Result;
use crate::method::{MethodName, RankRequest};
use crate::settings::Config;

const GIB: f64 = 1_073_741_824.0;
/// Bytes of the program with its tokenizer, before a model is loaded.
const PROGRAM: u64 = 48 << 20;
/// Factor for gaps between blocks of memory and for buffers of the backward pass: measured, see the test.
const OVERHEAD: f64 = 1.25;
/// Values of the vocabulary's width for each predicted token: logits, their logarithms, and a gradient or probabilities.
const VOCABULARY_ROWS: usize = 3;

/// Estimated memory, GiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlannedMemory {
    /// The program with its tokenizer and data.
    pub program: f64,
    pub base: f64,
    /// Trained parameters, their gradients and two moments in single precision.
    pub state: f64,
    /// Activations of a training step or of an evaluation, whichever has more.
    pub activations: f64,
    /// `true` if an evaluation has more of them.
    #[serde(skip)]
    evaluates: bool,
}

/// The sizes of a model that settings adapt.
pub(crate) struct Sizes {
    config: Config,
    architecture: Architecture,
    /// Widths of the input and of the output of every adapted layer.
    pub layers: Vec<[usize; 2]>,
}

impl PlannedMemory {
    /// At the peak.
    pub fn total(self) -> f64 {
        self.program + self.base + self.state + self.activations
    }

    /// A note where the peak is above half of what the process may use, as the system at `root` tells.
    pub(crate) fn note(self, root: &Path) -> Option<String> {
        let (most, of) = available(root)?;
        let most = most as f64 / GIB;
        let total = self.total();
        let lower = if self.evaluates {
            "a smaller `evaluation_batch_size` or `max_length` lowers it"
        } else {
            "a smaller `batch_size` or `max_length`, a larger `accumulation` or `gradient_checkpointing=true` lowers it"
        };
        (total > 0.5 * most).then(|| {
            format!(
                "the run needs about {total:.2} GiB of memory at its peak, and {of} has {most:.2} GiB: {lower}"
            )
        })
    }
}

impl Sizes {
    pub(crate) fn new(architecture: &Architecture, config: &Config) -> Self {
        let layers = architecture.adapted_layers(&config.target_modules);
        Self { config: config.clone(), architecture: architecture.clone(), layers }
    }

    /// Trained parameters of one run before pruning, or of adapters of this `rank`.
    pub(crate) fn trained(&self, method: MethodName, rank: Option<usize>) -> Result<usize> {
        if !method.can().steps {
            return Ok(0);
        }
        let method = method.build(&self.config, RankRequest::Initial)?;
        let Setup { adapter, op, .. } = method.setup(&self.config.training(0))?;
        let adapter = AdapterConfig { rank: rank.unwrap_or(adapter.rank), ..adapter };
        let of = |&[d_input, d_output]: &[usize; 2]| {
            let own = op.as_ref().map(|op| op.parameter_count(adapter.rank, d_input, d_output));
            adapter.parameter_count(d_input, d_output) + own.unwrap_or(0)
        };
        Ok(self.layers.iter().map(of).sum())
    }

    /// Of a run that trains so many parameters on rows as long as the settings allow, which have labels.
    pub(crate) fn memory(&self, trained: usize) -> PlannedMemory {
        self.peak(trained, PROGRAM, self.rows().map(|rows| [rows, self.config.max_length, 0]))
    }

    /// Of a run on these rows for training and validation, in a process that has `resident` bytes so far.
    pub(crate) fn memory_of(
        &self,
        trained: usize,
        resident: u64,
        [train, validation]: [&[TokenisedExample]; 2],
    ) -> PlannedMemory {
        fn predicted(row: &TokenisedExample) -> usize {
            if row.answer.label().is_some() { 0 } else { row.answer.count() }
        }
        let pass = |rows: usize, examples: &[TokenisedExample]| {
            let most = |of: fn(&TokenisedExample) -> usize| examples.iter().map(of).max();
            let [length, predicted] = [TokenisedExample::tokens, predicted].map(most);
            [rows.min(examples.len()), length.unwrap_or(0), predicted.unwrap_or(0)]
        };
        let [step, evaluation] = self.rows();
        let passes = [pass(step, train), pass(evaluation, validation)];
        self.peak(trained, resident.max(PROGRAM), passes)
    }

    /// Rows of a pass in a training step, and of an evaluation.
    fn rows(&self) -> [usize; 2] {
        let Config { batch_size, accumulation, evaluation_batch_size, .. } = self.config;
        [batch_size.div_ceil(accumulation), evaluation_batch_size]
    }

    /// The estimate for the largest pass of a step and of an evaluation, each as its rows, the tokens of a row, and those of a row
    /// that a language model predicts, in bytes:
    ///
    /// ```text
    /// peak        = program + base + 16·trained + 1.25·max(step, evaluation)
    /// step        = 4·tokens·(layers·kept + work) + 12·predicted·vocabulary
    /// evaluation  = 4·tokens·work                 + 12·predicted·vocabulary
    /// ```
    ///
    /// `kept` is what a block keeps of a token for the backward pass, and `work` what one block holds at a time. With
    /// gradient checkpointing a step keeps the input of every block and all of one.
    fn peak(&self, trained: usize, program: u64, passes: [[usize; 3]; 2]) -> PlannedMemory {
        let backbone::Sizes { layers, hidden, vocab, .. } = self.architecture.sizes();
        let [step, evaluation] = passes.map(|[rows, length, predicted]| {
            let (kept, work) = per_token(&self.architecture, length);
            let kept = if self.config.gradient_checkpointing {
                layers * hidden + kept
            } else {
                layers * kept
            };
            let vocabulary = VOCABULARY_ROWS * predicted * vocab;
            let of = |numbers: usize| 4 * rows * (length * numbers + vocabulary);
            [of(kept + work), of(work)]
        });
        let [step, evaluation] = [step[0], evaluation[1]];
        PlannedMemory {
            program: program as f64 / GIB,
            base: self.architecture.parameters() as f64 * self.config.base_precision.bytes() / GIB,
            state: 16.0 * trained as f64 / GIB,
            activations: OVERHEAD * step.max(evaluation) as f64 / GIB,
            evaluates: evaluation > step,
        }
    }
}

/// Numbers that a block keeps of a token for the backward pass, by what its operators save, and that it holds at a time, in a
/// row of `length` tokens.
fn per_token(architecture: &Architecture, length: usize) -> (usize, usize) {
    let backbone::Sizes { hidden, intermediate: wide, heads, .. } = architecture.sizes();
    match architecture {
        // Input and sum with their norms, fused projections, rotated query and key, context; both gates before and behind the
        // activation. Probabilities are computed again.
        Architecture::Deberta(config) if config.family == Family::ModernBert => {
            (10 * hidden + 4 * wide, 8 * hidden + 4 * wide)
        }
        // Input, query, key, value, context, both sums, the first one's norm; both sides of the activation; probabilities.
        Architecture::Deberta(_) => {
            let probabilities = heads * length;
            (8 * hidden + 2 * wide + probabilities, 6 * hidden + 3 * wide + probabilities)
        }
        // Input and sum with their norms; rotated query, context, rotated key, value; gate, its partner and their product.
        // Probabilities are computed again.
        Architecture::Llama(config) => {
            let attention = 2 * (heads + config.num_key_value_heads) * config.head_dim;
            (4 * hidden + attention + 3 * wide, 6 * hidden + 3 * wide)
        }
    }
}

/// Bytes that the process may use, and what has them: the smallest of its control group (v1 and v2, with those above it), its
/// resource limits and the machine; `None` where the system at `root` tells none of them.
fn available(root: &Path) -> Option<(u64, &'static str)> {
    let read = |path: &Path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let after = |file: &str, name: &str| {
        let text = read(file.as_ref());
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    let machine = after("proc/meminfo", "MemTotal:").map(|kilobytes| kilobytes * 1024);
    let mut found = vec![
        (machine, "the machine"),
        (after("proc/self/limits", "Max address space"), "the limit of the address space"),
        (after("proc/self/limits", "Max data size"), "the limit of the data segment"),
    ];
    for line in read("proc/self/cgroup".as_ref()).lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container the path may be that outside of it: the root is then its own group.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let limit = read(&Path::new(mount).join(group).join(file));
            found.push((limit.trim().parse().ok(), "the control group"));
        }
    }
    let known = found.into_iter().filter_map(|(limit, of)| Some((limit?, of)));
    known.min_by_key(|&(limit, _)| limit)
}

#[cfg(test)]
mod tests {
    use lrvd_models::deberta::DebertaConfig;
    use lrvd_models::llama::LlamaConfig;

    use super::*;
    use crate::data::batch::Answer;
    use crate::settings::{BasePrecision, Preset};

    /// The models of `cargo xtask bench`.
    macro_rules! model {
        ($kind:ident, $config:ident, $name:literal) => {{
            let text = include_bytes!(concat!("../../../benches/src/models/", $name, ".json"));
            Architecture::$kind($config::parse(text, $name.as_ref()).unwrap())
        }};
    }

    fn config(rows: usize, length: usize) -> Config {
        Config {
            batch_size: rows,
            evaluation_batch_size: rows,
            max_length: length,
            ..Preset::Default.config()
        }
    }

    /// Numbers of a token by hand, and peaks of LoRA and BayesLoRA in `docs/results/speed.md`, MiB.
    #[test]
    fn the_estimate_is_near_the_measured_peaks() {
        for (architecture, [rows, length], numbers, peaks) in [
            // 8·192 + 2·768 + 3·128 = 3456 in each of 4 layers, 6·192 + 3·768 + 3·128 at work; the others likewise.
            (model!(Deberta, DebertaConfig, "nano"), [8, 128], 4 * 3456 + 3840, [142.0, 164.0]),
            (model!(Deberta, DebertaConfig, "minilm"), [8, 64], 6 * 6912 + 7680, [286.0, 287.0]),
            (
                model!(Deberta, DebertaConfig, "base"),
                [8, 128],
                12 * 13_824 + 15_360,
                [1594.0, 1666.0],
            ),
            (model!(Llama, LlamaConfig, "smollm2"), [8, 100], 30 * 8448 + 8064, [1486.0, 1496.0]),
        ] {
            let memory = Sizes::new(&architecture, &config(rows, length)).memory(0);
            let by_hand = 1.25 * (4 * rows * length * numbers) as f64 / GIB;
            assert!((memory.activations - by_hand).abs() < 1e-12, "{memory:?}");
            for peak in peaks {
                let ratio = memory.total() * 1024.0 / peak;
                assert!((0.7..1.3).contains(&ratio), "{memory:?}: {ratio}");
            }
        }
    }

    /// `SmolLM2` with 8 x 128 learnt tokens needed 2.69 GB, with checkpointing and a bf16 base 1.45 (`docs/results/memory.md`).
    #[test]
    fn predicted_tokens_have_the_vocabularys_width_and_checkpoints_keep_one_layer() {
        let architecture = model!(Llama, LlamaConfig, "smollm2");
        let plain = config(8, 1024);
        let answer = Answer::Tokens { columns: (0..128).collect(), ids: vec![1; 128] };
        let rows = vec![TokenisedExample::single(vec![1; 128], answer); 20];
        let memory = |config: &Config| {
            Sizes::new(&architecture, config).memory_of(2_442_240, 90 << 20, [&rows[..]; 2])
        };
        let checkpointed = Config {
            gradient_checkpointing: true,
            base_precision: BasePrecision::Bf16,
            ..plain.clone()
        };
        for (config, peak) in [(&plain, 2.69), (&checkpointed, 1.45)] {
            let ratio = memory(config).total() * GIB / 1e9 / peak;
            assert!((0.85..1.15).contains(&ratio), "{ratio}");
        }
        let parts = Config { accumulation: 4, ..plain.clone() };
        let [whole, parts] = [&plain, &parts].map(memory);
        assert!(parts.activations < 0.5 * whole.activations && parts.evaluates, "{parts:?}");
    }

    #[test]
    fn the_smallest_limit_is_named_where_the_run_needs_more_than_half_of_it() {
        let note = |needed: f64, files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let file = root.path().join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            let activations = needed - 1.0;
            let memory = PlannedMemory {
                program: 0.0,
                base: 1.0,
                state: 0.0,
                activations,
                evaluates: false,
            };
            memory.note(root.path())
        };
        let machine = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:       8388608 kB\n");
        let limits = "Max data size   2147483648   2147483648   bytes\nMax address space   unlimited   unlimited   bytes\n";
        let v1 = ("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/1f\n");
        let v2 = ("proc/self/cgroup", "0::/user/job/step\n");
        let of_job = ("sys/fs/cgroup/user/job/memory.max", "3221225472\n");
        let of_step = ("sys/fs/cgroup/user/job/step/memory.max", "max\n");
        let of_container = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
        let names = |files: &[(&str, &str)], limit: &str| {
            let needs = "the run needs about 4.50 GiB of memory at its peak, and ";
            let found = note(4.5, files).unwrap();
            assert!(found.starts_with(&format!("{needs}{limit}: ")), "{found}");
        };
        names(&[machine], "the machine has 8.00 GiB");
        names(
            &[machine, ("proc/self/limits", limits)],
            "the limit of the data segment has 2.00 GiB",
        );
        names(&[machine, v2, of_job, of_step], "the control group has 3.00 GiB");
        names(&[machine, v1, of_container], "the control group has 4.00 GiB");
        assert_eq!((note(1.4, &[machine, v2, of_job]), note(1e9, &[])), (None, None));
    }
}
