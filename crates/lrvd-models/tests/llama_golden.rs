//! Llama against the recorded numbers of the reference implementation, in both precisions.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Int, Tensor, TensorData, activation};
use lrvd_burn::files::{TensorFile, WeightStore};
use lrvd_burn::host::values;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::parameters::Layout;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Model, Targets, TokenTargets, negative_log_likelihood};
use lrvd_models::TokenBatch;
use lrvd_models::llama::{KvCache, LlamaConfig, LlamaForCausalLm, TextBatch};
use serde_json::Value;

const CASES: [&str; 7] = [
    "explicit_head_dim",
    "gqa_theta500000_left_padded",
    "len1",
    "mha_left_padded",
    "mha_right_padded",
    "mqa_tied_right_padded",
    "rope_llama3",
];

struct Case {
    expected: TensorFile,
    inputs: TensorFile,
    json: Value,
    dtype: DType,
    model: LlamaForCausalLm,
    input: TokenBatch,
    mask: Vec<i64>,
}

impl Case {
    fn open(name: &str, dtype: DType) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama").join(name);
        let file = |name: &str| -> PathBuf { dir.join(name) };
        let device = Device::flex();
        let config = LlamaConfig::read(&file("config.json")).unwrap();
        assert!(config.unrecognised().is_empty(), "{name}: {:?}", config.unrecognised());
        let store = WeightStore::open(&dir).unwrap();
        let (model, loaded) =
            LlamaForCausalLm::from_pretrained(&store, &config, &device, dtype).unwrap();
        assert_eq!(loaded.report.applied.len(), store.len());
        let inputs = TensorFile::open(file("inputs.safetensors")).unwrap();
        let ids = inputs.read("input_ids").unwrap();
        let mask = inputs.read("attention_mask").unwrap().to_i64().unwrap();
        let shape = [ids.shape()[0], ids.shape()[1]];
        let ids = TensorData::new(ids.to_i64().unwrap(), shape);
        let ids = Tensor::<2, Int>::from_data(ids, &device);
        let floats: Vec<f32> = mask.iter().map(|&m| m as f32).collect();
        let input = TokenBatch {
            type_ids: ids.zeros_like(),
            ids,
            mask: Tensor::from_data(TensorData::new(floats, shape), (&device, dtype)),
            barred: None,
        };
        let text = std::fs::read(file("expected.json")).unwrap();
        Self {
            expected: TensorFile::open(file("expected.safetensors")).unwrap(),
            inputs,
            json: serde_json::from_slice(&text).unwrap(),
            dtype,
            model,
            input,
            mask,
        }
    }

    /// Compares the entries for which `real` holds; they must be as many as the tensor has, if it says so.
    fn check(&self, name: &str, found: &[f64], real: impl Fn(usize) -> bool) {
        let key = if self.dtype == DType::F64 { "atol_f64" } else { "atol_f32" };
        let limit = self.json["tolerances"][name][key].as_f64().unwrap();
        let wanted = self.expected.read(name).unwrap().to_f64().unwrap();
        assert_eq!(found.len(), wanted.len(), "{name}");
        for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let difference = (found - wanted).abs();
            assert!(
                !real(i) || difference <= limit,
                "{}, {name}, {:?}: {found} and {wanted} at {i}, allowed {limit}",
                self.json["case"],
                self.dtype
            );
        }
    }

    fn check_tokens(&self, name: &str, found: Tensor<3>) {
        let width = found.dims()[2];
        self.check(name, &values(found), |i| self.mask[i / width] == 1);
    }

    fn answers(&self) -> Vec<u32> {
        let ids = self.inputs.read("answer_token_ids").unwrap().to_i64().unwrap();
        ids.into_iter().map(|id| id as u32).collect()
    }

    fn feed(&self, cache: &mut KvCache, from: usize, columns: usize) -> Tensor<3> {
        let ids = self.input.ids.clone().narrow(1, from, columns);
        let mask = self.input.mask.clone().narrow(1, from, columns);
        self.model.forward_cached(ids, mask, cache, &Pass::mean())
    }
}

impl Case {
    /// Compares the loss, and its gradients by every weight of which one is recorded.
    fn check_gradients(&self, loss: &Tensor<1>) {
        self.check("loss", &values(loss.clone()), |_| true);
        let gradients = loss.backward();
        let mut found = BTreeMap::new();
        self.model.visit_parameters(&mut |p| {
            let shape = p.value.shape();
            let flat = p.value.gradient(&gradients).unwrap();
            let gradient = match (p.layout, shape.as_slice()) {
                (Layout::Transposed, &[r, c]) => values(flat.reshape([r, c]).transpose()),
                _ => values(flat),
            };
            found.insert(format!("grad.{}", p.name), gradient);
        });
        let names: Vec<&str> =
            self.expected.names().filter(|name| name.starts_with("grad.")).collect();
        assert_eq!(names.len(), 10);
        for name in names {
            self.check(name, &found[name], |_| true);
        }
    }
}

