//! Whole training runs: the loop of the harness against the one that was recorded.
//!
//! | File | What is there |
//! |---|---|
//! | `settings` | the hyperparameters, all of them read, none assumed |
//! | `words` | the described procedure, which must be the one that is here |
//! | `steps` | the loop |
//! | `allocation` | decisions of `AdaLoRA` at every step |
//! | `compared` | the comparison |

mod allocation;
mod compared;
mod settings;
mod steps;
mod words;

pub(super) use compared::verify;
