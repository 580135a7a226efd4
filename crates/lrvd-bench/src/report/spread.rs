//! What the seeds of one cell sum up to.

/// Mean and sample standard deviation over seeds.
///
/// # Formula
///
/// ```text
/// mean = Σ x / n      std = sqrt( Σ (x − mean)² / (n − 1) )
/// ```
///
/// The sample form (`n − 1`) is what the paper prints: ranks 1, 2, 4 give 2.33 ± 1.53.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    /// The values, in the order of the seeds.
    pub(crate) values: Vec<f64>,
    pub(crate) mean: f64,
    /// Sample standard deviation; none for one value.
    pub(crate) std: Option<f64>,
}

impl Spread {
    /// Sums up a list; none if it is empty.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        let std = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
        Some(Self { values: values.to_vec(), mean, std })
    }

    pub(crate) fn n(&self) -> usize {
        self.values.len()
    }

    /// Standard error of the mean, `std / sqrt(n)`; none for one value.
    pub(crate) fn standard_error(&self) -> Option<f64> {
        self.std.map(|std| std / (self.n() as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The two cells of the published table whose seeds are known.
    #[test]
    fn published_rank_cells() {
        for (values, printed) in
            [([1.0, 2.0, 4.0], ("2.33", "1.53")), ([1.0, 2.0, 2.0], ("1.67", "0.58"))]
        {
            let spread = Spread::of(&values).unwrap();
            assert_eq!(format!("{:.2}", spread.mean), printed.0);
            assert_eq!(format!("{:.2}", spread.std.unwrap()), printed.1);
        }
    }

    #[test]
    fn one_seed_has_no_spread_and_none_has_nothing() {
        let one = Spread::of(&[0.5]).unwrap();
        assert_eq!((one.mean, one.std, one.standard_error()), (0.5, None, None));
        assert_eq!(Spread::of(&[]), None);
    }
}
