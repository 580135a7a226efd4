//! Writing an adapter folder that PEFT loads.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_core::error::quoted;

use super::adapter::{PeftAdapter, PeftModule, WEIGHTS_FILE, exact_alpha, no_module};
use super::config::CONFIG_FILE;
use super::convert::{describe, floats};
use super::rules::{Factor, base_key, factor_key, saved_key};
use crate::error::{Error, LoadReport};
use crate::files::{HostTensor, write_atomic, write_safetensors};
use crate::text::{cell, code, printable_json};

/// Form of modules of different ranks in a folder.
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
}

impl ExportLayout {
    /// Name in messages and in the model card.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ragged => "ragged",
            Self::Uniform => "uniform",
        }
    }
}

/// Contents of a written folder.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExportSummary {
    /// Rank in the file by module path.
    pub ranks: BTreeMap<String, usize>,
    /// Modules of rank 0, which PEFT cannot load and which are left out.
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
        self.write_with(dir.as_ref(), layout, BTreeMap::new())
    }

    /// Writes the folder of [`PeftAdapter::write`] with more texts in the file of the tensors.
    pub(crate) fn write_with(
        &self,
        dir: &Path,
        layout: ExportLayout,
        mut metadata: BTreeMap<String, String>,
    ) -> Result<ExportSummary, Error> {
        let mut adapter = self.to_lora()?;
        adapter.check(dir)?;
        let mut summary = ExportSummary::default();
        adapter.drop_empty(&mut summary)?;
        if layout == ExportLayout::Uniform {
            summary.folded = adapter.make_uniform()?;
        }
        adapter.config = describe(&adapter.config, &adapter.modules);
        let ranks = adapter.modules.iter().map(|(path, module)| (path.clone(), module.rank));
        summary.ranks = ranks.collect();
        std::fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
        metadata.insert("format".to_owned(), "pt".to_owned());
        write_safetensors(dir.join(WEIGHTS_FILE), &adapter.tensors(), &metadata)?;
        write_atomic(dir.join("README.md"), write_card(&adapter, layout, &summary).as_bytes())?;
        adapter.config.write(&dir.join(CONFIG_FILE))?;
        Ok(summary)
    }

    /// Checks what every layout needs.
    fn check(&self, dir: &Path) -> Result<(), Error> {
        if self.modules.is_empty() {
            return Err(no_module());
        }
        for (path, module) in &self.modules {
            if !module.scaling.is_finite() {
                return Err(Error::module(path, "scale", "finite", module.scaling));
            }
            if module.e.is_some() {
                return Err(Error::module(path, "diagonal", "none for `LORA`", "one"));
            }
        }
        if let Some(name) = self.saved.keys().find(|name| !self.config.saves(name)) {
            let modules = quoted(self.config.saved_modules());
            let expected = format!("parameters of the `modules_to_save` {modules}");
            return Err(Error::argument("saved", expected, format_args!("`{name}`")));
        }
        let mut report = LoadReport::new(dir.display());
        for (name, tensor) in self.tensors() {
            report.check_finite(&name, tensor.first_non_finite());
        }
        report.into_result().map(drop)
    }

    /// Tensors under their names in the file.
    fn tensors(&self) -> BTreeMap<String, HostTensor> {
        let mut tensors = BTreeMap::new();
        for (path, module) in &self.modules {
            let key = |factor| factor_key(&self.config.method, path, factor);
            tensors.insert(key(Factor::A), module.a.clone());
            tensors.insert(key(Factor::B), module.b.clone());
        }
        tensors.extend(self.saved.iter().map(|(name, tensor)| (saved_key(name), tensor.clone())));
        let is_adapted = |path: &str| self.modules.contains_key(path);
        let base = self.base.iter();
        tensors.extend(base.map(|(name, tensor)| (base_key(name, is_adapted), tensor.clone())));
        tensors
    }

    /// Leaves out modules of rank 0; if none is left, the first stays with a rank of 1 and zeros.
    fn drop_empty(&mut self, summary: &mut ExportSummary) -> Result<(), Error> {
        let none_left = self.modules.values().all(|module| module.rank == 0);
        for (path, module) in &mut self.modules {
            if none_left && summary.zero_module.is_none() {
                *module = filled(module, 1, module.scaling)?;
                summary.zero_module = Some(path.clone());
            } else if module.rank == 0 {
                summary.dropped.push(path.clone());
            }
        }
        self.modules.retain(|_, module| module.rank > 0);
        Ok(())
    }

    /// Gives every module the largest rank and the commonest scale; the paths of those whose scale was another one.
    fn make_uniform(&mut self) -> Result<Vec<String>, Error> {
        let rank = self.modules.values().map(|module| module.rank).max().unwrap_or(1);
        let scales: Vec<f64> = self.modules.values().map(|module| module.scaling).collect();
        let scaling = common_scale(&scales).unwrap_or(0.0);
        let mut folded = Vec::new();
        for (path, module) in &mut self.modules {
            if module.scaling != scaling {
                folded.push(path.clone());
            }
            *module = filled(module, rank, scaling)?;
        }
        self.config.r = rank;
        self.config.use_rslora = false;
        self.config.lora_alpha = exact_alpha(scaling, rank);
        Ok(folded)
    }
}

