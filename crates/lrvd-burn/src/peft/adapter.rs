//! An adapter on the host: its configuration, its factors by module, and the modules that are
//! stored whole.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_core::Factors;

use super::config::{CONFIG_FILE, PeftConfig, PeftMethod};
use super::rules::{Factor, Key, factor_key, parse_key};
use crate::error::{Error, LoadReport};
use crate::files::host_tensor::{not_a_matrix, wrong_type};
use crate::files::{HostDType, HostTensor, SETTINGS_LIMIT, WeightStore, is_file, read_limited};

/// File name of the tensors in an adapter folder.
pub const WEIGHTS_FILE: &str = "adapter_model.safetensors";
/// The pickled form, which is not read.
const PICKLED_FILE: &str = "adapter_model.bin";

/// The update of one linear layer.
///
/// # Formula
///
/// ```text
/// delta = scaling · b · diag(e) · a        [d_output, d_input]; e is absent for LoRA
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PeftModule {
    /// Rank of the factors; 0 is possible for `AdaLoRA` and after pruning.
    pub rank: usize,
    /// Rank before pruning or reallocation, as far as the file has it.
    pub initial_rank: usize,
    /// The factor before the product, fixed across prunes.
    pub scaling: f64,
    /// Down-projection, `[rank, d_input]`.
    pub a: HostTensor,
    /// Up-projection, `[d_output, rank]`.
    pub b: HostTensor,
    /// Diagonal of `AdaLoRA`, `[rank]`.
    pub e: Option<HostTensor>,
}

impl PeftModule {
    /// A `LoRA` update of floats; the rank is that of the factors.
    pub fn lora(
        a: HostTensor,
        b: HostTensor,
        scaling: f64,
        initial_rank: usize,
    ) -> Result<Self, Error> {
        for factor in [&a, &b] {
            if factor.shape().len() != 2 {
                return Err(not_a_matrix(factor.shape()));
            }
            if !factor.is_float() {
                return Err(wrong_type(HostDType::F32, factor.dtype()));
            }
        }
        let rank = a.shape()[0];
        if b.shape()[1] != rank {
            let found = format!("shape {:?}", b.shape());
            return Err(Error::tensor(
                format_args!("{rank} columns of `b`, as `a` has rows"),
                found,
            ));
        }
        Ok(Self { rank, initial_rank, scaling, a, b, e: None })
    }

    /// Input features.
    pub fn d_input(&self) -> usize {
        self.a.shape().get(1).copied().unwrap_or(0)
    }

    /// Output features.
    pub fn d_output(&self) -> usize {
        self.b.shape().first().copied().unwrap_or(0)
    }

    /// The factors in f64.
    pub fn factors(&self) -> Result<Factors, Error> {
        Ok(Factors {
            rank: self.rank,
            d_input: self.d_input(),
            d_output: self.d_output(),
            a: self.a.to_f64()?,
            b: self.b.to_f64()?,
        })
    }

    /// The update is zero since every value of `b` is.
    pub(super) fn is_zero(&self) -> Result<bool, Error> {
        Ok(self.b.to_f64()?.iter().all(|value| *value == 0.0))
    }

    /// The weight and the update in single precision, each value rounded once.
    pub fn merged(&self, weight: &HostTensor) -> Result<HostTensor, Error> {
        if weight.shape() != [self.d_output(), self.d_input()] {
            return Err(not_a_matrix(weight.shape()));
        }
        let sum = self.added_to(weight.to_f32()?.into_iter().map(f64::from).collect())?;
        let values: Vec<f32> = sum.into_iter().map(|value| value as f32).collect();
        HostTensor::from_f32(weight.shape(), &values)
    }

    /// The sum of a matrix `[d_output, d_input]` and the update; scale and diagonal are multiplied into `b`.
    pub(super) fn added_to(&self, mut dense: Vec<f64>) -> Result<Vec<f64>, Error> {
        let e = self.e.as_ref().map(HostTensor::to_f64).transpose()?;
        let d_input = self.d_input().max(1);
        let a = self.a.to_f64()?;
        let mut b = self.b.to_f64()?;
        for (at, value) in b.iter_mut().enumerate() {
            *value *= self.scaling * e.as_ref().map_or(1.0, |e| e[at % self.rank]);
        }
        let rows = dense.chunks_exact_mut(d_input).zip(b.chunks_exact(self.rank.max(1)));
        for (row, weights) in rows {
            for (weight, a) in weights.iter().zip(a.chunks_exact(d_input)) {
                row.iter_mut().zip(a).for_each(|(value, a)| *value += weight * a);
            }
        }
        Ok(dense)
    }
}

/// Numerator that, divided by the rank, is the scale bit for bit; if there is none, the product,
/// whose quotient differs by one unit in the last place.
pub(super) fn exact_alpha(scaling: f64, rank: usize) -> f64 {
    let rank = rank as f64;
    let product = scaling * rank;
    let candidates = [product.round(), product, product.next_up(), product.next_down()];
    candidates.into_iter().find(|alpha| alpha / rank == scaling).unwrap_or(product)
}

pub(super) fn no_module() -> Error {
    Error::argument("modules", "at least one, or PEFT has nothing to load", "none")
}

