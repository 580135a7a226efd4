//! How far numbers reach.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub least: usize,
    pub median: usize,
    /// The one that 95 % of the rows do not exceed.
    pub most_rows: usize,
    pub most: usize,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<usize>) -> Option<Self> {
        values.sort_unstable();
        let last = values.len().checked_sub(1)?;
        let at = |share: f64| values[(share * last as f64).floor() as usize];
        Some(Self { least: values[0], median: at(0.5), most_rows: at(0.95), most: values[last] })
    }
}
