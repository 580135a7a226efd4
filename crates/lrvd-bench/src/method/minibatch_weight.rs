//! The share of the KL that each minibatch carries.
//!
//! All weights multiply the KL of the whole posterior, which is added to the **mean** negative log-likelihood of a minibatch. They follow a
//! cycle: step `t`, counted from 0, has place `i = t mod M + 1` in a cycle of `M` steps.

use lrvd_core::Error;
use lrvd_core::error::{above, check_range};

/// The base of BLoB's cycle length: `M_c = ⌊100·n^(π/gamma)/batch⌋`.
const CYCLE_BASE: f64 = 100.0;

/// The place of a step in its cycle, counted from 1.
fn place(step: u64, cycle: u32) -> Result<f64, Error> {
    check_range("cycle", cycle, 1..)?;
    Ok((step % u64::from(cycle)) as f64 + 1.0)
}

/// Blundell's weight: early minibatches of an epoch of `batches` see the prior.
///
/// ```text
/// π_i = 2^(M−i)/(2^M − 1) = 2^(−i)/(1 − 2^(−M))
/// ```
///
/// The second form cannot overflow; from about `i = 1075` on the weight is 0.
///
/// The weights of an epoch sum to 1.
///
/// Source: Blundell et al. 2015, arXiv:1505.05424, section 3.4.
pub fn falling_weight(step: u64, batches: u32) -> Result<f64, Error> {
    Ok((-place(step, batches)?).exp2() / (1.0 - (-f64::from(batches)).exp2()))
}

/// BLoB's weight: late minibatches of a cycle see the prior.
///
/// ```text
/// π_i = 2^i/(2^(M_c+1) − 1) = 2^(i−M_c−1)/(1 − 2^(−(M_c+1)))
/// ```
///
/// The second form cannot overflow, whereas `2^M_c` leaves the range of `f64` at 1024.
///
/// The weights of a cycle sum to `1 − 1/(2^(M_c+1) − 1)`; its last ten carry all but a thousandth.
///
/// Source: Wang et al. 2024, BLoB, arXiv:2406.11675, and its code.
pub fn rising_weight(step: u64, cycle: u32) -> Result<f64, Error> {
    let last = f64::from(cycle) + 1.0;
    Ok((place(step, cycle)? - last).exp2() / (1.0 - (-last).exp2()))
}

/// BLoB's cycle length ("dataset rescaling").
///
/// ```text
/// M_c = ⌊100·n^(π/gamma)/batch⌋
/// ```
///
/// `n` counts the examples that an epoch serves (after dropping an incomplete last batch). The exponent really is the number π.
///
/// # Errors
///
/// `gamma` is not positive and finite, a count is 0, or the cycle would not have between 1 and `u32::MAX` minibatches.
pub fn rescaled_cycle(n: usize, gamma: f64, batch: usize) -> Result<u32, Error> {
    check_range("n", n, 1..)?;
    check_range("gamma", gamma, above(0.0))?;
    check_range("batch", batch, 1..)?;
    let examples = CYCLE_BASE * (n as f64).powf(std::f64::consts::PI / gamma);
    let cycle = (examples / batch as f64).floor();
    check_range("cycle", cycle, 1.0..=f64::from(u32::MAX))?;
    Ok(cycle as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::GAMMA;

    #[test]
    fn weights_of_a_short_cycle_repeat() {
        // M = 3: 4/7, 2/7, 1/7. M_c = 3: 2/15, 4/15, 8/15.
        for (step, falling, rising) in [(0, 4.0, 2.0), (1, 2.0, 4.0), (2, 1.0, 8.0), (6, 4.0, 2.0)]
        {
            assert!((falling_weight(step, 3).unwrap() - falling / 7.0).abs() < 1e-16);
            assert!((rising_weight(step, 3).unwrap() - rising / 15.0).abs() < 1e-16);
        }
        assert_eq!(falling_weight(7, 1), Ok(1.0));
        assert_eq!(rising_weight(7, 1), Ok(2.0 / 3.0));
        assert!(falling_weight(0, 0).is_err() && rising_weight(0, 0).is_err());
    }

    #[test]
    fn sums_hold_where_the_first_form_overflows() {
        for count in [1, 5, 60, 909, 5000] {
            let sum = |weight: fn(u64, u32) -> Result<f64, Error>| {
                (0..count.into()).map(|step| weight(step, count).unwrap()).sum::<f64>()
            };
            assert!((sum(falling_weight) - 1.0).abs() < 1e-15, "{count}");
            let missing =
                (-f64::from(count) - 1.0).exp2() / (1.0 - (-f64::from(count) - 1.0).exp2());
            assert!((sum(rising_weight) - (1.0 - missing)).abs() < 1e-15, "{count}");
        }
        assert_eq!(rising_weight(4999, 5000), Ok(0.5));
        assert_eq!(rising_weight(4998, 5000), Ok(0.25));
    }

    #[test]
    fn published_cycle_lengths() {
        // Of two processes the batch is twice that of one.
        for (n, one, two) in [(640, 316, 158), (2248, 517, 258), (9424, 909, 454)] {
            assert_eq!([4, 8].map(|batch| rescaled_cycle(n, GAMMA, batch)), [Ok(one), Ok(two)]);
        }
        for (n, gamma, batch) in [(0, 8.0, 4), (640, 0.0, 4), (640, 8.0, 0), (1, 8.0, 101)] {
            assert!(rescaled_cycle(n, gamma, batch).is_err(), "{n} {gamma} {batch}");
        }
        assert_eq!(rescaled_cycle(1, 8.0, 100), Ok(1));
    }
}
