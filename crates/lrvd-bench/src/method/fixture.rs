//! Tiny random models with LoRA on them, in double precision, for tests of what is fitted to a trained one.
use burn::tensor::{DType, Device};
use lrvd_burn::Selection;
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::attach_adapters;
use lrvd_burn::sampling::Draws;
use lrvd_core::noise::{Generator, NoiseKey, Stream};
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaClassifier, DebertaConfig};
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};
use lrvd_models::{AutoModel, WeightSource};

use crate::data::Label;
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::method::Inputs;

pub(crate) const LABELS: usize = 3;
const VOCABULARY: u32 = 50;

/// Relative positions that pass through the query and key projections.
pub(crate) const SHARED_KEYS: &str = r#""relative_attention": true, "share_att_key": true,
    "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "position_biased_input": false"#;
pub(crate) const NO_POSITIONS: &str =
    r#""relative_attention": false, "position_biased_input": true"#;

/// Two layers of width 24 with LoRA of rank 4 on all six projections, B away from 0.
pub(crate) fn deberta(positions: &str) -> AutoModel {
    let config = format!(
        r#"{{"model_type": "deberta-v2", "hidden_size": 24, "num_attention_heads": 3,
            "num_hidden_layers": 2, "intermediate_size": 40, "vocab_size": {VOCABULARY},
            "position_buckets": 8, "max_position_embeddings": 32, "type_vocab_size": 0,
            "initializer_range": 0.3, "num_labels": {LABELS}, {positions}}}"#
    );
    let config = DebertaConfig::parse(config.as_bytes(), "config.json".as_ref()).unwrap();
    let device = Device::flex();
    let mut source = WeightSource::random(NoiseKey::new(5), &device, DType::F64);
    let mut model = AutoModel::Deberta(DebertaClassifier::load(&mut source, &config));
    adapt(&mut model, &ADAPTER_TARGETS);
    model
}

/// Two layers of width 20 with LoRA of rank 4 on queries, values and the head.
pub(crate) fn llama() -> AutoModel {
    let config = include_bytes!("cases/llama.json");
    let config = LlamaConfig::parse(config, "config.json".as_ref()).unwrap();
    let device = Device::flex();
    let mut source = WeightSource::random(NoiseKey::new(5), &device, DType::F64);
    let model = LlamaForCausalLm::load(&mut source, &config);
    let mut model = AutoModel::Llama(model.answering(vec![7, 3, 40]).unwrap());
    adapt(&mut model, &["q_proj", "v_proj", "lm_head"]);
    model
}

fn adapt(model: &mut AutoModel, names: &[&str]) {
    let targets = Selection::Names(names.iter().map(|&name| name.to_owned()).collect());
    let kind = AdapterKind::Lora { b_bound: 0.5 };
    let config = AdapterConfig { kind, rank: 4, lora_alpha: 6.0, dropout: 0.0 };
    attach_adapters(model, &targets, &config, NoiseKey::new(6)).unwrap();
}

pub(crate) fn examples(lengths: &[usize]) -> Vec<TokenisedExample> {
    let mut draws = Generator::new(NoiseKey::new(9).on_stream(Stream::DATA));
    let example = |&length: &usize| {
        let ids = (0..length).map(|_| draws.bounded(VOCABULARY)).collect();
        TokenisedExample::single(ids, Label::Class(draws.index(LABELS)))
    };
    lengths.iter().map(example).collect()
}

#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) examples: TokenExamples<'a>,
    pub(crate) batch_size: usize,
}

impl Asked<'_> {
    pub(crate) fn all(&self) -> Inputs<'_> {
        let Self { examples, batch_size } = self;
        let draws = Draws { count: 0, seed: 3 };
        Inputs { batch_size: *batch_size, draws, ..Inputs::new(examples) }
    }
}

pub(crate) fn inputs(lengths: &[usize], batch_size: usize) -> Asked<'static> {
    inputs_of(examples(lengths), batch_size)
}

/// The examples stay for the rest of the program.
pub(crate) fn inputs_of(examples: Vec<TokenisedExample>, batch_size: usize) -> Asked<'static> {
    let examples = examples.leak();
    let device = Box::leak(Box::new(Device::flex()));
    let examples = TokenExamples::new(examples, 0, LABELS, device);
    Asked { examples: TokenExamples { dtype: DType::F64, ..examples }, batch_size }
}

/// Equal up to `limit`, absolutely for small and relatively for large values.
#[track_caller]
pub(crate) fn close(what: &str, found: &[f64], expected: &[f64], limit: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let limit = limit * expected.abs().max(1.0);
        assert!((found - expected).abs() <= limit, "{what} {i}: {found}, expected {expected}");
    }
}
