//! The other ways to be uncertain about an adapter.
//!
//! One file per method, with its divergences, starting values and constants; noise is an argument throughout. `AdaLoRA` is in
//! [`crate::adalora`].

pub mod bayes_by_backprop;
pub mod blob;
pub mod c_lora;
pub mod laplace;
pub mod minibatch_weight;
pub mod scala_bl;
pub mod swag;
pub mod temperature;
pub mod tfb;

pub use bayes_by_backprop::{ElementReduction, ScaleMixture, StdMap};
pub use c_lora::context_kl;
pub use minibatch_weight::MinibatchWeight;
pub use scala_bl::{KlDirection, ScalaBlBasis, scala_bl_basis, scala_bl_kl};
pub use swag::Swag;
pub use temperature::{TemperatureFit, shrunk_temperature, temperature_scaling};
pub use tfb::RotatedAdapter;
