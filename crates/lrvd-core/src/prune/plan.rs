//! What is kept of every adapter, and how much that is.

use crate::error::{ShapeError, check_length};
use crate::family::VariationalFamily;

/// The kept rank components of one adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AdapterPlan {
    pub(super) kept: Vec<usize>,
    pub(super) rank_before: usize,
}

impl AdapterPlan {
    /// Indices to keep, ascending.
    pub fn kept(&self) -> &[usize] {
        &self.kept
    }

    /// Indices to drop, ascending.
    pub fn dropped(&self) -> Vec<usize> {
        (0..self.rank_before).filter(|i| self.kept.binary_search(i).is_err()).collect()
    }

    /// The rank before.
    pub fn rank_before(&self) -> usize {
        self.rank_before
    }

    /// The rank after.
    pub fn rank_after(&self) -> usize {
        self.kept.len()
    }

    /// Whether anything is dropped.
    pub fn changes(&self) -> bool {
        self.kept.len() != self.rank_before
    }

    /// The number of trainable values that go, means and posterior parameters.
    pub fn parameters_saved(
        &self,
        family: VariationalFamily,
        d_input: usize,
        d_output: usize,
    ) -> usize {
        let gone = self.rank_before - self.kept.len();
        gone * (d_input + d_output) + family.parameter_count(gone, d_input, d_output)
    }
}

/// The kept rank components of all adapters, in the caller's order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PrunePlan {
    pub(super) adapters: Vec<AdapterPlan>,
}

impl PrunePlan {
    /// One plan per adapter.
    pub fn adapters(&self) -> &[AdapterPlan] {
        &self.adapters
    }

    /// Ranks after the prune, one per adapter.
    pub fn ranks(&self) -> Vec<usize> {
        self.adapters.iter().map(AdapterPlan::rank_after).collect()
    }

    /// Whether anything is dropped anywhere.
    pub fn changes(&self) -> bool {
        self.adapters.iter().any(AdapterPlan::changes)
    }
}

/// Ranks of all adapters as the published tables report them.
///
/// # Formula
///
/// ```text
/// total = Σ_m rank[m],   average = total / M,   percent = 100 · average / initial_rank
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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

/// The kept rows of a rank-major tensor `[rank, width]`: factors, per-rank parameters (width 1)
/// and optimiser moments alike.
///
/// # Errors
///
/// [`ShapeError`] if `values` is not `rank_before` rows of `width` values.
pub fn select_rows(
    name: &'static str,
    values: &[f64],
    width: usize,
    plan: &AdapterPlan,
) -> Result<Vec<f64>, ShapeError> {
    check_length(name, values.len(), plan.rank_before * width)?;
    Ok(plan.kept.iter().flat_map(|&k| &values[k * width..(k + 1) * width]).copied().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::prune::PruneRule;

    #[test]
    fn rows_follow_the_plan() {
        let plan = PruneRule::default().plan_adapter(&[1.0, 9.0, 2.0]).unwrap();
        let rows = select_rows("a", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, &plan).unwrap();
        assert_eq!(rows, [1.0, 2.0, 5.0, 6.0]);
        assert!(select_rows("a", &[1.0; 5], 2, &plan).is_err());
        assert_eq!(plan.parameters_saved(VariationalFamily::RankVariance, 4, 3), 8);
        assert_eq!(plan.parameters_saved(VariationalFamily::ElementVariance, 4, 3), 14);
    }

    #[test]
    fn summaries_count_as_the_tables_do() {
        let plan =
            PruneRule::default().plan(&[vec![1.0, 9.0], vec![5.0, 5.0], vec![0.0, 1.0]]).unwrap();
        assert_eq!(plan.ranks(), [1, 0, 2]);
        assert!(plan.changes());
        let summary = RankSummary::new(&plan.ranks(), 2);
        assert_eq!(summary, RankSummary { total: 3, average: 1.0, percent: 50.0 });
        assert_eq!(RankSummary::new(&[], 8).average, 0.0);
        assert_eq!(RankSummary::new(&[0], 0).percent, 0.0);
    }
}
