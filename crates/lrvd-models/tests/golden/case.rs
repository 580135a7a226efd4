//! A folder of recorded numbers, and what was compared with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use burn::tensor::{DType, Tensor};
use lrvd_burn::files::{HostTensor, WeightStore};
use lrvd_burn::host::values;
use serde_json::Value;

use crate::json::Json;

/// Relative error of a number that was written with three digits, with room for a carry.
const THREE_DIGITS: f64 = 6e-3;

/// Row-major values with a shape.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "a tensor has a shape and values")]
pub(crate) struct Values {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
    /// Which values are compared; all without a list.
    kept: Option<Vec<bool>>,
}

impl Values {
    pub(crate) fn new(shape: &[usize], values: Vec<f64>) -> Self {
        Self { shape: shape.to_vec(), values, kept: None }
    }

    pub(crate) fn list(values: Vec<f64>) -> Self {
        Self::new(&[values.len()], values)
    }

    /// The same values, of which those at the row-major indices that satisfy `keep` are compared.
    pub(crate) fn keeping(self, keep: impl Fn(usize) -> bool) -> Self {
        let kept = (0..self.values.len()).map(keep).collect();
        Self { kept: Some(kept), ..self }
    }

    pub(crate) fn is_kept(&self, index: usize) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept[index])
    }

    /// Truth values as 0 and 1.
    pub(crate) fn flags(shape: &[usize], flags: impl IntoIterator<Item = bool>) -> Self {
        Self::new(shape, flags.into_iter().map(|flag| f64::from(u8::from(flag))).collect())
    }

    /// A device tensor.
    pub(crate) fn of<const D: usize>(tensor: Tensor<D>) -> Self {
        Self::new(&tensor.dims(), values(tensor))
    }

    /// The floats or integers of a file.
    pub(crate) fn read(file: &WeightStore, name: &str) -> Result<Self> {
        Self::host(&file.read(name)?).with_context(|| format!("tensor `{name}`"))
    }

    pub(crate) fn host(tensor: &HostTensor) -> Result<Self> {
        let values = if tensor.is_float() {
            tensor.to_f64()?
        } else {
            tensor.to_i64()?.into_iter().map(|v| v as f64).collect()
        };
        Ok(Self::new(tensor.shape(), values))
    }

    pub(crate) fn transposed(&self) -> Self {
        let &[rows, columns] = self.shape.as_slice() else { panic!("shape {:?}", self.shape) };
        let cells = (0..columns).flat_map(|c| (0..rows).map(move |r| r * columns + c));
        Self::new(&[columns, rows], cells.map(|at| self.values[at]).collect())
    }

    /// Largest magnitude; 0 if there is no value.
    pub(crate) fn largest(&self) -> f64 {
        self.values.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()))
    }
}

/// A bound on the difference of two numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// On `|found − expected|`.
    Absolute(f64),
    /// On `|found − expected| / |expected|`.
    Relative(f64),
}

impl Limit {
    pub(crate) const EXACT: Self = Self::Absolute(0.0);

    fn bound(self) -> f64 {
        let (Self::Absolute(bound) | Self::Relative(bound)) = self;
        bound
    }

    /// Not a number if either side is not.
    fn difference(self, found: f64, expected: f64) -> f64 {
        // Also equal infinities.
        if found == expected {
            return 0.0;
        }
        let absolute = (found - expected).abs();
        match self {
            Self::Absolute(_) => absolute,
            Self::Relative(_) => absolute / expected.abs(),
        }
    }
}

/// One recorded tensor or number, and how far the recomputed one is away from it.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// Float type of models when it was recomputed.
    dtype: DType,
    /// Name of the tensor, or path of the number in `expected.json`.
    pub(crate) name: String,
    /// Largest difference; not a number if either side is not.
    pub(crate) difference: f64,
    pub(crate) limit: Limit,
    /// Number of values compared.
    pub(crate) compared: usize,
    pub(crate) note: String,
}

impl Check {
    pub(crate) fn holds(&self) -> bool {
        // A difference that is not a number compares false.
        self.difference <= self.limit.bound()
    }

