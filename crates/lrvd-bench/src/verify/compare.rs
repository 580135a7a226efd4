//! Comparing, and keeping account: a recorded tensor that nobody looked at is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lrvd_burn::files::{FileError, TensorFile};

use super::{
    Check, Entry, Folder, Limit, Precision, Values, VerifyError, VerifyOptions, VerifyReport, open,
    read,
};

/// Relative error of a number that was written with three digits, with room for a carry.
const THREE_DIGITS: f64 = 6e-3;

/// The recorded tensors of one folder, and what became of them.
pub(super) struct Comparison<'a> {
    pub(super) folder: &'a Folder,
    pub(super) options: &'a VerifyOptions<'a>,
    pub(super) precision: Precision,
    expected: TensorFile,
    seen: BTreeSet<String>,
    checks: Vec<Check>,
    notes: Vec<String>,
}

impl<'a> Comparison<'a> {
    pub(super) fn open(
        folder: &'a Folder,
        options: &'a VerifyOptions<'a>,
    ) -> Result<Self, VerifyError> {
        let expected = open(&folder.dir, "expected.safetensors")?;
        let (seen, checks, notes) = (BTreeSet::new(), Vec::new(), Vec::new());
        Ok(Self { folder, options, precision: options.precision, expected, seen, checks, notes })
    }

    /// Path of the recorded tensors.
    pub(super) fn file(&self) -> &Path {
        self.expected.path()
    }

    /// Names of the recorded tensors.
    pub(super) fn names(&self) -> Vec<String> {
        self.expected.names().map(str::to_owned).collect()
    }

    /// Names of the recorded tensors below `prefix`, without it.
    pub(super) fn below(&self, prefix: &str) -> Vec<String> {
        self.expected
            .names()
            .filter_map(|name| name.strip_prefix(prefix))
            .map(str::to_owned)
            .collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.expected.contains(name)
    }

    /// A recorded tensor, as an input of further computation.
    pub(super) fn recorded(&self, name: &str) -> Result<Values, VerifyError> {
        read(&self.expected, name)
    }

    /// The file itself.
    pub(super) fn tensors(&self) -> &TensorFile {
        &self.expected
    }

    /// Every tensor that `tolerances` names must be there.
    pub(super) fn check_complete(&self) -> Result<(), VerifyError> {
        for name in self.folder.tolerated()? {
            self.require(name)?;
        }
        Ok(())
    }

    /// The tensor must be there.
    pub(super) fn require(&self, name: &str) -> Result<(), VerifyError> {
        if self.has(name) {
            return Ok(());
        }
        let (file, tensor) = (self.file().to_path_buf(), name.to_owned());
        Err(FileError::NoTensor { file, tensor }.into())
    }

    /// The records of a model are complete and hold logits.
    pub(super) fn check_model(&self) -> Result<(), VerifyError> {
        self.check_complete()?;
        self.require("logits")
    }

    /// Compares what was found of a model: tensors that are recorded, and the numbers of `scalars`,
    /// which repeat tensors.
    pub(super) fn found(&mut self, found: &[(&str, Values)]) -> Result<(), VerifyError> {
        for (name, values) in found {
            if self.has(name) {
                self.tolerated(name, values)?;
            }
        }
        self.scalars(found, self.precision)
    }

    /// Compares the numbers of `scalars` with the tensors that they repeat.
    pub(super) fn scalars(
        &mut self,
        found: &[(impl AsRef<str>, Values)],
        precision: Precision,
    ) -> Result<(), VerifyError> {
        let folder = self.folder;
        let Some(scalars) = folder.find("scalars") else { return Ok(()) };
        for (name, entry) in scalars.entries()? {
            let values = &entry.among(name, found)?.values;
            self.numbers(&entry, values, folder.tolerance(name, precision)?)?;
        }
        Ok(())
    }

    /// Compares the recorded gradients that are among `found`.
    pub(super) fn gradients(
        &mut self,
        found: &BTreeMap<String, Values>,
    ) -> Result<(), VerifyError> {
        for name in self.below("grad.") {
            if let Some(gradient) = found.get(&name) {
                self.tolerated(&format!("grad.{name}"), gradient)?;
            }
        }
        Ok(())
    }

    /// Compares what `expected.json` says of the inputs, as far as it does.
    pub(super) fn described(&mut self, found: &[(&str, &[f64])]) -> Result<(), VerifyError> {
        for (key, values) in found {
            if let Some(entry) = self.folder.find(key) {
                self.numbers(&entry, values, Limit::EXACT)?;
            }
        }
        Ok(())
    }

    /// Compares a tensor that must be recorded, in full.
    pub(super) fn required(
        &mut self,
        name: &str,
        found: &Values,
        limit: Limit,
    ) -> Result<(), VerifyError> {
        self.require(name)?;
        self.tensor(name, found, limit)
    }

    /// Compares a recorded tensor in full, within its own tolerance.
    pub(super) fn tolerated(&mut self, name: &str, found: &Values) -> Result<(), VerifyError> {
        let limit = self.folder.tolerance(name, self.precision)?;
        self.tensor(name, found, limit)
    }

    /// Compares a recorded tensor in full.
    pub(super) fn tensor(
        &mut self,
        name: &str,
        found: &Values,
        limit: Limit,
    ) -> Result<(), VerifyError> {
        self.tensor_where(name, found, limit, |_| true)
    }

