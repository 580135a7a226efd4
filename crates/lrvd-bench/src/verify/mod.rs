//! Folders of recorded numbers, checked: everything is recomputed from its inputs and its
//! configuration; the recorded values are only compared with.
//!
//! | File | What is in it |
//! |---|---|
//! | `run` | kinds of folders, and what recomputes each |
//! | `folder`, `values` | `expected.json` and the tensors beside it, with typed errors |
//! | `compare`, `tolerance` | distances of tensors and their limits; the account of recorded tensors |
//! | `model`, `inputs` | a base model and its batches, checked before anything is computed |
//! | `deberta`, `buckets` | encoder, head, loss, gradients; position buckets |
//! | `llama` | decoder, head, cache, answers, gradients; adapters on it |
//! | `peft` | PEFT adapters on a model |
//! | `train` | whole training runs, step by step |
//! | `bayes` | posterior, divergence, gauge, energy, Monte Carlo, calibration |
//! | `tokenizer` | ids of texts |
//! | `checkpoint` | a user's own checkpoint, which has no recorded values |
//! | `report`, `error` | what comes back |

mod bayes;
mod buckets;
mod checkpoint;
mod compare;
mod deberta;
mod error;
mod folder;
mod inputs;
mod llama;
mod model;
mod peft;
mod report;
mod run;
mod tokenizer;
mod tolerance;
mod train;
mod values;

use compare::{Comparison, unread};
use folder::{EXPECTED, Entry, Folder};
use tolerance::{Limit, bound};
use values::{Values, open, read, read_finite, read_indices, read_integers, same_shape};

pub use error::VerifyError;
pub use report::{Check, Precision, VerifyOptions, VerifyReport};
pub use run::verify;
