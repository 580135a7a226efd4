//! Draws of words, which every grammar writes with, and label noise of a stated amount.

use lrvd_core::noise::{Draws, NoiseKey, permutation};

use super::DataError;

/// A source of words; the grammars add what is theirs.
#[derive(Debug)]
pub(crate) struct Generator {
    pub(crate) draws: Draws,
}

impl Generator {
    /// True in half of all cases.
    pub(crate) fn coin(&mut self) -> bool {
        self.draws.chance(0.5)
    }

    /// One of `items`; the grammars hold no empty list.
    pub(crate) fn of<T: Copy + Default>(&mut self, items: &[T]) -> T {
        self.draws.pick(items).copied().unwrap_or_default()
    }

    /// An index, with these relative frequencies.
    pub(crate) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.draws.index(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }

    /// Elements at `N` different places of `items`, which holds at least that many.
    pub(crate) fn distinct<'a, T, const N: usize>(&mut self, items: &'a [T]) -> [&'a T; N] {
        let mut taken = [usize::MAX; N];
        for i in 0..N {
            let mut index = self.draws.index(items.len());
            while taken[..i].contains(&index) {
                index = self.draws.index(items.len());
            }
            taken[i] = index;
        }
        taken.map(|index| &items[index])
    }

    /// Different elements of `items`, in random order: `n` of them, or all if there are fewer.
    pub(crate) fn several<T: Copy>(&mut self, items: &[T], n: usize) -> Vec<T> {
        let mut items = items.to_vec();
        self.draws.shuffle(&mut items);
        items.truncate(n);
        items
    }
}

/// Refuses a fraction of labels outside `0..=0.5`.
pub(crate) fn check_noise(value: f64) -> Result<(), DataError> {
    if (0.0..=0.5).contains(&value) {
        return Ok(());
    }
    Err(DataError::Setting { name: "label_noise", value, wanted: "0 to 0.5" })
}

/// Gives `round(fraction · n)` of `n` rows another class; which they are, in ascending order. `class` gives a row's
/// class and the number of them.
pub(crate) fn add_noise<T>(
    rows: &mut [T],
    fraction: f64,
    key: NoiseKey,
    class: impl Fn(&mut T) -> (&mut usize, usize),
) -> Vec<usize> {
    let mut noisy = permutation(key, rows.len());
    noisy.truncate((fraction * rows.len() as f64).round() as usize);
    noisy.sort_unstable();
    let mut draws = Draws::new(key.at_step(1));
    for &row in &noisy {
        let (class, classes) = class(&mut rows[row]);
        *class = (*class + 1 + draws.index(classes - 1)) % classes;
    }
    noisy
}
