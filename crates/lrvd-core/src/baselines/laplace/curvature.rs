//! The two factors of a Fisher block, gathered.

use crate::error::{Error, check_range, count_rows};
use crate::numeric::dense::scaled;

/// What the sum of outer products of the inputs is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum InputNormalisation {
    /// The tokens: `A` is a mean, so `S ⊗ A` is a sum over data.
    #[default]
    Tokens,
    /// The examples, as the published code does (`laplace-compat`): inflates the curvature by the mean
    /// length of an example.
    Examples,
}

/// Sums over data of one LoRA matrix, `W [d_output, d_input]`.
///
/// With inputs `a_nt [d_input]` and gradients of `−ln p_nc` by the matrix's output, `g_nct [d_output]`:
///
/// ```text
/// A = 1/(Σ_n T_n) · Σ_n Σ_t a_nt a_ntᵀ        S = Σ_n Σ_c p_nc Σ_t g_nct g_nctᵀ
/// ```
///
/// Exact Fisher over all classes, over the tokens passed in: leave padding out.
/// A side that is gathered as a [`WideFactor`](super::WideFactor) has size 0 here.
///
/// # Invariants
///
/// The same data twice doubles `S` and leaves `A`, so doubles the curvature. For one example of one
/// token `S ⊗ A` is the exact Fisher block.
///
/// Source: K-FAC "expand": Eschenhagen et al. 2023, arXiv:2311.00636.
#[derive(Debug, Clone, PartialEq)]
pub struct Curvature {
    d_output: usize,
    d_input: usize,
    output: Vec<f64>,
    input: Vec<f64>,
    n_tokens: usize,
    n_examples: usize,
}

impl Curvature {
    /// No data yet.
    pub fn new(d_output: usize, d_input: usize) -> Self {
        let (output, input) = (vec![0.0; d_output * d_output], vec![0.0; d_input * d_input]);
        Self { d_output, d_input, output, input, n_tokens: 0, n_examples: 0 }
    }

    /// Adds the inputs of one example, `[tokens, d_input]`.
    pub fn add_inputs(&mut self, tokens: &[f64]) -> Result<(), Error> {
        let rows = count_rows("tokens", tokens, self.d_input)?;
        add_outer_products(&mut self.input, tokens, self.d_input, 1.0);
        self.n_tokens += rows;
        self.n_examples += 1;
        Ok(())
    }

    /// Adds one class of one example: the gradients of `−ln p_c` by the output of every token,
    /// `[tokens, d_output]`, weighted with that class's probability.
    pub fn add_class(&mut self, probability: f64, gradients: &[f64]) -> Result<(), Error> {
        count_rows("gradients", gradients, self.d_output)?;
        check_range("probability", probability, 0.0, 1.0)?;
        add_outer_products(&mut self.output, gradients, self.d_output, probability);
        Ok(())
    }

    /// `S`, `[d_output, d_output]`.
    pub fn output_factor(&self) -> &[f64] {
        &self.output
    }

    /// `A`, `[d_input, d_input]`.
    ///
    /// # Errors
    ///
    /// Nothing was added.
    pub fn input_factor(&self, by: InputNormalisation) -> Result<Vec<f64>, Error> {
        let count = match by {
            InputNormalisation::Tokens => self.n_tokens,
            InputNormalisation::Examples => self.n_examples,
        };
        if count == 0 {
            return Err(Error::length("tokens", 0, "at least 1"));
        }
        Ok(scaled(&self.input, 1.0 / count as f64))
    }
}

/// `sum += weight · Σ_row row·rowᵀ`.
fn add_outer_products(sum: &mut [f64], rows: &[f64], width: usize, weight: f64) {
    if width == 0 {
        return;
    }
    for row in rows.chunks_exact(width) {
        for (out, v) in sum.chunks_exact_mut(width).zip(row) {
            for (out, w) in out.iter_mut().zip(row) {
                *out += weight * v * w;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sums_by_hand_and_their_normalisation() {
        let mut sums = Curvature::new(1, 2);
        sums.add_inputs(&[1.0, 2.0, 0.0, -1.0]).unwrap();
        sums.add_class(0.25, &[2.0, 4.0]).unwrap();
        sums.add_class(0.75, &[-1.0, 0.0]).unwrap();
        // 0.25·(4 + 16) + 0.75·1.
        assert_eq!(sums.output_factor(), [5.75]);
        assert_eq!(sums.input_factor(InputNormalisation::Tokens).unwrap(), [0.5, 1.0, 1.0, 2.5]);
        assert_eq!(sums.input_factor(InputNormalisation::Examples).unwrap(), [1.0, 2.0, 2.0, 5.0]);
    }

    #[test]
    fn wrong_shapes_probabilities_and_no_data_are_errors() {
        let mut sums = Curvature::new(2, 2);
        assert!(sums.input_factor(InputNormalisation::Tokens).is_err());
        assert!(sums.add_inputs(&[1.0; 3]).is_err());
        assert!(sums.add_class(0.5, &[1.0; 3]).is_err());
        assert!(sums.add_class(1.5, &[1.0; 2]).is_err());
        assert!(sums.add_class(f64::NAN, &[1.0; 2]).is_err());
        assert_eq!(sums, Curvature::new(2, 2));
    }
}
