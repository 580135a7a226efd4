//! Random numbers by address, on which every backend agrees.
//!
//! A counter-based generator has no state: a number is a pure function of a [`NoiseKey`] (seed, step, module,
//! stream) and an element index. A resumed run, a thread that fills one half of a tensor, or a GPU kernel that
//! computes its own noise therefore all see the same values, and nothing in the process is seeded globally.
//!
//! | File      | Holds                                                            |
//! |-----------|------------------------------------------------------------------|
//! | `key`     | what a draw is addressed by: [`NoiseKey`], [`Stream`], [`module_id`] |
//! | `philox`  | the block function Philox4x32-10 and runs of its blocks          |
//! | `normal`  | the Box-Muller pair, as defined and as computed                  |
//! | `fill`    | uniform and standard-normal numbers in slices                    |
//! | `draws`   | one number after another, unbiased indices, permutations         |

mod draws;
mod fill;
mod key;
mod normal;
mod philox;

pub use draws::{Draws, permutation};
pub use fill::{fill_normal, fill_normal_f64, fill_uniform};
pub use key::{NoiseKey, Stream, module_id};
pub use philox::{philox, words};
