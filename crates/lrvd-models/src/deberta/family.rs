//! Encoders that share one forward pass: names in their checkpoints, heads, numbering of positions.

use lrvd_burn::files::WeightStore;

use crate::error::Result;

/// A kind of encoder, by the `model_type` of `config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// DeBERTa-v2 and v3: position terms in the scores; a GELU pooler that belongs to the head.
    #[default]
    Deberta,
    /// BERT: position `i` has row `i`; a tanh pooler that belongs to the encoder.
    Bert,
    /// RoBERTa: position `i` has row `pad_token_id + 1 + i`; a head of two layers.
    Roberta,
    /// XLM-RoBERTa: a RoBERTa with another vocabulary.
    XlmRoberta,
}

/// The linear layers of an encoder layer that published experiments adapt, by the end of their path, with the names of
/// DeBERTa. `output.dense` also matches `attention.output.dense`, which is listed for the reader.
pub const ADAPTER_TARGETS: [&str; 6] = [
    "query_proj",
    "key_proj",
    "value_proj",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
];

/// Names and defaults of a family; the defaults are transformers'.
#[derive(Debug)]
pub(super) struct FamilySpec {
    family: Family,
    /// `model_type`.
    model_type: &'static str,
    /// Class of transformers with a head for classes.
    architecture: &'static str,
    /// Start of the names of the encoder's parameters.
    prefix: &'static str,
    /// Paths in an encoder layer of the layers of [`ADAPTER_TARGETS`]; one that is several of them is named as often.
    pub(super) layers: [&'static str; 6],
    head: [&'static str; 2],
    /// `true` if a position's row of the table is counted from the padding token.
    pub(super) shifts_positions: bool,
    pub(super) layer_norm_eps: f64,
    pub(super) type_vocab_size: usize,
}

const BERT: FamilySpec = FamilySpec {
    family: Family::Bert,
    model_type: "bert",
    architecture: "BertForSequenceClassification",
    prefix: "bert",
    layers: [
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
        "intermediate.dense",
        "output.dense",
    ],
    head: ["bert.pooler.dense", "classifier"],
    shifts_positions: false,
    layer_norm_eps: 1e-12,
    type_vocab_size: 2,
};
const ROBERTA: FamilySpec = FamilySpec {
    family: Family::Roberta,
    model_type: "roberta",
    architecture: "RobertaForSequenceClassification",
    prefix: "roberta",
    head: ["classifier.dense", "classifier.out_proj"],
    shifts_positions: true,
    ..BERT
};
const SPECS: [FamilySpec; 4] = [
    FamilySpec {
        family: Family::Deberta,
        model_type: "deberta-v2",
        architecture: "DebertaV2ForSequenceClassification",
        prefix: "deberta",
        layers: [
            "attention.self.query_proj",
            "attention.self.key_proj",
            "attention.self.value_proj",
            "attention.output.dense",
            "intermediate.dense",
            "output.dense",
        ],
        head: ["pooler.dense", "classifier"],
        shifts_positions: false,
        layer_norm_eps: 1e-7,
        type_vocab_size: 0,
    },
    BERT,
    ROBERTA,
    FamilySpec {
        family: Family::XlmRoberta,
        model_type: "xlm-roberta",
        architecture: "XLMRobertaForSequenceClassification",
        ..ROBERTA
    },
];

impl Family {
    /// The family with this `model_type`.
    pub fn from_model_type(model_type: &str) -> Option<Self> {
        SPECS.iter().find(|spec| spec.model_type == model_type).map(|spec| spec.family)
    }

    /// `model_type` of every family.
    pub fn model_types() -> [&'static str; SPECS.len()] {
        SPECS.each_ref().map(|spec| spec.model_type)
    }

    /// The value of `model_type`.
    pub fn model_type(self) -> &'static str {
        self.spec().model_type
    }

    /// The class of transformers with a head for classes.
    pub fn architecture(self) -> &'static str {
        self.spec().architecture
    }

    /// Start of the names of the encoder's parameters.
    pub fn prefix(self) -> &'static str {
        self.spec().prefix
    }

    /// The layers of [`ADAPTER_TARGETS`], in the same order, under the names of this family.
    pub fn adapter_targets(self) -> [&'static str; 6] {
        self.spec().layers.map(|path| path.trim_start_matches("attention.self."))
    }

    /// Paths of the layer before the classifier, which reads the first token, and of the classifier.
    pub fn head(self) -> [&'static str; 2] {
        self.spec().head
    }

    pub(super) fn spec(self) -> &'static FamilySpec {
        // In the order of the families.
        &SPECS[self as usize]
    }

    /// `true` if a tensor of a checkpoint belongs to pretraining, or is not a weight: no classifier reads it.
    pub fn is_spare(self, name: &str) -> bool {
        let heads = ["lm_predictions.", "mask_predictions.", "cls.", "lm_head."];
        heads.iter().any(|head| name.starts_with(head))
            || name.ends_with(".position_ids")
            || self.spec().shifts_positions && name.starts_with("roberta.pooler.")
    }

    /// The weights under the names of a model with a head: those of a bare encoder have no prefix, and the first BERT
    /// files call scale and shift of a norm gamma and beta.
    pub fn renamed(self, store: WeightStore) -> Result<WeightStore> {
        let prefix = format!("{}.", self.prefix());
        let is_bare = !store.names().any(|name| name.starts_with(&prefix));
        let [pooler, _] = self.head();
        let inner = |name: &str| {
            let parts = ["embeddings.", "encoder.", "pooler."];
            parts.iter().any(|part| name.starts_with(part)) && !name.starts_with(pooler)
        };
        let renamed = store.map(|name, _| {
            let name = name
                .replace("LayerNorm.gamma", "LayerNorm.weight")
                .replace("LayerNorm.beta", "LayerNorm.bias");
            let name = if is_bare && inner(&name) { prefix.clone() + &name } else { name };
            Some((name, None))
        });
        Ok(renamed?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_in_the_order_of_the_families() {
        for spec in &SPECS {
            assert_eq!(spec.family.spec().model_type, spec.model_type);
            assert_eq!(Family::from_model_type(spec.model_type), Some(spec.family));
        }
        assert_eq!(Family::Deberta.adapter_targets(), ADAPTER_TARGETS);
        assert_eq!(
            Family::Roberta.adapter_targets()[..4],
            ["query", "key", "value", ADAPTER_TARGETS[3]]
        );
    }
}
