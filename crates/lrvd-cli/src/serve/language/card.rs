//! What clients can know of a language model.

use lrvd_bench::adapter::{Continuation, Generation, NEW_TOKENS};
use lrvd_bench::data::{Content, LanguageColumns};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Answers;
use super::model::LanguageModel;
use super::request::Request;
use crate::serve::problem::Problem;
use crate::serve::routes::Limits;
use crate::serve::served::{Asked, Card, Kind, SCHEMA_VERSION};

/// Where language models are asked.
pub(crate) const GENERATE: &str = "/v1/generate";

/// The model that answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub(crate) struct LanguageCard {
    pub(crate) schema_version: u32,
    /// Its base model, without the place.
    pub(crate) name: String,
    /// How it was trained; null where the adapter does not say.
    pub(crate) method: Option<String>,
    pub(crate) kind: Kind,
    /// Whether it was trained on conversations.
    pub(crate) chat: bool,
    /// Whether `messages` can be sent: the base model has a template for conversations.
    pub(crate) messages: bool,
    /// Most new tokens where a request names no number.
    pub(crate) tokens: usize,
    /// Most new tokens that a request may ask for.
    pub(crate) max_tokens: usize,
    /// Tokens that a prompt and its continuation may have together.
    pub(crate) context: usize,
    /// Draws where a request names no number.
    pub(crate) draws: usize,
    /// Most draws that a request may ask for; 0 where there is no posterior.
    pub(crate) max_draws: usize,
    /// Seed of the draws and of drawn tokens where a request names none.
    pub(crate) seed: u64,
    /// Most bytes of a request.
    pub(crate) max_bytes: usize,
}

impl LanguageCard {
    /// The card of a model under `limits`.
    pub(super) fn new(own: &LanguageModel, limits: &Limits) -> lrvd_bench::Result<Self> {
        let LanguageModel { model, draws, seed } = own;
        // The local path is not exposed.
        let name = model.base_name().rsplit(['/', '\\']).next().unwrap_or_default();
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            name: name.to_owned(),
            method: model.info.as_ref().map(|info| info.run.method.clone()),
            kind: Kind::Texts,
            chat: model.columns().is_some_and(LanguageColumns::is_chat),
            messages: model.has_chat()?,
            tokens: NEW_TOKENS.min(limits.max_tokens),
            max_tokens: limits.max_tokens,
            context: model.context(),
            draws: *draws,
            max_draws: if model.has_posterior() { limits.max_draws } else { 0 },
            seed: *seed,
            max_bytes: limits.max_bytes,
        })
    }
}

impl Card for LanguageCard {
    const PATH: &'static str = GENERATE;
    const DESCRIPTION: &'static str = "A language model that says how sure it is of every token.";
    const SUMMARY: &'static str = "Continue a text or a conversation, with uncertainty.";

    type Request = Request;
    type Input = Content;
    type Key = Generation;
    type Found = Continuation;
    type Answers = Answers;

    fn check(&self, request: Request) -> Result<Asked<Self>, Problem> {
        request.check(self)
    }

    fn answers(&self, found: Vec<Continuation>, key: Generation) -> Answers {
        Answers::new(found, key)
    }

    fn withheld(_: &Answers) -> usize {
        0
    }

    fn draws(key: Generation) -> usize {
        key.draws
    }
}
