//! Hidden states, logits, losses and gradients of the models on padded batches, and DeBERTa's table of positions.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use burn::tensor::{DType, Device, Gradients, Int, Tensor, TensorData, activation};
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::NamedModule;
use lrvd_burn::parameters::values;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Model, Targets, negative_log_likelihood};
use lrvd_core::noise::NoiseKey;
use lrvd_models::TokenBatch;
use lrvd_models::deberta::{
    DebertaClassifier, DebertaConfig, Pooling, ProblemType, RelativePositions,
};
use lrvd_models::llama::{KvCache, LlamaConfig, LlamaForCausalLm, LlamaScore};
use serde_json::Value;

use crate::case::{Case, Json, Limit, Values};

/// Tensors beside ids and mask that belong to a batch of DeBERTa.
pub(crate) const DEBERTA_INPUTS: [&str; 2] = ["token_type_ids", "labels"];
/// Tensors beside ids and mask that belong to a batch of Llama; the model counts positions itself.
pub(crate) const LLAMA_INPUTS: [&str; 4] =
    ["position_ids", "labels", "answer_token_ids", "answer_labels"];
/// The reference implementation trains every row of this table but the padding's.
const WORDS: [&str; 2] = ["embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight"];

/// A classifier and its configuration from `config.json` and the weights of `dir`, head included.
pub(crate) fn load_deberta(dir: &Path, dtype: DType) -> Result<(DebertaClassifier, DebertaConfig)> {
    load_pooled(dir, dtype, None)
}

