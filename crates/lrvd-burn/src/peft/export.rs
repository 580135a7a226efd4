//! Writing an adapter folder that PEFT loads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use lrvd_core::error::quoted;

use super::adapter::{PeftAdapter, PeftModule, WEIGHTS_FILE, exact_alpha, module_error, no_module};
use super::config::{CONFIG_FILE, PeftConfig, PeftMethod, TargetModules};
use super::convert::{describe, floats};
use super::keys::{Factor, factor_key, saved_key};
use crate::error::Error;
use crate::files::{HostTensor, LoadReport, write_atomic, write_safetensors};
use crate::text::{cell, code, printable_json};

/// How modules of different ranks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExportLayout {
    /// `LoRA`, every module with its own rank, by `rank_pattern` and `alpha_pattern`. `AdaLoRA` is
    /// converted.
    #[default]
    Ragged,
    /// `LoRA`, every module at the largest rank, filled up with zeros, without patterns: for
    /// readers that know one rank and one scale. `AdaLoRA` is converted.
    Uniform,
    /// `AdaLoRA` as PEFT writes it, with its diagonal and its list of kept triplets.
    AdaLora,
}

impl ExportLayout {
    /// Name in messages and in the model card.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ragged => "ragged",
            Self::Uniform => "uniform",
            Self::AdaLora => "adalora",
        }
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportSummary {
    /// The layout.
    pub layout: ExportLayout,
    /// The configuration as written.
    pub config: PeftConfig,
    /// Rank in the file by module path.
    pub ranks: BTreeMap<String, usize>,
    /// Modules of rank 0, which PEFT cannot hold and which are left out.
    pub dropped: Vec<String>,
    /// The one module written with a rank of 1 and zeros, because none has a rank left and PEFT
    /// demands one.
    pub zero_module: Option<String>,
    /// Modules whose scale differs from the common one and was multiplied into `b`.
    pub folded: Vec<String>,
}

impl PeftAdapter {
    /// Writes `adapter_config.json`, `adapter_model.safetensors` and `README.md` into a folder,
    /// which is made if it is absent. The configuration comes last: a folder without it is no
    /// adapter.
    pub fn write(
        &self,
        dir: impl AsRef<Path>,
        layout: ExportLayout,
    ) -> Result<ExportSummary, Error> {
        let dir = dir.as_ref();
        self.check(dir)?;
        let (adapter, summary) = match layout {
            ExportLayout::AdaLora => self.as_adalora()?,
            ExportLayout::Ragged => ragged(self.to_lora()?)?,
            ExportLayout::Uniform => uniform(self.to_lora()?)?,
        };
        std::fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
        let metadata = [("format".to_owned(), "pt".to_owned())].into();
        write_safetensors(dir.join(WEIGHTS_FILE), &adapter.tensors()?, &metadata)?;
        write_atomic(dir.join("README.md"), write_card(&summary, &adapter.modules).as_bytes())?;
        adapter.config.write(dir.join(CONFIG_FILE))?;
        Ok(summary)
    }

    /// What holds for every layout.
    fn check(&self, dir: &Path) -> Result<(), Error> {
        if self.modules.is_empty() {
            return Err(no_module());
        }
        let mut report = LoadReport::new(dir.display());
        for (path, module) in &self.modules {
            module.check(path)?;
            let adalora = matches!(self.config.method, PeftMethod::AdaLora(_));
            if module.e.is_some() != adalora || !module.scaling.is_finite() {
                let expected = format!("`{}` and finite", self.config.method.name());
                let found = format!("diagonal: {}, scale {}", module.e.is_some(), module.scaling);
                return Err(Error::module(path, "method and scale", expected, found));
            }
            for (factor, tensor) in module.factors() {
                report.check_finite(
                    &factor_key(&self.config.method, path, factor),
                    tensor.first_non_finite(),
                );
            }
        }
        for (name, tensor) in &self.saved {
            if !self.config.saves(name) {
                return Err(Error::Argument(format!(
                    "`{name}` is in none of the `modules_to_save` {}",
                    quoted(self.config.saved_modules())
                )));
            }
            report.check_finite(&saved_key(name), tensor.first_non_finite());
        }
        report.into_result()?;
        Ok(())
    }

