//! Scores of each class: precision, recall, F1, confusions.

use serde::{Deserialize, Serialize};

/// Precision, recall and F1 of every class, or of every one of several labels, and which classes are taken for which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassReport {
    /// In class order.
    pub classes: Vec<ClassRecord>,
    /// Unweighted mean over the classes that are a label or an answer.
    pub macro_average: AverageRecord,
    /// Mean over the classes with their supports as weights.
    pub weighted_average: AverageRecord,
    /// The largest cells of the confusion matrix off its diagonal, the largest first; none of several labels.
    pub confused: Vec<ConfusedRecord>,
}

/// Scores of a class; null of a class that is neither a label nor an answer. A ratio with denominator 0 is 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassRecord {
    pub class: String,
    pub precision: Option<f64>,
    pub recall: Option<f64>,
    pub f1: Option<f64>,
    /// Rows that have the class.
    pub support: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AverageRecord {
    pub precision: f64,
    pub recall: f64,
    pub f1: f64,
}

/// A cell of the confusion matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfusedRecord {
    pub label: String,
    pub answer: String,
    pub count: u64,
    /// Of the rows with the label.
    pub share: f64,
}
