//! Why a metric cannot be computed.

use thiserror::Error as ThisError;

/// Input that a metric is not defined on.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum MetricError {
    /// Too few values.
    #[error("`{name}` holds {found} values, wanted at least {wanted}")]
    TooFew {
        /// The argument at fault.
        name: &'static str,
        /// Fewest values the metric is defined on.
        wanted: usize,
        /// Values handed in.
        found: usize,
    },
    /// Two slices that belong together differ in length.
    #[error("`{name}` holds {found} values, wanted {wanted} as in `{other}`")]
    Length {
        /// The argument at fault.
        name: &'static str,
        /// The argument it should match.
        other: &'static str,
        /// Length of the other argument.
        wanted: usize,
        /// Length of this one.
        found: usize,
    },
    /// A flat slice does not divide into rows (or draws) of the wanted size.
    #[error("`{name}` holds {found} values, which is no multiple of `{size_name}` = {size}")]
    Rows {
        /// The argument at fault.
        name: &'static str,
        /// What a row is as long as.
        size_name: &'static str,
        /// Length of a row.
        size: usize,
        /// Values handed in.
        found: usize,
    },
    /// A count that must be positive is 0.
    #[error("`{name}` is 0, wanted at least 1")]
    Zero {
        /// The argument at fault.
        name: &'static str,
    },
    /// A class index outside the classes.
    #[error("`{name}` of row {row} is {found}, wanted a class below {n_classes}")]
    Class {
        /// The argument at fault.
        name: &'static str,
        /// The row at fault.
        row: usize,
        /// The class handed in.
        found: usize,
        /// The number of classes.
        n_classes: usize,
    },
    /// A value that is infinite or not a number.
    #[error("`{name}` has the value `{value}` at index {index}, wanted a finite number")]
    NonFinite {
        /// The argument at fault.
        name: &'static str,
        /// Position in the flat slice.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A probability outside 0 to 1, or a log-probability above 0.
    #[error("`{name}` has the value `{value}` at index {index}, outside {low}..={high}")]
    Range {
        /// The argument at fault.
        name: &'static str,
        /// Position in the flat slice.
        index: usize,
        /// The value.
        value: f64,
        /// The smallest value allowed.
        low: f64,
        /// The largest value allowed.
        high: f64,
    },
    /// A row of probabilities that does not sum to 1.
    #[error("row {row} of `{name}` sums to {sum}, wanted 1 within {tolerance}")]
    RowSum {
        /// The argument at fault.
        name: &'static str,
        /// The row at fault.
        row: usize,
        /// Its sum.
        sum: f64,
        /// The distance from 1 that is allowed.
        tolerance: f64,
    },
    /// A correlation with something that does not vary.
    #[error("`{name}` is constant, so its correlation is not defined")]
    Constant {
        /// The argument at fault.
        name: &'static str,
    },
}
