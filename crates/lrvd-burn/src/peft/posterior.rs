//! The variational posterior of an adapter: family, parameters and modules, in `lrvd_posterior.safetensors` next to the adapter.
//!
//! The means are the factors of the adapter itself; a reader that knows nothing of this file gets
//! the posterior mean.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use burn::tensor::Tensor;
use lrvd_core::Noise;
use lrvd_core::moments::CrossTerm;
use lrvd_core::posterior::{LOG_VARIANCE_MAX, LOG_VARIANCE_MIN, VariationalFamily};
use lrvd_core::prune::StatisticAggregate;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use super::adapter::PeftAdapter;
use super::model::{LayerSpec, insert, take_parameters, unusable};
use crate::adapter::{AdapterSlot, Extension, Gaussian, Sizes, posterior_schemas};
use crate::error::{Error, LoadReport};
use crate::files::{HostTensor, WeightStore, write_safetensors};
use crate::model::NamedModule;
use crate::sampling::Scheme;

/// File name of the posterior in an adapter folder.
pub const POSTERIOR_FILE: &str = "lrvd_posterior.safetensors";
/// Key of the header among the texts of the file.
pub(super) const HEADER_KEY: &str = "lrvd";
/// Version of the header that is written, and the only one that is read.
const SCHEMA_VERSION: u32 = 1;
/// Range that this build clamps log-variances to.
const CLAMP: [f64; 2] = [LOG_VARIANCE_MIN, LOG_VARIANCE_MAX];
/// Largest relative difference between the scale in the header and that of the adapter, which
/// passes through a division by the rank; a few units in the last place are enough.
const SCALING_TOLERANCE: f64 = 1e-12;

/// A type whose values have names in the header. They are those of the first version of the file, not those of settings.
/// Of two values with one name the first is read.
trait Named: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];

    fn stored_name(self) -> &'static str {
        let entry = Self::NAMES.iter().find(|(_, known)| *known == self);
        entry.expect("the table has every value of its type").0
    }
}

impl Named for VariationalFamily {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("rank_variance", Self::RankVariance),
        ("noise_to_signal", Self::NoiseToSignal),
        ("element_variance", Self::ElementVariance),
        ("a_only", Self::AsymRankVariance),
    ];
}

impl Named for Scheme {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("mean", Self::Mean),
        ("weight_per_sequence", Self::PerSequence),
        ("weight_per_batch", Self::PerBatch),
        ("weight_per_token", Self::PerToken),
        ("moment_matched", Self::MomentMatched(CrossTerm::Exact)),
        ("moment_matched", Self::MomentMatched(CrossTerm::Omitted)),
        ("nested", Self::Nested),
    ];
}

/// The name of `family` in posterior files.
pub fn posterior_family_name(family: VariationalFamily) -> &'static str {
    family.stored_name()
}

fn write_name<T: Named, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.stored_name())
}

#[expect(clippy::ref_option, reason = "as serde passes a field")]
fn write_known<T: Named, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => write_name(value, serializer),
        None => serializer.serialize_none(),
    }
}

fn read_known<'de, T: Named, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    read_name(deserializer).map(Some)
}

fn read_name<'de, T: Named, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let name = Cow::<str>::deserialize(deserializer)?;
    let entry = T::NAMES.iter().find(|(known, _)| *known == name);
    entry.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> = T::NAMES.iter().map(|(known, _)| *known).collect();
        let known = known.join("`, `");
        de::Error::custom(format!("unknown name `{name}`, expected one of `{known}`"))
    })
}

/// Settings of the run that trained a posterior, for the header; a field that is `None` is not in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PosteriorRun {
    /// Scheme of the noise in training.
    pub scheme: Option<Scheme>,
    /// Aggregate of the statistic of a rank.
    pub statistic: Option<StatisticAggregate>,
    /// Ranks with a statistic at or above this were pruned, in nats.
    pub log_alpha_threshold: Option<f64>,
    /// Weight of the KL divergence in the objective.
    pub kl_weight: Option<f64>,
    /// Seed of the run.
    pub seed: Option<u64>,
}

/// Entry of one module in the header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PosteriorModuleHeader {
    /// Rank before pruning.
    pub initial_rank: usize,
    /// Rank now; a module of rank 0 has no tensors, here or in the adapter.
    pub rank: usize,
    /// The factor before the product of the adapter's tensors.
    pub scaling: f64,
}

