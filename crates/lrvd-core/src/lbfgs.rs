//! Minimum of a smooth function by limited-memory BFGS.
//!
//! Source: Nocedal and Wright, *Numerical Optimization*, 2006, algorithms 7.4 and 7.5; the line search is the bisection of Lewis
//! and Overton 2013 for the weak Wolfe conditions.

use std::collections::VecDeque;

use crate::linalg::dot;

/// Pairs of steps and changes of the gradient that approximate the curvature.
const MEMORY: usize = 10;
/// Share of the decrease along the slope that a step has to have.
const DECREASE: f64 = 1e-4;
/// Share of the slope that a step may leave.
const CURVATURE: f64 = 0.9;
/// Steps in a row without a decrease, in which the gradient alone still falls, before the end of what rounding leaves.
const MAX_LEVEL: usize = 10;
/// Bisections of a line search before the point cannot be bettered in floating point.
const MAX_TRIALS: usize = 50;

/// End of a minimisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Minimum {
    /// The point.
    pub at: Vec<f64>,
    /// The function there.
    pub value: f64,
    /// Largest absolute entry of the gradient there.
    pub slope: f64,
    /// Steps taken.
    pub steps: usize,
}

/// Value and gradient of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The value.
    pub value: f64,
    /// Its gradient, as long as the point.
    pub gradient: Vec<f64>,
}

/// Minimises `function` from `start`, until no entry of the gradient is above `tolerance`, after `max_steps` steps, or where
/// no further decrease is seen in floating point; [`Minimum::slope`] tells the first from the others.
///
/// # Errors
///
/// That of `function`.
///
/// # Examples
///
/// ```
/// use lrvd_core::lbfgs::{Evaluation, minimise};
///
/// // (x − 3)² + 10·(y + 1)²
/// let function = |at: &[f64]| -> Result<Evaluation, lrvd_core::Error> {
///     let (x, y) = (at[0] - 3.0, at[1] + 1.0);
///     Ok(Evaluation { value: x * x + 10.0 * y * y, gradient: vec![2.0 * x, 20.0 * y] })
/// };
/// let found = minimise(vec![0.0, 0.0], 1e-9, 100, function)?;
/// assert!((found.at[0] - 3.0).abs() < 1e-9 && (found.at[1] + 1.0).abs() < 1e-9);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn minimise<E>(
    start: Vec<f64>,
    tolerance: f64,
    max_steps: usize,
    mut function: impl FnMut(&[f64]) -> Result<Evaluation, E>,
) -> Result<Minimum, E> {
    let mut here = function(&start)?;
    let mut at = start;
    let mut pairs: VecDeque<Pair> = VecDeque::new();
    let mut steps = 0;
    let mut level = 0;
    while steps < max_steps && level < MAX_LEVEL && largest(&here.gradient) > tolerance {
        let mut direction = direction(&here.gradient, &pairs);
        if dot(&direction, &here.gradient) >= 0.0 {
            // Rounding has spoilt the curvature.
            pairs.clear();
            direction = here.gradient.iter().map(|g| -g).collect();
        }
        // A first step has no curvature to go by.
        let first = dot(&direction, &direction).sqrt().recip().min(1.0);
        let length = if pairs.is_empty() { first } else { 1.0 };
        let Some((next, there)) = line(&at, &here, &direction, length, &mut function)? else {
            if pairs.is_empty() {
                break;
            }
            pairs.clear();
            continue;
        };
        let difference =
            |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<f64>>();
        let step = difference(&next, &at);
        let change = difference(&there.gradient, &here.gradient);
        let curvature = dot(&step, &change);
        if curvature > 0.0 {
            if pairs.len() == MEMORY {
                pairs.pop_front();
            }
            pairs.push_back(Pair { step, change, curvature });
        }
        level = if there.value < here.value { 0 } else { level + 1 };
        at = next;
        here = there;
        steps += 1;
    }
    Ok(Minimum { at, value: here.value, slope: largest(&here.gradient), steps })
}

/// A step and the change of the gradient over it.
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    /// Their scalar product.
    curvature: f64,
}

fn largest(gradient: &[f64]) -> f64 {
    // Of a gradient that is not finite nothing is small.
    gradient.iter().fold(0.0, |most, g| if g.abs() > most || g.is_nan() { g.abs() } else { most })
}

/// `−H·gradient` for the approximation `H` of the inverse curvature by `pairs`.
fn direction(gradient: &[f64], pairs: &VecDeque<Pair>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut shares = Vec::with_capacity(pairs.len());
    for Pair { step, change, curvature } in pairs.iter().rev() {
        let share = dot(step, &direction) / curvature;
        add(&mut direction, change, -share);
        shares.push(share);
    }
    if let Some(Pair { change, curvature, .. }) = pairs.back() {
        let scale = curvature / dot(change, change);
        for entry in &mut direction {
            *entry *= scale;
        }
    }
    for (Pair { step, change, curvature }, share) in pairs.iter().zip(shares.iter().rev()) {
        let own = dot(change, &direction) / curvature;
        add(&mut direction, step, share - own);
    }
    direction
}