fn each_case(check: impl Fn(Case)) {
    for name in CASES {
        for dtype in [DType::F32, DType::F64] {
            check(Case::open(name, dtype));
        }
    }
}

#[test]
fn hidden_states_and_logits_equal_the_reference() {
    each_case(|case| {
        let pass = Pass::mean();
        for (i, state) in
            case.model.model().hidden_states(&case.input, &pass).into_iter().enumerate()
        {
            case.check_tokens(&format!("hidden_states.{i}"), state);
        }
        case.check_tokens("logits", case.model.forward(&case.input, &pass));
        case.check("last_logits", &values(case.model.last_logits(&case.input, &pass)), |_| true);
        let answers = case.model.answer_logits(&case.input, &case.answers(), &pass);
        case.check("answer_logits", &values(answers.clone()), |_| true);
        let log_probs = activation::log_softmax(answers, 1);
        case.check("answer_logprobs", &values(log_probs), |_| true);
    });
}

#[test]
fn the_cache_equals_the_whole_text() {
    each_case(|case| {
        let Some(first) = case.json["kv_cache"]["prefill_columns"].as_u64() else { return };
        let (first, tokens) = (first as usize, case.input.ids.dims()[1]);
        let mut cache = KvCache::new();
        case.feed(&mut cache, 0, first);
        assert_eq!(cache.columns(), first);
        for (name, held) in [
            ("kv.prefill_keys.0", cache.keys(0).unwrap()),
            ("kv.prefill_values.0", cache.values(0).unwrap()),
        ] {
            let [_, heads, columns, width] = held.dims();
            let row = heads * columns * width;
            let mask = |i: usize| case.mask[i / row * tokens + i / width % columns];
            case.check(name, &values(held), |i| mask(i) == 1);
        }
        let steps: Vec<_> = (first..tokens).map(|t| case.feed(&mut cache, t, 1)).collect();
        let steps = Tensor::cat(steps, 1);
        let [_, columns, width] = steps.dims();
        let mask = |i: usize| case.mask[i / width / columns * tokens + first + i / width % columns];
        case.check("kv.step_logits", &values(steps), |i| mask(i) == 1);
    });
}

#[test]
fn loss_and_gradients_equal_the_reference() {
    for dtype in [DType::F32, DType::F64] {
        let mut case = Case::open("mha_right_padded", dtype);
        case.model.visit_parameters_mut(&mut |p| p.value.set_trainable(true));
        let [rows, tokens] = case.input.ids.dims();
        let labels = case.inputs.read("labels").unwrap().to_i64().unwrap();
        let vocab = case.model.config().vocab_size;
        let mut chosen = vec![0.0_f32; rows * (tokens - 1) * vocab];
        let mut count = 0.0;
        for row in 0..rows {
            for t in 0..tokens - 1 {
                if let Ok(label) = usize::try_from(labels[row * tokens + t + 1]) {
                    chosen[(row * (tokens - 1) + t) * vocab + label] = 1.0;
                    count += 1.0;
                }
            }
        }
        let chosen = TensorData::new(chosen, [rows, tokens - 1, vocab]);
        let chosen = Tensor::<3>::from_data(chosen, (&Device::flex(), dtype));
        let logits = case.model.forward(&case.input, &Pass::mean()).narrow(1, 0, tokens - 1);
        let loss = (activation::log_softmax(logits, 2) * chosen).sum().mul_scalar(-1.0 / count);
        case.check_gradients(&loss);
    }
}

#[test]
fn only_the_tokens_that_are_asked_for_give_the_loss_of_the_reference() {
    for dtype in [DType::F32, DType::F64] {
        let mut case = Case::open("mha_right_padded", dtype);
        case.model.visit_parameters_mut(&mut |p| p.value.set_trainable(true));
        let [rows, tokens] = case.input.ids.dims();
        let labels = case.inputs.read("labels").unwrap().to_i64().unwrap();
        let asked = |row: usize| -> Vec<usize> {
            (0..tokens - 1).filter(|t| labels[row * tokens + t + 1] >= 0).collect()
        };
        let columns: Vec<Vec<usize>> = (0..rows).map(asked).collect();
        let wanted = columns.iter().enumerate();
        let ids: Vec<i64> = wanted
            .flat_map(|(row, columns)| columns.iter().map(move |t| row * tokens + t + 1))
            .map(|place| labels[place])
            .collect();
        let per_row: Vec<usize> = columns.iter().map(Vec::len).collect();
        // Some columns are padding or a prompt, and rows differ.
        assert!(ids.len() < rows * (tokens - 1) && per_row[0] != per_row[1]);
        let input = TextBatch { tokens: case.input.clone(), columns };
        let logits = case.model.logits(&input, &Pass::mean());
        assert_eq!(logits.dims(), [input.asked(), case.model.config().vocab_size]);
        let n = ids.len();
        let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [n]), &Device::flex());
        let targets = Targets::Tokens(TokenTargets { ids, per_row });
        let loss = negative_log_likelihood(logits, &targets).mul_scalar(1.0 / n as f64);
        case.check_gradients(&loss);
    }
}
