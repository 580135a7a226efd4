//! A folder of recorded numbers, and what was compared with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use burn::tensor::{DType, Tensor};
use lrvd_burn::files::{HostTensor, WeightStore};
use lrvd_burn::parameters::values;
use serde::Deserialize;
use serde_json::Value;

/// Access to `expected.json` by paths such as `adalora/modules`.
pub(crate) trait Json {
    /// The entry at a path; null counts as absent.
    fn at(&self, path: &str) -> Result<&Value>;
    /// The entry at a path as a `T`.
    fn read<'a, T: Deserialize<'a>>(&'a self, path: &str) -> Result<T>;
    /// All numbers of a list, nested lists included, in order; of a number the number. Truth values are 0 and 1, and
    /// `"inf"` is a number, too.
    fn numbers(&self) -> Result<Vec<f64>>;
    /// The entries of an object.
    fn entries(&self) -> Result<Vec<(&str, &Value)>>;
}

impl Json for Value {
    fn at(&self, path: &str) -> Result<&Value> {
        let entry = self.pointer(&format!("/{path}")).filter(|entry| !entry.is_null());
        entry.with_context(|| format!("no entry `{path}`"))
    }

    fn read<'a, T: Deserialize<'a>>(&'a self, path: &str) -> Result<T> {
        T::deserialize(self.at(path)?).with_context(|| format!("entry `{path}`"))
    }

    fn numbers(&self) -> Result<Vec<f64>> {
        let number = match self {
            Self::Array(list) => {
                return Ok(list.iter().map(Json::numbers).collect::<Result<Vec<_>>>()?.concat());
            }
            Self::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Self::String(text) => text.parse().ok(),
            other => other.as_f64(),
        };
        Ok(vec![number.with_context(|| format!("expected a number, found `{self}`"))?])
    }

    fn entries(&self) -> Result<Vec<(&str, &Value)>> {
        let object = self.as_object();
        let object = object.with_context(|| format!("expected an object, found `{self}`"))?;
        Ok(object.iter().map(|(key, value)| (key.as_str(), value)).collect())
    }
}

/// Row-major values with a shape.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "a tensor has a shape and values")]
pub(crate) struct Values {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
    /// `true` for a value that is compared; all without a list.
    kept: Option<Vec<bool>>,
}

impl Values {
    pub(crate) fn new(shape: &[usize], values: Vec<f64>) -> Self {
        Self { shape: shape.to_vec(), values, kept: None }
    }

    pub(crate) fn list(values: Vec<f64>) -> Self {
        Self::new(&[values.len()], values)
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

    /// These values, of which only those at the row-major indices that satisfy `keep` are compared.
    pub(crate) fn keeping(self, keep: impl Fn(usize) -> bool) -> Self {
        let kept = (0..self.values.len()).map(keep).collect();
        Self { kept: Some(kept), ..self }
    }

    pub(crate) fn is_kept(&self, index: usize) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept[index])
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
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Absolute(f64),
    /// This part of the expected number.
    Relative(f64),
}

impl Limit {
    pub(crate) const EXACT: Self = Self::Absolute(0.0);

    /// The difference over the bound; infinite where a side is not a number.
    fn ratio(self, found: f64, expected: f64) -> f64 {
        // Also equal infinities.
        if found == expected {
            return 0.0;
        }
        let bound = match self {
            Self::Absolute(bound) => bound,
            Self::Relative(part) => part * expected.abs(),
        };
        let ratio = (found - expected).abs() / bound;
        if ratio.is_nan() { f64::INFINITY } else { ratio }
    }
}

/// One recorded tensor or number, and how far the recomputed one is away from it.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// Float type of models when it was recomputed.
    dtype: DType,
    /// Name of the tensor, or path of the number in `expected.json`.
    pub(crate) name: String,
    /// Largest ratio of a difference to its tolerance.
    pub(crate) ratio: f64,
    note: String,
}

