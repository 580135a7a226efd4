//! The penalty that keeps the triplets close to singular vectors.

use super::error::AdaLoraError;
use super::importance::TripletShape;

/// The two factors of one module that the penalty reads.
#[derive(Clone, Copy, Debug)]
pub struct TripletFactors<'a> {
    /// Widths of the module.
    pub shape: TripletShape,
    /// Rank of the module.
    pub rank: usize,
    /// `A`, `[rank, d_input]`, row-major.
    pub a: &'a [f64],
    /// `B`, `[d_output, rank]`, row-major.
    pub b: &'a [f64],
}

/// Gradient of the penalty for one module.
#[derive(Clone, Debug, PartialEq)]
pub struct OrthogonalityGradient {
    /// With respect to `A`, `[rank, d_input]`.
    pub a: Vec<f64>,
    /// With respect to `B`, `[d_output, rank]`.
    pub b: Vec<f64>,
}

/// Mean distance of the factors from orthonormal rows (`A`) and columns (`B`).
///
/// # Formula
///
/// ```text
/// 1/(2M) · Σ_m ( ‖A Aᵀ − I‖_F + ‖Bᵀ B − I‖_F )
/// ```
///
/// The norm itself, as PEFT computes it; the publication squares it. 0 without modules.
///
/// # Errors
///
/// [`AdaLoraError::Length`] if a slice does not fit its module's shape.
pub fn orthogonality(modules: &[TripletFactors<'_>]) -> Result<f64, AdaLoraError> {
    let mut sum = 0.0;
    for (module, factors) in modules.iter().enumerate() {
        check(module, factors)?;
        sum += norm(&gram_excess(Rows::of_a(factors))) + norm(&gram_excess(Rows::of_b(factors)));
    }
    Ok(if modules.is_empty() { 0.0 } else { sum / (2 * modules.len()) as f64 })
}

/// Gradient of [`orthogonality`] with respect to every factor.
///
/// # Formula
///
/// ```text
/// ∂/∂A = 1/(2M) · 2·(A Aᵀ − I)·A / ‖A Aᵀ − I‖_F       ∂/∂B = 1/(2M) · 2·B·(Bᵀ B − I) / ‖Bᵀ B − I‖_F
/// ```
///
/// At an exactly orthonormal factor, where the norm has a kink, the gradient is 0.
///
/// # Errors
///
/// [`AdaLoraError::Length`] if a slice does not fit its module's shape.
pub fn orthogonality_gradient(
    modules: &[TripletFactors<'_>],
) -> Result<Vec<OrthogonalityGradient>, AdaLoraError> {
    let weight = 1.0 / (2 * modules.len()).max(1) as f64;
    modules
        .iter()
        .enumerate()
        .map(|(module, factors)| {
            check(module, factors)?;
            let a = norm_gradient(Rows::of_a(factors), weight);
            let b = norm_gradient(Rows::of_b(factors), weight);
            Ok(OrthogonalityGradient { a, b })
        })
        .collect()
}

/// Both factors as `rank` vectors of `width` entries: entry `j` of vector `i` lies at `i·step + j·stride`.
#[derive(Clone, Copy)]
struct Rows<'a> {
    values: &'a [f64],
    rank: usize,
    width: usize,
    step: usize,
    stride: usize,
}

impl<'a> Rows<'a> {
    fn of_a(factors: &TripletFactors<'a>) -> Self {
        let width = factors.shape.d_input;
        Self { values: factors.a, rank: factors.rank, width, step: width, stride: 1 }
    }

    fn of_b(factors: &TripletFactors<'a>) -> Self {
        let (rank, width) = (factors.rank, factors.shape.d_output);
        Self { values: factors.b, rank, width, step: 1, stride: rank }
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        self.values[i * self.step + j * self.stride]
    }
}

/// Inner products of the vectors, minus the identity: `[rank, rank]`.
fn gram_excess(rows: Rows<'_>) -> Vec<f64> {
    let mut excess = vec![0.0; rows.rank * rows.rank];
    for i in 0..rows.rank {
        for k in 0..rows.rank {
            let product: f64 = (0..rows.width).map(|j| rows.at(i, j) * rows.at(k, j)).sum();
            excess[i * rows.rank + k] = product - if i == k { 1.0 } else { 0.0 };
        }
    }
    excess
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// `weight` times the gradient of the Frobenius norm of the excess, in the layout of the factor.
fn norm_gradient(rows: Rows<'_>, weight: f64) -> Vec<f64> {
    let excess = gram_excess(rows);
    let norm = norm(&excess);
    let mut gradient = vec![0.0; rows.values.len()];
    if norm == 0.0 {
        return gradient;
    }
    for i in 0..rows.rank {
        for j in 0..rows.width {
            let product: f64 =
                (0..rows.rank).map(|k| excess[i * rows.rank + k] * rows.at(k, j)).sum();
            gradient[i * rows.step + j * rows.stride] = weight * 2.0 * product / norm;
        }
    }
    gradient
}

fn check(module: usize, factors: &TripletFactors<'_>) -> Result<(), AdaLoraError> {
    let wanted = [
        ("A", factors.rank * factors.shape.d_input, factors.a.len()),
        ("B", factors.shape.d_output * factors.rank, factors.b.len()),
    ];
    for (name, wanted, found) in wanted {
        if wanted != found {
            return Err(AdaLoraError::Length { module, name, wanted, found });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::noise::{NoiseKey, fill_normal_f64};

    const SHAPE: TripletShape = TripletShape { d_input: 5, d_output: 3 };

    #[test]
    fn value_by_hand() {
        // A Aᵀ = diag(4, 1): excess 3. Columns of B: (1, 0, 0) and (1, 2, 0): Bᵀ B = [[1, 1], [1, 5]], excess
        // [[0, 1], [1, 4]], norm √18. Mean (3 + √18)/2.
        let a = [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0];
        let b = [1.0, 1.0, 0.0, 2.0, 0.0, 0.0];
        let module = TripletFactors { shape: SHAPE, rank: 2, a: &a, b: &b };
        let value = orthogonality(&[module]).unwrap();
        assert!((value - f64::midpoint(3.0, 18f64.sqrt())).abs() < 1e-15, "{value}");
        assert_eq!(orthogonality(&[]), Ok(0.0));
    }

    #[test]
    fn gradient_is_the_central_difference() {
        let key = NoiseKey::new(4);
        let mut values = vec![0.0; 4 * (2 * 5 + 3 * 2)];
        fill_normal_f64(key, 0, &mut values);
        let value_of = |values: &[f64]| orthogonality(&split(values)).unwrap();
        let gradient: Vec<f64> = orthogonality_gradient(&split(&values))
            .unwrap()
            .into_iter()
            .flat_map(|module| module.a.into_iter().chain(module.b))
            .collect();
        for i in 0..values.len() {
            let h = f64::EPSILON.cbrt() * values[i].abs().max(1.0);
            let (mut up, mut down) = (values.clone(), values.clone());
            up[i] += h;
            down[i] -= h;
            let difference = (value_of(&up) - value_of(&down)) / (up[i] - down[i]);
            assert!(
                (gradient[i] - difference).abs() < 1e-8,
                "entry {i}: {} {difference}",
                gradient[i]
            );
        }
    }

    /// Four modules of rank 2 from one list.
    fn split(values: &[f64]) -> Vec<TripletFactors<'_>> {
        values
            .chunks(16)
            .map(|chunk| TripletFactors { shape: SHAPE, rank: 2, a: &chunk[..10], b: &chunk[10..] })
            .collect()
    }

    #[test]
    fn orthonormal_factors_cost_nothing_and_have_no_gradient() {
        let a = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        let b = [0.0, 1.0, 1.0, 0.0, 0.0, 0.0];
        let module = TripletFactors { shape: SHAPE, rank: 2, a: &a, b: &b };
        assert_eq!(orthogonality(&[module]), Ok(0.0));
        let gradient = orthogonality_gradient(&[module]).unwrap();
        assert!(gradient[0].a.iter().chain(&gradient[0].b).all(|&g| g == 0.0));
    }

    #[test]
    fn wrong_lengths_name_module_and_factor() {
        let good = TripletFactors { shape: SHAPE, rank: 1, a: &[0.0; 5], b: &[0.0; 3] };
        let bad = TripletFactors { b: &[0.0; 4], ..good };
        let error = AdaLoraError::Length { module: 1, name: "B", wanted: 3, found: 4 };
        assert_eq!(orthogonality(&[good, bad]), Err(error.clone()));
        assert_eq!(orthogonality_gradient(&[good, bad]), Err(error));
    }
}
