//! Gradients between Burn's parameter ids and checkpoint names.

use burn::optim::GradientsParams;

use crate::model::AdaptedModel;
use crate::optimizer::NamedGradients;

/// Takes the gradients of every parameter that `model` names out of `gradients`, flattened.
pub(super) fn take(model: &impl AdaptedModel, gradients: &mut GradientsParams) -> NamedGradients {
    let mut named = NamedGradients::default();
    model.visit_parameters(&mut |p| {
        let (id, len) = (p.value.id(), p.value.len());
        let gradient = match p.value.shape().len() {
            1 => gradients.remove::<1>(id),
            2 => gradients.remove::<2>(id).map(|g| g.reshape([len])),
            _ => gradients.remove::<3>(id).map(|g| g.reshape([len])),
        };
        // Burn hands out gradients for factors of rank 0, too; there is nothing to update.
        if let Some(gradient) = gradient.filter(|_| len > 0) {
            named.insert(p.name.to_owned(), gradient);
        }
    });
    named
}
