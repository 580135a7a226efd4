//! Random numbers by address, on which every backend agrees.
//!
//! A counter-based generator has no state: a number is a pure function of a [`NoiseKey`] (seed, step, module,
//! stream) and an element index. A resumed run, a thread that fills one half of a tensor, or a GPU kernel that
//! computes its own noise therefore all see the same values, and nothing in the process is seeded globally.

mod draws;
mod fill;
mod key;
mod normal;
mod philox;

pub use draws::{Draws, permutation};
pub use fill::{fill_normal, fill_normal_f64, fill_uniform};
pub use key::{NoiseKey, Stream, module_id};
pub use philox::{philox, words};