/// A PEFT adapter on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct PeftAdapter {
    /// The configuration.
    pub config: PeftConfig,
    /// Updates by module path.
    pub modules: BTreeMap<String, PeftModule>,
    /// Parameters of modules that are stored whole, by parameter name in the model.
    pub saved: BTreeMap<String, HostTensor>,
    /// Weights of the base in the file, by parameter name in the model: PEFT puts them in the place of the model's own.
    pub base: BTreeMap<String, HostTensor>,
    /// Tensors of the file that are known and not used.
    pub ignored: Vec<String>,
}

impl PeftAdapter {
    /// Reads an adapter folder and accounts for every tensor in it.
    ///
    /// Tensors that are missing, unexpected (also those of a module that the configuration does not target), of
    /// another shape than by the patterns, or not finite make one error that lists them.
    pub fn read(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = dir.as_ref();
        let file = dir.join(CONFIG_FILE);
        let text = read_limited(&file, SETTINGS_LIMIT)
            .map_err(|source| Error::io("read", &file, source))?;
        let config = PeftConfig::parse(&file, &text)?;
        let rules = config
            .rules()
            .map_err(|error| Error::file(&file, format!("cannot be used: {error}")))?;
        let path = dir.join(WEIGHTS_FILE);
        if !is_file(&path)? && is_file(&dir.join(PICKLED_FILE))? {
            let what = format!(
                "holds only pickled weights (`{PICKLED_FILE}`), expected safetensors: load the adapter with PEFT and call \
                 `save_pretrained(folder)`"
            );
            return Err(Error::Unsupported { path: dir.to_path_buf(), what });
        }
        let file = WeightStore::open(path)?;
        let mut report = LoadReport::new(file.path().display());
        // Modules that a reallocation lists must be there, whatever is left of them.
        let listed = config.kept().into_iter().flatten();
        let listed = listed.map(|(path, _)| (path.clone(), BTreeMap::new()));
        let mut factors: BTreeMap<String, BTreeMap<Factor, &str>> = listed.collect();
        let mut saved_keys = BTreeMap::new();
        let mut base_keys = BTreeMap::new();
        for key in file.names() {
            let unexpected = match parse_key(&config, key) {
                Key::Factor { path, factor } if rules.targets(&path) => {
                    factors.entry(path).or_default().insert(factor, key)
                }
                Key::Saved(parameter) => saved_keys.insert(parameter, key),
                Key::Base(parameter) => base_keys.insert(parameter, key),
                Key::Ignored(reason) => {
                    let shape = file.shape(key).unwrap_or_default();
                    report.ignored.push(format!("`{key}` {shape:?}: {reason}"));
                    None
                }
                Key::Factor { .. } | Key::Unknown => Some(key),
            };
            // Either unknown, or a second name for a tensor.
            report.unexpected.extend(unexpected.map(str::to_owned));
        }
        let mut modules = BTreeMap::new();
        for (path, keys) in factors {
            let names = (path.as_str(), &keys);
            let module = read_module(&file, &config.method, rules.of(&path), names, &mut report)?;
            if let Some(module) = module {
                modules.insert(path, module);
            }
        }
        let mut whole = |keys: BTreeMap<String, &str>| {
            let read = keys.into_iter().map(|(parameter, key)| {
                let tensor = file.read(key)?;
                report.check_finite(key, tensor.first_non_finite());
                Ok((parameter, tensor))
            });
            read.collect::<Result<_, Error>>()
        };
        let saved = whole(saved_keys)?;
        let base = whole(base_keys)?;
        Ok(Self { config, modules, saved, base, ignored: report.into_result()?.ignored })
    }
}

/// The module at a path, whose tensors have these names; none where a factor is in the report.
fn read_module(
    file: &WeightStore,
    method: &PeftMethod,
    (rank, initial_rank, scaling): (usize, usize, f64),
    (path, keys): (&str, &BTreeMap<Factor, &str>),
    report: &mut LoadReport,
) -> Result<Option<PeftModule>, Error> {
    let mut tensors = BTreeMap::new();
    for &factor in Factor::of(method) {
        let Some(key) = keys.get(&factor) else {
            report.missing.push(factor_key(method, path, factor));
            continue;
        };
        let found = file.shape(key).unwrap_or_default();
        let shape = match factor {
            Factor::A => [rank, features(found, rank, 1)],
            Factor::B => [features(found, rank, 0), rank],
            Factor::E => [rank, 1],
        };
        if report.check_shape(key, &shape, found) {
            let tensor = file.read(key)?;
            report.check_finite(key, tensor.first_non_finite());
            if !tensor.is_float() {
                let error = wrong_type(HostDType::F32, tensor.dtype());
                let what = format!("has a tensor `{key}` that cannot be used: {error}");
                return Err(Error::file(file.path(), what));
            }
            tensors.insert(factor, tensor);
        }
    }
    let (Some(a), Some(b)) = (tensors.remove(&Factor::A), tensors.remove(&Factor::B)) else {
        return Ok(None);
    };
    let e = tensors.remove(&Factor::E).map(|e| e.reshape(&[rank])).transpose()?;
    Ok(Some(PeftModule { rank, initial_rank, scaling, a, b, e }))
}

/// Features of a factor: the length of `axis`, or of the other axis if the factor is transposed.
fn features(found: &[usize], rank: usize, axis: usize) -> usize {
    match *found {
        [n, m] => {
            let (here, there) = if axis == 0 { (n, m) } else { (m, n) };
            if here == rank { there } else { here }
        }
        _ => found.iter().product::<usize>() / rank.max(1),
    }
}
