//! Saved models behind HTTP: `lrvd serve`.
//!
//! The thread that calls [`Server::run`] asks the classifiers, a second one the language models, and a third one handles HTTP. Between
//! them are two queues.
//!
//! | File | Contents |
//! |---|---|
//! | `server` | start and stop, connections |
//! | `routes` | paths, limits of requests, log lines |
//! | `access` | the checks of every request: `Host`, key |
//! | `body` | bodies of requests and responses as JSON |
//! | `openapi` | the table of the APIs by which models are asked, and its description for programs |
//! | `native` | `/v1/classify` and `/v1/generate`: requests and responses in our form |
//! | `openai`, `completion` | requests and responses in the form of `OpenAI` for language models |
//! | `systemone`, `decisions`, `typed` | typed questions in the forms of two APIs, and what these share |
//! | `adapters` | the routes that list adapters, add one, replace one or remove one |
//! | `app` | what every request needs; from a request that is read to its response, whole or as a stream |
//! | `queue` | requests that wait, which of them are answered together, the loop that asks the model |
//! | `models` | the models by their names |
//! | `card` | what clients know of a model |
//! | `model` | a classifier or a language model: how it is asked, and its answers |
//! | `problem` | errors, in the form of the path's API |
//! | `metrics` | counts for Prometheus |

mod access;
mod adapters;
mod app;
mod body;
mod card;
mod completion;
mod decisions;
mod metrics;
mod model;
mod models;
mod native;
mod openai;
mod openapi;
mod problem;
mod queue;
mod routes;
mod server;
mod systemone;
mod typed;

pub(crate) use model::{Limits, Model};
pub(crate) use models::check_name;
pub(crate) use routes::log_signal;
pub(crate) use server::Server;

const CLASSIFY: &str = "/v1/classify";
const GENERATE: &str = "/v1/generate";
const COMPLETIONS: &str = "/v1/completions";
const CHAT_COMPLETIONS: &str = "/v1/chat/completions";
const SYSTEMONE: &str = "/v1/systemone";
const DECISIONS: &str = "/v1/decisions";
const MODELS: &str = "/v1/models";
const ADAPTERS: &str = "/v1/adapters";
const ADAPTER: &str = "/v1/adapters/{name}";

/// Version of answers and of the model's description.
const SCHEMA_VERSION: u32 = 1;