    /// Tensors under their names in the file.
    fn tensors(&self) -> Result<BTreeMap<String, HostTensor>, Error> {
        let mut tensors = BTreeMap::new();
        for (path, module) in &self.modules {
            for (factor, tensor) in module.factors() {
                let mut tensor = tensor.clone();
                if factor == Factor::E {
                    tensor =
                        tensor.reshape(&[module.rank, 1]).map_err(|e| module_error(path, &e))?;
                }
                tensors.insert(factor_key(&self.config.method, path, factor), tensor);
            }
        }
        tensors.extend(self.saved.iter().map(|(name, tensor)| (saved_key(name), tensor.clone())));
        Ok(tensors)
    }

    /// The `AdaLoRA` layout: flags of kept triplets for every module, if any rank has changed.
    fn as_adalora(&self) -> Result<(Self, ExportSummary), Error> {
        let PeftMethod::AdaLora(adalora) = &self.config.method else {
            return Err(Error::Undefined(format!(
                "the layout `{}` needs an adapter of the type `ADALORA`, found `{}`",
                ExportLayout::AdaLora.name(),
                self.config.method.name()
            )));
        };
        let mut adalora = adalora.clone();
        let rules = self.config.rules()?;
        let mut kept = Vec::new();
        for (path, module) in &self.modules {
            if module.rank > adalora.init_r || module.scaling != rules.scaling(path) {
                let expected = format!("at most {} and {}", adalora.init_r, rules.scaling(path));
                let found = format!("{} and {}", module.rank, module.scaling);
                return Err(Error::module(path, "rank and scale", expected, found));
            }
            let flags = rules.kept(path).map(<[bool]>::to_vec);
            let fits = |flags: &Vec<bool>| flags.iter().filter(|&&f| f).count() == module.rank;
            // PEFT takes only the number of flags from a file; which ones matters to no reader.
            let first = || (0..adalora.init_r).map(|k| k < module.rank).collect();
            kept.push((path.clone(), flags.filter(fits).unwrap_or_else(first)));
        }
        let changed = adalora.kept.is_some() || kept.iter().any(|(_, f)| f.contains(&false));
        adalora.kept = changed.then_some(kept);
        let mut adapter = self.clone();
        adapter.config.method = PeftMethod::AdaLora(adalora);
        let paths = self.modules.keys().cloned().collect();
        adapter.config.target_modules = TargetModules::Names(paths);
        let summary = summarise(ExportLayout::AdaLora, &adapter);
        Ok((adapter, summary))
    }
}

fn summarise(layout: ExportLayout, adapter: &PeftAdapter) -> ExportSummary {
    ExportSummary {
        layout,
        config: adapter.config.clone(),
        ranks: adapter.modules.iter().map(|(path, module)| (path.clone(), module.rank)).collect(),
        dropped: Vec::new(),
        zero_module: None,
        folded: Vec::new(),
    }
}

/// Leaves out modules of rank 0; if none is left, the first stays with a rank of 1 and zeros.
fn drop_empty(adapter: &mut PeftAdapter) -> Result<(Vec<String>, Option<String>), Error> {
    let empty = adapter.modules.iter().filter(|(_, module)| module.rank == 0);
    let mut dropped: Vec<String> = empty.map(|(path, _)| path.clone()).collect();
    let mut zero_module = None;
    if dropped.len() == adapter.modules.len() {
        let path = dropped.remove(0);
        if let Some(module) = adapter.modules.get_mut(&path) {
            *module = pad(module, 1).map_err(|source| module_error(&path, &source))?;
        }
        zero_module = Some(path);
    }
    adapter.modules.retain(|_, module| module.rank > 0);
    Ok((dropped, zero_module))
}

fn ragged(mut adapter: PeftAdapter) -> Result<(PeftAdapter, ExportSummary), Error> {
    let (dropped, zero_module) = drop_empty(&mut adapter)?;
    adapter.config = describe(&adapter.config, &adapter.modules);
    let summary = summarise(ExportLayout::Ragged, &adapter);
    Ok((adapter, ExportSummary { dropped, zero_module, ..summary }))
}

