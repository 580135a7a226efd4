//! The divergence of the posterior from the prior, in nats.
//!
//! Direction everywhere: posterior `q` from prior `p`, so every value is to be minimised.
//!
//! | Prior                                  | Module          | Proper? |
//! |----------------------------------------|-----------------|---------|
//! | log-uniform                            | [`log_uniform`], [`factorised`] | no: defined up to a constant |
//! | zero-mean Gaussian of given width      | [`gaussian`]    | yes     |
//! | hierarchical Gaussian, width learned   | [`ard`]         | yes     |

pub mod ard;
pub mod ard_scale;
pub mod factorised;
pub mod gaussian;
pub mod log_uniform;

pub use ard::{ArdKl, ArdScales, kl_ard};
pub use ard_scale::{ArdPrior, RankScale, inverse_gamma_kl, rank_scale};
pub use factorised::{KlReduction, LogUniformKl, LogUniformOptions, kl_log_uniform};
pub use gaussian::gaussian_kl;
pub use log_uniform::kl_fit;