fn add(sum: &mut [f64], term: &[f64], factor: f64) {
    sum.iter_mut().zip(term).for_each(|(sum, term)| *sum += factor * term);
}

/// The point along `direction` that meets the weak Wolfe conditions, with the function there; `None` if there is none within
/// rounding.
fn line<E>(
    at: &[f64],
    here: &Evaluation,
    direction: &[f64],
    mut length: f64,
    function: &mut impl FnMut(&[f64]) -> Result<Evaluation, E>,
) -> Result<Option<(Vec<f64>, Evaluation)>, E> {
    let slope = dot(direction, &here.gradient);
    // Differences below this are rounding.
    let rounding = 4.0 * f64::EPSILON * here.value.abs();
    let mut near = 0.0;
    let mut far = f64::INFINITY;
    for _ in 0..MAX_TRIALS {
        let mut next = at.to_vec();
        add(&mut next, direction, length);
        let there = function(&next)?;
        let falls = there.value - here.value <= DECREASE * length * slope + rounding;
        if !falls || !there.value.is_finite() {
            far = length;
        } else if dot(direction, &there.gradient) < CURVATURE * slope {
            near = length;
        } else {
            return Ok(Some((next, there)));
        }
        length = if far.is_finite() { f64::midpoint(near, far) } else { 2.0 * length };
        if next == at {
            break;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    type Function = fn(&[f64]) -> Evaluation;

    fn minimum(function: Function, start: &[f64], tolerance: f64, most: usize) -> Minimum {
        minimise(start.to_vec(), tolerance, most, |at| Ok::<_, ()>(function(at))).unwrap()
    }

    fn rosenbrock(at: &[f64]) -> Evaluation {
        let (x, y) = (at[0], at[1]);
        let off = y - x * x;
        let gradient = vec![-400.0 * x * off - 2.0 * (1.0 - x), 200.0 * off];
        Evaluation { value: 100.0 * off * off + (1.0 - x).powi(2), gradient }
    }

    /// `Σ_i 10^(i/2)·x_i² / 2 − x_i`, least at `x_i = 10^(−i/2)`.
    fn stretched(at: &[f64]) -> Evaluation {
        let of = |i: usize, x: f64| 10.0_f64.powf(i as f64 / 2.0) * x;
        let value = at.iter().enumerate().map(|(i, &x)| 0.5 * of(i, x) * x - x).sum();
        Evaluation {
            value,
            gradient: at.iter().enumerate().map(|(i, &x)| of(i, x) - 1.0).collect(),
        }
    }

    #[test]
    fn curved_and_stretched_valleys_are_followed_to_their_ends() {
        let found = minimum(rosenbrock, &[-1.2, 1.0], 1e-10, 200);
        assert!(found.at.iter().all(|x| (x - 1.0).abs() < 1e-9), "{found:?}");
        assert!(found.slope <= 1e-10 && found.steps < 60, "{found:?}");
        let found = minimum(stretched, &[0.0; 7], 1e-10, 500);
        for (i, x) in found.at.iter().enumerate() {
            let expected = 10.0_f64.powf(-(i as f64) / 2.0);
            assert!((x / expected - 1.0).abs() < 1e-6, "{i}: {x} {expected}");
        }
    }

    #[test]
    fn a_minimum_is_found_at_once_and_an_end_of_the_steps_is_told() {
        let found = minimum(rosenbrock, &[1.0, 1.0], 1e-10, 200);
        assert_eq!((found.steps, found.value), (0, 0.0));
        let found = minimum(rosenbrock, &[-1.2, 1.0], 1e-10, 3);
        assert!(found.steps == 3 && found.slope > 1e-3, "{found:?}");
        assert!(found.value < rosenbrock(&[-1.2, 1.0]).value);
        // Past the rounding of the function there is no decrease, and the end comes before the steps do.
        let found = minimum(stretched, &[0.5; 7], 0.0, 10_000);
        assert!(found.steps < 1000 && found.slope < 1e-6, "{found:?}");
    }

    #[test]
    fn a_function_that_ends_in_a_wall_is_followed_to_it() {
        // x − ln x, which is not defined below 0: least at 1.
        let barrier: Function = |at| {
            let x = at[0];
            Evaluation {
                value: if x > 0.0 { x - x.ln() } else { f64::NAN },
                gradient: vec![1.0 - 1.0 / x],
            }
        };
        let found = minimum(barrier, &[9.0], 1e-9, 100);
        assert!((found.at[0] - 1.0).abs() < 1e-8, "{found:?}");
    }
}
