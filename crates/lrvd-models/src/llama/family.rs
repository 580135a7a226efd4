//! What tells Llama, Mistral and Qwen apart: one block, with a few options and other defaults.

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
pub(super) struct Row {
    family: LlamaFamily,
    /// `model_type`.
    pub(super) model_type: &'static str,
    /// Start of the names of transformers' classes.
    pub(super) class: &'static str,
    /// `general.architecture` of a GGUF file.
    pub(super) gguf: &'static str,
    /// Whether that file has the rows of queries and keys in pairs that are rotated together.
    pub(super) gguf_pairs: bool,
    /// Whether there are biases of queries, keys and values; where it is not stated the configuration says so, and
    /// for the output projection as well.
    pub(super) bias: Option<bool>,
    /// Whether queries and keys are normalised, head by head.
    pub(super) head_norms: bool,
    /// Whether a window is possible.
    pub(super) window: Window,
    /// Number of key heads where the key is absent; else that of the query heads.
    pub(super) key_heads: Option<usize>,
    /// Width of a head where none is stated; else hidden size over heads.
    pub(super) head_dim: Option<usize>,
    /// Longest input of the training.
    pub(super) positions: usize,
}

/// Which layers may have a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    Never,
    /// All or none.
    Every,
    /// Those from `max_window_layers` on, or those that `layer_types` lists, with `use_sliding_window`.
    Listed,
}

const ROWS: [Row; 4] = [
    Row {
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
    Row {
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
    Row {
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
    Row {
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
    pub fn of(model_type: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.model_type == model_type).map(|row| row.family)
    }

    /// The family with this `general.architecture`; Llama for Mistral, whose GGUF files say no more.
    pub(super) fn of_gguf(architecture: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.gguf == architecture).map(|row| row.family)
    }

    /// `model_type` of every family.
    pub fn model_types() -> [&'static str; ROWS.len()] {
        ROWS.each_ref().map(|row| row.model_type)
    }

    /// `model_type` in `config.json`.
    pub fn model_type(self) -> &'static str {
        self.row().model_type
    }

    /// Start of the names of transformers' classes, such as `Qwen2` of `Qwen2ForCausalLM`.
    pub fn class(self) -> &'static str {
        self.row().class
    }

    pub(super) fn row(self) -> &'static Row {
        // In the order of the families.
        &ROWS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_families() {
        for row in &ROWS {
            assert_eq!(row.family.row().model_type, row.model_type);
            assert_eq!(LlamaFamily::of(row.model_type), Some(row.family));
        }
        assert_eq!(LlamaFamily::of("qwen2_moe"), None);
    }
}
