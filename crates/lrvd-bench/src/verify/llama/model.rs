//! Hidden states, logits, cache, losses and gradients of one batch.

use burn::tensor::{Tensor, activation};
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::sampling::Pass;
use lrvd_models::TokenBatch;
use lrvd_models::llama::{KvCache, LlamaForCausalLm};

use super::Base;
use super::batch::Batch;
use crate::verify::model::{host, stored_gradients};
use crate::verify::{Comparison, Values, VerifyError};

pub(in crate::verify) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    comparison.check_model()?;
    let Base { config, mut model, device, dtype, .. } =
        Base::load(&folder.dir, comparison.options)?;
    let batch = Batch::read(&folder.dir, &config)?;
    batch.check_description(comparison)?;
    comparison.note_unread(config.unrecognised());

    let wants_gradients = !comparison.below("grad.").is_empty();
    if wants_gradients {
        model.visit_parameters_mut(&mut |p| p.value.set_trainable(true));
    }
    let input = batch.upload(&device, dtype);
    let pass = Pass::mean();
    let states = model.model().hidden_states(&input, &pass);
    for (i, state) in states.iter().enumerate() {
        at_tokens(comparison, &format!("hidden_states.{i}"), state, &batch)?;
    }
    let last = states.into_iter().next_back().expect("the embeddings are a state");
    let logits = model.head(last, &pass);
    at_tokens(comparison, "logits", &logits, &batch)?;

    let mut found = Vec::new();
    let loss = batch.loss(&logits);
    found.extend(loss.clone().map(|loss| ("loss", host(loss))));
    found.push(("last_logits", host(model.last_logits(&input, &pass))));
    if !batch.answers.is_empty() {
        let answers = model.answer_logits(&input, &batch.answers, &pass);
        found.extend(batch.answer_loss(&answers).map(|loss| ("answer_loss", host(loss))));
        found.push(("answer_logprobs", host(activation::log_softmax(answers.clone(), 1))));
        found.push(("answer_logits", host(answers)));
    }
    comparison.found(&found)?;
    check_cache(comparison, &model, &batch, &input)?;
    if wants_gradients && let Some(loss) = loss {
        comparison.gradients(&stored_gradients(&model, &loss.backward()))?;
    }
    Ok(())
}

/// Compares a tensor `[rows, tokens, width]` where it stands at no padding, if it is recorded.
pub(super) fn at_tokens(
    comparison: &mut Comparison<'_>,
    name: &str,
    found: &Tensor<3>,
    batch: &Batch,
) -> Result<(), VerifyError> {
    if !comparison.has(name) {
        return Ok(());
    }
    let width = found.dims()[2];
    let limit = comparison.folder.tolerance(name, comparison.precision)?;
    let real = |index| batch.real_entry(index, width);
    comparison.tensor_where(name, &host(found.clone()), limit, real)
}

/// `kv.*`: a prefill of some columns, its keys and values, and the logits of the other columns, fed one at a time.
fn check_cache(
    comparison: &mut Comparison<'_>,
    model: &LlamaForCausalLm,
    batch: &Batch,
    input: &TokenBatch,
) -> Result<(), VerifyError> {
    if comparison.below("kv.").is_empty() {
        return Ok(());
    }
    let (rows, tokens) = (batch.rows, batch.tokens);
    let entry = comparison.folder.get("kv_cache")?.get("prefill_columns")?;
    let first = entry.count()?;
    if !(1..tokens).contains(&first) {
        return Err(entry.wrong(format!("1 to {}, so that columns are left", tokens - 1)));
    }
    let mut cache = KvCache::new();
    let feed = |cache: &mut KvCache, from: usize, columns: usize| {
        let ids = input.ids.clone().narrow(1, from, columns);
        let mask = input.mask.clone().narrow(1, from, columns);
        model.forward_cached(ids, mask, cache, &Pass::mean())
    };
    feed(&mut cache, 0, first);
    for (prefix, of_keys) in [("kv.prefill_keys.", true), ("kv.prefill_values.", false)] {
        for layer in comparison.below(prefix) {
            let held = layer
                .parse()
                .ok()
                .and_then(|layer| if of_keys { cache.keys(layer) } else { cache.values(layer) });
            let Some(held) = held else { continue };
            let [_, heads, columns, width] = held.dims();
            let real = |index: usize| {
                batch.is_real(index / (heads * columns * width), index / width % columns)
            };
            let name = format!("{prefix}{layer}");
            let limit = comparison.folder.tolerance(&name, comparison.precision)?;
            comparison.tensor_where(&name, &host(held), limit, real)?;
        }
    }
    let name = "kv.step_logits";
    if comparison.has(name) {
        let steps = (first..tokens).map(|column| feed(&mut cache, column, 1)).collect();
        let Values { shape, values } = host(Tensor::cat(steps, 1));
        let (width, columns) = (shape[2], tokens - first);
        let real = |index: usize| {
            let (row, step) = (index / width / columns, index / width % columns);
            batch.is_real(row, first + step)
        };
        debug_assert_eq!(shape[0], rows, "a row of logits for each row of tokens");
        let limit = comparison.folder.tolerance(name, comparison.precision)?;
        comparison.tensor_where(name, &Values::new(shape, values), limit, real)?;
    }
    Ok(())
}
