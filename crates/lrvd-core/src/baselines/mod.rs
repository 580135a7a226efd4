//! The other ways to be uncertain about an adapter.
//!
//! One file per method, with its divergences, starting values and constants; noise is an argument throughout.
//! `AdaLoRA` is in [`crate::adalora`].

pub mod blob;
pub mod c_lora;
pub mod element_gaussian;
pub mod laplace;
pub mod minibatch_weight;
mod parameter_count;
pub mod scala_bl;
pub mod swag;
pub mod temperature;
pub mod tfb;

pub use c_lora::{context_kl, context_parameter_count};
pub use element_gaussian::{ElementGaussian, ElementReduction, ScaleMixture, StdMap};
pub use minibatch_weight::MinibatchWeight;
pub use parameter_count::{CountedMethod, LayerShape};
pub use scala_bl::{KlDirection, ScalaBlBasis, scala_bl_basis, scala_bl_kl};
pub use swag::Swag;
pub use temperature::{TemperatureFit, temperature_scaling};
pub use tfb::RotatedAdapter;
