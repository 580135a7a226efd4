//! Saved models behind HTTP: `lrvd serve`.
//!
//! The thread that calls [`Server::run`] asks the classifiers, a second one the language models, and a third one handles HTTP. Between
//! them are two queues.
//!
//! | File | What is in it |
//! |---|---|
//! | `model` | a model, a classifier or a language model: how it is asked, and what clients can know of it |
//! | `models` | the models by their names |
//! | `adapters` | the routes that list them, add one, replace one or remove one |
//! | `apis` | the ways of asking a model, a row each, and their description for programs |
//! | `request`, `answer`, `response` | bodies of requests and responses |
//! | `typed` | typed questions in no API's form: limits, what is asked, answers in order |
//! | `systemone`, `decisions` | those routes: requests and responses in the forms of their APIs |
//! | `openai`, `completion` | requests and responses in the form of `OpenAI` for language models |
//! | `stream` | a text that is sent token by token |
//! | `encoding` | compressed bodies of requests |
//! | `problem` | errors, in the form of the path's API |
//! | `app` | what every request needs |
//! | `queue` | what waits, which of it is answered together, the loop that asks the model |
//! | `access` | which requests are answered: their `Host`, their key |
//! | `metrics` | counts for Prometheus |
//! | `routes` | which path does what; which pages of other sites may ask; limits, log lines |
//! | `server` | start and stop, connections |

mod access;
mod adapters;
mod answer;
mod apis;
mod app;
mod completion;
mod decisions;
mod encoding;
mod metrics;
mod model;
mod models;
mod openai;
mod problem;
mod queue;
mod request;
mod response;
mod routes;
mod server;
mod stream;
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