fn uniform(mut adapter: PeftAdapter) -> Result<(PeftAdapter, ExportSummary), Error> {
    let (dropped, zero_module) = drop_empty(&mut adapter)?;
    let rank = adapter.modules.values().map(|module| module.rank).max().unwrap_or(1);
    let scaling = common_scaling(&adapter.modules);
    let mut folded = Vec::new();
    for (path, module) in &mut adapter.modules {
        let mut full = pad(module, rank).map_err(|source| module_error(path, &source))?;
        if module.scaling != scaling {
            let ratio = module.scaling / scaling;
            let failed = |source| module_error(path, &source);
            let b = full.b.to_f64().map_err(failed)?;
            let b: Vec<f64> = b.into_iter().map(|value| value * ratio).collect();
            full.b = floats(full.b.dtype(), full.b.shape(), &b).map_err(failed)?;
            full.scaling = scaling;
            full.lora_alpha = exact_alpha(scaling, rank);
            folded.push(path.clone());
        }
        *module = full;
    }
    adapter.config.r = rank;
    adapter.config.use_rslora = false;
    adapter.config.lora_alpha = exact_alpha(scaling, rank);
    adapter.config = describe(&adapter.config, &adapter.modules);
    let summary = summarise(ExportLayout::Uniform, &adapter);
    Ok((adapter, ExportSummary { dropped, zero_module, folded, ..summary }))
}

/// The scale that most modules have, so that as few as possible are touched; the larger of two as
/// common. Zero only if there is no other, since nothing can be folded into it.
fn common_scaling(modules: &BTreeMap<String, PeftModule>) -> f64 {
    let mut counts: Vec<(f64, usize)> = Vec::new();
    for module in modules.values().filter(|module| module.scaling != 0.0) {
        match counts.iter_mut().find(|(scaling, _)| *scaling == module.scaling) {
            Some((_, count)) => *count += 1,
            None => counts.push((module.scaling, 1)),
        }
    }
    let most = counts.into_iter().max_by(|(a, m), (b, n)| m.cmp(n).then(a.total_cmp(b)));
    most.map_or(0.0, |(scaling, _)| scaling)
}

/// The same update with zero rows below `a` and zero columns beside `b`.
fn pad(module: &PeftModule, rank: usize) -> Result<PeftModule, Error> {
    let padded = |tensor: HostTensor| {
        let (dtype, columns) = (tensor.dtype(), tensor.shape()[1]);
        let size = rank * columns * tensor.element_size();
        let mut bytes = tensor.into_bytes();
        bytes.resize(size, 0);
        HostTensor::new(dtype, vec![rank, columns], bytes)
    };
    let b = padded(module.b.transpose2()?)?.transpose2()?;
    PeftModule::lora(padded(module.a.clone())?, b, module.scaling, module.initial_rank)
}

/// The `README.md` of an exported adapter: what it belongs to, how it is laid out, and the rank and scale of every
/// module.
fn write_card(summary: &ExportSummary, modules: &BTreeMap<String, PeftModule>) -> String {
    let config = &summary.config;
    let base = config.base_model_name_or_path.as_deref().map(Path::new);
    // A place on this machine says nothing elsewhere: its last part is the name.
    let id = base.filter(|base| !base.is_absolute()).and_then(Path::to_str);
    let name =
        base.and_then(|base| if base.is_absolute() { base.file_name()?.to_str() } else { id });
    let mut card = String::from("---\n");
    if let Some(base) = id {
        // A JSON text is a YAML text, whatever is in it.
        let json = serde_json::Value::from(base).to_string();
        let _ = writeln!(card, "base_model: {}", printable_json(&json));
    }
    card.push_str("library_name: peft\ntags:\n- lora\n- lrvd\n---\n\n# Low-rank adapter\n\n");
    let total: usize = summary.ranks.values().sum();
    let _ = writeln!(
        card,
        "Adapter of the type {} for {}, layout `{}`: {} modules, {total} ranks in all.",
        config.method.name(),
        name.map_or_else(|| "an unnamed base model".to_owned(), code),
        summary.layout.name(),
        modules.len(),
    );
    if let Some(path) = &summary.zero_module {
        let _ = writeln!(
            card,
            "\nNo module has a rank left. {} is there with zeros, because PEFT demands a module.",
            code(path)
        );
    }
    if !summary.dropped.is_empty() {
        let _ = writeln!(
            card,
            "\n{} modules were pruned to rank 0 and are left out.",
            summary.dropped.len()
        );
    }
    if !summary.folded.is_empty() {
        let _ = writeln!(
            card,
            "\nThe scale of {} modules differs from the common one and is multiplied into `lora_B`.",
            summary.folded.len()
        );
    }
    card.push_str("\n| Module | Rank | Scale |\n|---|---|---|\n");
    for (path, module) in modules {
        let path = cell(&code(path));
        let _ = writeln!(card, "| {path} | {} | {} |", module.rank, module.scaling);
    }
    card
}