/// The header of the posterior file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PosteriorHeader {
    pub(super) schema_version: u32,
    /// Ties of the variances.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    pub family: VariationalFamily,
    /// Scheme of the noise in training; the cross term of moment matching is not kept, and reads as exact.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "write_known",
        deserialize_with = "read_known"
    )]
    pub scheme: Option<Scheme>,
    /// Aggregate of the statistic of a rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistic: Option<StatisticAggregate>,
    /// Ranks with a statistic at or above this were pruned, in nats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_alpha_threshold: Option<f64>,
    /// Range that log-variances are clamped to in use, in ln(weight²).
    pub log_variance_clamp: [f64; 2],
    /// Weight of the KL divergence in the objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl_weight: Option<f64>,
    /// Seed of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Every module that was adapted, also those pruned to rank 0, by path.
    pub modules: BTreeMap<String, PosteriorModuleHeader>,
}

impl PosteriorHeader {
    /// A header of the present version and this build's clamp, without modules.
    pub fn new(family: VariationalFamily, run: PosteriorRun) -> Self {
        let PosteriorRun { scheme, statistic, log_alpha_threshold, kl_weight, seed } = run;
        Self {
            schema_version: SCHEMA_VERSION,
            family,
            scheme,
            statistic,
            log_alpha_threshold,
            log_variance_clamp: CLAMP,
            kl_weight,
            seed,
            modules: BTreeMap::new(),
        }
    }

    /// Checks the values against their ranges.
    fn check(&self) -> Result<(), Error> {
        let (threshold, weight) = (self.log_alpha_threshold, self.kl_weight);
        let wrong = |key, expected, found| {
            Err(Error::value(Path::new(POSTERIOR_FILE), key, expected, found))
        };
        if let Some(threshold) = threshold.filter(|value| !value.is_finite()) {
            return wrong("log_alpha_threshold", "finite", threshold);
        }
        if let Some(weight) = weight.filter(|value| !(value.is_finite() && *value >= 0.0)) {
            return wrong("kl_weight", "finite and at least 0", weight);
        }
        Ok(())
    }
}

/// A posterior on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct PeftPosterior {
    /// Header of the file.
    pub header: PosteriorHeader,
    /// Parameters of modules with a rank, by module path and name:
    ///
    /// | Family | Name | Shape |
    /// |---|---|---|
    /// | rank variance, asymmetric | `rank_log_sigma2` | `[rank]` |
    /// | noise to signal | `rank_log_alpha` | `[rank]` |
    /// | element variance | `log_sigma2_a`, `log_sigma2_b` | `[rank, d_input]`, `[d_output, rank]` |
    pub tensors: BTreeMap<String, HostTensor>,
}

/// The scale of a module, and the sizes of its factors.
type Module = (f64, Sizes);

fn sizes(rank: usize, d_input: usize, d_output: usize) -> Sizes {
    Sizes { d_input, d_output, rank }
}

impl PeftPosterior {
    /// Checks the posterior against itself and the adapter whose means it belongs to.
    pub(super) fn check_against(&self, adapter: &PeftAdapter) -> Result<(), Error> {
        let mut modules = BTreeMap::new();
        for (path, module) in &adapter.modules {
            // PEFT demands a module: where no rank is left, one is there with zeros.
            let rank = if self.is_pruned(path) && module.is_zero()? { 0 } else { module.rank };
            let sizes = sizes(rank, module.d_input(), module.d_output());
            modules.insert(path.clone(), (module.scaling, sizes));
        }
        self.check(&modules)
    }

    /// The module at `path` had an adapter and has no rank left.
    fn is_pruned(&self, path: &str) -> bool {
        self.header.modules.get(path).is_some_and(|module| module.rank == 0)
    }

