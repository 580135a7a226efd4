//! The variational posterior of an adapter: which family, with which parameters, of which modules.
//!
//! The means are the factors of the adapter itself; a reader that knows nothing of this file gets
//! the posterior mean.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_core::family::{LOG_VARIANCE_MAX, LOG_VARIANCE_MIN, VariationalFamily};
use lrvd_core::prune::{PruneRule, StatisticAggregate};
use serde::{Deserialize, Serialize};

use super::adapter::PeftAdapter;
use super::posterior_file::POSTERIOR_FILE;
use super::posterior_names as names;
use crate::adapter::{Sizes, posterior_schemas};
use crate::error::Error;
use crate::files::{HostTensor, LoadReport};
use crate::host::HostNoise;
use crate::sampling::{DrawPer, Scheme};

/// Version of the header that is written, and the only one that is read.
pub(super) const SCHEMA_VERSION: u32 = 1;
/// Range that this build clamps log-variances to.
const CLAMP: [f64; 2] = [LOG_VARIANCE_MIN, LOG_VARIANCE_MAX];
/// Largest relative difference between the scale in the header and that of the adapter, which
/// passes through a division by the rank; a few units in the last place are enough.
const SCALING_TOLERANCE: f64 = 1e-12;

/// What the header keeps of the run that trained a posterior.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PosteriorRun {
    /// How noise entered the forward pass in training.
    pub scheme: Scheme,
    /// What the statistic of a rank is.
    pub statistic: StatisticAggregate,
    /// Ranks with a statistic at or above this were pruned, in nats.
    pub log_alpha_threshold: f64,
    /// Weight of the KL divergence in the objective.
    pub kl_weight: f64,
    /// Seed of the run.
    pub seed: u64,
}

impl Default for PosteriorRun {
    /// A draw for each sequence, the default statistic and rule, the whole KL.
    fn default() -> Self {
        Self {
            scheme: Scheme::Weights(DrawPer::Sequence),
            statistic: StatisticAggregate::default(),
            log_alpha_threshold: PruneRule::default().log_alpha_threshold(),
            kl_weight: 1.0,
            seed: 0,
        }
    }
}

/// What the header says of one module.
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
    /// Version of this header.
    pub schema_version: u32,
    /// How the variance is tied.
    #[serde(with = "names::family")]
    pub family: VariationalFamily,
    /// How noise entered the forward pass in training; the cross term of moment matching is not
    /// kept, and reads as exact.
    #[serde(with = "names::scheme")]
    pub scheme: Scheme,
    /// What the statistic of a rank is; the median where the file does not say.
    #[serde(default)]
    pub statistic: StatisticAggregate,
    /// Ranks with a statistic at or above this were pruned, in nats.
    pub log_alpha_threshold: f64,
    /// Range that log-variances are clamped to in use, in ln(weight²).
    pub log_variance_clamp: [f64; 2],
    /// Weight of the KL divergence in the objective.
    pub kl_weight: f64,
    /// Seed of the run.
    pub seed: u64,
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

    /// Checks that the posterior is clamped to the range that this build uses.
    pub(super) fn check_clamp(&self) -> Result<(), Error> {
        let ([low, high], [from, to]) = (self.log_variance_clamp, CLAMP);
        if self.log_variance_clamp == CLAMP {
            return Ok(());
        }
        let expected = format!("{from}..={to} (that of this build)");
        let found = format!("{low}..={high}");
        Err(Error::value(Path::new(POSTERIOR_FILE), "log_variance_clamp", expected, found))
    }

    /// The first value that is out of range, as key, expected and found.
    fn fault(&self) -> Option<(String, String, String)> {
        let fault = |key: &str, expected: &str, found: String| {
            Some((key.to_owned(), expected.to_owned(), found))
        };
        let [low, high] = self.log_variance_clamp;
        if self.schema_version != SCHEMA_VERSION {
            let found = self.schema_version.to_string();
            return fault("schema_version", &SCHEMA_VERSION.to_string(), found);
        }
        if !self.log_alpha_threshold.is_finite() {
            return fault("log_alpha_threshold", "finite", self.log_alpha_threshold.to_string());
        }
        if !(low.is_finite() && high.is_finite() && low < high) {
            return fault("log_variance_clamp", "a finite range", format!("{low}..={high}"));
        }
        if !(self.kl_weight.is_finite() && self.kl_weight >= 0.0) {
            return fault("kl_weight", "finite and at least 0", self.kl_weight.to_string());
        }
        self.modules.iter().find_map(|(path, module)| {
            if module.rank > module.initial_rank {
                let expected = format!("at most `initial_rank` = {}", module.initial_rank);
                fault(&format!("{path}.rank"), &expected, module.rank.to_string())
            } else if !module.scaling.is_finite() {
                fault(&format!("{path}.scaling"), "finite", module.scaling.to_string())
            } else {
                None
            }
        })
    }
}

/// A posterior on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct PeftPosterior {
    /// What the file says of the run.
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

