//! Classifiers and regressors: a text or a pair in, labels or numbers out.

mod answer;
mod card;
mod model;
mod request;

#[cfg(test)]
pub(super) use card::Drawn;
pub(super) use card::{CLASSIFY, ClassifierCard};
pub(crate) use model::Classifier;
