//! Where a score finds its position term.

/// Columns of position scores in the order in which a row of scores reads them.
///
/// Token `r` meets its partner `c` at offset `c − r + L − 1` of the list: keys by falling, queries by
/// rising row numbers, so that neighbours read neighbours.
pub(super) struct Places {
    list: Vec<u32>,
    count: usize,
}

impl Places {
    /// `rows` names the row of each rising offset `i − j`, of `count` rows.
    pub(super) fn new(rows: &[u32], count: usize, falling: bool) -> Self {
        let mut list = rows.to_vec();
        if falling {
            list.reverse();
        }
        Self { list, count }
    }

    /// Number of columns.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The columns that token `r` reads for partners `first..first + count`.
    pub(super) fn of(&self, r: usize, tokens: usize, first: usize, count: usize) -> &[u32] {
        &self.list[tokens - 1 - r + first..][..count]
    }

    /// Sums of each row of `[L, L]` by the column that its entries read, `[L, count]`.
    pub(super) fn sums_of_rows(&self, scores: &[f32], tokens: usize) -> Vec<f32> {
        let mut sums = vec![0.0; tokens * self.count];
        let rows = scores.chunks_exact(tokens).zip(sums.chunks_exact_mut(self.count)).enumerate();
        for (r, (scores, sums)) in rows {
            for (&score, &place) in scores.iter().zip(self.of(r, tokens, 0, tokens)) {
                sums[place as usize] += score;
            }
        }
        sums
    }

    /// The same for each column of `[L, L]`.
    pub(super) fn sums_of_columns(&self, scores: &[f32], tokens: usize) -> Vec<f32> {
        let mut sums = vec![0.0; tokens * self.count];
        for (i, scores) in scores.chunks_exact(tokens).enumerate() {
            for (r, (&score, sums)) in
                scores.iter().zip(sums.chunks_exact_mut(self.count)).enumerate()
            {
                sums[self.list[tokens - 1 - r + i] as usize] += score;
            }
        }
        sums
    }
}