/// What a posterior has to fit: the factors of one module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factors {
    pub(super) rank: usize,
    pub(super) scaling: f64,
    pub(super) d_input: usize,
    pub(super) d_output: usize,
}

impl Factors {
    /// Names and shapes of a family's parameters.
    fn parameters(self, family: VariationalFamily) -> Vec<(&'static str, Vec<usize>)> {
        let Self { rank, d_input, d_output, .. } = self;
        let sizes = Sizes { d_input, d_output, rank, hidden: 0, members: 1 };
        posterior_schemas(family).iter().map(|s| (s.name, s.stored_shape(&sizes))).collect()
    }
}

impl PeftPosterior {
    /// Checks the posterior against itself and the adapter whose means it belongs to.
    ///
    /// The adapter must be the one that was written with it in the ragged layout: the uniform
    /// layout pads ranks and moves scales, and the variances are then no longer those of its
    /// factors.
    pub fn check_against(&self, adapter: &PeftAdapter) -> Result<(), Error> {
        self.check_factors(adapter.modules.iter().map(|(path, module)| {
            let (rank, scaling) = (module.rank, module.scaling);
            let (d_input, d_output) = (module.d_input(), module.d_output());
            (path.as_str(), Factors { rank, scaling, d_input, d_output })
        }))
    }

    /// Checks the posterior against itself and the factors of an adapter, by module path.
    pub(super) fn check_factors<'a>(
        &self,
        adapted: impl Iterator<Item = (&'a str, Factors)>,
    ) -> Result<(), Error> {
        if let Some((key, expected, found)) = self.header.fault() {
            return Err(Error::value(Path::new(POSTERIOR_FILE), &key, expected, found));
        }
        let adapted: BTreeMap<&str, Factors> =
            adapted.filter(|(_, factors)| factors.rank > 0).collect();
        let parameters = |path: &str, factors: Factors| {
            let named = factors.parameters(self.header.family).into_iter();
            named.map(move |(end, shape)| (format!("{path}.{end}"), shape)).collect::<Vec<_>>()
        };
        let mut expected = BTreeMap::new();
        for (path, header) in self.header.modules.iter().filter(|(_, header)| header.rank > 0) {
            let absent = Factors { rank: 0, scaling: header.scaling, d_input: 0, d_output: 0 };
            let factors = adapted.get(path.as_str()).copied().unwrap_or(absent);
            check_module(path, header, factors)?;
            expected.extend(parameters(path, factors));
        }
        let mut report = LoadReport::new(POSTERIOR_FILE);
        for (name, shape) in &expected {
            match self.tensors.get(name) {
                None => report.missing.push(name.clone()),
                Some(tensor) if !tensor.is_float() => report.unexpected.push(name.clone()),
                Some(tensor) => {
                    if report.check_shape(name, shape, tensor.shape())
                        && report.check_finite(name, tensor.first_non_finite())
                    {
                        report.applied.push(name.clone());
                    }
                }
            }
        }
        let unknown = self.tensors.keys().filter(|name| !expected.contains_key(*name));
        report.unexpected.extend(unknown.cloned());
        // A module of the adapter that the header does not know has means without a posterior.
        let known = |path: &str| self.header.modules.get(path).is_some_and(|h| h.rank > 0);
        for (path, factors) in adapted.into_iter().filter(|(path, _)| !known(path)) {
            report.missing.extend(parameters(path, factors).into_iter().map(|(name, _)| name));
        }
        report.into_result()?;
        Ok(())
    }

    /// The parameters of the module at `path`, rank-major as the core has them; none of a module
    /// without a rank.
    pub fn noise(&self, path: &str) -> Result<Option<HostNoise>, Error> {
        let mut named = posterior_schemas(self.header.family)
            .iter()
            .map(|schema| self.tensors.get(&format!("{path}.{}", schema.name)));
        let Some(first) = named.next().flatten() else { return Ok(None) };
        Ok(match self.header.family {
            VariationalFamily::RankVariance => Some(HostNoise::RankVariance(first.to_f64()?)),
            VariationalFamily::AsymRankVariance => {
                Some(HostNoise::AsymRankVariance(first.to_f64()?))
            }
            VariationalFamily::NoiseToSignal => Some(HostNoise::NoiseToSignal(first.to_f64()?)),
            VariationalFamily::ElementVariance => match named.next().flatten() {
                Some(b) => {
                    let (a, b) = (first.to_f64()?, b.transpose2()?.to_f64()?);
                    Some(HostNoise::ElementVariance { a, b })
                }
                None => None,
            },
        })
    }
}

fn check_module(path: &str, header: &PosteriorModuleHeader, factors: Factors) -> Result<(), Error> {
    let Factors { rank, scaling, .. } = factors;
    let near = (header.scaling - scaling).abs() <= SCALING_TOLERANCE * scaling.abs();
    if header.rank == rank && near {
        return Ok(());
    }
    let expected = format!("{rank} and {scaling} as in the adapter");
    let found = format!("{} and {}", header.rank, header.scaling);
    Err(Error::module(path, "rank and scale of the posterior", expected, found))
}
