//! Encoder, head, loss and gradients of one batch.

use lrvd_burn::model::AdaptedModel;
use lrvd_burn::sampling::Pass;

use super::compare::Comparison;
use super::error::VerifyError;
use super::folder::Folder;
use super::inputs::Batch;
use super::model::{Base, host, stored_gradients};
use super::report::{VerifyOptions, VerifyReport};
use super::tolerance::Limit;
use super::values::Values;

/// Gradient of a parameter that the configuration calls the padding row's table.
const WORDS: &str = "deberta.embeddings.word_embeddings.weight";

pub(super) fn verify(
    folder: &Folder,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let mut comparison = Comparison::open(folder, options.precision)?;
    comparison.check_complete()?;
    comparison.require("logits")?;
    let Base { config, mut model, device, dtype } = Base::load(&folder.dir, options)?;
    let batch = Batch::read(folder, &config)?;
    check_description(&mut comparison, &batch, config.num_labels())?;
    note_unknown(&mut comparison, config.unrecognised());

    let wants_gradients = !comparison.below("grad.").is_empty();
    if wants_gradients {
        model.visit_parameters_mut(&mut |p| p.value.set_trainable(true));
    }
    let input = batch.upload(&device, dtype);
    let pass = Pass::mean();
    let states = model.encoder().hidden_states(&input, &pass);
    for (i, state) in states.iter().enumerate() {
        let name = format!("hidden_states.{i}");
        if comparison.has(&name) {
            let width = config.hidden_size;
            let limit = folder.tolerance(&name, options.precision)?;
            let real = |index: usize| batch.mask[index / width] == 1;
            comparison.tensor_where(&name, &host(state.clone()), limit, real)?;
        }
    }
    let last = states.into_iter().next_back().expect("the embedding output is a state");
    let (pooled, logits) = model.head(last, &pass);
    let mut found = vec![("pooled", host(pooled)), ("logits", host(logits.clone()))];
    let loss = batch.loss(logits);
    found.extend(loss.clone().map(|loss| ("loss", host(loss))));
    for (name, values) in &found {
        if comparison.has(name) {
            comparison.tolerated(name, values)?;
        }
    }
    check_scalars(&mut comparison, &found)?;
    if wants_gradients && let Some(loss) = loss {
        let mut gradients = stored_gradients(&model, &loss.backward());
        if let (Some(words), Some(pad)) = (gradients.get_mut(WORDS), config.pad_token_id) {
            // The reference implementation trains every row but the padding's.
            let width = config.embedding_size;
            words.values[pad * width..(pad + 1) * width].fill(0.0);
        }
        for name in comparison.below("grad.") {
            if let Some(gradient) = gradients.get(&name) {
                comparison.tolerated(&format!("grad.{name}"), gradient)?;
            }
        }
    }
    comparison.finish()
}

/// The numbers of `scalars`, which repeat tensors.
pub(super) fn check_scalars(
    comparison: &mut Comparison<'_>,
    found: &[(&str, Values)],
) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let Some(scalars) = folder.find("scalars") else { return Ok(()) };
    for (name, entry) in scalars.entries()? {
        let Some((_, values)) = found.iter().find(|(known, _)| *known == name) else {
            return Err(VerifyError::unsupported(format!("key `{}`", entry.path())));
        };
        let limit = folder.tolerance(name, comparison.precision)?;
        comparison.numbers(&entry, &values.values, limit)?;
    }
    Ok(())
}

/// What `expected.json` says about the batch.
pub(super) fn check_description(
    comparison: &mut Comparison<'_>,
    batch: &Batch,
    labels: usize,
) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    let described = [
        ("num_labels", vec![labels as f64]),
        ("lengths", batch.lengths()),
        ("padded_length", vec![batch.tokens as f64]),
    ];
    for (key, found) in described {
        if let Some(entry) = folder.find(key) {
            comparison.numbers(&entry, &found, Limit::EXACT)?;
        }
    }
    Ok(())
}

/// Keys of a model's configuration that nobody knows; if one matters, the numbers say so.
pub(super) fn note_unknown(comparison: &mut Comparison<'_>, keys: &[String]) {
    if !keys.is_empty() {
        comparison.note(format!("keys of `config.json` that were not read: {keys:?}"));
    }
}
