//! Published numbers beside measured ones.
//!
//! - `alias`: what a published method or metric is called here.
//! - `pair`: each published number with its partner; `print`: as text and markdown.

mod alias;
mod pair;
mod print;

#[cfg(test)]
mod tests;

pub(crate) use pair::{Comparison, ComparisonRow, compare};