    /// Compares the entries of a recorded tensor whose row-major index satisfies `keep`.
    pub(super) fn tensor_where(
        &mut self,
        name: &str,
        found: &Values,
        limit: Limit,
        keep: impl Fn(usize) -> bool,
    ) -> Result<(), VerifyError> {
        let wanted = read(&self.expected, name)?;
        self.seen.insert(name.to_owned());
        self.pair(name, found, &wanted, limit, keep);
        Ok(())
    }

    /// Compares two tensors wherever they come from.
    pub(super) fn pair(
        &mut self,
        name: &str,
        found: &Values,
        wanted: &Values,
        limit: Limit,
        keep: impl Fn(usize) -> bool,
    ) {
        if wanted.shape != found.shape {
            let note = format!("recorded shape {:?}, recomputed {:?}", wanted.shape, found.shape);
            self.push(name, f64::INFINITY, limit, 0, Some(note));
            return;
        }
        let (mut compared, mut worst) = (0, 0.0_f64);
        for (index, (&found, &wanted)) in found.values.iter().zip(&wanted.values).enumerate() {
            if keep(index) {
                compared += 1;
                worst = larger(worst, difference(found, wanted, limit));
            }
        }
        let note = worst.is_nan().then(|| "holds a value that is not a number".to_owned());
        self.push(name, worst, limit, compared, note);
    }

    /// Compares one number of `expected.json`.
    pub(super) fn scalar(&mut self, name: &str, found: f64, wanted: f64, limit: Limit) {
        self.push(name, difference(found, wanted, limit), limit, 1, None);
    }

    /// Compares a list of numbers of `expected.json`, flattened.
    pub(super) fn numbers(
        &mut self,
        entry: &Entry<'_>,
        found: &[f64],
        limit: Limit,
    ) -> Result<(), VerifyError> {
        let wanted = entry.numbers()?;
        if wanted.len() != found.len() {
            let note = format!("{} recorded, {} recomputed", wanted.len(), found.len());
            self.push(entry.path(), f64::INFINITY, limit, 0, Some(note));
            return Ok(());
        }
        let worst = found
            .iter()
            .zip(&wanted)
            .fold(0.0, |worst, (&f, &w)| larger(worst, difference(f, w, limit)));
        self.push(entry.path(), worst, limit, found.len(), None);
        Ok(())
    }

    /// Compares a number that was written with three digits; below `floor` both count as 0.
    pub(super) fn rounded(
        &mut self,
        entry: &Entry<'_>,
        found: f64,
        floor: f64,
    ) -> Result<(), VerifyError> {
        let wanted = entry.number()?;
        let limit = Limit::Absolute(THREE_DIGITS * wanted.abs() + floor);
        let difference = difference(found, wanted, limit);
        self.push(entry.path(), difference, limit, 1, Some("written with three digits".to_owned()));
        Ok(())
    }

    /// A statement that holds or not.
    pub(super) fn exact(&mut self, name: &str, holds: bool, note: Option<String>) {
        self.push(name, if holds { 0.0 } else { 1.0 }, Limit::EXACT, 1, note);
    }

    /// Notes keys of a model's configuration that nobody knows; if one matters, the numbers say so.
    pub(super) fn note_unread(&mut self, keys: &[String]) {
        self.notes.extend(unread(keys));
    }

    /// Marks a recorded tensor as no part of the contract.
    pub(super) fn set_aside(&mut self, name: &str, reason: &str) {
        self.seen.insert(name.to_owned());
        self.notes.push(format!("`{name}` is not compared: {reason}"));
    }

    /// A remark.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Ends the account.
    pub(super) fn finish(self) -> Result<VerifyReport, VerifyError> {
        let names: Vec<String> = self
            .expected
            .names()
            .filter(|name| !self.seen.contains(*name))
            .map(str::to_owned)
            .collect();
        if !names.is_empty() {
            return Err(VerifyError::UnknownTensors { file: self.file().to_path_buf(), names });
        }
        let text = |key: &str| {
            let found = self.folder.find(key).and_then(|e| e.value.as_str().map(str::to_owned));
            found.unwrap_or_else(|| self.folder.dir.display().to_string())
        };
        Ok(VerifyReport {
            kind: text("kind"),
            case: text("case"),
            precision: self.precision,
            checks: self.checks,
            notes: self.notes,
        })
    }

    fn push(
        &mut self,
        name: &str,
        difference: f64,
        limit: Limit,
        compared: usize,
        note: Option<String>,
    ) {
        let (tolerance, note) = match limit {
            Limit::Absolute(tolerance) => (tolerance, note),
            Limit::Relative(tolerance) => {
                let note = note.map_or("relative".to_owned(), |note| format!("relative; {note}"));
                (tolerance, Some(note))
            }
        };
        // A difference that is not a number compares false.
        let holds = difference <= tolerance;
        self.checks.push(Check {
            name: name.to_owned(),
            difference,
            tolerance,
            holds,
            compared,
            note,
        });
    }
}

/// A note on keys of a model's `config.json` that were not read, if there are any.
pub(super) fn unread(keys: &[String]) -> Option<String> {
    (!keys.is_empty()).then(|| format!("keys of `config.json` that were not read: {keys:?}"))
}

/// The larger of two differences, where not a number is larger than any.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn difference(found: f64, wanted: f64, limit: Limit) -> f64 {
    // Also equal infinities.
    if found == wanted {
        return 0.0;
    }
    let absolute = (found - wanted).abs();
    match limit {
        Limit::Absolute(_) => absolute,
        Limit::Relative(_) => absolute / wanted.abs(),
    }
}
