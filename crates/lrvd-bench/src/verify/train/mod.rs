//! Whole training runs: the loop of the harness against the one that was recorded.
//!
//! | File | What it answers |
//! |---|---|
//! | `settings` | the hyperparameters, all of them read, none assumed |
//! | `words` | whether the described procedure is the one that is here |
//! | `steps` | the loop |
//! | `allocation` | what `AdaLoRA` decided at every step |
//! | `compared` | the comparison |

mod allocation;
mod compared;
mod settings;
mod steps;
mod words;

pub(super) use compared::verify;
