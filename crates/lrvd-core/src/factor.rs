//! A flat slice as `rank` rows of `width` values, checked.

use crate::error::Error;

/// A borrowed low-rank factor, rank-major: row `k` holds the `width` entries of rank component `k`.
///
/// # Shapes
///
/// | Factor | Here, rank-major   | As stored in adapter files          |
/// |--------|--------------------|-------------------------------------|
/// | A      | `[rank, d_input]`  | `[rank, d_input]`, the same         |
/// | B      | `[rank, d_output]` | `[d_output, rank]`, the transpose   |
///
/// The length is checked once, here; everything that takes a view relies on it. A rank or a width
/// of 0 is legal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FactorView<'a> {
    values: &'a [f64],
    rank: usize,
    width: usize,
}

impl<'a> FactorView<'a> {
    /// Views `values` as `rank` rows of `width` entries; `name` is used in the error alone.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lrvd_core::factor::FactorView;
    /// let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    /// let a = FactorView::new("a_mean", &values, 2, 3)?;
    /// assert_eq!(a.row(1), [4.0, 5.0, 6.0]);
    /// assert!(FactorView::new("a_mean", &values, 2, 4).is_err());
    /// # Ok::<(), lrvd_core::Error>(())
    /// ```
    pub fn new(
        name: &'static str,
        values: &'a [f64],
        rank: usize,
        width: usize,
    ) -> Result<Self, Error> {
        if rank.checked_mul(width) == Some(values.len()) {
            Ok(Self { values, rank, width })
        } else {
            Err(Error::length(name, values.len(), format!("{rank} x {width}")))
        }
    }

    /// All entries, row by row.
    pub fn values(&self) -> &'a [f64] {
        self.values
    }

    /// The number of rows.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of entries in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The entries of one rank component.
    ///
    /// # Panics
    ///
    /// If `index` is not below the rank.
    pub fn row(&self, index: usize) -> &'a [f64] {
        &self.values[index * self.width..(index + 1) * self.width]
    }

    /// The rows in order; as many as the rank, also where the width is 0.
    pub fn rows(&self) -> impl Iterator<Item = &'a [f64]> + use<'a> {
        let view = *self;
        (0..view.rank).map(move |index| view.row(index))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_length_is_checked_at_its_limits() {
        let values = [0.0; 7];
        for (len, fits) in [(5, false), (6, true), (7, false)] {
            assert_eq!(FactorView::new("a", &values[..len], 2, 3).is_ok(), fits, "{len}");
        }
        assert!(FactorView::new("a", &[], usize::MAX, 2).is_err());
    }

    #[test]
    fn empty_factors_are_legal() {
        let none = FactorView::new("a", &[], 0, 5).unwrap();
        assert_eq!(none.rows().count(), 0);
        let flat = FactorView::new("a", &[], 3, 0).unwrap();
        assert_eq!(flat.rows().count(), 3);
        assert!(flat.rows().all(<[f64]>::is_empty));
    }
}
