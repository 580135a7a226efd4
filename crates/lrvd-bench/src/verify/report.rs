//! The outcome of a verification.

use std::fmt;

use burn::tensor::{DType, Device};

/// Float type of the recomputation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision, against `atol_f32`.
    #[default]
    F32,
    /// Double precision, against `atol_f64`.
    F64,
}

impl Precision {
    /// The tensors' float type.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
        }
    }

    /// Name in messages and in the keys of a fixture.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

/// How to recompute.
#[derive(Clone, Debug)]
pub struct VerifyOptions<'a> {
    /// Float type of models and training runs; the formulas of `bayes` are always in f64.
    pub precision: Precision,
    /// Where models run.
    pub device: &'a Device,
}

/// One recorded tensor or number, and how far the recomputed one is away from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Name of the tensor, or path of the number in `expected.json`.
    pub name: String,
    /// Largest difference; not a number if either side is not.
    pub difference: f64,
    /// Largest difference allowed.
    pub tolerance: f64,
    /// Whether the difference is a number within the tolerance.
    pub holds: bool,
    /// Number of values compared.
    pub compared: usize,
    /// What to know about this comparison.
    pub note: Option<String>,
}

impl Check {
    /// Difference over tolerance; 0 where both are 0.
    pub fn ratio(&self) -> f64 {
        if self.difference == 0.0 { 0.0 } else { self.difference / self.tolerance }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds { "ok  " } else { "FAIL" };
        write!(
            f,
            "{verdict}  {:.2e}  <= {:.2e}  {}  ({} values)",
            self.difference, self.tolerance, self.name, self.compared
        )?;
        match &self.note {
            Some(note) => write!(f, "  {note}"),
            None => Ok(()),
        }
    }
}

/// Everything that was compared in one folder.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyReport {
    /// Kind of the folder, as its `expected.json` spells it.
    pub kind: String,
    /// Name of the case.
    pub case: String,
    /// Float type of the recomputation.
    pub precision: Precision,
    /// One entry per recorded tensor or number.
    pub checks: Vec<Check>,
    /// What was recorded and is no part of the contract, and other remarks.
    pub notes: Vec<String>,
}

impl VerifyReport {
    /// Whether every check holds. A report without a check does not.
    pub fn holds(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.holds)
    }

    /// The check with the largest difference relative to its tolerance; failed ones first.
    pub fn worst(&self) -> Option<&Check> {
        let key = |check: &Check| {
            let ratio = check.ratio();
            (!check.holds, if ratio.is_nan() { f64::INFINITY } else { ratio })
        };
        self.checks.iter().max_by(|a, b| {
            let ((a_failed, a), (b_failed, b)) = (key(a), key(b));
            a_failed.cmp(&b_failed).then(a.total_cmp(&b))
        })
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}, {})", self.case, self.kind, self.precision.name())?;
        for check in &self.checks {
            writeln!(f, "  {check}")?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        let failed = self.checks.iter().filter(|check| !check.holds).count();
        write!(f, "  {} of {} hold", self.checks.len() - failed, self.checks.len())?;
        match self.worst() {
            Some(worst) => write!(
                f,
                "; closest to its tolerance: {} at {:.2} of it",
                worst.name,
                worst.ratio()
            ),
            None => Ok(()),
        }
    }
}
