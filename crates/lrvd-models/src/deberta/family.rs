//! Encoders that share one forward pass: names in their checkpoints, heads, numbering of positions.

use lrvd_burn::files::WeightStore;

use super::activation::Activation;
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
    /// DistilBERT: a BERT without segments and pooler, whose head has two layers with a ReLU between them.
    DistilBert,
    /// MPNet: a RoBERTa whose scores have a bias for the distance of two positions, and a vocabulary of word pieces.
    Mpnet,
    /// ModernBERT: rotary positions, a window in most layers, norms before each half of a layer, gated feed-forward; a head
    /// of two layers with a norm between them.
    ModernBert,
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
pub struct FamilySpec {
    /// The family.
    pub family: Family,
    /// `model_type`.
    pub model_type: &'static str,
    /// Class of transformers with a head for classes.
    pub architecture: &'static str,
    /// Start of the names of the encoder's parameters.
    pub prefix: &'static str,
    /// Path of the stack of layers below the prefix.
    pub stack: &'static str,
    /// Paths in an encoder layer of the layers of [`ADAPTER_TARGETS`]; one that is several of them is named as often.
    pub layers: [&'static str; 6],
    /// Paths of the norms in an encoder layer: behind the attention, behind the feed-forward.
    pub norms: [&'static str; 2],
    /// Paths that name the dropouts in an encoder layer: on attention weights, on the attention's output, on that of the
    /// feed-forward; empty for none.
    pub dropouts: [&'static str; 3],
    /// Paths of the layer before the classifier, which reads the first token, and of the classifier.
    pub head: [&'static str; 2],
    /// Between both layers of the head.
    pub head_activation: Activation,
    /// Key of the dropout before the classifier, and its default where that is not `hidden_dropout_prob`.
    pub head_dropout: (&'static str, Option<f64>),
    /// Keys of `config.json` that BERT calls otherwise, each with BERT's name.
    pub keys: &'static [(&'static str, &'static str)],
    /// `true` if a position's row of the table is counted from the padding token.
    pub shifts_positions: bool,
    /// `true` if each head adds a bias by the distance of two positions to its scores.
    pub has_position_bias: bool,
    /// The padding token, by default.
    pub pad_token_id: usize,
    /// Added to the variance in every layer norm, by default.
    pub layer_norm_eps: f64,
    /// Rows of the token-type embedding, by default.
    pub type_vocab_size: usize,
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
    norms: ["attention.output.LayerNorm", "output.LayerNorm"],
    dropouts: ["attention.self", "attention.output", "output"],
    head: ["bert.pooler.dense", "classifier"],
    head_activation: Activation::Tanh,
    head_dropout: ("classifier_dropout", None),
    keys: &[],
    stack: "encoder",
    shifts_positions: false,
    has_position_bias: false,
    pad_token_id: 0,
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
    pad_token_id: 1,
    ..BERT
};
const SPECS: [FamilySpec; 7] = [
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
        head_activation: Activation::Gelu,
        head_dropout: ("cls_dropout", None),
        layer_norm_eps: 1e-7,
        type_vocab_size: 0,
        ..BERT
    },
    BERT,
    ROBERTA,
    FamilySpec {
        family: Family::XlmRoberta,
        model_type: "xlm-roberta",
        architecture: "XLMRobertaForSequenceClassification",
        ..ROBERTA
    },
    FamilySpec {
        family: Family::DistilBert,
        model_type: "distilbert",
        architecture: "DistilBertForSequenceClassification",
        prefix: "distilbert",
        stack: "transformer",
        layers: [
            "attention.q_lin",
            "attention.k_lin",
            "attention.v_lin",
            "attention.out_lin",
            "ffn.lin1",
            "ffn.lin2",
        ],
        norms: ["sa_layer_norm", "output_layer_norm"],
        dropouts: ["attention", "", "ffn"],
        head: ["pre_classifier", "classifier"],
        head_activation: Activation::Relu,
        head_dropout: ("seq_classif_dropout", Some(0.2)),
        keys: &[
            ("dim", "hidden_size"),
            ("n_layers", "num_hidden_layers"),
            ("n_heads", "num_attention_heads"),
            ("hidden_dim", "intermediate_size"),
            ("activation", "hidden_act"),
            ("dropout", "hidden_dropout_prob"),
            ("attention_dropout", "attention_probs_dropout_prob"),
        ],
        type_vocab_size: 0,
        ..BERT
    },
    FamilySpec {
        family: Family::Mpnet,
        model_type: "mpnet",
        architecture: "MPNetForSequenceClassification",
        prefix: "mpnet",
        layers: [
            "attention.attn.q",
            "attention.attn.k",
            "attention.attn.v",
            "attention.attn.o",
            "intermediate.dense",
            "output.dense",
        ],
        norms: ["attention.LayerNorm", "output.LayerNorm"],
        dropouts: ["attention.attn", "attention", "output"],
        head_dropout: ("", None),
        has_position_bias: true,
        type_vocab_size: 0,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::ModernBert,
        model_type: "modernbert",
        architecture: "ModernBertForSequenceClassification",
        prefix: "model",
        stack: "layers",
        layers: ["attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"],
        norms: ["attn_norm", "mlp_norm"],
        dropouts: [""; 3],
        head: ["head", "classifier"],
        head_activation: Activation::Gelu,
        head_dropout: ("classifier_dropout", Some(0.0)),
        keys: &[("hidden_activation", "hidden_act"), ("norm_eps", "layer_norm_eps")],
        pad_token_id: 50_283,
        layer_norm_eps: 1e-5,
        type_vocab_size: 0,
        ..BERT
    },
];

impl Family {
    /// The family with this `model_type`.
    pub fn from_model_type(model_type: &str) -> Option<Self> {
        SPECS.iter().find(|spec| spec.model_type == model_type).map(|spec| spec.family)
    }

    /// The family of an encoder with a module of this path.
    pub fn of_module(path: &str) -> Option<Self> {
        let (prefix, _) = path.split_once('.')?;
        SPECS.iter().find(|spec| spec.prefix == prefix).map(|spec| spec.family)
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
        let [attention, ..] = self.spec().dropouts;
        let own = |path: &'static str| {
            path.strip_prefix(attention).and_then(|rest| rest.strip_prefix('.')).unwrap_or(path)
        };
        self.spec().layers.map(own)
    }

    /// Path of the stack of layers.
    pub fn stack(self) -> String {
        let FamilySpec { prefix, stack, .. } = self.spec();
        format!("{prefix}.{stack}")
    }

    /// Paths of what is before the classifier, which reads the pooled token, and of the classifier.
    pub fn head(self) -> [&'static str; 2] {
        self.spec().head
    }

    /// Names of the parameters of the head.
    pub fn head_parameters(self) -> Vec<String> {
        let [pooler, classifier] = self.head();
        let parts = match self {
            Self::ModernBert => ["dense.weight", "norm.weight"],
            _ => ["weight", "bias"],
        };
        let pooler = parts.map(|part| format!("{pooler}.{part}"));
        [pooler, ["weight", "bias"].map(|part| format!("{classifier}.{part}"))].concat()
    }

    /// `true` if transformers' classifier reads the mean over all tokens where its configuration says so.
    pub fn reads_mean(self) -> bool {
        self == Self::ModernBert
    }

    /// Names and defaults.
    pub fn spec(self) -> &'static FamilySpec {
        // In the order of the families.
        &SPECS[self as usize]
    }

    /// `true` if a tensor of a checkpoint belongs to pretraining, or is not a weight: no classifier reads it.
    pub fn is_spare(self, name: &str) -> bool {
        let heads =
            ["lm_predictions.", "mask_predictions.", "cls.", "lm_head.", "vocab_", "decoder."];
        let FamilySpec { prefix, shifts_positions, .. } = self.spec();
        heads.iter().any(|head| name.starts_with(head))
            || name.ends_with(".position_ids")
            || *shifts_positions && name.starts_with(&format!("{prefix}.pooler."))
    }

    /// The weights under the names of a model with a head: those of a bare encoder have no prefix, and the first BERT
    /// files call scale and shift of a norm gamma and beta.
    pub fn renamed(self, store: WeightStore) -> Result<WeightStore> {
        let prefix = format!("{}.", self.prefix());
        let is_bare = !store.names().any(|name| name.starts_with(&prefix));
        let [pooler, _] = self.head();
        let inner = |name: &str| {
            let parts = ["embeddings", self.spec().stack, "pooler", "final_norm"];
            let start = name.split('.').next().unwrap_or_default();
            parts.contains(&start) && !name.starts_with(pooler)
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
            assert_eq!(
                Family::of_module(&format!("{}.layer", spec.prefix)).map(Family::prefix),
                Some(spec.prefix)
            );
        }
        assert_eq!(Family::Deberta.adapter_targets(), ADAPTER_TARGETS);
        assert_eq!(
            Family::Roberta.adapter_targets()[..4],
            ["query", "key", "value", ADAPTER_TARGETS[3]]
        );
        assert_eq!(
            Family::DistilBert.adapter_targets(),
            ["q_lin", "k_lin", "v_lin", "out_lin", "ffn.lin1", "ffn.lin2"]
        );
        assert_eq!(Family::Mpnet.adapter_targets()[..4], ["q", "k", "v", "o"]);
        assert_eq!(Family::ModernBert.adapter_targets()[2..4], ["attn.Wqkv", "attn.Wo"]);
    }
}
