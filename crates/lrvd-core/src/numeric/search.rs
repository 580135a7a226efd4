//! The minimum of a function of one positive number.

/// The smallest value of `at` on `points` geometric steps from `low` to `high`, then in `steps` golden sections
/// between its neighbours: argument and value.
///
/// The grid finds the valley, golden section its floor: every step shrinks the bracket to 0.618 of itself. Of equal values the one at the smaller argument is
/// taken. The end of the range is an answer like any other.
///
/// # Panics
///
/// If the range is not one of positive numbers or has fewer than two points.
pub fn minimise_on_log<E>(
    (low, high): (f64, f64),
    points: usize,
    steps: usize,
    mut at: impl FnMut(f64) -> Result<f64, E>,
) -> Result<(f64, f64), E> {
    assert!(0.0 < low && low < high && points >= 2, "a range of positive numbers");
    let (from, step) = (low.ln(), (high / low).ln() / (points - 1) as f64);
    let mut best = (low, f64::INFINITY);
    let mut try_at = |log: f64, best: &mut (f64, f64)| -> Result<f64, E> {
        let argument = log.exp();
        let value = at(argument)?;
        if value < best.1 {
            *best = (argument, value);
        }
        Ok(value)
    };
    for i in 0..points {
        try_at(from + step * i as f64, &mut best)?;
    }
    if steps == 0 {
        return Ok(best);
    }
    let middle = best.0.ln();
    let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut left, mut right) = ((middle - step).max(from), (middle + step).min(high.ln()));
    let inner =
        |left: f64, right: f64| (right - golden * (right - left), left + golden * (right - left));
    let (mut a, mut b) = inner(left, right);
    let (mut value_a, mut value_b) = (try_at(a, &mut best)?, try_at(b, &mut best)?);
    for _ in 0..steps {
        if value_a <= value_b {
            (right, b, value_b) = (b, a, value_a);
            a = inner(left, right).0;
            value_a = try_at(a, &mut best)?;
        } else {
            (left, a, value_a) = (a, b, value_b);
            b = inner(left, right).1;
            value_b = try_at(b, &mut best)?;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_valley_is_found_between_grid_points_and_at_either_end() {
        let at = |floor: f64| move |x: f64| Ok::<f64, ()>((x.ln() - floor).powi(2) + 2.0);
        let (argument, value) = minimise_on_log((1e-3, 1e3), 7, 12, at(0.77)).unwrap();
        assert!((argument.ln() - 0.77).abs() < 0.02 && (value - 2.0).abs() < 1e-3);
        let (argument, _) = minimise_on_log((1e-3, 1e3), 7, 0, at(0.77)).unwrap();
        assert!(argument.ln().abs() < 1e-12);
        for (floor, end) in [(-9.0, 1e-3_f64), (9.0, 1e3)] {
            let (argument, _) = minimise_on_log((1e-3, 1e3), 7, 12, at(floor)).unwrap();
            assert!((argument / end).ln().abs() < 0.02, "{argument} {end}");
        }
    }

    #[test]
    fn the_deeper_of_two_valleys_wins_and_failures_come_through() {
        let at = |x: f64| Ok::<f64, ()>((x.ln() + 4.0).abs().min((x.ln() - 4.0).abs() + 0.5));
        assert!(minimise_on_log((1e-3, 1e3), 15, 12, at).unwrap().0 < 0.1);
        assert_eq!(minimise_on_log((0.1, 10.0), 3, 12, |_| Err(7)), Err(7));
        let flat = minimise_on_log((0.1, 10.0), 3, 12, |_| Ok::<f64, ()>(1.0)).unwrap();
        assert!((flat.0 - 0.1).abs() < 1e-15);
    }
}
