//! An adapter as another one: `AdaLoRA` as `LoRA`, with a smaller largest rank, and the configuration that describes
//! modules of different ranks and scales.

use std::collections::BTreeMap;

use lrvd_core::adalora::adalora_scaling;
use lrvd_core::update::singular_factors;

use super::adapter::{PeftAdapter, PeftModule, exact_alpha};
use super::config::{PeftConfig, PeftMethod};
use super::rules::key_matches;
use crate::error::Error;
use crate::files::{HostDType, HostTensor};

/// The most that a module keeps of its singular directions; without values all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cap {
    /// Largest rank.
    pub rank: Option<usize>,
    /// Share of the squared singular values that the fewest directions must hold, above 0 and at most 1.
    pub energy: Option<f64>,
}

impl Cap {
    /// Number of directions that stay of those with these singular values, the largest first.
    fn of(self, values: &[f64]) -> usize {
        let most = self.rank.unwrap_or(usize::MAX).min(values.len());
        let Some(share) = self.energy else { return most };
        let total: f64 = values.iter().map(|value| value * value).sum();
        let mut held = 0.0;
        let enough = values.iter().position(|value| {
            held += value * value;
            // As many additions as in the total: all of it is reached.
            held >= share * total
        });
        let fewest = enough.map_or(values.len(), |last| last + 1);
        if total > 0.0 { most.min(fewest) } else { 0 }
    }
}

/// Relative errors of an update after a cut to a smaller rank.
#[derive(Debug, Clone, PartialEq)]
pub struct CapReport {
    /// `‖ΔW − ΔW'‖ / ‖ΔW‖` of every module that was cut, by path.
    pub errors: BTreeMap<String, f64>,
    /// `‖ΔW − ΔW'‖ / ‖ΔW‖` of all modules together.
    pub error: f64,
}

impl PeftAdapter {
    /// Converts the adapter to plain `LoRA` with the same update.
    ///
    /// `LoRA` comes back as it is. Of `AdaLoRA`, triplets whose diagonal entry is 0 are dropped,
    /// the diagonal is folded into the down-projection, and the scale `lora_alpha / (init_r +
    /// 1e-5)` becomes the module's own. The folded rows are rounded once, to single precision
    /// (double where they were double).
    pub fn to_lora(&self) -> Result<Self, Error> {
        let PeftMethod::AdaLora(adalora) = &self.config.method else {
            return Ok(self.clone());
        };
        let mut modules = BTreeMap::new();
        for (path, module) in &self.modules {
            modules.insert(path.clone(), fold(module)?);
        }
        let scaling = adalora_scaling(self.config.lora_alpha, adalora.init_r);
        let config = PeftConfig {
            method: PeftMethod::Lora,
            r: adalora.init_r,
            lora_alpha: exact_alpha(scaling, adalora.init_r),
            use_rslora: false,
            ..self.config.clone()
        };
        let config = describe(&config, &modules);
        Ok(Self { config, modules, ..self.clone() })
    }

    /// The adapter as plain `LoRA` with no module above `cap`: those above keep their largest singular directions.
    ///
    /// # Formula
    ///
    /// ```text
    /// ΔW = Σ_k ς_k · outer(u_k, v_k)  →  Σ_{k < n} ς_k · outer(u_k, v_k)
    /// error = √(Σ_{k ≥ n} ς_k² / Σ_k ς_k²)
    /// n     = the smaller of cap.rank and the least n with Σ_{k < n} ς_k² ≥ cap.energy · Σ_k ς_k²
    /// ```
    ///
    /// No update of that rank is nearer to the module's (Eckart, Young 1936). Factors of modules that are cut are rounded
    /// once, to single precision (double where they were double); scales stay.
    pub fn capped(&self, cap: Cap) -> Result<(Self, CapReport), Error> {
        let mut adapter = self.to_lora()?;
        let mut errors = BTreeMap::new();
        let (mut lost, mut whole) = (0.0, 0.0);
        for (path, module) in &mut adapter.modules {
            let (total, cut) = cut(module, cap).map_err(|source| {
                Error::module(path, "factors", "numbers that can be decomposed", source)
            })?;
            whole += total;
            if let Some((cut, gone)) = cut {
                lost += gone;
                errors.insert(path.clone(), relative(gone, total));
                *module = cut;
            }
        }
        let largest = adapter.modules.values().map(|module| module.rank).max().unwrap_or(0);
        let rank = cap.rank.unwrap_or(largest);
        let config = &mut adapter.config;
        if config.r > rank && rank > 0 {
            let root = if config.use_rslora { (config.r as f64).sqrt() } else { config.r as f64 };
            config.lora_alpha = exact_alpha(config.lora_alpha / root, rank);
            config.use_rslora = false;
            config.r = rank;
        }
        adapter.config = describe(&adapter.config, &adapter.modules);
        Ok((adapter, CapReport { errors, error: relative(lost, whole) }))
    }
}

