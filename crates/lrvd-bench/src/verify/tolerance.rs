//! Bounds on the distance of a recomputed tensor from the recorded one.

use super::{Entry, Folder, Precision, VerifyError};

/// A bound on the difference of two tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// On `|found − wanted|`.
    Absolute(f64),
    /// On `|found − wanted| / |wanted|`, value by value.
    Relative(f64),
}

impl Limit {
    /// Nothing but equality.
    pub(super) const EXACT: Self = Self::Absolute(0.0);
}

impl Folder {
    /// `tolerances.<name>`, else `tolerance_by_group.<group>`, for absolute differences.
    pub(super) fn tolerance(&self, name: &str, precision: Precision) -> Result<Limit, VerifyError> {
        let group = name.split('.').next().unwrap_or(name);
        let key = match precision {
            Precision::F32 => "atol_f32",
            Precision::F64 => "atol_f64",
        };
        for (table, row) in [("tolerances", name), ("tolerance_by_group", group)] {
            let row = self.find(table).and_then(|table| table.find(row));
            if let Some(entry) = row.and_then(|row| row.find(key)) {
                return Ok(Limit::Absolute(bound(&entry)?));
            }
        }
        Err(VerifyError::MissingTolerance {
            file: self.file.clone(),
            name: name.to_owned(),
            precision,
        })
    }

    /// The names in `tolerances`, where each stands for a tensor.
    pub(super) fn tolerated(&self) -> Result<Vec<&str>, VerifyError> {
        let Some(table) = self.find("tolerances") else { return Ok(Vec::new()) };
        Ok(table.entries()?.into_iter().map(|(name, _)| name).collect())
    }
}

/// A number that can bound a difference.
pub(super) fn bound(entry: &Entry<'_>) -> Result<f64, VerifyError> {
    let bound = entry.finite()?;
    if bound < 0.0 { Err(entry.wrong("0 or more")) } else { Ok(bound) }
}
