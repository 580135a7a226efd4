//! Parameter groups: learning rate and decay by role.

use serde::{Deserialize, Serialize};

use crate::parameters::Group;

/// Upper bound on plausible rates and decays.
const LARGEST: f64 = 1e6;

/// Learning rate and decoupled weight decay of one group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRates {
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Decoupled decay per unit of learning rate.
    pub weight_decay: f64,
}

/// Rates of every role.
///
/// | Group | Parameters | Decay |
/// |---|---|---|
/// | `adapter` | factors A and B, AdaLoRA's E | usually 0 |
/// | `log_variance` | posterior parameters | 0 |
/// | `pooler` | matrices of the pooler, at the adapter's rate | usually 1e-2 |
/// | `head` | matrices of the task head | usually 1e-2 |
/// | `pooler`, `head`, vectors | biases and norm scales | always 0 |
/// | `backbone` | unfrozen backbone weights, as `head` | matrices only |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterGroups {
    /// Adapter factors.
    pub adapter: GroupRates,
    /// Posterior parameters.
    pub log_variance: GroupRates,
    /// Pooler.
    pub pooler: GroupRates,
    /// Task head.
    pub head: GroupRates,
    /// Backbone weights, if any are trained.
    pub backbone: GroupRates,
}

impl ParameterGroups {
    /// Checks that rates and decays are finite and at least 0.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        for (rate, decay, group) in [
            ("adapter.learning_rate", "adapter.weight_decay", self.adapter),
            ("log_variance.learning_rate", "log_variance.weight_decay", self.log_variance),
            ("pooler.learning_rate", "pooler.weight_decay", self.pooler),
            ("head.learning_rate", "head.weight_decay", self.head),
            ("backbone.learning_rate", "backbone.weight_decay", self.backbone),
        ] {
            for (name, value) in [(rate, group.learning_rate), (decay, group.weight_decay)] {
                if !(0.0..=LARGEST).contains(&value) {
                    let (low, high) = (0.0, LARGEST);
                    return Err(lrvd_core::Error::OutOfRange { name, value, low, high });
                }
            }
        }
        Ok(())
    }

    /// The rates of a parameter with `role` and `dimensions` axes.
    pub fn rates(&self, group: Group, dimensions: usize) -> GroupRates {
        let rates = match group {
            Group::AdapterMean => self.adapter,
            Group::LogVariance => GroupRates { weight_decay: 0.0, ..self.log_variance },
            Group::Pooler => self.pooler,
            Group::Head => self.head,
            Group::Backbone => self.backbone,
        };
        let exempt =
            matches!(group, Group::Pooler | Group::Head | Group::Backbone) && dimensions < 2;
        GroupRates { weight_decay: if exempt { 0.0 } else { rates.weight_decay }, ..rates }
    }
}
