//! Classifiers and regressors: a text or a pair in, labels or numbers out.

mod answer;
mod card;
mod model;
mod request;

pub(super) use card::CLASSIFY;
#[cfg(test)]
pub(super) use card::{ClassifierCard, Drawn};
pub(crate) use model::Classifier;
