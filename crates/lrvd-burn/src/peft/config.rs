//! `adapter_config.json` as types.

use std::path::Path;

use super::keys::Factor;
use crate::error::Error;
use crate::files::write_atomic;

/// File name of the configuration in an adapter folder.
pub(super) const CONFIG_FILE: &str = "adapter_config.json";
/// Heads that PEFT saves with every sequence or token classifier, whether listed or not.
const CLASSIFIER_HEADS: [&str; 2] = ["classifier", "score"];
/// The head that PEFT saves with every extractive question answerer.
const ANSWER_HEADS: [&str; 1] = ["qa_outputs"];

/// Which modules are adapted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetModules {
    /// Modules whose path is one of the names, or ends in a dot and one of the names.
    Names(Vec<String>),
    /// Modules whose whole path matches the regular expression.
    Regex(String),
    /// Every linear layer but the output layer.
    AllLinear,
}

/// The adapter method with what only it has.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PeftMethod {
    /// Low-rank adaptation.
    Lora,
    /// Low-rank adaptation with a diagonal and a rank budget.
    AdaLora(AdaLoraConfig),
}

impl PeftMethod {
    /// Name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lora => "LORA",
            Self::AdaLora(_) => "ADALORA",
        }
    }

    /// Factors of a module.
    pub(super) fn factors(&self) -> &'static [Factor] {
        match self {
            Self::Lora => &[Factor::A, Factor::B],
            Self::AdaLora(_) => &[Factor::A, Factor::B, Factor::E],
        }
    }
}

/// Settings of `AdaLoRA`; defaults are those of PEFT.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaLoraConfig {
    /// Initial rank of every module; the divisor of the scale for good.
    pub init_r: usize,
    /// Average rank aimed at.
    pub target_r: usize,
    /// Steps before the budget falls.
    pub tinit: usize,
    /// Steps at the end with a frozen pattern.
    pub tfinal: usize,
    /// Steps between two allocations.
    pub delta_t: usize,
    /// Smoothing of the sensitivity.
    pub beta1: f64,
    /// Smoothing of its uncertainty.
    pub beta2: f64,
    /// Weight of the orthogonality penalty.
    pub orth_reg_weight: f64,
    /// Training steps in all.
    pub total_step: Option<usize>,
    /// Kept triplets by module path, one flag per initial rank, in file order; none before the
    /// reallocation.
    pub kept: Option<Vec<(String, Vec<bool>)>>,
}

impl Default for AdaLoraConfig {
    fn default() -> Self {
        Self {
            init_r: 12,
            target_r: 8,
            tinit: 0,
            tfinal: 0,
            delta_t: 1,
            beta1: 0.85,
            beta2: 0.85,
            orth_reg_weight: 0.5,
            total_step: None,
            kept: None,
        }
    }
}

/// A PEFT adapter configuration, without the keys that cannot matter.
#[derive(Debug, Clone, PartialEq)]
pub struct PeftConfig {
    /// The method.
    pub method: PeftMethod,
    /// Name or folder of the base model.
    pub base_model_name_or_path: Option<String>,
    /// Revision of the base model.
    pub revision: Option<String>,
    /// PEFT's task, such as `SEQ_CLS` or `CAUSAL_LM`.
    pub task_type: Option<String>,
    /// Whether the adapter was saved for inference.
    pub inference_mode: bool,
    /// Rank where no pattern applies; not used by `AdaLoRA`.
    pub r: usize,
    /// Numerator of the scale where no pattern applies.
    pub lora_alpha: f64,
    /// Dropout on the adapter's input in training.
    pub lora_dropout: f64,
    /// Whether the scale is divided by the root of the rank instead of the rank; without effect for
    /// `AdaLoRA`.
    pub use_rslora: bool,
    /// Modules to adapt.
    pub target_modules: TargetModules,
    /// Modules not to adapt after all.
    pub exclude_modules: Option<TargetModules>,
    /// Numbers of the layers to adapt; all if none.
    pub layers_to_transform: Option<Vec<usize>>,
    /// Names of the list of layers, as regular expressions; any if empty.
    pub layers_pattern: Vec<String>,
    /// Modules that are stored whole, as listed.
    pub modules_to_save: Vec<String>,
    /// Ranks by pattern, first match first; empty for `AdaLoRA`.
    pub rank_pattern: Vec<(String, usize)>,
    /// Numerators by pattern, first match first; without effect for `AdaLoRA`.
    pub alpha_pattern: Vec<(String, f64)>,
}

impl PeftConfig {
    /// A plain `LoRA` configuration.
    pub fn lora(r: usize, lora_alpha: f64, target_modules: TargetModules) -> Self {
        Self {
            method: PeftMethod::Lora,
            base_model_name_or_path: None,
            revision: None,
            task_type: None,
            inference_mode: true,
            r,
            lora_alpha,
            lora_dropout: 0.0,
            use_rslora: false,
            target_modules,
            exclude_modules: None,
            layers_to_transform: None,
            layers_pattern: Vec::new(),
            modules_to_save: Vec::new(),
            rank_pattern: Vec::new(),
            alpha_pattern: Vec::new(),
        }
    }

    /// An `AdaLoRA` configuration. `r` keeps PEFT's default, which PEFT demands and ignores.
    pub fn adalora(adalora: AdaLoraConfig, lora_alpha: f64, target_modules: TargetModules) -> Self {
        let method = PeftMethod::AdaLora(adalora);
        Self { method, ..Self::lora(8, lora_alpha, target_modules) }
    }

    /// Reads `adapter_config.json`.
    pub fn read(file: impl AsRef<Path>) -> Result<Self, Error> {
        let file = file.as_ref();
        let text = std::fs::read(file).map_err(|source| Error::io("read", file, source))?;
        Self::parse(file, &text)
    }

    /// Writes `adapter_config.json` atomically, keys sorted as PEFT does.
    ///
    /// Written are the keys that every PEFT version knows, so that old ones can load the adapter;
    /// options of later versions are added only where they are set.
    pub fn write(&self, file: impl AsRef<Path>) -> Result<(), Error> {
        let file = file.as_ref();
        let mut text = serde_json::to_vec_pretty(&self.document())
            .map_err(|source| Error::json(file, source))?;
        text.push(b'\n');
        write_atomic(file, &text)
    }

    /// Modules that PEFT stores whole: those listed, once each, and the heads it adds for the task.
    pub fn saved_modules(&self) -> Vec<&str> {
        let heads: &[&str] = match self.task_type.as_deref() {
            Some("SEQ_CLS" | "TOKEN_CLS") => &CLASSIFIER_HEADS,
            Some("QUESTION_ANS") => &ANSWER_HEADS,
            _ => &[],
        };
        let mut modules: Vec<&str> = Vec::new();
        let listed = self.modules_to_save.iter().map(String::as_str);
        for name in listed.chain(heads.iter().copied()) {
            if !modules.contains(&name) {
                modules.push(name);
            }
        }
        modules
    }

    /// Whether a parameter is in one of the modules that are stored whole.
    ///
    /// As in PEFT, a module is one of them if its path *ends* in a listed name, dot or no dot.
    pub fn saves(&self, parameter: &str) -> bool {
        let modules = self.saved_modules();
        parameter.match_indices('.').any(|(dot, _)| {
            modules.iter().any(|name| !name.is_empty() && parameter[..dot].ends_with(name))
        })
    }
}
