//! A saved model behind HTTP: `lrvd serve`.
//!
//! The thread that calls [`Server::run`] owns the model and answers; one other thread speaks HTTP. Between them is a queue.
//!
//! | File | What is in it |
//! |---|---|
//! | `served` | what the kinds of models differ in |
//! | `classifier`, `language` | the two kinds: what clients can know of the model, bodies of requests and answers |
//! | `problem` | the body of errors |
//! | `queue` | what waits, and which of it is answered together |
//! | `worker` | the loop that asks the model |
//! | `access` | which requests are answered: their `Host`, their key |
//! | `metrics` | counts for Prometheus |
//! | `routes` | which path does what; limits, log lines |
//! | `openapi` | the description of all that for programs |
//! | `server` | start and stop, connections |

mod access;
mod classifier;
mod language;
mod metrics;
mod openapi;
mod problem;
mod queue;
mod routes;
mod served;
mod server;
#[cfg(test)]
mod testing;
mod worker;

pub(crate) use classifier::Classifier;
pub(crate) use language::LanguageModel;
pub(crate) use routes::Limits;
pub(crate) use server::Server;
