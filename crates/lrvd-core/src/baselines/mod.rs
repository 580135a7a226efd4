//! Comparison methods: Laplace, SWAG, TFB, Bayes by backprop, BLoB, temperature scaling.
//!
//! One file per method, with its formulas, starting values and constants; noise is an argument throughout. `AdaLoRA` is in
//! [`crate::adalora`].

pub mod bayes_by_backprop;
pub mod laplace;
pub mod swag;
pub mod temperature;
pub mod tfb;

pub use bayes_by_backprop::{ElementReduction, ScaleMixture, initial_rho};
pub use swag::Swag;
pub use temperature::{TemperatureFit, shrunk_temperature, temperature_scaling};
pub use tfb::RotatedAdapter;
