//! Ranks of all adapters in the numbers of the published tables.

/// Ranks of all adapters as the published tables report them.
///
/// # Formula
///
/// ```text
/// total = Σ_m rank[m],   average = total / M,   percent = 100 · average / initial_rank
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankSummary {
    /// Sum over adapters.
    pub total: usize,
    /// Mean over adapters; 0 if there are none.
    pub average: f64,
    /// Mean in percent of the initial rank; 0 if that is 0.
    pub percent: f64,
}

impl RankSummary {
    /// Summarises the ranks of adapters that all began at `initial_rank`.
    pub fn new(ranks: &[usize], initial_rank: usize) -> Self {
        let total = ranks.iter().sum();
        let average = if ranks.is_empty() { 0.0 } else { total as f64 / ranks.len() as f64 };
        let percent = if initial_rank == 0 { 0.0 } else { 100.0 * average / initial_rank as f64 };
        Self { total, average, percent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_count_as_the_tables_do() {
        let summary = RankSummary::new(&[1, 0, 2], 2);
        assert_eq!(summary, RankSummary { total: 3, average: 1.0, percent: 50.0 });
        assert_eq!(RankSummary::new(&[], 8).average, 0.0);
        assert_eq!(RankSummary::new(&[0], 0).percent, 0.0);
    }
}
