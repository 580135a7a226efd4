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
/// Layers of [`ADAPTER_TARGETS`] in every other family.
const BERT_TARGETS: [&str; 6] =
    ["query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense"];

impl Family {
    /// Every family.
    pub const ALL: [Self; 4] = [Self::Deberta, Self::Bert, Self::Roberta, Self::XlmRoberta];

    /// The value of `model_type`.
    pub const fn model_type(self) -> &'static str {
        match self {
            Self::Deberta => "deberta-v2",
            Self::Bert => "bert",
            Self::Roberta => "roberta",
            Self::XlmRoberta => "xlm-roberta",
        }
    }

    /// The class of transformers with a head for classes.
    pub const fn architecture(self) -> &'static str {
        match self {
            Self::Deberta => "DebertaV2ForSequenceClassification",
            Self::Bert => "BertForSequenceClassification",
            Self::Roberta => "RobertaForSequenceClassification",
            Self::XlmRoberta => "XLMRobertaForSequenceClassification",
        }
    }

    /// Start of the names of the encoder's parameters.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Deberta => "deberta",
            Self::Bert => "bert",
            Self::Roberta | Self::XlmRoberta => "roberta",
        }
    }

    /// The layers of [`ADAPTER_TARGETS`], in the same order, under the names of this family.
    pub const fn adapter_targets(self) -> [&'static str; 6] {
        match self {
            Self::Deberta => ADAPTER_TARGETS,
            Self::Bert | Self::Roberta | Self::XlmRoberta => BERT_TARGETS,
        }
    }

    /// Layers of [`ADAPTER_TARGETS`], by their path in an encoder layer.
    pub const fn layers(self) -> [&'static str; 6] {
        let [query, key, value] = match self {
            Self::Deberta => [
                "attention.self.query_proj",
                "attention.self.key_proj",
                "attention.self.value_proj",
            ],
            Self::Bert | Self::Roberta | Self::XlmRoberta => {
                ["attention.self.query", "attention.self.key", "attention.self.value"]
            }
        };
        let [.., attention, wide, output] = ADAPTER_TARGETS;
        [query, key, value, attention, wide, output]
    }

    /// Paths of the layer before the classifier, which reads the first token, and of the classifier.
    pub const fn head(self) -> [&'static str; 2] {
        match self {
            Self::Deberta => ["pooler.dense", "classifier"],
            Self::Bert => ["bert.pooler.dense", "classifier"],
            Self::Roberta | Self::XlmRoberta => ["classifier.dense", "classifier.out_proj"],
        }
    }

    /// `true` if a position's row of the table is counted from the padding token.
    pub(super) const fn shifts_positions(self) -> bool {
        matches!(self, Self::Roberta | Self::XlmRoberta)
    }

    /// `true` if a tensor of a checkpoint belongs to pretraining, or is not a weight: no classifier reads it.
    pub fn is_spare(self, name: &str) -> bool {
        let heads = ["lm_predictions.", "mask_predictions.", "cls.", "lm_head."];
        heads.iter().any(|head| name.starts_with(head))
            || name.ends_with(".position_ids")
            || self.shifts_positions() && name.starts_with("roberta.pooler.")
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
