//! The gradient of a scalar with respect to a posterior.

use super::Entries;

/// The gradient of a scalar with respect to everything in a [`Posterior`](super::Posterior).
#[derive(Debug, Clone, PartialEq)]
pub struct PosteriorGradient {
    /// `[rank, d_input]`.
    pub a_mean: Vec<f64>,
    /// `[rank, d_output]`.
    pub b_mean: Vec<f64>,
    /// With respect to the family's own parameters.
    pub parameters: ParameterGradient,
}

/// The gradient with respect to a family's own parameters, shaped as they are.
#[derive(Debug, Clone, PartialEq)]
pub enum ParameterGradient {
    /// `[rank]`: the three families with one number per rank.
    PerRank(Vec<f64>),
    /// One per entry: `ElementVariance`.
    PerEntry(Entries),
}

impl ParameterGradient {
    /// The gradient `[rank]`, or `None` for a family with one parameter per entry.
    pub fn per_rank(&self) -> Option<&[f64]> {
        match self {
            Self::PerRank(values) => Some(values),
            Self::PerEntry(_) => None,
        }
    }
}

impl PosteriorGradient {
    /// Multiplies every entry, for a KL weight or the sign of an objective.
    pub fn scale(&mut self, factor: f64) {
        let parameters: Vec<&mut Vec<f64>> = match &mut self.parameters {
            ParameterGradient::PerRank(values) => vec![values],
            ParameterGradient::PerEntry(entries) => vec![&mut entries.a, &mut entries.b],
        };
        for values in [&mut self.a_mean, &mut self.b_mean].into_iter().chain(parameters) {
            for value in values.iter_mut() {
                *value *= factor;
            }
        }
    }
}
