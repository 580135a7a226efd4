//! Classifiers and regressors: a text, a pair or a question with choices in, labels or numbers out.

mod answer;
mod card;
mod model;
mod request;

#[cfg(test)]
pub(super) use answer::Found;
pub(super) use card::CLASSIFY;
#[cfg(test)]
pub(super) use card::{ClassifierCard, Drawn};
pub(crate) use model::Classifier;
