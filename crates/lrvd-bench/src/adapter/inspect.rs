//! Ranks, statistics and sizes of an adapter or a checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use burn::tensor::{DType, Device};
use lrvd_burn::files::{HostTensor, is_file};
use lrvd_burn::model::{NamedModule, adapters};
use lrvd_burn::parameters::values;
use lrvd_burn::peft::{PeftAdapter, PeftModule, attach_peft, posterior_family_name};
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::Model as _;
use lrvd_core::linalg::times_transposed;
use lrvd_core::noise::NoiseKey;
use lrvd_core::prune::{StatisticAggregate, StatisticOptions, rank_statistic};
use lrvd_core::{Factors, Posterior};
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig, Family, Pooling};
use lrvd_models::llama::LlamaForCausalLm;
use lrvd_models::{AutoModel, TokenBatch};
use serde::Serialize;

use super::{Abstention, Adapter, AdapterFiles, OpenOptions};
use crate::backbone::{Architecture, Sizes, local};
use crate::error::{Burn, Result};
use crate::method::{Intervals, Temperatures};

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModuleReport {
    pub path: String,
    pub rank: usize,
    /// Rank before pruning, as far as the file states it.
    pub initial_rank: usize,
    /// The factor before the product of the factors; `None` where the files do not tell.
    pub scaling: Option<f64>,
    /// Features in and out; `None` for a layer of rank 0, which is not in the file.
    pub shape: Option<[usize; 2]>,
    pub parameters: usize,
    pub update_norm: f64,
    /// Relevance statistic of every direction, ascending; empty without a posterior.
    pub log_alpha: Vec<f64>,
}

/// The learnt ranks as arguments of PEFT's `LoraConfig`; the keys of its patterns are whole paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoraConfig {
    pub r: usize,
    /// Scaling times rank of the module with the largest rank.
    pub lora_alpha: f64,
    pub target_modules: Vec<String>,
    /// Ranks of the modules that differ in rank or scaling.
    pub rank_pattern: BTreeMap<String, usize>,
    pub alpha_pattern: BTreeMap<String, f64>,
}