    /// Difference over tolerance: 0 where both are 0, infinite where it is not a number.
    pub(crate) fn ratio(&self) -> f64 {
        match self.difference / self.limit.bound() {
            _ if self.difference == 0.0 => 0.0,
            ratio if ratio.is_nan() => f64::INFINITY,
            ratio => ratio,
        }
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { dtype, name, difference, limit, compared, note } = self;
        let relative = if matches!(limit, Limit::Relative(_)) { ", relative" } else { "" };
        let sign = if self.holds() { "<=" } else { "> " };
        let bound = limit.bound();
        write!(f, "{}  {difference:.2e} {sign} {bound:.2e}{relative}", dtype.name())?;
        write!(f, "  {name}  ({compared} values)")?;
        if note.is_empty() { Ok(()) } else { write!(f, "  {note}") }
    }
}

/// A folder while it is recomputed in one float type.
pub(crate) struct Case {
    pub(crate) dir: PathBuf,
    pub(crate) json: Value,
    /// Float type of models; formulas are in f64 whatever this is.
    pub(crate) dtype: DType,
    expected: Option<WeightStore>,
    seen: BTreeSet<String>,
    checks: Vec<Check>,
}

impl Case {
    pub(crate) fn open(dir: &Path, dtype: DType) -> Result<Self> {
        let text = std::fs::read(dir.join("expected.json")).context("no `expected.json`")?;
        let tensors = dir.join("expected.safetensors");
        Ok(Self {
            dir: dir.to_owned(),
            json: serde_json::from_slice(&text).context("`expected.json` is broken")?,
            dtype,
            expected: tensors.is_file().then(|| WeightStore::open(tensors)).transpose()?,
            seen: BTreeSet::new(),
            checks: Vec::new(),
        })
    }

    /// The input tensors, none but `known` ones: an unread input could change the meaning.
    pub(crate) fn inputs(&self, known: &[&str]) -> Result<WeightStore> {
        let file = WeightStore::open(self.dir.join("inputs.safetensors"))?;
        if !known.is_empty()
            && let Some(name) = file.names().find(|name| !known.contains(name))
        {
            bail!("unknown input tensor `{name}`");
        }
        Ok(file)
    }

    /// Names of the recorded tensors.
    pub(crate) fn names(&self) -> Vec<String> {
        self.expected.iter().flat_map(WeightStore::names).map(str::to_owned).collect()
    }

    /// Names of the recorded tensors below `prefix`, without it.
    pub(crate) fn below(&self, prefix: &str) -> Vec<String> {
        let names = self.names().into_iter();
        names.filter_map(|name| Some(name.strip_prefix(prefix)?.to_owned())).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.expected.as_ref().is_some_and(|file| file.contains(name))
    }

    /// A recorded tensor, which then counts as compared.
    pub(crate) fn recorded(&mut self, name: &str) -> Result<Values> {
        let file = self.expected.as_ref().context("no `expected.safetensors`")?;
        self.seen.insert(name.to_owned());
        Values::read(file, name)
    }

    /// Every tensor that `tolerances` names, and `names`, must be recorded.
    pub(crate) fn require(&self, names: &[&str]) -> Result<()> {
        let tolerated = self.json.at(&["tolerances"]).and_then(Json::entries).unwrap_or_default();
        let all = tolerated.iter().map(|(name, _)| *name).chain(names.iter().copied());
        let absent: Vec<&str> = all.filter(|name| !self.has(name)).collect();
        ensure!(absent.is_empty(), "not recorded: {absent:?}");
        Ok(())
    }

    /// `atol` or `rtol` in the case's float type.
    pub(crate) fn key(&self, start: &str) -> String {
        format!("{start}_{}", if self.dtype == DType::F64 { "f64" } else { "f32" })
    }

    /// `tolerances.<name>`, else `tolerance_by_group.<group>`.
    pub(crate) fn tolerance(&self, name: &str) -> Result<Limit> {
        let group = name.split('.').next().unwrap_or(name);
        let key = self.key("atol");
        let own = self.json.at(&["tolerances", name, &key]);
        let entry = own.or_else(|_| self.json.at(&["tolerance_by_group", group, &key]));
        let bound = entry.with_context(|| format!("no tolerance {key} for `{name}`"))?.number()?;
        ensure!(bound >= 0.0, "tolerance {bound} for `{name}`");
        Ok(Limit::Absolute(bound))
    }

