//! A Gaussian posterior over one multiplier per rank, and its predictive distribution over classes.
//!
//! Every rank direction of every module gets a gate that is 1 in the trained model,
//!
//! ```text
//! y = W·x + b + c·B·diag(g)·A·x                  f(g) ≈ f(1) + J·(g − 1),   J[c, r] = ∂f_c/∂g_r
//! ```
//!
//! so that a posterior over weights has `R` dimensions for the whole model, the sum of its ranks. With
//! `G = 1/n·Σ J_nᵀ·(diag(p_n) − p_n·p_nᵀ)·J_n`, the Gauss-Newton matrix of the mean loss, and two numbers,
//! a scale `v` and a prior precision `λ`,
//!
//! ```text
//! g ~ N(1, v·(G + λ·I)⁻¹)           f(x) ~ N(f*(x), J·v·(G + λ·I)⁻¹·Jᵀ)
//! ```
//!
//! `v = 1/n` is Laplace's approximation under a prior of precision `n·λ`. What is kept beside the adapter:
//!
//! | Form | Of `G` it keeps | Numbers |
//! |---|---|---|
//! | [`GateForm::Isotropic`] | nothing: `N(1, v·I)` | 1 |
//! | [`GateForm::Diagonal`] | the diagonal | `R + 2` |
//! | [`GateForm::Full`] | all of it | `R·(R + 1)/2 + 2` |

use crate::error::{Error, check_finite, check_length, check_range};
use crate::metrics::{log_softmax, mean_probability, softmax};
use crate::numeric::dense::{dot, times_transposed};
use crate::numeric::symmetric_eigen;

/// The part of the Gauss-Newton matrix that a posterior over gates keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateForm {
    /// Nothing: every gate has the same variance.
    Isotropic,
    /// The diagonal.
    Diagonal,
    /// The whole matrix.
    Full,
}

/// The Gauss-Newton matrix of the mean negative log-likelihood by the gates, `[n_gates, n_gates]`.
///
/// ```text
/// G = 1/n·Σ_n Σ_c p_nc·(J_nc − m_n)·(J_nc − m_n)ᵀ,     m_n = Σ_c p_nc·J_nc
/// ```
///
/// `jacobians` is `[n, n_classes, n_gates]`, in nats, `probabilities` is `[n, n_classes]`.
/// A constant added to the gradients of all classes of a row changes nothing.
pub fn gauss_newton(
    jacobians: &[f64],
    probabilities: &[f64],
    n_classes: usize,
    n_gates: usize,
) -> Result<Vec<f64>, Error> {
    if probabilities.is_empty() || n_classes == 0 {
        return Err(Error::length("probabilities", 0, "at least 1"));
    }
    let n = probabilities.len() / n_classes;
    check_length("probabilities", probabilities.len(), n * n_classes)?;
    check_length("jacobians", jacobians.len(), n * n_classes * n_gates)?;
    let mut sum = vec![0.0; n_gates * n_gates];
    if n_gates == 0 {
        return Ok(sum);
    }
    let rows =
        jacobians.chunks_exact(n_classes * n_gates).zip(probabilities.chunks_exact(n_classes));
    for (jacobian, p) in rows {
        let classes = || jacobian.chunks_exact(n_gates).zip(p);
        let mut middle = vec![0.0; n_gates];
        for (gradient, p) in classes() {
            middle.iter_mut().zip(gradient).for_each(|(m, g)| *m += p * g);
        }
        for (gradient, p) in classes() {
            let centred: Vec<f64> = gradient.iter().zip(&middle).map(|(g, m)| g - m).collect();
            for (row, left) in sum.chunks_exact_mut(n_gates).zip(&centred) {
                let left = p * left / n as f64;
                row.iter_mut().zip(&centred).for_each(|(out, right)| *out += left * right);
            }
        }
    }
    Ok(sum)
}

/// A posterior over gates up to its scale and its prior: axes and the curvature along them.
#[derive(Clone, Debug, PartialEq)]
pub struct GatePosterior {
    /// Curvature along each axis, `[n_gates]`, at least 0.
    curvature: Vec<f64>,
    /// The axes as rows, `[n_gates, n_gates]`; `None` where they are the gates.
    axes: Option<Vec<f64>>,
}