impl LoraConfig {
    /// Of the modules with a rank above 0; `None` if there is none.
    fn of(modules: &[ModuleReport]) -> Option<Self> {
        let live = || modules.iter().filter(|module| module.rank > 0);
        let alpha = |m: &ModuleReport| m.scaling.unwrap_or(1.0) * m.rank as f64;
        let largest = live().max_by_key(|module| module.rank)?;
        let others = || live().filter(|m| m.rank != largest.rank || m.scaling != largest.scaling);
        Some(Self {
            r: largest.rank,
            lora_alpha: alpha(largest),
            target_modules: live().map(|module| module.path.clone()).collect(),
            rank_pattern: others().map(|module| (module.path.clone(), module.rank)).collect(),
            alpha_pattern: others().map(|module| (module.path.clone(), alpha(module))).collect(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdapterReport {
    pub kind: &'static str,
    pub folder: String,
    pub base_model: Option<String>,
    pub method: String,
    pub family: Option<&'static str>,
    pub statistic: Option<StatisticAggregate>,
    /// Statistic at or above which the method pruned directions; `None` of a method that does not prune by it.
    pub log_alpha_threshold: Option<f64>,
    pub labels: Vec<String>,
    /// Temperature of the answer by number of draws, where it was fitted.
    pub temperatures: Temperatures,
    /// Half-width of the interval of a predicted number by number of draws, where it was fitted.
    #[serde(skip_serializing_if = "Intervals::is_empty")]
    pub intervals: Intervals,
    /// Thresholds above which no answer is given by number of draws, where they were fitted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub abstentions: BTreeMap<usize, Abstention>,
    pub modules: Vec<ModuleReport>,
    pub total_rank: usize,
    pub pruned: usize,
    /// Rank directions that are there with a statistic at or above the threshold, if there is one.
    pub above_threshold: Option<usize>,
    pub average_rank: f64,
    pub max_rank: usize,
    /// The ranks as settings of a plain LoRA; `None` if no module has a rank.
    pub lora_config: Option<LoraConfig>,
    pub adapter_parameters: usize,
    pub posterior_parameters: usize,
    pub saved_parameters: BTreeMap<String, usize>,
}

/// Scale alpha/r below which an adapter is damped: at rank 128 the usual alpha of 8 gives 0.0625.
const LOW_SCALE: f64 = 0.25;

/// A remark on the adapters of `model` whose scale is [low](LOW_SCALE).
pub(crate) fn low_scale(model: &impl NamedModule) -> Option<String> {
    low(adapters(model).into_iter().filter_map(|own| Some(own.adapter?.scaling)))
}

/// A remark on scales of which the smallest is [low](LOW_SCALE).
fn low(scales: impl Iterator<Item = f64>) -> Option<String> {
    let least = scales.map(f64::abs).min_by(f64::total_cmp);
    let least = least.filter(|least| *least < LOW_SCALE)?;
    Some(format!(
        "the LoRA scale alpha/r is {}, below {LOW_SCALE}, which damps the adapter: a larger `lora_alpha` or a smaller rank raises it",
        shown(least)
    ))
}

/// Four decimals at most.
fn shown(scale: f64) -> String {
    let text = format!("{scale:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl AdapterReport {
    /// Scales of the modules that have ranks.
    fn scales(&self) -> impl Iterator<Item = f64> {
        self.modules.iter().filter(|module| module.rank > 0).filter_map(|module| module.scaling)
    }

    /// The scale alpha/r of the modules that have ranks, or its range; `None` without one.
    pub fn scale(&self) -> Option<String> {
        let least = self.scales().min_by(f64::total_cmp).map(shown)?;
        let most = self.scales().max_by(f64::total_cmp).map(shown)?;
        Some(if least == most {
            format!("alpha/r {least}")
        } else {
            format!("alpha/r {least} to {most}")
        })
    }

    /// A remark on scales that damp the adapter.
    pub fn low_scale(&self) -> Option<String> {
        low(self.scales())
    }
}

pub fn inspect_adapter(source: &Adapter) -> Result<AdapterReport> {
    let AdapterFiles { peft, posterior, description } = &source.files;
    let described = description.as_ref();
    let run = described.map(|own| &own.run);
    let corrected = run.is_some_and(|run| run.fan_in_correction);
    let header = posterior.as_ref().map(|p| &p.header);
    let options = StatisticOptions {
        aggregate: header.and_then(|h| h.statistic).unwrap_or_default(),
        fan_in_correction: corrected,
    };
    // Layers of rank 0.
    let mut modules = BTreeMap::new();
    let mut absent = |path: &String, initial_rank, scaling| {
        let rank_0 =
            ModuleReport { path: path.clone(), initial_rank, scaling, ..ModuleReport::default() };
        modules.entry(path.clone()).or_insert(rank_0);
    };
    for (path, m) in header.into_iter().flat_map(|h| &h.modules).filter(|(_, m)| m.rank == 0) {
        absent(path, m.initial_rank, Some(m.scaling));
    }
    if let Some(run) = run {
        let ranks = run.ranks.iter().filter(|(_, rank)| **rank == 0);
        ranks.for_each(|(path, _)| absent(path, run.initial_rank.unwrap_or(0), None));
    }
    for (path, module) in &peft.modules {
        if modules.contains_key(path) {
            // PEFT demands one module: this one is of zeros.
            continue;
        }
        let wrong = |source| anyhow!("module `{path}`: {source}");
        let noise = posterior.as_ref().map(|p| p.noise(path)).transpose().map_err(wrong)?;
        let noise = noise.flatten().filter(|_| module.rank > 0);
        let factors = module.factors().map_err(wrong)?;
        let update_norm = update_norm(module, &factors).map_err(wrong)?;
        let mut log_alpha = match noise {
            Some(noise) => rank_statistic(&Posterior::new(factors, noise)?, options)?,
            None => Vec::new(),
        };
        log_alpha.sort_by(f64::total_cmp);
        let known = header.and_then(|h| h.modules.get(path));
        let report = ModuleReport {
            path: path.clone(),
            rank: module.rank,
            initial_rank: known
                .map(|m| m.initial_rank)
                .or(run.and_then(|run| run.initial_rank))
                .unwrap_or(module.initial_rank),
            scaling: Some(module.scaling),
            shape: Some([module.d_input(), module.d_output()]),
            parameters: module.a.n_elements()
                + module.b.n_elements()
                + module.e.as_ref().map_or(0, HostTensor::n_elements),
            update_norm,
            log_alpha,
        };
        modules.insert(path.clone(), report);
    }
    let modules: Vec<ModuleReport> = modules.into_values().collect();
    let total_rank = modules.iter().map(|m| m.rank).sum();
    let threshold = header.and_then(|h| h.log_alpha_threshold);
    let above = |limit: f64| {
        let all = modules.iter().flat_map(|m| &m.log_alpha);
        all.filter(|value| **value >= limit).count()
    };
    Ok(AdapterReport {
        kind: source.kind,
        folder: source.folder.display().to_string(),
        base_model: peft.config.base_model_name_or_path.clone(),
        method: run.map_or_else(|| peft.config.method.name().to_owned(), |run| run.method.clone()),
        family: header.map(|h| posterior_family_name(h.family)),
        statistic: header.and_then(|h| h.statistic),
        log_alpha_threshold: threshold,
        pruned: modules.iter().map(|m| m.initial_rank.saturating_sub(m.rank)).sum(),
        above_threshold: threshold.map(above),
        labels: described.map(|own| own.goal.answers.names()).unwrap_or_default(),
        temperatures: described.map(|own| own.temperatures.clone()).unwrap_or_default(),
        intervals: described.map(|own| own.intervals.clone()).unwrap_or_default(),
        abstentions: described.map(|own| own.abstentions.clone()).unwrap_or_default(),
        total_rank,
        average_rank: total_rank as f64 / modules.len().max(1) as f64,
        max_rank: modules.iter().map(|m| m.rank).max().unwrap_or(0),
        lora_config: LoraConfig::of(&modules),
        adapter_parameters: modules.iter().map(|m| m.parameters).sum(),
        posterior_parameters: posterior
            .as_ref()
            .map_or(0, |p| p.tensors.values().map(HostTensor::n_elements).sum()),
        saved_parameters: peft
            .saved
            .iter()
            .map(|(name, tensor)| (name.clone(), tensor.n_elements()))
            .collect(),
        modules,
    })
}

/// `‖c·B·diag(E)·A‖`, from the Gram matrices of the factors.
fn update_norm(module: &PeftModule, factors: &Factors) -> Burn<f64> {
    let Factors { rank, d_input, d_output, ref a, .. } = *factors;
    let b = factors.b_by_rank();
    let e = module.e.as_ref().map_or(Ok(vec![1.0; rank]), HostTensor::to_f64)?;
    let gram_a = times_transposed(a, a, rank, d_input, rank);
    let gram_b = times_transposed(&b, &b, rank, d_output, rank);
    let term = |at: usize| e[at / rank] * e[at % rank] * gram_a[at] * gram_b[at];
    let square: f64 = (0..rank * rank).map(term).sum();
    Ok(module.scaling.abs() * square.max(0.0).sqrt())
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BaseReport {
    pub kind: &'static str,
    pub architecture: &'static str,
    pub folder: String,
    pub layers: usize,
    pub hidden_size: usize,
    pub attention_heads: usize,
    pub intermediate_size: usize,
    pub vocab_size: usize,
    pub parameters: BTreeMap<String, usize>,
    pub total_parameters: usize,
    pub dtypes: BTreeMap<String, usize>,
    pub unrecognised: Vec<String>,
}

/// `true` if `path` is a base checkpoint, of Hugging Face's kind or a GGUF file.
pub fn is_base(path: &Path) -> Result<bool> {
    let is_gguf = || local(path).map_or(true, |found| found.is_some_and(|file| file.is_file()));
    Ok(is_file(&path.join("config.json"))? || is_gguf())
}

pub fn inspect_base(dir: &Path) -> Result<BaseReport> {
    let model = local(dir)?.unwrap_or_else(|| dir.to_owned());
    let architecture = Architecture::read(&model)?;
    let store = architecture.open_weights(&model)?;
    let mut parameters = BTreeMap::new();
    let mut dtypes = BTreeMap::new();
    let prefix = match &architecture {
        Architecture::Deberta(config) => config.family.prefix(),
        Architecture::Llama(_) => "model",
    };
    for name in store.names() {
        let n: usize = store.shape(name).unwrap_or_default().iter().product();
        // The part below the model's own name, which a head has not.
        let inner = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.'));
        let part = inner.unwrap_or(name).split('.').next().unwrap_or(name);
        *parameters.entry(part.to_owned()).or_insert(0) += n;
        if let Some(dtype) = store.dtype(name) {
            *dtypes.entry(dtype.to_string()).or_insert(0) += n;
        }
    }
    let sizes = architecture.sizes();
    Ok(BaseReport {
        kind: "base",
        architecture: match &architecture {
            // The prefix of a ModernBERT says nothing.
            Architecture::Deberta(config) if config.family == Family::ModernBert => {
                config.family.model_type()
            }
            Architecture::Deberta(config) => config.family.prefix(),
            Architecture::Llama(config) => config.family.model_type(),
        },
        folder: dir.display().to_string(),
        layers: sizes.layers,
        hidden_size: sizes.hidden,
        attention_heads: sizes.heads,
        intermediate_size: sizes.intermediate,
        vocab_size: sizes.vocab,
        total_parameters: parameters.values().sum(),
        parameters,
        dtypes,
        unrecognised: architecture.unrecognised().to_vec(),
    })
}

const TOKENS: usize = 8;

/// Result of a check. A tensor that is missing, left over, of another shape or not finite is an error instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelCheck {
    pub folder: String,
    /// Tensors of the checkpoint that the model holds; `None` where there is only an adapter.
    pub base_tensors: Option<usize>,
    pub unused_tensors: usize,
    pub fresh: Vec<String>,
    pub adapter_tensors: Option<usize>,
    /// `true` if the logits of a built-in batch are finite, without the adapter and with it; `None` without a base model.
    pub finite: Option<bool>,
}

/// Reads everything in `dir` and runs it on a built-in batch: a base checkpoint, or an adapter, with the base checkpoint
/// in the same folder. With `allow_changed` it may have other hashes than its description has.
pub fn check_model(dir: &Path, device: &Device, allow_changed: bool) -> Result<ModelCheck> {
    let options = OpenOptions { allow_changed, ..OpenOptions::default() };
    let source = Adapter::is_at(dir)?;
    let source = source.then(|| Adapter::open(dir, &options, device)).transpose()?;
    let adapter = source.as_ref().map(|source| &source.files.peft);
    let factors = |module: &PeftModule| 2 + usize::from(module.e.is_some());
    let tensors = |a: &PeftAdapter| a.modules.values().map(factors).sum::<usize>() + a.saved.len();
    let check = ModelCheck {
        folder: dir.display().to_string(),
        adapter_tensors: adapter.map(tensors),
        ..ModelCheck::default()
    };
    if adapter.is_some() && !is_base(dir)? {
        return Ok(check);
    }
    let folder = local(dir)?.unwrap_or_else(|| dir.to_owned());
    let architecture = Architecture::read(&folder)?;
    let store = architecture.open_weights(&folder)?;
    let dtype = DType::F32;
    let (model, loaded) = match &architecture {
        Architecture::Deberta(config) => {
            let seed = NoiseKey::new(0);
            let description = source.as_ref().and_then(|source| source.files.description.as_ref());
            let pooling = description.map_or_else(Pooling::default, |info| info.pooling);
            let config = DebertaConfig { pooling, ..config.clone() };
            let (model, loaded) =
                DebertaClassifier::from_pretrained(&store, &config, seed, device, dtype)?;
            (AutoModel::Deberta(model), loaded)
        }
        Architecture::Llama(config) => {
            let (model, loaded) = LlamaForCausalLm::from_pretrained(&store, config, device, dtype)?;
            (AutoModel::Llama(model), loaded)
        }
    };
    let finite = is_finite(model, adapter, &batch(&architecture.sizes(), device))?;
    let read = loaded.report.applied.len();
    Ok(ModelCheck {
        finite: Some(finite),
        base_tensors: Some(read),
        unused_tensors: store.len() - read,
        fresh: loaded.fresh,
        ..check
    })
}

fn batch(sizes: &Sizes, device: &Device) -> TokenBatch {
    let n = TOKENS.min(sizes.positions);
    let ids: Vec<u32> = (0..n).map(|i| ((1 + 7 * i) % sizes.vocab) as u32).collect();
    let types = vec![0; n];
    let half = n.div_ceil(2);
    let rows = [(&ids[..], &types[..]), (&ids[..half], &types[..half])];
    let columns = vec![(0..n).collect(); rows.len()];
    TokenBatch { columns, ..TokenBatch::padded(&rows, 0, device, DType::F32) }
}

fn is_finite(
    mut model: AutoModel,
    adapter: Option<&PeftAdapter>,
    batch: &TokenBatch,
) -> Result<bool> {
    let mut logits = values(model.logits(batch, &Pass::mean()));
    if let Some(adapter) = adapter {
        model = model.untied_for(adapter.saved.keys().map(String::as_str));
        attach_peft(&mut model, adapter, false)?;
        logits.extend(values(model.logits(batch, &Pass::mean())));
    }
    Ok(logits.iter().all(|logit| logit.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_is_that_of_the_dense_update() {
        // c·B·E·A = 2·[[1·3·1 + 2·(−1)·0, 1·3·2 + 2·(−1)·1]] = [[6, 8]]; norm 10.
        let matrix = |shape: &[usize], values: &[f64]| HostTensor::from_f64(shape, values).unwrap();
        let a = matrix(&[2, 2], &[1.0, 2.0, 0.0, 1.0]);
        let mut module = PeftModule::lora(a, matrix(&[1, 2], &[1.0, 2.0]), 2.0, 2).unwrap();
        module.e = Some(matrix(&[2], &[3.0, -1.0]));
        let found = update_norm(&module, &module.factors().unwrap()).unwrap();
        assert!((found - 10.0).abs() < 1e-12);
    }
}
