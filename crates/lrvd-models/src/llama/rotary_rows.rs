//! The two orders of the rows of query and key projections.
//!
//! The rotation turns pairs of features of a head. Hugging Face pairs `i` and `i + width/2`; llama.cpp and llama2.c
//! pair `2i` and `2i + 1`, and keep the rows of the weights in that order.

/// For every row in Hugging Face's order, its place in a file that keeps pairs together. None if `rows` are not
/// `heads` heads of an even width.
pub fn rows_in_pairs(rows: usize, heads: usize) -> Option<Vec<usize>> {
    let width = even_width(rows, heads)?;
    let place = |row: usize| {
        let (head, within) = (row / width, row % width);
        head * width + 2 * (within % (width / 2)) + within / (width / 2)
    };
    Some((0..rows).map(place).collect())
}

/// For every row of a file that keeps pairs together, its place in Hugging Face's order: the inverse of
/// [`rows_in_pairs`].
pub fn rows_in_halves(rows: usize, heads: usize) -> Option<Vec<usize>> {
    let width = even_width(rows, heads)?;
    let place = |row: usize| {
        let (head, within) = (row / width, row % width);
        head * width + (within % 2) * (width / 2) + within / 2
    };
    Some((0..rows).map(place).collect())
}

fn even_width(rows: usize, heads: usize) -> Option<usize> {
    let width = rows.checked_div(heads)?;
    (width > 0 && rows.is_multiple_of(heads) && width.is_multiple_of(2)).then_some(width)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_orders_are_those_of_the_converters() {
        // numpy: arange(12).reshape(2, 2, 3).swapaxes(1, 2).reshape(12), as llama.cpp's `permute` does for 2 heads.
        assert_eq!(rows_in_halves(12, 2).unwrap(), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        let pairs = rows_in_pairs(12, 2).unwrap();
        let back: Vec<usize> = rows_in_halves(12, 2).unwrap().iter().map(|&i| pairs[i]).collect();
        assert_eq!(back, (0..12).collect::<Vec<_>>());
        for (rows, heads) in [(12, 0), (12, 5), (6, 2), (0, 2)] {
            assert_eq!(rows_in_pairs(rows, heads), None, "{rows} {heads}");
        }
    }
}
