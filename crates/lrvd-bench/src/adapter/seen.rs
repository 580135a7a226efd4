//! Rows that a run has used, by their hashes, so that they are recognised in other files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use lrvd_burn::files::{HostDType, HostTensor, WeightStore, is_file, write_safetensors};
use serde::Serialize;

use crate::answers::AnswerSpace;
use crate::data::PreparedTask;
use crate::data::batch::TokenisedExample;
use crate::error::Result;
use crate::method::{FittedRows, MethodName};
use crate::settings::Config;

/// Sorted hashes of 8 bytes, one tensor for each [`RowUse`], in the adapter folder of a run. Exports have no such file: the hash
/// of a row that is known shows whether it was used.
pub(crate) const ROWS_FILE: &str = "lrvd_rows.safetensors";

/// Use that a run made of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowUse {
    /// It was trained on.
    Train,
    /// The temperature is fitted to it.
    Temperature,
    /// It chose the model: `checkpoint=best`, `patience`, a search for ranks.
    Choice,
    /// The interval of numbers is fitted to it.
    Interval,
    /// The thresholds of labels are fitted to it.
    Labels,
    /// It was measured on.
    Validation,
    /// A threshold is fitted to it.
    Certificate,
}

impl RowUse {
    const ALL: [Self; 7] = [
        Self::Train,
        Self::Temperature,
        Self::Choice,
        Self::Interval,
        Self::Labels,
        Self::Validation,
        Self::Certificate,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Temperature => "temperature",
            Self::Choice => "choice",
            Self::Interval => "interval",
            Self::Labels => "labels",
            Self::Validation => "validation",
            Self::Certificate => "certificate",
        }
    }

    /// Words for a number of rows before them.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Train => "trained the model",
            Self::Temperature => "fitted its temperature",
            Self::Choice => "chose the model",
            Self::Interval => "fitted its interval",
            Self::Labels => "fitted the thresholds of its labels",
            Self::Validation => "were its validation rows",
            Self::Certificate => "fitted its threshold",
        }
    }

    /// `true` if answers to such rows are not like those to new ones.
    const fn is_fitted(self) -> bool {
        matches!(self, Self::Train | Self::Temperature | Self::Choice)
    }
}

/// Hashes of the rows of a run by their use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenRows(BTreeMap<RowUse, Vec<u64>>);

impl SeenRows {
    /// Rows of a run with `config` on `task`, of which `fitted` are the rows of the temperature, or of numbers those of the
    /// interval.
    pub(crate) fn of(
        task: &PreparedTask,
        fitted: FittedRows,
        (method, config): (MethodName, &Config),
    ) -> Self {
        let is_regression = task.goal.answers == AnswerSpace::Score;
        let held = match fitted {
            FittedRows::Holdout if !is_regression => RowUse::Temperature,
            FittedRows::Holdout if config.chooses_model() => RowUse::Interval,
            _ => RowUse::Choice,
        };
        let measured = match fitted {
            FittedRows::Validation => RowUse::Temperature,
            _ if config.chooses_model() => RowUse::Choice,
            _ if is_regression => RowUse::Interval,
            _ if matches!(task.goal.answers, AnswerSpace::Labels { .. }) => RowUse::Labels,
            _ => RowUse::Validation,
        };
        let mut seen = Self::default();
        let hash = |example: &TokenisedExample| example.row;
        seen.add(RowUse::Train, task.train.iter().map(hash));
        seen.add(held, task.holdout.iter().map(hash));
        if method.chooses_by_holdout(config) {
            seen.add(RowUse::Choice, task.holdout.iter().map(hash));
        }
        seen.add(measured, task.validation.iter().map(hash));
        seen
    }

    pub(super) fn add(&mut self, used: RowUse, rows: impl IntoIterator<Item = u64>) {
        let all = self.0.entry(used).or_default();
        // Examples that were not read from a row have no hash.
        all.extend(rows.into_iter().filter(|&row| row != 0));
        all.sort_unstable();
        all.dedup();
    }

    /// `true` if no row is known.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(Vec::is_empty)
    }

    /// `true` if validation rows are known, and were used for nothing else.
    pub(super) fn only_measured(&self) -> bool {
        self.0.get(&RowUse::Validation).is_some_and(|rows| !rows.is_empty())
    }

    fn has(&self, used: RowUse, row: u64) -> bool {
        self.0.get(&used).is_some_and(|rows| rows.binary_search(&row).is_ok())
    }

    /// `true` if the model was trained on the row, chosen by it, or has a temperature that was fitted to it.
    pub(super) fn is_fitted(&self, row: u64) -> bool {
        RowUse::ALL.into_iter().any(|used| used.is_fitted() && self.has(used, row))
    }

    /// Number of `rows` of each use but that of validation rows, without those that there are none of.
    pub(super) fn counts(&self, rows: impl Iterator<Item = u64>) -> BTreeMap<RowUse, usize> {
        let mut found = BTreeMap::new();
        for row in rows {
            let used = RowUse::ALL.into_iter().filter(|&used| self.has(used, row));
            for used in used.filter(|&used| used != RowUse::Validation) {
                *found.entry(used).or_insert(0) += 1;
            }
        }
        found
    }

    /// Rows of the adapter in `folder`; none without the file.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(ROWS_FILE);
        if !is_file(&path)? {
            return Ok(Self::default());
        }
        let file = WeightStore::open(&path)?;
        let mut seen = Self::default();
        for used in RowUse::ALL {
            if file.shape(used.name()).is_none() {
                continue;
            }
            let tensor = file.read(used.name())?;
            if tensor.dtype() != HostDType::U64 {
                let name = used.name();
                let found = tensor.dtype();
                bail!("`{}`: `{name}` has {found} values, expected U64", path.display());
            }
            let hash = |raw: &[u8]| raw.try_into().map(u64::from_le_bytes);
            let rows: Vec<u64> =
                tensor.bytes().chunks_exact(8).map(hash).collect::<Result<_, _>>()?;
            seen.add(used, rows);
        }
        Ok(seen)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let tensor = |(used, rows): (&RowUse, &Vec<u64>)| {
            let bytes = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
            let tensor = HostTensor::new(HostDType::U64, vec![rows.len()], bytes)?;
            Ok((used.name().to_owned(), tensor))
        };
        let known = self.0.iter().filter(|(_, rows)| !rows.is_empty());
        let tensors = known.map(tensor).collect::<Result<BTreeMap<_, _>>>()?;
        let path = folder.join(ROWS_FILE);
        write_safetensors(&path, &tensors, &BTreeMap::new())
            .with_context(|| format!("cannot write `{}`", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(SeenRows::read(folder.path()).unwrap(), SeenRows::default());
        let mut seen = SeenRows::default();
        // A million rows take 8 MB.
        seen.add(RowUse::Train, (1..=1_000_000_u64).map(|row| row << 40));
        seen.add(RowUse::Temperature, [u64::MAX, 3, 3, 0]);
        seen.write(folder.path()).unwrap();
        let size = std::fs::metadata(folder.path().join(ROWS_FILE)).unwrap().len();
        assert!((8_000_016..8_001_000).contains(&size), "{size}");
        let read = SeenRows::read(folder.path()).unwrap();
        assert_eq!(read, seen);
        assert!(read.is_fitted(7 << 40) && read.is_fitted(3) && !read.is_fitted(0));
        let counts = read.counts([1 << 40, 2 << 40, 3, 5].into_iter());
        assert_eq!(counts, BTreeMap::from([(RowUse::Train, 2), (RowUse::Temperature, 1)]));
    }
}
