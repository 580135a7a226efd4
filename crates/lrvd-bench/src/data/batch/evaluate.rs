//! Batches of a whole split with little padding, and the way back to file order.

use super::BatchError;

/// Batches of like length: indices sorted by length, equal lengths in file order, cut into runs.
///
/// # Errors
///
/// [`BatchError::Zero`] for a batch size of 0. No examples give no batches.
pub fn evaluation_batches(
    lengths: &[usize],
    batch_size: usize,
) -> Result<Vec<Vec<usize>>, BatchError> {
    if batch_size == 0 {
        return Err(BatchError::Zero { name: "batch_size" });
    }
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|index| lengths[*index]);
    Ok(order.chunks(batch_size).map(<[usize]>::to_vec).collect())
}

/// Values in file order from values in the order of the batches, one for each index.
///
/// # Errors
///
/// [`BatchError::Values`] unless there is one value for each index, and [`BatchError::Index`] unless the
/// indices are those of `0..n`, each once.
pub fn restore_order<T>(
    batches: &[Vec<usize>],
    values: impl IntoIterator<Item = T>,
) -> Result<Vec<T>, BatchError> {
    let indices = batches.concat();
    let wanted = indices.len();
    let mut slots: Vec<Option<T>> = std::iter::repeat_with(|| None).take(wanted).collect();
    let mut found = 0;
    for value in values {
        if let Some(&index) = indices.get(found) {
            let slot = slots.get_mut(index).ok_or(BatchError::Index { wanted, found: index })?;
            *slot = Some(value);
        }
        found += 1;
    }
    if found != wanted {
        return Err(BatchError::Values { wanted, found });
    }
    let missing = slots.iter().position(Option::is_none);
    if let Some(found) = missing {
        return Err(BatchError::Index { wanted, found });
    }
    Ok(slots.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn batches_are_sorted_by_length_and_order_comes_back() {
        let lengths = [9, 3, 7, 3, 12, 1, 7];
        let batches = evaluation_batches(&lengths, 3).unwrap();
        assert_eq!(batches, [vec![5, 1, 3], vec![2, 6, 0], vec![4]]);
        let in_batch_order = batches.concat().into_iter().map(|index| lengths[index]);
        assert_eq!(restore_order(&batches, in_batch_order).unwrap(), lengths);
    }

    #[test]
    fn wrong_numbers_of_values_are_errors() {
        let batches = evaluation_batches(&[4, 5, 6], 2).unwrap();
        for found in [2, 4] {
            let error = restore_order(&batches, 0..found).unwrap_err();
            assert_eq!(error, BatchError::Values { wanted: 3, found });
        }
        let error = restore_order(&[vec![0, 2]], 0..2).unwrap_err();
        assert_eq!(error, BatchError::Index { wanted: 2, found: 2 });
        let error = restore_order(&[vec![0, 0]], 0..2).unwrap_err();
        assert_eq!(error, BatchError::Index { wanted: 2, found: 1 });
        assert_eq!(
            evaluation_batches(&[1], 0).unwrap_err(),
            BatchError::Zero { name: "batch_size" }
        );
        assert!(evaluation_batches(&[], 2).unwrap().is_empty());
    }
}
