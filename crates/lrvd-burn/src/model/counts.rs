//! Numbers of trainable values.

use super::NamedModule;
use crate::parameters::Group;

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
pub fn trainable_counts(model: &impl NamedModule) -> TrainableCounts {
    let mut counts = TrainableCounts::default();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            let n = p.value.len();
            match p.group {
                Group::AdapterMean => counts.adapter += n,
                Group::LogVariance => counts.posterior += n,
                Group::Pooler | Group::Head => counts.head += n,
                Group::Backbone => counts.backbone += n,
            }
        }
    });
    counts
}
