//! Low-Rank Variational Dropout, defined once: posterior, KL, pruning and calibration in `f64` on
//! plain slices.
//!
//! This crate is the reference the tensor code is checked against. It holds values only: gradients are those of automatic
//! differentiation elsewhere, compared with difference quotients of these values. It has no tensors, no I/O, no
//! logging and no global state; noise and seeds are arguments.
//!
//! # Notation
//!
//! | Symbol   | Identifier      | Shape                          | Unit        |
//! |----------|-----------------|--------------------------------|-------------|
//! | `r`      | `rank`          | scalar                         | components  |
//! | `A`, `μ` | `a_mean`        | `[rank, d_input]`              | weight      |
//! | `B`, `μ` | `b_mean`        | `[rank, d_output]`, rank-major | weight      |
//! | `ℓ`      | `log_variance`  | `[rank]` or per entry          | ln(weight²) |
//! | `a`      | `log_alpha`     | per entry or `[rank]`          | ln of σ²/μ² |
//! | `c`      | `scaling`       | scalar, `lora_alpha / initial_rank` | ratio  |
//! | `x`      | `x`             | `[tokens, d_input]`            | activation  |
//! | `s`      | `rank_mean`     | `[tokens, rank]`               | activation  |
//! | `y`      | `output`        | `[tokens, d_output]`           | activation  |
//! | `ε`, `ξ` | `eps`, `noise`  | as what it perturbs            | standard normal |
//! | `κ`      | `CrossTerm`     | switch                         |             |
//! | `β`      | `kl_weight`     | scalar                         | ratio       |
//! | `τ`      | `log_alpha_threshold` | scalar                   | ln of σ²/μ² |
//! | `R`      | `Gauge`         | `[rank, rank]`                 |             |
//!
//! Adapter files store B as `[d_output, rank]`; here both factors are rank-major, so that a rank
//! component is a row of either.

pub mod adalora;
pub mod baselines;
pub mod energy;
pub mod error;
pub mod factor;
pub mod family;
pub mod forward;
pub mod gates;
pub mod gauge;
pub mod kl;
pub mod log_alpha;
pub mod metrics;
pub mod moments;
pub mod noise;
pub mod numeric;
pub mod posterior;
pub mod prune;
pub mod schedule;

pub use error::{Error, ShapeError};
pub use factor::FactorView;
pub use family::VariationalFamily;
pub use posterior::{NoiseParameters, Posterior};
