//! Language models: a prompt or a conversation in, its continuation out.

mod answer;
mod card;
mod model;
mod request;

pub(super) use card::GENERATE;
#[cfg(test)]
pub(super) use card::LanguageCard;
pub(crate) use model::LanguageModel;