    /// Checks the posterior against itself and the modules of an adapter, by path.
    fn check(&self, adapted: &BTreeMap<String, Module>) -> Result<(), Error> {
        self.header.check()?;
        let live = |path: &str| self.header.modules.get(path).filter(|header| header.rank > 0);
        for (path, header) in self.header.modules.iter().filter(|(_, header)| header.rank > 0) {
            let found = adapted.get(path).filter(|(_, sizes)| sizes.rank > 0);
            let (rank, scaling) =
                found.map_or((0, header.scaling), |(scaling, sizes)| (sizes.rank, *scaling));
            let near = (header.scaling - scaling).abs() <= SCALING_TOLERANCE * scaling.abs();
            if header.rank != rank || !near {
                let expected = format!("{rank} and {scaling} as in the adapter");
                let found = format!("{} and {}", header.rank, header.scaling);
                return Err(Error::module(
                    path,
                    "rank and scale of the posterior",
                    expected,
                    found,
                ));
            }
        }
        let mut report = LoadReport::new(POSTERIOR_FILE);
        let mut known = BTreeSet::new();
        for (path, (_, sizes)) in adapted.iter().filter(|(_, (_, sizes))| sizes.rank > 0) {
            for schema in posterior_schemas(self.header.family) {
                let name = format!("{path}.{}", schema.name);
                // A module of the adapter that the header does not know has means without a posterior.
                match self.tensors.get(&name).filter(|_| live(path).is_some()) {
                    Some(tensor) if tensor.is_float() => {
                        if report.check_shape(&name, &schema.stored_shape(sizes), tensor.shape()) {
                            report.check_finite(&name, tensor.first_non_finite());
                        }
                        known.insert(name);
                    }
                    Some(_) => {}
                    None => report.missing.push(name),
                }
            }
        }
        let unknown = self.tensors.keys().filter(|name| !known.contains(*name));
        report.unexpected.extend(unknown.cloned());
        report.into_result().map(drop)
    }

    /// The stored parameters of the module at `path`, in the order of their schemas; none of a module without a rank.
    fn stored(&self, path: &str) -> Option<Vec<&HostTensor>> {
        let schemas = posterior_schemas(self.header.family).into_iter();
        schemas.map(|schema| self.tensors.get(&format!("{path}.{}", schema.name))).collect()
    }

    /// Parameters of the module at `path`; `None` of a module without a rank.
    pub fn noise(&self, path: &str) -> Result<Option<Noise>, Error> {
        let Some(stored) = self.stored(path) else { return Ok(None) };
        let a = stored[0].to_f64()?;
        let b = stored.get(1).map_or(Ok(Vec::new()), |b| b.to_f64())?;
        Ok(Some(Noise { family: self.header.family, a, b }))
    }

    /// Noise of the module at `path`, on its layer's device; `None` of a module without a rank.
    fn on_device(&self, path: &str, place: &LayerSpec) -> Result<Option<Gaussian>, Error> {
        let Some(stored) = self.stored(path) else { return Ok(None) };
        let noise = Gaussian::of_family(
            self.header.family,
            || place.parameter(stored[0]),
            || Ok([place.parameter(stored[0])?, place.parameter(stored[1])?]),
        );
        noise.map(Some)
    }

    /// Writes the posterior next to its adapter, atomically. A posterior that could not be read back is an error.
    pub fn write(&self, dir: impl AsRef<Path>, adapter: &PeftAdapter) -> Result<(), Error> {
        self.check_against(adapter)?;
        let path = dir.as_ref().join(POSTERIOR_FILE);
        let header =
            serde_json::to_string(&self.header).map_err(|source| Error::json(&path, source))?;
        let metadata = [("format", "pt".to_owned()), (HEADER_KEY, header)]
            .map(|(key, text)| (key.to_owned(), text));
        write_safetensors(path, &self.tensors, &BTreeMap::from(metadata))
    }

    /// Reads the posterior next to an adapter and checks it against that adapter, which must be the one that was written
    /// with it in the ragged layout: the uniform layout pads ranks and moves scales, and the variances are then no
    /// longer those of its factors.
    pub fn read(dir: impl AsRef<Path>, adapter: &PeftAdapter) -> Result<Self, Error> {
        let file = WeightStore::open(dir.as_ref().join(POSTERIOR_FILE))?;
        let (path, text) = (file.path(), file.metadata().get(HEADER_KEY));
        let text = text.ok_or_else(|| Error::value(path, HEADER_KEY, "a header", "nothing"))?;
        let broken = |error| {
            Error::file(path, format!("has a posterior header that cannot be read: {error}"))
        };
        // The version first: of another version nothing else can be relied on.
        let document: Value = serde_json::from_str(text).map_err(broken)?;
        let version = document.get("schema_version");
        if version.and_then(Value::as_u64) != Some(u64::from(SCHEMA_VERSION)) {
            let found = version.map_or_else(|| "nothing".to_owned(), Value::to_string);
            return Err(Error::value(path, "schema_version", SCHEMA_VERSION, found));
        }
        let header = serde_json::from_str(text).map_err(broken)?;
        let posterior = Self { header, tensors: file.read_all()? };
        posterior.check_against(adapter)?;
        Ok(posterior)
    }
}

