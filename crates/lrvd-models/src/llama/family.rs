//! Architecture differences between Llama, Mistral and Qwen: one block, with a few options and other defaults.

/// A family of models with Llama's blocks, by the `model_type` of its `config.json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LlamaFamily {
    /// Llama 1 to 3, `SmolLM2`.
    #[default]
    Llama,
    /// Mistral: every layer may have a window.
    Mistral,
    /// Qwen2 and Qwen2.5: biases of the query, key and value projections; some layers may have a window.
    Qwen2,
    /// Qwen3: norms of every query and key head; some layers may have a window.
    Qwen3,
}

/// Names and defaults of a family; the defaults are transformers'.
#[derive(Debug)]
pub(super) struct FamilySpec {
    family: LlamaFamily,
    /// `model_type`.
    pub(super) model_type: &'static str,
    /// Start of the names of transformers' classes.
    pub(super) class: &'static str,
    /// `general.architecture` of a GGUF file.
    pub(super) gguf: &'static str,
    /// `true` if that file has the rows of queries and keys in pairs that are rotated together.
    pub(super) gguf_pairs: bool,
    /// `true` for biases of queries, keys and values; `None` if the configuration states it, for the output projection as
    /// well.
    pub(super) bias: Option<bool>,
    /// `true` if queries and keys are normalised, head by head.
    pub(super) head_norms: bool,
    /// Layers that may have a window.
    pub(super) window: Window,
    /// Number of key heads where the key is absent; else that of the query heads.
    pub(super) key_heads: Option<usize>,
    /// Width of a head where none is stated; else hidden size over heads.
    pub(super) head_dim: Option<usize>,
    /// Longest input of the training.
    pub(super) positions: usize,
}

/// Layers that may have a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    Never,
    /// All or none.
    Every,
    /// With `use_sliding_window` the layers from `max_window_layers` on, or the ones that `layer_types` lists.
    Listed,
}

const SPECS: [FamilySpec; 4] = [
    FamilySpec {
        family: LlamaFamily::Llama,
        model_type: "llama",
        class: "Llama",
        gguf: "llama",
        gguf_pairs: true,
        bias: None,
        head_norms: false,
        window: Window::Never,
        key_heads: None,
        head_dim: None,
        positions: 2048,
    },
    FamilySpec {
        family: LlamaFamily::Mistral,
        model_type: "mistral",
        class: "Mistral",
        gguf: "llama",
        gguf_pairs: true,
        bias: Some(false),
        head_norms: false,
        window: Window::Every,
        key_heads: Some(8),
        head_dim: None,
        positions: 4096 * 32,
    },
    FamilySpec {
        family: LlamaFamily::Qwen2,
        model_type: "qwen2",
        class: "Qwen2",
        gguf: "qwen2",
        gguf_pairs: false,
        bias: Some(true),
        head_norms: false,
        window: Window::Listed,
        key_heads: Some(32),
        head_dim: None,
        positions: 32_768,
    },
    FamilySpec {
        family: LlamaFamily::Qwen3,
        model_type: "qwen3",
        class: "Qwen3",
        gguf: "qwen3",
        gguf_pairs: false,
        bias: None,
        head_norms: true,
        window: Window::Listed,
        key_heads: Some(32),
        head_dim: Some(128),
        positions: 32_768,
    },
];

impl LlamaFamily {
    /// The family with this `model_type`.
    pub fn from_model_type(model_type: &str) -> Option<Self> {
        SPECS.iter().find(|spec| spec.model_type == model_type).map(|spec| spec.family)
    }

    /// The family with this `general.architecture`; Llama for Mistral, whose GGUF files say no more.
    pub(super) fn from_gguf(architecture: &str) -> Option<Self> {
        SPECS.iter().find(|spec| spec.gguf == architecture).map(|spec| spec.family)
    }

    /// `model_type` of every family.
    pub fn model_types() -> [&'static str; SPECS.len()] {
        SPECS.each_ref().map(|spec| spec.model_type)
    }

    /// `model_type` in `config.json`.
    pub fn model_type(self) -> &'static str {
        self.spec().model_type
    }

    /// Start of the names of transformers' classes, such as `Qwen2` of `Qwen2ForCausalLM`.
    pub fn class(self) -> &'static str {
        self.spec().class
    }

    pub(super) fn spec(self) -> &'static FamilySpec {
        // In the order of the families.
        &SPECS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_in_the_order_of_the_families() {
        for spec in &SPECS {
            assert_eq!(spec.family.spec().model_type, spec.model_type);
            assert_eq!(LlamaFamily::from_model_type(spec.model_type), Some(spec.family));
        }
        assert_eq!(LlamaFamily::from_model_type("qwen2_moe"), None);
    }
}