impl GatePosterior {
    /// What `form` keeps of `gauss_newton [n_gates, n_gates]`.
    pub fn new(form: GateForm, gauss_newton: &[f64], n_gates: usize) -> Result<Self, Error> {
        check_length("gauss_newton", gauss_newton.len(), n_gates * n_gates)?;
        Ok(match form {
            GateForm::Isotropic => Self { curvature: vec![0.0; n_gates], axes: None },
            GateForm::Diagonal => {
                let diagonal = gauss_newton.iter().step_by(n_gates + 1).copied();
                Self { curvature: diagonal.collect(), axes: None }
            }
            GateForm::Full => {
                let eigen = symmetric_eigen(gauss_newton, n_gates);
                let curvature = eigen.values.iter().map(|value| value.max(0.0)).collect();
                Self { curvature, axes: Some(eigen.vectors) }
            }
        })
    }

    /// `jacobians [.., n_gates]` along the axes.
    pub fn along_axes(&self, jacobians: &[f64]) -> Result<Vec<f64>, Error> {
        let gates = self.curvature.len();
        let n = jacobians.len() / gates.max(1);
        check_length("jacobians", jacobians.len(), n * gates)?;
        Ok(match &self.axes {
            None => jacobians.to_vec(),
            Some(axes) => times_transposed(jacobians, axes, n, gates, gates),
        })
    }

    /// Variances `v/(curvature + λ)` along the axes.
    ///
    /// # Errors
    ///
    /// A negative scale, or a precision that is not positive.
    pub fn variances(&self, scale: f64, prior_precision: f64) -> Result<Vec<f64>, Error> {
        check_range("scale", scale, 0.0, f64::MAX)?;
        check_range("prior_precision", prior_precision, f64::MIN_POSITIVE, f64::MAX)?;
        Ok(self.curvature.iter().map(|curvature| scale / (curvature + prior_precision)).collect())
    }
}

/// Probabilities of Gaussian logits by the probit approximation of every pair of classes, `[n, n_classes]`.
///
/// ```text
/// s_ck = Σ_r v_r·(J_cr − J_kr)²               variance of the difference of two logits
/// p_c ∝ 1 / Σ_k exp(−(f_c − f_k)/√(1 + π/8·s_ck))
/// ```
///
/// For two classes this is `MacKay`'s `σ(d/√(1 + π/8·s))`. A constant added to the gradients of all classes
/// changes nothing, and without variance it is the softmax.
///
/// `logits` is `[n, n_classes]` and `jacobians` `[n, n_classes, n_gates]`, along the axes, in nats; `variances` is `[n_gates]`.
///
/// Source: `MacKay` 1992; Lu et al. 2020, arXiv:2006.07584 (pairs of classes).
pub fn gate_probit(
    logits: &[f64],
    jacobians: &[f64],
    variances: &[f64],
    n_classes: usize,
) -> Result<Vec<f64>, Error> {
    check(logits, jacobians, variances.len(), n_classes)?;
    check_finite("logits", logits)?;
    let gates = variances.len();
    let mut all = Vec::with_capacity(logits.len());
    for (i, f) in logits.chunks_exact(n_classes).enumerate() {
        let gradient = |c: usize| &jacobians[(i * n_classes + c) * gates..][..gates];
        let spread = |c: usize, k: usize| -> f64 {
            let pairs = gradient(c).iter().zip(gradient(k)).zip(variances);
            pairs.map(|((a, b), v)| v * (a - b) * (a - b)).sum()
        };
        let logs: Vec<f64> = (0..n_classes)
            .map(|c| {
                let apart = |k: usize| {
                    let shrink = (1.0 + std::f64::consts::PI / 8.0 * spread(c, k)).sqrt();
                    (f[k] - f[c]) / shrink
                };
                let terms: Vec<f64> = (0..n_classes).map(apart).collect();
                let top = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                -top - terms.iter().map(|t| (t - top).exp()).sum::<f64>().ln()
            })
            .collect();
        all.extend(softmax(&logs, n_classes)?);
    }
    Ok(all)
}

