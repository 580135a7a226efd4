//! Smoothed importance of entries, and the score of a triplet.

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
/// # Formula
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
    /// # Formula
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adalora::config::tests::RECORDED;

    #[test]
    fn two_updates_by_hand() {
        let config = AdaLoraConfig { beta1: 0.75, beta2: 0.5, ..RECORDED };
        let mut entries = EntryImportance::zeros(2);
        entries.update([4.0, 0.0].into_iter(), &config);
        // importance 4/4 = 1, uncertainty |4 − 1|/2 = 1.5
        assert_eq!(entries.importance, [1.0, 0.0]);
        assert_eq!(entries.uncertainty, [1.5, 0.0]);
        entries.update([2.0, 8.0].into_iter(), &config);
        // 0.75·1 + 0.25·2 = 1.25, 0.5·1.5 + 0.5·0.75 = 1.125;  0.25·8 = 2, 0.5·|8 − 2| = 3
        assert_eq!(entries.importance, [1.25, 2.0]);
        assert_eq!(entries.uncertainty, [1.125, 3.0]);
    }

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
}
