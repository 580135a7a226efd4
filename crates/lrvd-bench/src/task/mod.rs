//! The tasks: what their columns and classes mean, and which number each reports.
//!
//! [`TaskSpec`] is what every task family shares; [`GlueTask`] is the table of the eight GLUE tasks.
//! A task family that comes later brings its own enum and hands out the same specification.
//! [`Goal`] is the part that a user's own data has as well.

mod glue;
mod goal;
mod spec;

pub use glue::GlueTask;
pub use goal::Goal;
pub use spec::{Metric, Target, TaskSpec};
