//! The divergence of the posterior from the prior, in nats.
//!
//! Direction everywhere: posterior `q` from prior `p`, so every value is to be minimised.
//!
//! | Prior                                  | Module          | Proper? |
//! |----------------------------------------|-----------------|---------|
//! | log-uniform                            | [`log_uniform`] | no: defined up to a constant |
//! | zero-mean Gaussian of given width      | [`gaussian`]    | yes     |
//! | hierarchical Gaussian, width learned   | [`ard`]         | yes     |

pub mod ard;
pub mod gaussian;
pub mod log_uniform;

pub use ard::{ArdKl, ArdPrior, ArdScales, inverse_gamma_kl, kl_ard, scale_kl};
pub use gaussian::gaussian_kl;
pub use log_uniform::{KlReduction, LogUniformKl, LogUniformOptions, kl_fit, kl_log_uniform};