/// With the pooling of the folder, or another one.
fn load_pooled(
    dir: &Path,
    dtype: DType,
    pooling: Option<Pooling>,
) -> Result<(DebertaClassifier, DebertaConfig)> {
    let config = DebertaConfig::read(&dir.join("config.json"))?;
    let config = DebertaConfig { pooling: pooling.unwrap_or(config.pooling), ..config };
    let store = config.open_weights(dir)?;
    let (model, _) =
        DebertaClassifier::from_pretrained(&store, &config, NoiseKey::new(0), &device(), dtype)?;
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
    let (mut found, mut states) = (Vec::new(), model.encoder.hidden_states(&batch, &pass));
    for (i, state) in states.iter().enumerate() {
        found.push((format!("hidden_states.{i}"), inputs.real(Values::of(state.clone()), 0)));
    }
    let last = states.pop().expect("the embeddings are a state");
    let (pooled, logits) = model.head(last, &batch, &pass);
    let loss = inputs.targets(0, &config)?.map(|targets| mean_loss(logits.clone(), &targets));
    found.push(("pooled".to_owned(), Values::of(pooled)));
    found.push(("logits".to_owned(), Values::of(logits)));
    found.extend(loss.clone().map(|loss| ("loss".to_owned(), Values::of(loss))));
    let (averaged, _) = load_pooled(&case.dir, case.dtype, Some(Pooling::Mean))?;
    found.push(("mean".to_owned(), Values::of(averaged.features(&batch, &pass))));
    case.found(&found)?;
    let Some(loss) = loss else { return Ok(()) };
    let mut gradients = gradients(&model, &loss);
    for words in WORDS.map(|words| format!("{}.{words}", config.family.prefix())) {
        if let (Some(words), Some(pad)) = (gradients.get_mut(&words), config.pad_token_id) {
            let width = words.shape[1];
            words.values[pad * width..(pad + 1) * width].fill(0.0);
        }
    }
    compare_gradients(case, "grad.", gradients)
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
    for (i, state) in model.model.hidden_states(&batch, &pass).into_iter().enumerate() {
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
            let hidden = model.model.read(ids, mask, &mut cache, &Pass::mean());
            (model.head(hidden, &Pass::mean()), cache.keys(0), cache.values(0))
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
    compare_gradients(case, "grad.", gradients(&model, &loss))
}

/// A head on the last token of a decoder.
pub(crate) fn last_token(case: &mut Case) -> Result<()> {
    case.require_tolerated()?;
    let config = LlamaConfig::read(&case.dir.join("config.json"))?;
    let (store, labels) = (LlamaConfig::open_weights(&case.dir)?, case.json.read("num_labels")?);
    let (seed, dtype) = (NoiseKey::new(0), case.dtype);
    let (mut model, loaded) =
        LlamaScore::from_pretrained(&store, &config, labels, seed, &device(), dtype)?;
    ensure!(loaded.fresh.is_empty(), "a new head");
    let inputs = Inputs::read(case, &["labels"])?;
    train_all(case, &mut model);
    let logits = model.forward(&inputs.batch(0)?, &Pass::mean());
    let right: Vec<f64> = Values::read(&inputs.file, "labels")?.values;
    let targets = inputs.classes(&right, labels)?;
    let loss = mean_loss(logits.clone(), &targets);
    case.found(&[("logits", Values::of(logits)), ("loss", Values::of(loss.clone()))])?;
    compare_gradients(case, "grad.", gradients(&model, &loss))
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

/// Compares the gradients recorded below `prefix` that are among `found`.
pub(crate) fn compare_gradients(
    case: &mut Case,
    prefix: &str,
    found: BTreeMap<String, Values>,
) -> Result<()> {
    for name in case.below(prefix) {
        if let Some(gradient) = found.get(&name) {
            case.tolerated(&format!("{prefix}{name}"), gradient)?;
        }
    }
    Ok(())
}

/// Device of all computations.
pub(crate) fn device() -> Device {
    Device::flex()
}

/// The batches of a folder, `[steps, rows, tokens]`; outside of training runs there is one step.
pub(crate) struct Inputs {
    file: WeightStore,
    dtype: DType,
    pub(crate) steps: usize,
    pub(crate) rows: usize,
    pub(crate) tokens: usize,
    /// 1 for tokens, 0 for padding.
    mask: Vec<i64>,
}

impl Inputs {
    /// Reads `inputs.safetensors`, which may hold ids, a mask and the tensors `others`.
    pub(crate) fn read(case: &Case, others: &[&str]) -> Result<Self> {
        let file = case.inputs(&[&["input_ids", "attention_mask"], others].concat())?;
        let (steps, rows, tokens) = match *file.read("input_ids")?.shape() {
            [rows, tokens] => (1, rows, tokens),
            [steps, rows, tokens] => (steps, rows, tokens),
            ref other => anyhow::bail!("`input_ids` has shape {other:?}"),
        };
        let mask = file.read("attention_mask")?.to_i64()?;
        ensure!(mask.len() == steps * rows * tokens, "`attention_mask` has another shape");
        ensure!(mask.iter().all(|m| (0..=1).contains(m)), "`attention_mask` is not 0 or 1");
        Ok(Self { file, dtype: case.dtype, steps, rows, tokens, mask })
    }

    /// `found`, whose last axes but one are the columns from `first` on, is compared where they are no padding.
    pub(crate) fn real(&self, found: Values, first: usize) -> Values {
        let &[rows, .., columns, width] = found.shape.as_slice() else {
            panic!("shape {:?}", found.shape)
        };
        let per_row = found.values.len() / rows;
        found.keeping(|index| {
            let (row, column) = (index / per_row, index / width % columns);
            self.mask[row * self.tokens + first + column] == 1
        })
    }

    /// The batch of a step.
    pub(crate) fn batch(&self, step: usize) -> Result<TokenBatch> {
        let (rows, tokens) = (self.rows, self.tokens);
        let cells = step * rows * tokens..(step + 1) * rows * tokens;
        let ints = |values: &[i64]| {
            let data = TensorData::new(values[cells.clone()].to_vec(), [rows, tokens]);
            Tensor::<2, Int>::from_data(data, &device())
        };
        let ids = ints(&self.file.read("input_ids")?.to_i64()?);
        let type_ids = match self.integers("token_type_ids")? {
            Some(types) => ints(&types),
            None => ids.zeros_like(),
        };
        let mask: Vec<f64> = self.mask[cells.clone()].iter().map(|&m| m as f64).collect();
        Ok(TokenBatch::new(ids, type_ids, self.floats(mask, tokens)))
    }

    /// Targets of a classifier in a step; none without labels.
    pub(crate) fn targets(&self, step: usize, config: &DebertaConfig) -> Result<Option<Targets>> {
        if !self.file.contains("labels") {
            return Ok(None);
        }
        let labels = Values::read(&self.file, "labels")?.values;
        let labels = &labels[step * self.rows..(step + 1) * self.rows];
        Ok(Some(match config.problem() {
            ProblemType::Classification => self.classes(labels, config.num_labels())?,
            ProblemType::Regression => Targets::Scores(self.floats(labels.to_vec(), 1)),
            ProblemType::MultiLabel => panic!("no fixture has several labels an example"),
        }))
    }

    /// The text with the columns whose next token is labelled, and those tokens; none without labels.
    pub(crate) fn text(&self) -> Result<Option<(TokenBatch, Targets)>> {
        let Some(labels) = self.integers("labels")? else { return Ok(None) };
        let asked = |row: &[i64]| (1..row.len()).filter(|&t| row[t] >= 0).map(|t| t - 1).collect();
        let columns: Vec<Vec<usize>> = labels.chunks(self.tokens).map(asked).collect();
        let next = |(row, columns): (&[i64], &Vec<usize>)| -> Vec<i64> {
            columns.iter().map(|t| row[t + 1]).collect()
        };
        let ids = labels.chunks(self.tokens).zip(&columns).map(next).collect::<Vec<_>>().concat();
        if ids.is_empty() {
            return Ok(None);
        }
        let per_row = columns.iter().map(Vec::len).collect();
        let n = ids.len();
        let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [n]), &device());
        let text = TokenBatch { columns, ..self.batch(0)? };
        Ok(Some((text, Targets::Tokens { ids, per_row })))
    }

    /// The tokens that may be the answer, and which of them is right, if both are recorded.
    pub(crate) fn answers(&self) -> Result<(Vec<u32>, Option<Targets>)> {
        let ids = self.integers("answer_token_ids")?.unwrap_or_default();
        let labels = self.integers("answer_labels")?;
        let labels = labels.map(|l| l.into_iter().map(|l| l as f64).collect::<Vec<_>>());
        let targets = labels.map(|labels| self.classes(&labels, ids.len())).transpose()?;
        Ok((ids.into_iter().map(|id| id as u32).collect(), targets))
    }

    fn classes(&self, labels: &[f64], classes: usize) -> Result<Targets> {
        let mut one_hot = vec![0.0; self.rows * classes];
        for (row, &label) in labels.iter().enumerate() {
            ensure!((0.0..classes as f64).contains(&label), "label {label} of {classes} classes");
            one_hot[row * classes + label as usize] = 1.0;
        }
        Ok(Targets::Classes(self.floats(one_hot, classes)))
    }

    fn integers(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let tensor = self.file.contains(name).then(|| self.file.read(name)).transpose()?;
        tensor.map(|t| t.to_i64().with_context(|| format!("tensor `{name}`"))).transpose()
    }

    fn floats(&self, values: Vec<f64>, columns: usize) -> Tensor<2> {
        let data = TensorData::new(values, [self.rows, columns]).convert_dtype(self.dtype);
        Tensor::from_data(data, (&device(), self.dtype))
    }
}

/// Mean over the answers of the negative log-likelihood, as in training.
pub(crate) fn mean_loss(logits: Tensor<2>, targets: &Targets) -> Tensor<1> {
    // Multiplied, not divided: Burn's gradient of a division rounds the reciprocal to single precision.
    negative_log_likelihood(logits, targets).mul_scalar(1.0 / targets.answers() as f64)
}