/// Pads a module to a larger rank, with zero rows below `a` and zero columns next to `b`, and moves it to another scale.
fn filled(module: &PeftModule, rank: usize, scaling: f64) -> Result<PeftModule, Error> {
    let padded = |tensor: HostTensor| {
        let dtype = tensor.dtype();
        let columns = tensor.shape()[1];
        let size = rank * columns * tensor.element_size();
        let mut bytes = tensor.into_bytes();
        bytes.resize(size, 0);
        HostTensor::new(dtype, vec![rank, columns], bytes)
    };
    let mut b = padded(module.b.transpose2()?)?.transpose2()?;
    if module.scaling != scaling {
        let ratio = module.scaling / scaling;
        let values: Vec<f64> = b.to_f64()?.into_iter().map(|value| value * ratio).collect();
        b = floats(b.dtype(), b.shape(), &values)?;
    }
    PeftModule::lora(padded(module.a.clone())?, b, scaling, module.initial_rank)
}

/// The scale that most modules have, so that as few as possible are changed; of two as common the larger. Zero only if there is
/// no other, since nothing can be folded into it; `None` without scales.
pub fn common_scale(scales: &[f64]) -> Option<f64> {
    let count = |scale: &f64| scales.iter().filter(|other| *other == scale).count();
    let live = scales.iter().filter(|scale| **scale != 0.0);
    let most = live.max_by(|a, b| count(a).cmp(&count(b)).then(a.total_cmp(b)));
    most.or(scales.first()).copied()
}

/// The `README.md` of an exported adapter.
fn write_card(adapter: &PeftAdapter, layout: ExportLayout, summary: &ExportSummary) -> String {
    let PeftAdapter { config, modules, .. } = adapter;
    let base = config.base_model_name_or_path.as_deref().map(Path::new);
    // A path of this machine is useless elsewhere: its last part is the name.
    let id = base.filter(|base| !base.is_absolute()).and_then(Path::to_str);
    let name =
        base.and_then(|base| if base.is_absolute() { base.file_name()?.to_str() } else { id });
    let mut lines = vec!["---".to_owned()];
    // A JSON text is a YAML text, whatever is in it.
    let json = id.map(|base| serde_json::Value::from(base).to_string());
    lines.extend(json.map(|json| format!("base_model: {}", printable_json(&json))));
    lines.push("library_name: peft\ntags:\n- lora\n- lrvd\n---\n\n# Low-rank adapter\n".to_owned());
    lines.push(format!(
        "Adapter of the type LORA for {}, layout `{}`: {} modules, {} ranks in all.",
        name.map_or_else(|| "an unnamed base model".to_owned(), code),
        layout.name(),
        modules.len(),
        summary.ranks.values().sum::<usize>(),
    ));
    lines.extend(summary.zero_module.as_deref().map(code).map(|path| {
        format!("\nNo module has a rank left. {path} is there with zeros, because PEFT demands a module.")
    }));
    if !summary.dropped.is_empty() {
        let n = summary.dropped.len();
        lines.push(format!("\n{n} modules were pruned to rank 0 and are left out."));
    }
    if !summary.folded.is_empty() {
        let n = summary.folded.len();
        lines.push(format!(
            "\nThe scale of {n} modules differs from the common one and is multiplied into `lora_B`."
        ));
    }
    lines.push("\n| Module | Rank | Scale |\n|---|---|---|".to_owned());
    lines.extend(modules.iter().map(|(path, module)| {
        format!("| {} | {} | {} |", cell(&code(path)), module.rank, module.scaling)
    }));
    lines.join("\n") + "\n"
}
