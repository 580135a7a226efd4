//! One random number after another, for generators that do not know beforehand how many they need.

use super::NoiseKey;
use super::philox::philox;

/// Words of a key in order: block 0 lane 0, lane 1, … A generator of data or of an order holds one of these.
///
/// Repeats after `2^34` words.
///
/// # Examples
///
/// ```
/// use lrvd_core::noise::{Generator, NoiseKey, Stream};
///
/// let mut draws = Generator::new(NoiseKey::new(1).on_stream(Stream::DATA));
/// let verb = ["sees", "reads", "finds"][draws.index(3)];
/// let noisy = draws.uniform() < 0.05;
/// # let _ = (verb, noisy);
/// ```
#[derive(Clone, Debug)]
pub struct Generator {
    key: NoiseKey,
    next_block: u32,
    block: [u32; 4],
    used: usize,
}

impl Generator {
    /// Starts at the first word of `key`.
    pub const fn new(key: NoiseKey) -> Self {
        Self { key, next_block: 0, block: [0; 4], used: 4 }
    }

    /// The next 32 random bits.
    pub fn word(&mut self) -> u32 {
        if self.used == self.block.len() {
            self.block = philox(self.key.philox_counter(self.next_block), self.key.philox_key());
            self.next_block = self.next_block.wrapping_add(1);
            self.used = 0;
        }
        let word = self.block[self.used];
        self.used += 1;
        word
    }

    /// The next 64 random bits, low half first.
    pub fn long_word(&mut self) -> u64 {
        let low = u64::from(self.word());
        low | u64::from(self.word()) << 32
    }

    /// A uniform number in `[0, 1)` on the grid of `2^-53`.
    pub fn uniform(&mut self) -> f64 {
        (self.long_word() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// A standard-normal number: the cosine half of a Box-Muller pair.
    pub fn normal(&mut self) -> f64 {
        let u = 1.0 - self.uniform();
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A uniform integer in `0..bound`, without bias; 0 for an empty range (`bound` 0).
    ///
    /// Multiply and shift; the words that would favour some results are drawn again.
    ///
    /// Source: Lemire: Fast random integer generation in an interval, 2019.
    pub fn bounded(&mut self, bound: u32) -> u32 {
        if bound == 0 {
            return 0;
        }
        // 2^32 mod bound: products whose low half falls below it belong to the surplus.
        let surplus = bound.wrapping_neg() % bound;
        loop {
            let product = u64::from(self.word()) * u64::from(bound);
            if product as u32 >= surplus {
                return (product >> 32) as u32;
            }
        }
    }

    /// A uniform index into a slice of `length` elements, without bias; 0 for an empty one.
    pub fn index(&mut self, length: usize) -> usize {
        if let Ok(bound) = u32::try_from(length) {
            return self.bounded(bound) as usize;
        }
        let bound = length as u64;
        let surplus = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.long_word()) * u128::from(bound);
            if product as u64 >= surplus {
                return (product >> 64) as usize;
            }
        }
    }

    /// Puts `items` into a uniformly drawn order (Fisher-Yates, from the back).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

/// A uniformly drawn order of `0..n`: the data order of one epoch.
///
/// By Fisher-Yates with unbiased bounded draws ([`Generator::bounded`]).
pub fn permutation(key: NoiseKey, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    Generator::new(key).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::noise::words;

    #[test]
    fn words_come_in_the_order_of_the_blocks() {
        let key = NoiseKey::new(3).on_stream(2);
        let mut run = [0u32; 11];
        words(key, 0, &mut run);
        let mut draws = Generator::new(key);
        assert_eq!(run.map(|_| draws.word()), run);
        let mut draws = Generator::new(key);
        assert_eq!(draws.long_word(), u64::from(run[0]) | u64::from(run[1]) << 32);
    }

    #[test]
    fn bounded_draws_reject_the_surplus() {
        // bound = 3·2^30: without rejection, results divisible by 3 come up twice as often as the others
        // (frequency 1/2). n = 30 000, sd = 0.00272.
        let mut draws = Generator::new(NoiseKey::new(6));
        let divisible = (0..30_000).filter(|_| draws.bounded(3 << 30).is_multiple_of(3)).count();
        let frequency = divisible as f64 / 30_000.0;
        assert!((frequency - 1.0 / 3.0).abs() < 0.0136, "{frequency}");
    }

    #[test]
    fn edge_bounds() {
        let mut draws = Generator::new(NoiseKey::new(7));
        assert_eq!((draws.bounded(0), draws.bounded(1), draws.index(0)), (0, 0, 0));
        assert!((0..1000).all(|_| draws.index(usize::MAX) < usize::MAX));
    }

    #[test]
    fn orders_of_three_are_equally_frequent() {
        // 6 orders, n = 12 000: sd = 40.8, bound 5 sd.
        let mut counts = std::collections::BTreeMap::new();
        for step in 0..12_000 {
            *counts.entry(permutation(NoiseKey::new(9).at_step(step), 3)).or_insert(0i32) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (count - 2000).abs() < 204), "{counts:?}");
    }
}