/// Probabilities averaged over drawn gates, `[n, n_classes]`: what [`gate_probit`] approximates.
///
/// ```text
/// p_n = 1/k·Σ_t softmax(f_n + J_n·(√v ⊙ z_t))
/// ```
///
/// `normals` is `[k, n_gates]`: the same `k` models answer every row.
pub fn gate_draws(
    logits: &[f64],
    jacobians: &[f64],
    variances: &[f64],
    n_classes: usize,
    normals: &[f64],
) -> Result<Vec<f64>, Error> {
    let gates = variances.len();
    check(logits, jacobians, gates, n_classes)?;
    let k = normals.len() / gates.max(1);
    check_length("normals", normals.len(), k * gates)?;
    let drawn: Vec<f64> = normals
        .chunks_exact(gates.max(1))
        .flat_map(|z| {
            let step: Vec<f64> = z.iter().zip(variances).map(|(z, v)| z * v.sqrt()).collect();
            let moved = |(f, gradient): (&f64, &[f64])| f + dot(gradient, &step);
            logits.iter().zip(jacobians.chunks_exact(gates)).map(moved).collect::<Vec<f64>>()
        })
        .collect();
    mean_probability(&log_softmax(&drawn, n_classes)?, k, n_classes)
}

fn check(logits: &[f64], jacobians: &[f64], gates: usize, classes: usize) -> Result<(), Error> {
    let n = logits.len() / classes.max(1);
    check_length("logits", logits.len(), n * classes)?;
    check_length("jacobians", jacobians.len(), logits.len() * gates)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::noise::{NoiseKey, fill_normal_f64};
    use crate::numeric::Cholesky;
    use crate::numeric::dense::transposed_times;
    use crate::testing::assert_near;

    const CLASSES: usize = 3;
    const GATES: usize = 5;
    const ROWS: usize = 4;

    fn normals(seed: u64, n: usize) -> Vec<f64> {
        let mut values = vec![0.0; n];
        fill_normal_f64(NoiseKey::new(seed), 0, &mut values);
        values
    }

    fn case() -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let logits = normals(1, ROWS * CLASSES);
        let jacobians = normals(2, ROWS * CLASSES * GATES);
        let p = softmax(&logits, CLASSES).unwrap();
        (logits, jacobians, p)
    }

    /// `1/n·Σ Jᵀ·(diag(p) − p·pᵀ)·J` as it is written.
    fn dense(jacobians: &[f64], p: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; GATES * GATES];
        for (j, p) in jacobians.chunks(CLASSES * GATES).zip(p.chunks(CLASSES)) {
            let mut h = vec![0.0; CLASSES * CLASSES];
            for a in 0..CLASSES {
                for b in 0..CLASSES {
                    h[a * CLASSES + b] = if a == b { p[a] } else { 0.0 } - p[a] * p[b];
                }
            }
            let hj = crate::numeric::dense::times(&h, j, CLASSES, CLASSES, GATES);
            let share = transposed_times(j, &hj, CLASSES, GATES, GATES);
            sum.iter_mut().zip(share).for_each(|(s, v)| *s += v / ROWS as f64);
        }
        sum
    }

    #[test]
    fn the_gauss_newton_matrix_is_that_of_the_definition_and_ignores_what_softmax_does() {
        let (_, mut jacobians, p) = case();
        let found = gauss_newton(&jacobians, &p, CLASSES, GATES).unwrap();
        assert_near(&found, &dense(&jacobians, &p), 1e-14);
        for row in jacobians.chunks_mut(CLASSES * GATES) {
            row.iter_mut().enumerate().for_each(|(i, v)| *v += (i % GATES) as f64);
        }
        assert_near(&gauss_newton(&jacobians, &p, CLASSES, GATES).unwrap(), &found, 1e-13);
    }

    /// `J·v·(G + λ·I)⁻¹·Jᵀ` of one row, by solving.
    fn dense_covariance(matrix: &[f64], j: &[f64], scale: f64, prior: f64) -> Vec<f64> {
        let mut precision = matrix.to_vec();
        precision.iter_mut().step_by(GATES + 1).for_each(|v| *v += prior);
        let root = Cholesky::new("precision", &precision, GATES).unwrap();
        let mut out = Vec::new();
        for a in j.chunks(GATES) {
            let solved = root.solve(a);
            out.extend(j.chunks(GATES).map(|b| scale * dot(b, &solved)));
        }
        out
    }

    #[test]
    fn every_form_is_the_dense_posterior_of_what_it_keeps() {
        let (logits, jacobians, p) = case();
        let full = gauss_newton(&jacobians, &p, CLASSES, GATES).unwrap();
        let mut diagonal = vec![0.0; full.len()];
        for i in 0..GATES {
            diagonal[i * (GATES + 1)] = full[i * (GATES + 1)];
        }
        let none = vec![0.0; full.len()];
        for (form, matrix) in
            [(GateForm::Full, &full), (GateForm::Diagonal, &diagonal), (GateForm::Isotropic, &none)]
        {
            let posterior = GatePosterior::new(form, &full, GATES).unwrap();
            let turned = posterior.along_axes(&jacobians).unwrap();
            let variances = posterior.variances(0.7, 0.3).unwrap();
            let answers = gate_probit(&logits, &turned, &variances, CLASSES).unwrap();
            for (i, answer) in answers.chunks(CLASSES).enumerate() {
                let j = &jacobians[i * CLASSES * GATES..][..CLASSES * GATES];
                let s = dense_covariance(matrix, j, 0.7, 0.3);
                let f = &logits[i * CLASSES..][..CLASSES];
                let weight = |c: usize| {
                    let term = |k: usize| {
                        let of = |a: usize, b: usize| s[a * CLASSES + b];
                        let spread = of(c, c) + of(k, k) - 2.0 * of(c, k);
                        ((f[k] - f[c]) / (1.0 + std::f64::consts::PI / 8.0 * spread).sqrt()).exp()
                    };
                    1.0 / (0..CLASSES).map(term).sum::<f64>()
                };
                let total: f64 = (0..CLASSES).map(weight).sum();
                for (c, found) in answer.iter().enumerate() {
                    assert!((found - weight(c) / total).abs() < 1e-12, "{form:?}");
                }
            }
        }
    }

    #[test]
    fn two_classes_are_mackays_probit_and_draws_agree_with_it() {
        let (d, j, v) = (1.5, [0.8, -0.6], [0.9, 1.6]);
        let logits = [d, 0.0];
        let jacobians = [j[0], j[1], 0.0, 0.0];
        let spread: f64 = j.iter().zip(v).map(|(j, v)| v * j * j).sum();
        let shrunk = d / (1.0 + std::f64::consts::PI / 8.0 * spread).sqrt();
        let found = gate_probit(&logits, &jacobians, &v, 2).unwrap();
        assert!((found[0] - 1.0 / (1.0 + (-shrunk).exp())).abs() < 1e-14);
        // Standard error of the draws: at most 0.5/√k.
        let k = 40_000;
        let drawn = gate_draws(&logits, &jacobians, &v, 2, &normals(3, k * 2)).unwrap();
        assert!(
            (drawn[0] - found[0]).abs() < 0.01 + 1.5 / (k as f64).sqrt(),
            "{drawn:?} {found:?}"
        );
        let far = softmax(&logits, 2).unwrap()[0];
        assert!((far - found[0]).abs() > 0.03);
    }

    #[test]
    fn without_variance_it_is_the_softmax() {
        let (logits, jacobians, p) = case();
        let still = gate_probit(&logits, &jacobians, &[0.0; GATES], CLASSES).unwrap();
        assert_near(&still, &p, 1e-15);
    }

    #[test]
    fn wrong_shapes_and_numbers_are_errors() {
        let (logits, jacobians, p) = case();
        assert!(gauss_newton(&jacobians[1..], &p, CLASSES, GATES).is_err());
        assert!(gauss_newton(&[], &[], CLASSES, GATES).is_err());
        assert!(GatePosterior::new(GateForm::Full, &[1.0; 3], 2).is_err());
        let posterior = GatePosterior::new(GateForm::Isotropic, &[0.0; 25], GATES).unwrap();
        assert!(posterior.variances(-1.0, 1.0).is_err() && posterior.variances(1.0, 0.0).is_err());
        assert!(gate_probit(&logits, &jacobians, &[1.0; 4], CLASSES).is_err());
        assert!(gate_draws(&logits, &jacobians, &[1.0; GATES], CLASSES, &[]).is_err());
    }
}
