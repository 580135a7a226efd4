//! An export onto the model hub.
//!
//! The calls are those that the hub's own Python client makes: make the repository, ask which files are large, store
//! those by git's protocol for large files, and name all of them in one commit, so that a reader sees the old state
//! or the new one.
//!
//! | File | What is in it |
//! |---|---|
//! | `folder` | which files go |
//! | `upload` | the calls, in order |
//! | `client` | HTTP |

mod client;
mod error;
mod folder;
mod upload;

pub use error::PushError;
pub use upload::{PushOptions, PushReport, PushedFile, push};
