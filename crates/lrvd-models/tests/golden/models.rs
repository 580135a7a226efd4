//! Hidden states, logits, losses and gradients of the models, and DeBERTa's table of positions.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use burn::tensor::{DType, Gradients, Tensor, activation};
use lrvd_burn::files::WeightStore;
use lrvd_burn::host::values;
use lrvd_burn::model::NamedModule;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::Model;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig, RelativePositions};
use lrvd_models::llama::{KvCache, LlamaConfig, LlamaForCausalLm};
use serde_json::Value;

use crate::case::{Case, Json, Limit, Values};
use crate::inputs::{Inputs, device, mean_loss};

/// Tensors beside ids and mask that belong to a batch of DeBERTa.
pub(crate) const DEBERTA_INPUTS: [&str; 2] = ["token_type_ids", "labels"];
/// Tensors beside ids and mask that belong to a batch of Llama; the model counts positions itself.
pub(crate) const LLAMA_INPUTS: [&str; 4] =
    ["position_ids", "labels", "answer_token_ids", "answer_labels"];
/// The reference implementation trains every row of this table but the padding's.
const WORDS: &str = "deberta.embeddings.word_embeddings.weight";

/// A classifier and its configuration from `config.json` and the weights of `dir`, head included.
pub(crate) fn load_deberta(dir: &Path, dtype: DType) -> Result<(DebertaClassifier, DebertaConfig)> {
    let config = DebertaConfig::read(&dir.join("config.json"))?;
    let store = WeightStore::open(dir)?;
    let (model, _) = DebertaClassifier::from_fine_tuned(&store, &config, &device(), dtype)?;
    Ok((model, config))
}

/// A language model from `config.json` and the weights of `dir`.
pub(crate) fn load_llama(dir: &Path, dtype: DType) -> Result<LlamaForCausalLm> {
    let config = LlamaConfig::read(&dir.join("config.json"))?;
    let store = WeightStore::open(dir)?;
    Ok(LlamaForCausalLm::from_pretrained(&store, &config, &device(), dtype)?.0)
}

pub(crate) fn deberta(case: &mut Case) -> Result<()> {
    case.require_tolerated()?;
    let (mut model, config) = load_deberta(&case.dir, case.dtype)?;
    let inputs = Inputs::read(case, &DEBERTA_INPUTS)?;
    train_all(case, &mut model);
    let (batch, pass) = (inputs.batch(0)?, Pass::mean());
    let (mut found, mut states) = (Vec::new(), model.encoder().hidden_states(&batch, &pass));
    for (i, state) in states.iter().enumerate() {
        found.push((format!("hidden_states.{i}"), inputs.real(Values::of(state.clone()), 0)));
    }
    let last = states.pop().expect("the embeddings are a state");
    let (pooled, logits) = model.head(last, &pass);
    let loss = inputs.targets(0, &config)?.map(|targets| mean_loss(logits.clone(), &targets));
    found.push(("pooled".to_owned(), Values::of(pooled)));
    found.push(("logits".to_owned(), Values::of(logits)));
    found.extend(loss.clone().map(|loss| ("loss".to_owned(), Values::of(loss))));
    case.found(&found)?;
    let Some(loss) = loss else { return Ok(()) };
    let mut gradients = gradients(&model, &loss);
    if let (Some(words), Some(pad)) = (gradients.get_mut(WORDS), config.pad_token_id) {
        let width = words.shape[1];
        words.values[pad * width..(pad + 1) * width].fill(0.0);
    }
    compare_gradients(case, gradients)
}

pub(crate) fn relative_positions(case: &mut Case) -> Result<()> {
    for table in case.json.read::<Vec<Value>>("tables")? {
        let (stated, range): (i64, usize) =
            (table.read("position_buckets")?, table.read("max_position")?);
        // As in `config.json`: a number below 1 stands for "none".
        let buckets = usize::try_from(stated).ok().filter(|buckets| *buckets > 0);
        let positions = RelativePositions::new(buckets, range)?;
        let key = format!("b{stated}_m{range}");
        let relative = case.recorded(&format!("relative.{key}"))?;
        let each = |of: &dyn Fn(i64) -> i64| {
            let values = relative.values.iter().map(|&r| of(r as i64) as f64).collect();
            Values::new(&relative.shape, values)
        };
        let (bucket, row) = (each(&|r| positions.bucket(r)), each(&|r| positions.row(r).into()));
        case.tensor(&format!("bucket.{key}"), &bucket, Limit::EXACT)?;
        case.tensor(&format!("gather_index_c2p.{key}"), &row, Limit::EXACT)?;
    }
    Ok(())
}

