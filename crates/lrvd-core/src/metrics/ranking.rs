//! How well a score tells two groups of examples apart.

use super::correlation::average_ranks;
use crate::error::{Error, check_at_least, check_finite};

/// Area under the receiver operating characteristic of a score that should be larger on `scores_out`.
///
/// The scores are an uncertainty (entropy, mutual information) on examples from the training distribution and on
/// others. 1 is a perfect separation, 0.5 what a score without information gives, 0 the perfect separation upside
/// down.
///
/// ```text
/// P(out > in) + ½·P(out = in) = (R_out − n_out·(n_out + 1)/2) / (n_in·n_out)
/// ```
///
/// over all pairs; `R_out` is the sum of the average ranks of `scores_out` among all scores, so that
/// ties count one half (the Mann-Whitney statistic).
///
/// # Errors
///
/// An empty group, or a score that is infinite or NaN.
///
/// Source: Hanley and `McNeil` 1982: The meaning and use of the area under a receiver operating characteristic curve.
///
/// # Examples
///
/// ```
/// use lrvd_core::metrics::auroc;
///
/// // Five of the six pairs are in order, one is a tie.
/// assert!((auroc(&[0.1, 0.4, 0.2], &[0.4, 0.9])? - 5.5 / 6.0).abs() < 1e-15);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn auroc(scores_in: &[f64], scores_out: &[f64]) -> Result<f64, Error> {
    check_at_least("scores_in", scores_in.len(), 1)?;
    check_at_least("scores_out", scores_out.len(), 1)?;
    check_finite("scores_in", scores_in)?;
    check_finite("scores_out", scores_out)?;
    let ranks = average_ranks(&[scores_in, scores_out].concat());
    let (n_in, n_out) = (scores_in.len() as f64, scores_out.len() as f64);
    // Ranks are multiples of a half, so the sum is exact far beyond any data set.
    let rank_sum: f64 = ranks[scores_in.len()..].iter().sum();
    Ok((rank_sum - n_out * (n_out + 1.0) / 2.0) / (n_in * n_out))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn worked_example() {
        // Pairs (in, out): 1 < 2, 1 < 3, 3 > 2, 3 = 3: (1 + 1 + 0 + 1/2)/4.
        assert_eq!(auroc(&[1.0, 3.0], &[2.0, 3.0]), Ok(0.625));
        assert_eq!(auroc(&[0.0, 0.1], &[0.2, 0.3, 0.4]), Ok(1.0));
        assert_eq!(auroc(&[0.2, 0.3, 0.4], &[0.0, 0.1]), Ok(0.0));
    }

    #[test]
    fn a_constant_score_tells_nothing() {
        assert_eq!(auroc(&[0.7; 5], &[0.7; 3]), Ok(0.5));
        assert_eq!(auroc(&[0.0], &[-0.0]), Ok(0.5));
    }

    #[test]
    fn mistakes_are_named() {
        let empty = |name| Error::length(name, 0, "at least 1");
        assert_eq!(auroc(&[], &[1.0]), Err(empty("scores_in")));
        assert_eq!(auroc(&[1.0], &[]), Err(empty("scores_out")));
        let nan = auroc(&[1.0], &[0.0, f64::NAN]);
        assert!(matches!(nan, Err(Error::Entry { name, index: 1, .. }) if name == "scores_out"));
    }

    proptest! {
        #[test]
        fn it_is_the_share_of_pairs_in_order(
            inside in prop::collection::vec(0u8..12, 1..30), outside in prop::collection::vec(0u8..12, 1..30)
        ) {
            let numbers = |scores: &[u8]| scores.iter().map(|&s| f64::from(s)).collect::<Vec<_>>();
            let found = auroc(&numbers(&inside), &numbers(&outside)).unwrap();
            let twice: usize = inside
                .iter()
                .flat_map(|a| outside.iter().map(move |b| usize::from(b > a) + usize::from(b >= a)))
                .sum();
            let pairs = (inside.len() * outside.len()) as f64;
            prop_assert!((found - twice as f64 / 2.0 / pairs).abs() < 1e-12);
            // Exchanged groups turn it around.
            let turned = auroc(&numbers(&outside), &numbers(&inside)).unwrap();
            prop_assert!((found + turned - 1.0).abs() < 1e-12);
        }
    }
}
