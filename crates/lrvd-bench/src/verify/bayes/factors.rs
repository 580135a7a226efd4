//! Two factors of an adapter, read from a file and held rank-major.

use lrvd_burn::files::TensorFile;
use lrvd_core::ShapeError;
use lrvd_core::factor::FactorView;
use lrvd_core::posterior::{NoiseParameters, Posterior};

use super::super::{Values, VerifyError, read_finite};

/// The two posteriors that a fixture states, by the start of its names.
pub(super) const FAMILIES: [&str; 2] = ["multiplicative", "additive"];

/// `A` `[rank, d_in]` and `B` `[d_out, rank]` of a file, both rank-major here.
pub(super) struct Factors {
    pub(super) rank: usize,
    pub(super) d_in: usize,
    pub(super) d_out: usize,
    pub(super) a: Vec<f64>,
    pub(super) b: Vec<f64>,
}

impl Factors {
    pub(super) fn read(file: &TensorFile, a_name: &str, b_name: &str) -> Result<Self, VerifyError> {
        let (a, b) = (read_finite(file, a_name)?, read_finite(file, b_name)?);
        let [rank, d_in] = a.matrix(file.path(), a_name)?;
        let [d_out, columns] = b.matrix(file.path(), b_name)?;
        if columns != rank {
            let wanted = format!("with {rank} columns");
            return Err(VerifyError::shape(file.path(), b_name, wanted, &b.shape));
        }
        Ok(Self { rank, d_in, d_out, a: a.values, b: b.transposed().values })
    }

    pub(super) fn views(&self) -> Result<(FactorView<'_>, FactorView<'_>), ShapeError> {
        views(&self.a, &self.b, self)
    }

    /// The posterior of one family around these means.
    pub(super) fn posterior<'a>(
        &'a self,
        family: &str,
        parameters: &'a [f64],
    ) -> Result<Posterior<'a>, ShapeError> {
        let (a, b) = self.views()?;
        Posterior::new(a, b, noise(family, parameters))
    }

    /// `x` of the file, checked: `[n, d_in]`.
    pub(super) fn input(&self, file: &TensorFile, name: &str) -> Result<Values, VerifyError> {
        let x = read_finite(file, name)?;
        let [n, _] = x.matrix(file.path(), name)?;
        x.wanted(file.path(), name, &[n, self.d_in])
    }
}

/// Views of other values with the same shapes.
pub(super) fn views<'a>(
    a: &'a [f64],
    b: &'a [f64],
    like: &Factors,
) -> Result<(FactorView<'a>, FactorView<'a>), ShapeError> {
    Ok((
        FactorView::new("A", a, like.rank, like.d_in)?,
        FactorView::new("B", b, like.rank, like.d_out)?,
    ))
}

pub(super) fn noise<'a>(family: &str, parameters: &'a [f64]) -> NoiseParameters<'a> {
    if family == "additive" {
        NoiseParameters::RankVariance(parameters)
    } else {
        NoiseParameters::NoiseToSignal(parameters)
    }
}
