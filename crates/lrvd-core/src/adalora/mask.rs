//! One global threshold over all triplets.

/// Which triplets stay when the total rank must fall to `budget`.
///
/// # Formula
///
/// ```text
/// k = n − budget,   threshold = k-th smallest of the n scores,   keep[i] = score[i] > threshold
/// ```
///
/// Ties at the threshold are all masked, as in PEFT: fewer than `budget` triplets may stay (early in a run,
/// when many scores are still equal). For `budget ≥ n` nothing is masked; PEFT raises an error there.
///
/// # Shapes
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
    use super::*;
    use proptest::prelude::*;

    fn kept(mask: &[Vec<bool>]) -> usize {
        mask.iter().flatten().filter(|&&keep| keep).count()
    }

    #[test]
    fn the_smallest_scores_go_wherever_they_are() {
        let scores = [vec![0.4, 0.1], vec![0.3], vec![0.2, 0.5]];
        assert_eq!(mask_to_budget(&scores, 3), [vec![true, false], vec![true], vec![false, true]]);
        assert_eq!(kept(&mask_to_budget(&scores, 0)), 0);
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
