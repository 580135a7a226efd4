//! A saved classifier behind HTTP: `lrvd serve`.
//!
//! The thread that calls [`Server::run`] owns the model and answers; one other thread speaks HTTP. Between them is a queue.
//!
//! | File | What is in it |
//! |---|---|
//! | `card` | what clients can know of the model |
//! | `request`, `answer`, `problem` | the bodies of requests, answers and errors |
//! | `queue` | what waits, and which of it is answered together |
//! | `worker` | the loop that asks the model |
//! | `metrics` | counts for Prometheus |
//! | `routes` | which path does what; limits, log lines |
//! | `openapi` | the description of all that for programs |
//! | `server` | start and stop |

mod answer;
mod card;
mod metrics;
mod openapi;
mod problem;
mod queue;
mod request;
mod routes;
mod server;
#[cfg(test)]
mod testing;
mod worker;

pub(crate) use routes::Limits;
pub(crate) use server::Server;