impl Check {
    pub(crate) fn holds(&self) -> bool {
        self.ratio <= 1.0
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { dtype, name, ratio, note } = self;
        write!(f, "{}  {ratio:.2e} of its tolerance  {name}  {note}", dtype.name())
    }
}

/// A folder while it is recomputed in one float type.
pub(crate) struct Case {
    pub(crate) dir: PathBuf,
    pub(crate) json: Value,
    /// Float type of models; formulas are in f64 whatever this is.
    pub(crate) dtype: DType,
    /// Recorded tensors that nothing was compared with yet.
    unread: BTreeMap<String, Values>,
    checks: Vec<Check>,
}

impl Case {
    pub(crate) fn open(dir: &Path, dtype: DType) -> Result<Self> {
        let text = std::fs::read(dir.join("expected.json")).context("no `expected.json`")?;
        let json = serde_json::from_slice(&text).context("`expected.json` is broken")?;
        let mut unread = BTreeMap::new();
        let tensors = dir.join("expected.safetensors");
        if tensors.is_file() {
            let file = WeightStore::open(tensors)?;
            for name in file.names() {
                unread.insert(name.to_owned(), Values::read(&file, name)?);
            }
        }
        Ok(Self { dir: dir.to_owned(), json, dtype, unread, checks: Vec::new() })
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

    /// Names of the tensors below `prefix` that nothing was compared with yet, without it.
    pub(crate) fn below(&self, prefix: &str) -> Vec<String> {
        self.unread.keys().filter_map(|name| Some(name.strip_prefix(prefix)?.to_owned())).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.unread.contains_key(name)
    }

    /// A recorded tensor, which then counts as compared.
    pub(crate) fn recorded(&mut self, name: &str) -> Result<Values> {
        self.unread.remove(name).with_context(|| format!("not recorded: `{name}`"))
    }

    /// Every tensor that `tolerances` names must be recorded.
    pub(crate) fn require_tolerated(&self) -> Result<()> {
        for (name, _) in self.json.at("tolerances").and_then(Json::entries).unwrap_or_default() {
            ensure!(self.has(name), "not recorded: `{name}`");
        }
        Ok(())
    }

    /// `atol` or `rtol` in the case's float type.
    pub(crate) fn key(&self, start: &str) -> String {
        format!("{start}_{}", if self.dtype == DType::F64 { "f64" } else { "f32" })
    }

    /// `tolerances/<name>`.
    pub(crate) fn tolerance(&self, name: &str) -> Result<Limit> {
        let path = format!("tolerances/{name}/{}", self.key("atol"));
        Ok(Limit::Absolute(self.json.read(&path)?))
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
            return self.push(name, f64::INFINITY, note);
        }
        let pairs = found.values.iter().zip(&expected.values).enumerate();
        let ratios: Vec<f64> = pairs
            .filter(|(index, _)| found.is_kept(*index))
            .map(|(_, (&found, &expected))| limit.ratio(found, expected))
            .collect();
        let note = format!("({} values)", ratios.len());
        self.push(name, ratios.into_iter().fold(0.0, f64::max), note);
    }

    /// A statement that holds or not.
    pub(crate) fn statement(&mut self, name: &str, holds: bool, note: String) {
        self.push(name, if holds { 0.0 } else { f64::INFINITY }, note);
    }

    /// Compares those of `found` that are recorded.
    pub(crate) fn found(&mut self, found: &[(impl AsRef<str>, Values)]) -> Result<()> {
        for (name, values) in found {
            if self.has(name.as_ref()) {
                self.tolerated(name.as_ref(), values)?;
            }
        }
        Ok(())
    }

    /// Ends the account: a recorded tensor that was not compared is a miss.
    pub(crate) fn finish(mut self) -> Vec<Check> {
        for name in std::mem::take(&mut self.unread).into_keys() {
            self.push(&name, f64::INFINITY, "recorded, and not compared".to_owned());
        }
        self.checks
    }

    fn push(&mut self, name: &str, ratio: f64, note: String) {
        self.checks.push(Check { dtype: self.dtype, name: name.to_owned(), ratio, note });
    }
}