/// The posterior of `model`; `None` if none of its layers ever had one.
///
/// The means are the factors of the adapters, which [`peft_from_model`](super::peft_from_model)
/// takes.
pub fn posterior_from_model(
    model: &impl NamedModule,
    run: PosteriorRun,
) -> Result<Option<PeftPosterior>, Error> {
    let mut family = None;
    let mut modules = Ok(BTreeMap::new());
    model.visit_layers(&mut |path, layer| {
        let Some(slot) = layer.slot() else { return };
        let AdapterSlot { initial_rank, scaling, .. } = slot;
        let mut module = Ok(PosteriorModuleHeader { initial_rank, rank: layer.rank(), scaling });
        if let Some(found) = slot.family {
            let first = *family.get_or_insert(found);
            if first != found {
                let expected = format!("{first}, as in other layers");
                module = Err(Error::module(path, "family", expected, found));
            }
        }
        insert(&mut modules, path, module);
    });
    let modules = modules?;
    let Some(family) = family else { return Ok(None) };
    let schemas = posterior_schemas(family);
    let tensors = take_parameters(model, |p| {
        p.name.rsplit('.').next().is_some_and(|end| schemas.iter().any(|s| s.name == end))
    })?;
    let header = PosteriorHeader { modules, ..PosteriorHeader::new(family, run) };
    Ok(Some(PeftPosterior { header, tensors }))
}

/// Puts `posterior` around the means that are already on `model`, frozen.
///
/// The draws of a layer depend on its path and the key only, so they are those of the model it was
/// taken from. A layer that the header knows and that has no rank left gets its slot.
///
/// The checks are those of [`PeftPosterior::read`], with the model's layers in the place of the adapter's
/// modules, and the clamp must be this build's. On an error the model is unchanged.
pub fn attach_posterior(
    model: &mut impl NamedModule,
    posterior: &PeftPosterior,
) -> Result<(), Error> {
    let header = &posterior.header;
    let ([low, high], [from, to]) = (header.log_variance_clamp, CLAMP);
    if header.log_variance_clamp != CLAMP {
        let expected = format!("{from}..={to} (that of this build)");
        let found = format!("{low}..={high}");
        return Err(Error::value(Path::new(POSTERIOR_FILE), "log_variance_clamp", expected, found));
    }
    let (mut layers, mut places) = (BTreeMap::new(), BTreeMap::new());
    model.visit_layers(&mut |path, layer| {
        let is_zero = |b: Tensor<2>| b.abs().max().into_scalar::<f64>() == 0.0;
        let filler = layer.low_rank().filter(|_| posterior.is_pruned(path));
        let rank =
            if filler.is_some_and(|zeros| is_zero(zeros.b.val())) { 0 } else { layer.rank() };
        let sizes = sizes(rank, layer.d_input(), layer.d_output());
        let scaling = layer.slot().map_or(0.0, |slot| slot.scaling);
        layers.insert(path.to_owned(), (scaling, sizes));
        places.insert(path.to_owned(), LayerSpec::new(layer, false));
    });
    posterior.check(&layers)?;
    let mut placed = BTreeMap::new();
    for (path, place) in &places {
        let parameters = posterior.on_device(path, place);
        placed.insert(path.as_str(), parameters.map_err(|source| unusable(path, source))?);
    }
    model.visit_layers_mut(&mut |path, layer| {
        let Some(module) = header.modules.get(path) else { return };
        let PosteriorModuleHeader { initial_rank, rank, scaling } = *module;
        match layer.detach().filter(|_| rank > 0) {
            Some(mut adapter) => {
                adapter.extension = placed.remove(path).flatten().map(Extension::Gaussian);
                layer.place(path, adapter, initial_rank);
            }
            // Pruned away: only what is left to know of it.
            None => {
                let family = Some(header.family);
                layer.attach_empty(path, AdapterSlot { initial_rank, scaling, family });
            }
        }
    });
    Ok(())
}
