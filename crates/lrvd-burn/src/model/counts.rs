//! Numbers of trainable values.

use super::AdaptedModel;
use crate::parameters::Role;

/// Numbers of trainable values by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainableCounts {
    /// Adapter factors.
    pub adapter: usize,
    /// Posterior parameters.
    pub posterior: usize,
    /// Pooler and head.
    pub head: usize,
    /// Unfrozen backbone weights.
    pub backbone: usize,
}

/// Counts the trainable values of `model` by role.
pub fn trainable_counts(model: &impl AdaptedModel) -> TrainableCounts {
    let mut counts = TrainableCounts::default();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            let n = p.value.len();
            match p.role {
                Role::AdapterMean => counts.adapter += n,
                Role::LogVariance => counts.posterior += n,
                Role::Pooler | Role::Head => counts.head += n,
                Role::Backbone => counts.backbone += n,
            }
        }
    });
    counts
}