pub(crate) fn llama(case: &mut Case) -> Result<()> {
    case.require_tolerated()?;
    let mut model = load_llama(&case.dir, case.dtype)?;
    let inputs = Inputs::read(case, &LLAMA_INPUTS)?;
    train_all(case, &mut model);
    let (batch, pass) = (inputs.batch(0)?, Pass::mean());
    let mut found = Vec::new();
    let mut put = |name: &str, values| found.push((name.to_owned(), values));
    for (i, state) in model.model().hidden_states(&batch, &pass).into_iter().enumerate() {
        put(&format!("hidden_states.{i}"), inputs.real(Values::of(state), 0));
    }
    put("logits", inputs.real(Values::of(model.forward(&batch, &pass)), 0));
    put("last_logits", Values::of(model.last_logits(&batch, &pass)));
    let (answers, right) = inputs.answers()?;
    if !answers.is_empty() {
        let logits = model.answer_logits(&batch, &answers, &pass);
        put("answer_logprobs", Values::of(activation::log_softmax(logits.clone(), 1)));
        put("answer_logits", Values::of(logits.clone()));
        if let Some(right) = right {
            put("answer_loss", Values::of(mean_loss(logits, &right)));
        }
    }
    let text = inputs.text()?;
    let loss = text.map(|(text, targets)| mean_loss(model.logits(&text, &pass), &targets));
    if let Some(loss) = &loss {
        put("loss", Values::of(loss.clone()));
    }
    if !case.below("kv.").is_empty() {
        // Keys and values after a prefill of some columns, and the logits of the others, fed one at a time.
        let (tokens, first) = (inputs.tokens, case.json.read("kv_cache/prefill_columns")?);
        ensure!((1..tokens).contains(&first), "a prefill of {first} of {tokens} columns");
        let mut cache = KvCache::new();
        let mut feed = |from: usize, columns: usize| {
            let ids = batch.ids.clone().narrow(1, from, columns);
            let mask = batch.mask.clone().narrow(1, from, columns);
            let logits = model.forward_cached(ids, mask, &mut cache, &Pass::mean());
            (logits, cache.keys(0), cache.values(0))
        };
        let (_, keys, values) = feed(0, first);
        let held = [("kv.prefill_keys.0", keys), ("kv.prefill_values.0", values)];
        for (name, held) in held {
            put(name, inputs.real(Values::of(held.context("an empty cache")?), 0));
        }
        let steps = (first..tokens).map(|column| feed(column, 1).0).collect();
        put("kv.step_logits", inputs.real(Values::of(Tensor::cat(steps, 1)), first));
    }
    case.found(&found)?;
    let Some(loss) = loss else { return Ok(()) };
    compare_gradients(case, gradients(&model, &loss))
}

/// Makes every parameter trainable where gradients are recorded.
fn train_all(case: &Case, model: &mut impl NamedModule) {
    if !case.below("grad.").is_empty() {
        model.visit_parameters_mut(&mut |p| p.value.set_trainable(true));
    }
}

/// Gradients of all trainable parameters under their checkpoint names and in its layout; zeros where the loss does
/// not reach.
pub(crate) fn gradients(model: &impl NamedModule, loss: &Tensor<1>) -> BTreeMap<String, Values> {
    let mut found = BTreeMap::new();
    if !loss.is_tracked() {
        return found;
    }
    let gradients: Gradients = loss.backward();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            let gradient = if p.value.is_empty() { None } else { p.value.gradient(&gradients) };
            let gradient = gradient.map_or_else(|| vec![0.0; p.value.len()], values);
            found.insert(p.name.to_owned(), stored(&p.value.shape(), gradient, p.transposed));
        }
    });
    found
}

/// Values in memory order, in the layout of a checkpoint.
pub(crate) fn stored(shape: &[usize], values: Vec<f64>, transposed: bool) -> Values {
    let values = Values::new(shape, values);
    if transposed { values.transposed() } else { values }
}

/// Compares the recorded gradients that are among `found`.
pub(crate) fn compare_gradients(case: &mut Case, found: BTreeMap<String, Values>) -> Result<()> {
    for name in case.below("grad.") {
        if let Some(gradient) = found.get(&name) {
            case.tolerated(&format!("grad.{name}"), gradient)?;
        }
    }
    Ok(())
}
