//! Smoothed importance of entries, the score of a triplet, and one global threshold over all triplets.

use super::config::AdaLoraConfig;

/// Widths of one adapted module; the rank is the configuration's `init_r` everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TripletShape {
    /// Input features: columns of `A`.
    pub d_input: usize,
    /// Output features: rows of `B`.
    pub d_output: usize,
}

/// Moving averages for the entries of one factor.
///
/// With `I = |w·∂L/∂w|` of this step, entry by entry:
///
/// ```text
/// importance  ← beta1·importance  + (1 − beta1)·I
/// uncertainty ← beta2·uncertainty + (1 − beta2)·|I − importance|      (the new importance)
/// score        = importance · uncertainty
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EntryImportance {
    /// Smoothed importance of every entry.
    pub importance: Vec<f64>,
    /// Smoothed distance of the importance from its average.
    pub uncertainty: Vec<f64>,
}

impl EntryImportance {
    /// All averages 0.
    pub fn zeros(len: usize) -> Self {
        Self { importance: vec![0.0; len], uncertainty: vec![0.0; len] }
    }

    /// Adds one step's importances.
    pub(super) fn update(&mut self, now: impl Iterator<Item = f64>, config: &AdaLoraConfig) {
        let (beta1, beta2) = (config.beta1, config.beta2);
        for ((mean, spread), now) in self.importance.iter_mut().zip(&mut self.uncertainty).zip(now)
        {
            *mean = beta1 * *mean + (1.0 - beta1) * now;
            *spread = beta2 * *spread + (1.0 - beta2) * (now - *mean).abs();
        }
    }

    fn score(&self, entry: usize) -> f64 {
        self.importance[entry] * self.uncertainty[entry]
    }
}

/// Moving averages of the three factors of one module.
#[derive(Clone, Debug, PartialEq)]
pub struct TripletImportance {
    /// Of `A`, `[init_r, d_input]`, row-major.
    pub a: EntryImportance,
    /// Of `E`, `[init_r]`.
    pub e: EntryImportance,
    /// Of `B`, `[d_output, init_r]`, row-major.
    pub b: EntryImportance,
}

impl TripletImportance {
    /// All averages 0.
    pub fn zeros(init_r: usize, shape: TripletShape) -> Self {
        Self {
            a: EntryImportance::zeros(init_r * shape.d_input),
            e: EntryImportance::zeros(init_r),
            b: EntryImportance::zeros(shape.d_output * init_r),
        }
    }

    /// Score of every triplet.
    ///
    /// ```text
    /// S[i] = s(E[i]) + mean_j s(A[i,j]) + mean_k s(B[k,i]),    s = importance · uncertainty
    /// ```
    pub fn scores(&self) -> Vec<f64> {
        let rank = self.e.importance.len();
        let d_input = self.a.importance.len() / rank.max(1);
        let d_output = self.b.importance.len() / rank.max(1);
        (0..rank)
            .map(|i| {
                let row: f64 = (0..d_input).map(|j| self.a.score(i * d_input + j)).sum();
                let column: f64 = (0..d_output).map(|k| self.b.score(k * rank + i)).sum();
                self.e.score(i) + row / d_input as f64 + column / d_output as f64
            })
            .collect()
    }
}

/// Which triplets stay when the total rank must fall to `budget`.
///
/// ```text
/// k = n − budget,   threshold = k-th smallest of the n scores,   keep[i] = score[i] > threshold
/// ```
///
/// Ties at the threshold are all masked, as in PEFT: fewer than `budget` triplets may stay (early in a run,
/// when many scores are still equal). For `budget ≥ n` nothing is masked; PEFT raises an error there.
///
/// `scores` holds one list per module; the result has the same lengths, `true` for a triplet that stays. Scores
/// are ordered by their total order, in which NaN is above every number.
pub fn mask_to_budget(scores: &[Vec<f64>], budget: usize) -> Vec<Vec<bool>> {
    let mut sorted: Vec<f64> = scores.iter().flatten().copied().collect();
    let n_masked = sorted.len().saturating_sub(budget);
    if n_masked == 0 {
        return scores.iter().map(|module| vec![true; module.len()]).collect();
    }
    let (_, threshold, _) = sorted.select_nth_unstable_by(n_masked - 1, f64::total_cmp);
    let threshold = *threshold;
    scores
        .iter()
        .map(|module| module.iter().map(|score| score.total_cmp(&threshold).is_gt()).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_score_averages_the_row_of_a_and_the_column_of_b() {
        // Rank 2, d_input 3, d_output 2; uncertainty 1 throughout, so scores are the importances.
        let entries = |importance: &[f64]| EntryImportance {
            importance: importance.to_vec(),
            uncertainty: vec![1.0; importance.len()],
        };
        let triplet = TripletImportance {
            a: entries(&[1.0, 2.0, 6.0, 30.0, 0.0, 0.0]),
            e: entries(&[100.0, 200.0]),
            b: entries(&[4.0, 1.0, 8.0, 2.0]),
        };
        // 100 + 9/3 + 12/2 and 200 + 30/3 + 3/2
        assert_eq!(triplet.scores(), [109.0, 211.5]);
    }

    fn kept(mask: &[Vec<bool>]) -> usize {
        mask.iter().flatten().filter(|&&keep| keep).count()
    }

    #[test]
    fn a_full_budget_masks_nothing() {
        let scores = [vec![0.0, 0.0], vec![0.0]];
        assert_eq!(kept(&mask_to_budget(&scores, 3)), 3);
        assert_eq!(kept(&mask_to_budget(&scores, 4)), 3);
        assert_eq!(mask_to_budget(&[], 0), Vec::<Vec<bool>>::new());
    }

    #[test]
    fn ties_at_the_threshold_are_all_masked() {
        let scores = [vec![1.0, 2.0, 2.0, 2.0, 3.0]];
        assert_eq!(mask_to_budget(&scores, 3), [vec![false, false, false, false, true]]);
        assert_eq!(mask_to_budget(&scores, 4), [vec![false, true, true, true, true]]);
    }

    proptest! {
        #[test]
        fn distinct_scores_meet_the_budget_and_the_best_stay(
            set in prop::collection::btree_set(0u32..10_000, 1..60), budget in 0usize..70
        ) {
            // A fixed stride scrambles the order without losing distinctness.
            let mut list: Vec<f64> = set.iter().map(|&x| f64::from(x)).collect();
            let n = list.len();
            list.rotate_left(n / 3);
            let scores = [list[..n / 2].to_vec(), list[n / 2..].to_vec()];
            let mask = mask_to_budget(&scores, budget);
            prop_assert_eq!(kept(&mask), budget.min(n));
            let of = |keep| scores.iter().flatten().zip(mask.iter().flatten())
                .filter(move |&(_, &k)| k == keep).map(|(&s, _)| s);
            let lowest_kept = of(true).fold(f64::INFINITY, f64::min);
            prop_assert!(of(false).all(|score| score < lowest_kept));
        }
    }
}
