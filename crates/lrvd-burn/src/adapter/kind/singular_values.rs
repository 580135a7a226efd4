//! AdaLoRA: singular values between two nearly orthonormal factors.
//!
//! ```text
//! update(x) = c·((x·A) ⊙ E)·B
//! ```
//!
//! Zhang et al. 2023, arXiv:2303.10512; the budget is shared out by [`AdaLora`](crate::adalora::AdaLora).

use super::Extension;
use crate::adapter::initialisation::Initialiser;
use crate::adapter::schema::{Axis, ParameterSchema};
use crate::parameters::Group;

/// The singular values.
pub(super) const E: ParameterSchema = ParameterSchema {
    name: "lora_E",
    group: Group::AdapterMean,
    transposed: false,
    axes: &[Axis::Rank],
    initial_use: 0,
};

/// Standard deviation of the initial factors.
pub(super) const STD: f64 = 0.02;

/// Singular values of 0, so that training starts at the base model.
pub(super) fn fresh(init: &Initialiser) -> Extension {
    Extension::SingularValues(init.constant(&E, 0.0))
}
