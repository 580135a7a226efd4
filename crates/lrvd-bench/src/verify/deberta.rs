//! Encoder, head, loss and gradients of one batch.

use lrvd_burn::model::AdaptedModel;
use lrvd_burn::sampling::Pass;

use super::inputs::Batch;
use super::model::{Base, host, stored_gradients};
use super::{Comparison, VerifyError};

/// Gradient of a parameter that the configuration calls the padding row's table.
const WORDS: &str = "deberta.embeddings.word_embeddings.weight";

pub(super) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    comparison.check_model()?;
    let Base { config, mut model, device, dtype } = Base::load(&folder.dir, comparison.options)?;
    let batch = Batch::read(folder, &config)?;
    batch.check_description(comparison)?;
    comparison.note_unread(config.unrecognised());

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
            let limit = folder.tolerance(&name, comparison.precision)?;
            let real = |index: usize| batch.mask[index / width] == 1;
            comparison.tensor_where(&name, &host(state.clone()), limit, real)?;
        }
    }
    let last = states.into_iter().next_back().expect("the embedding output is a state");
    let (pooled, logits) = model.head(last, &pass);
    let mut found = vec![("pooled", host(pooled)), ("logits", host(logits.clone()))];
    let loss = batch.loss(logits);
    found.extend(loss.clone().map(|loss| ("loss", host(loss))));
    comparison.found(&found)?;
    if wants_gradients && let Some(loss) = loss {
        let mut gradients = stored_gradients(&model, &loss.backward());
        if let (Some(words), Some(pad)) = (gradients.get_mut(WORDS), config.pad_token_id) {
            // The reference implementation trains every row but the padding's.
            let width = config.embedding_size;
            words.values[pad * width..(pad + 1) * width].fill(0.0);
        }
        comparison.gradients(&gradients)?;
    }
    Ok(())
}
