//! A task whose answer is known: a frozen network, an update of known rank, labels drawn from the sum.
//!
//! | File | Holds |
//! |---|---|
//! | `task` | [`PlantedTask`]: the network, the update, rows and labels, the loss of the truth |
//! | `student` | [`Student`]: the same frozen network with adapters |
//! | `recover` | [`recover`]: training, the rank that is found, how good the answers are |
//! | `picture` | the singular values and the loss over rank, in a terminal and as SVG |

mod picture;
mod recover;
mod student;
mod task;

pub use picture::{save, svg, terminal};
pub use recover::{LayerRank, PlantedError, PlantedSettings, Recovery, recover};
pub use student::Student;
pub use task::{InputLaw, PlantedConfig, PlantedTask};
