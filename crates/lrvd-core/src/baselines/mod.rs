//! The other ways to be uncertain about an adapter.
//!
//! One file per concept, each with its formulas, written derivatives and starting values; noise is an
//! argument throughout. `AdaLoRA` has a module of its own, [`crate::adalora`].
//!
//! | Module               | Baseline                                                                   |
//! |----------------------|----------------------------------------------------------------------------|
//! | `std_map`            | how an unconstrained parameter becomes a standard deviation                |
//! | [`element_gaussian`] | Bayes by backprop: a Gaussian per weight, its KL in closed form or sampled |
//! | `scale_mixture`      | its two-component prior                                                    |
//! | [`minibatch_weight`] | the share of the KL that each minibatch carries                            |
//! | `flipout`            | noise on A per token from one draw                                         |
//! | [`blob`]             | BLoB: why noise on A alone is a prior on the whole weight                  |
//! | [`scala_bl`]         | `ScalaBL`: noise on `r` scales in an orthonormal basis                     |
//! | [`c_lora`]           | C-LoRA: noise on an `r x r` matrix that depends on the input               |
//! | [`laplace`]          | Laplace-LoRA: curvature, evidence, predictive                              |
//! | [`swag`]             | SWAG: moments of an optimiser's path                                       |
//! | [`tfb`]              | TFB: the most noise a finished adapter can bear                            |
//! | [`temperature`]      | temperature scaling                                                        |
//! | `parameter_count`    | what each of them costs                                                    |

pub mod blob;
pub mod c_lora;
pub mod element_gaussian;
mod error;
mod flipout;
pub mod laplace;
pub mod minibatch_weight;
mod parameter_count;
pub mod scala_bl;
mod scale_mixture;
mod shape;
mod std_map;
pub mod swag;
pub mod temperature;
pub mod tfb;

pub use c_lora::{
    ContextAdapter, ContextGradient, ContextNetwork, ContextNoise, ContextPass,
    context_parameter_count,
};
pub use element_gaussian::{ElementGaussian, ElementGradient, ElementKl, ElementReduction};
pub use error::BaselineError;
pub use flipout::{FlipoutAdapter, FlipoutGradient, FlipoutNoise, FlipoutPass};
pub use minibatch_weight::MinibatchWeight;
pub use parameter_count::{CountedMethod, LayerShape};
pub use scala_bl::{
    KlDirection, ScalaBlAdapter, ScalaBlBasis, ScalaBlGradient, ScalaBlKl, ScalaBlPass,
    scala_bl_basis, scala_bl_kl,
};
pub use scale_mixture::ScaleMixture;
pub use std_map::StdMap;
pub use swag::Swag;
pub use temperature::{TemperatureFit, temperature_scaling};
pub use tfb::RotatedAdapter;