/// A root of a share; 0 of nothing.
fn relative(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).sqrt() } else { 0.0 }
}

/// `Σ ς²` of a module; of one above `cap` also the module at its rank, and the part of the sum that it lost.
fn cut(module: &PeftModule, cap: Cap) -> Result<(f64, Option<(PeftModule, f64)>), Error> {
    let svd = singular_factors(&module.factors()?)?;
    let energy = |values: &[f64]| {
        module.scaling.powi(2) * values.iter().map(|value| value * value).sum::<f64>()
    };
    let total = energy(&svd.values);
    let rank = cap.of(&svd.values);
    if module.rank <= rank {
        return Ok((total, None));
    }
    let kept = svd.factors.select(&(0..rank).collect::<Vec<_>>())?;
    let a = floats(module.a.dtype(), &[rank, kept.d_input], &kept.a)?;
    let b = floats(module.b.dtype(), &[kept.d_output, rank], &kept.b)?;
    let cut = PeftModule::lora(a, b, module.scaling, module.initial_rank)?;
    Ok((total, Some((cut, energy(&svd.values[rank..])))))
}

/// Drops triplets without weight and multiplies the others' diagonal into `a`.
fn fold(module: &PeftModule) -> Result<PeftModule, Error> {
    let Some(e) = module.e.as_ref().map(HostTensor::to_f64).transpose()? else {
        return Ok(module.clone());
    };
    let d_input = module.d_input();
    let kept: Vec<usize> = (0..module.rank).filter(|&k| e[k] != 0.0).collect();
    let mut a = module.a.select_rows(&kept)?.to_f64()?;
    for (row, &k) in a.chunks_exact_mut(d_input.max(1)).zip(&kept) {
        for value in row {
            *value *= e[k];
        }
    }
    let a = floats(module.a.dtype(), &[kept.len(), d_input], &a)?;
    let b = module.b.transpose2()?.select_rows(&kept)?.transpose2()?;
    PeftModule::lora(a, b, module.scaling, module.initial_rank)
}

/// Computed values: double precision stays, everything else becomes single precision.
pub(super) fn floats(
    like: HostDType,
    shape: &[usize],
    values: &[f64],
) -> Result<HostTensor, Error> {
    if like == HostDType::F64 {
        return HostTensor::from_f64(shape, values);
    }
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    HostTensor::from_f32(shape, &values)
}

/// A `LoRA` configuration with the rank and the scale of every module by its full path. `r` and the scale stay those
/// of the configuration, so that a module without a pattern has kept its initial rank. Modules of rank 0, an error in
/// PEFT, are neither targeted nor listed.
pub(super) fn describe(config: &PeftConfig, modules: &BTreeMap<String, PeftModule>) -> PeftConfig {
    let present: Vec<(&String, &PeftModule)> =
        modules.iter().filter(|(_, module)| module.rank > 0).collect();
    let mut config = config.of_modules(present.iter().map(|(path, _)| (*path).clone()).collect());
    if config.use_rslora {
        let root = (config.r as f64).sqrt();
        config.lora_alpha = exact_alpha(config.lora_alpha / root, config.r);
        config.use_rslora = false;
    }
    for (path, module) in &present {
        let key = || pattern_key(path, present.iter().map(|(other, _)| other.as_str()));
        if module.rank != config.r {
            config.rank_pattern.push((key(), module.rank));
        }
        let lora_alpha = exact_alpha(module.scaling, module.rank);
        if lora_alpha != config.lora_alpha {
            config.alpha_pattern.push((key(), lora_alpha));
        }
    }
    config
}

/// A pattern that matches this path and no other module's: the plain path, which other readers than PEFT support, or, if it
/// ends another path or has a character with a meaning in patterns, escaped and anchored.
pub(super) fn pattern_key<'a>(path: &str, mut others: impl Iterator<Item = &'a str>) -> String {
    if key_matches(path, path) && others.all(|other| other == path || !key_matches(path, other)) {
        path.to_owned()
    } else {
        format!("^{}", regex::escape(path))
    }
}