    /// Compares a recorded tensor within its own tolerance.
    pub(crate) fn tolerated(&mut self, name: &str, found: &Values) -> Result<()> {
        let limit = self.tolerance(name)?;
        self.tensor(name, found, limit)
    }

    /// Compares a recorded tensor.
    pub(crate) fn tensor(&mut self, name: &str, found: &Values, limit: Limit) -> Result<()> {
        let expected = self.recorded(name)?;
        self.pair(name, found, &expected, limit);
        Ok(())
    }

    /// Compares two tensors wherever they come from.
    pub(crate) fn pair(&mut self, name: &str, found: &Values, expected: &Values, limit: Limit) {
        if expected.shape != found.shape {
            let note = format!("recorded shape {:?}, found {:?}", expected.shape, found.shape);
            return self.push(name, f64::INFINITY, limit, 0, note);
        }
        let pairs = found.values.iter().zip(&expected.values).enumerate();
        let kept: Vec<f64> = pairs
            .filter(|(index, _)| found.is_kept(*index))
            .map(|(_, (&found, &expected))| limit.difference(found, expected))
            .collect();
        self.push(name, largest(&kept), limit, kept.len(), String::new());
    }

    /// Compares numbers of `expected.json`.
    pub(crate) fn numbers(
        &mut self,
        name: &str,
        entry: &Value,
        found: &[f64],
        limit: Limit,
    ) -> Result<()> {
        let expected = Values::list(entry.numbers()?);
        self.pair(name, &Values::list(found.to_vec()), &expected, limit);
        Ok(())
    }

    /// Compares an entry of the first level, if it is there.
    pub(crate) fn described(&mut self, key: &str, found: &[f64], limit: Limit) -> Result<()> {
        let Ok(entry) = self.json.at(&[key]).cloned() else { return Ok(()) };
        self.numbers(key, &entry, found, limit)
    }

    /// Compares a number that was written with three digits; below `floor` both count as 0.
    pub(crate) fn rounded(
        &mut self,
        name: &str,
        entry: &Value,
        found: f64,
        floor: f64,
    ) -> Result<()> {
        let limit = Limit::Absolute(THREE_DIGITS * entry.number()?.abs() + floor);
        self.numbers(name, entry, &[found], limit)
    }

    /// A statement that holds or not.
    pub(crate) fn statement(&mut self, name: &str, holds: bool, note: String) {
        self.push(name, f64::from(u8::from(!holds)), Limit::EXACT, 1, note);
    }

    /// Compares those of `found` that are recorded, and the numbers of `scalars`, which repeat tensors.
    pub(crate) fn found(&mut self, found: &[(impl AsRef<str>, Values)]) -> Result<()> {
        for (name, values) in found {
            if self.has(name.as_ref()) && !self.seen.contains(name.as_ref()) {
                self.tolerated(name.as_ref(), values)?;
            }
        }
        let Ok(scalars) = self.json.at(&["scalars"]).cloned() else { return Ok(()) };
        for (name, entry) in scalars.entries()? {
            let values = found.iter().find(|(known, _)| known.as_ref() == name);
            let (_, values) = values.with_context(|| format!("unknown entry `scalars.{name}`"))?;
            let limit = self.tolerance(name)?;
            self.numbers(&format!("scalars.{name}"), entry, &values.values, limit)?;
        }
        Ok(())
    }

    /// Ends the account: a recorded tensor that was not compared is a miss.
    pub(crate) fn finish(mut self) -> Vec<Check> {
        let mut unread = self.names();
        unread.retain(|name| !self.seen.contains(name));
        for name in unread {
            self.push(&name, f64::NAN, Limit::EXACT, 0, "recorded, and not compared".to_owned());
        }
        self.checks
    }

    fn push(&mut self, name: &str, difference: f64, limit: Limit, compared: usize, note: String) {
        let (dtype, name) = (self.dtype, name.to_owned());
        self.checks.push(Check { dtype, name, difference, limit, compared, note });
    }
}

/// The largest of differences; not a number if one of them is not.
fn largest(differences: &[f64]) -> f64 {
    differences
        .iter()
        .fold(0.0, |a, &b| if f64::is_nan(a) || b.is_nan() { f64::NAN } else { a.max(b) })
}
