//! What the allocator refuses.

use crate::error::ParameterError;
use thiserror::Error as ThisError;

/// Values that do not fit the allocator, or that it cannot rank.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum AdaLoraError {
    /// The configuration is not consistent.
    #[error(transparent)]
    Config(#[from] ParameterError),
    /// Another number of modules than the allocator was built for.
    #[error("got `{name}` of {found} modules, wanted {wanted}")]
    ModuleCount {
        /// What was handed in.
        name: &'static str,
        /// Modules the allocator was built for.
        wanted: usize,
        /// Modules handed in.
        found: usize,
    },
    /// A slice of one module has the wrong length.
    #[error("`{name}` of module {module} holds {found} values, wanted {wanted}")]
    Length {
        /// Index of the module.
        module: usize,
        /// The slice at fault.
        name: &'static str,
        /// Values the module's shape needs.
        wanted: usize,
        /// Values handed in.
        found: usize,
    },
    /// An entry's importance is infinite or not a number, so it cannot be ranked.
    #[error("`{name}` of module {module} has a non-finite value `{value}` at entry {entry}")]
    NonFinite {
        /// Index of the module.
        module: usize,
        /// The factor at fault.
        name: &'static str,
        /// Position in its slice.
        entry: usize,
        /// The value: an importance `|w·∂L/∂w|`, or a stored average.
        value: f64,
    },
    /// The pattern should be frozen by now, but none has been chosen.
    #[error("step {step} lies past the last masking step {last}, but no mask has been chosen")]
    NoMask {
        /// The step asked for.
        step: u32,
        /// The step at which the last mask is chosen.
        last: u32,
    },
}
