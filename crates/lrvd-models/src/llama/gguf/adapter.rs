//! A low-rank adapter as a file of llama.cpp.
//!
//! llama.cpp adds `scale · lora_b · lora_a` to a weight, where `scale` is the file's one `adapter.lora.alpha` over the
//! tensor's own rank (`llama_adapter_lora_weight::get_scale`). What a module's scale is beyond that is multiplied into
//! `lora_b`. Rows of `lora_b` of query and key projections are in llama.cpp's order, as those of the weights are.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_burn::files::{GgufField, HostTensor, write_gguf};
use lrvd_burn::peft::{PeftAdapter, common_scale};
use lrvd_core::error::quoted;

use super::{counterpart, heads, rows_in_halves};
use crate::error::{Error, Result};
use crate::llama::config::LlamaConfig;

const TIED_HEAD: &str = "`lm_head` is adapted, but in this model it is the word embedding: llama.cpp would adapt both. \
                         Export with `--to merged`, or train with `target_modules` without `lm_head`";

/// Report on a written adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufAdapter {
    /// `adapter.lora.alpha`.
    pub lora_alpha: f32,
    /// Rank by module path.
    pub ranks: BTreeMap<String, usize>,
    /// Modules of rank 0, which are left out.
    pub dropped: Vec<String>,
    /// Modules whose scale was multiplied into `lora_b`.
    pub folded: Vec<String>,
}

/// Writes the posterior mean of `adapter` for a model of `config`, `name` being what llama.cpp calls it. Factors are in
/// single precision; the bytes depend on the arguments alone. An error if a file of llama.cpp cannot
/// hold the adapter.
pub fn write_gguf_adapter(
    adapter: &PeftAdapter,
    config: &LlamaConfig,
    name: &str,
    path: &Path,
) -> Result<GgufAdapter> {
    let whole: Vec<&String> = adapter.saved.keys().chain(adapter.base.keys()).collect();
    if !whole.is_empty() {
        return Err(Error::Adapter(format!(
            "the adapter holds whole parameters ({}), which an adapter of llama.cpp cannot",
            quoted(whole)
        )));
    }
    let adapter = adapter.to_lora()?;
    let live = || adapter.modules.iter().filter(|(_, module)| module.rank > 0);
    let alphas = live().map(|(_, m)| f64::from((m.scaling * m.rank as f64) as f32));
    let lora_alpha = match common_scale(&alphas.collect::<Vec<_>>()) {
        // llama.cpp reads a zero as no scale at all.
        Some(0.0) => 1.0,
        Some(alpha) => alpha as f32,
        None => {
            let what = "no module has a rank left: there is nothing to write";
            return Err(Error::Adapter(what.to_owned()));
        }
    };
    let mut tensors = BTreeMap::new();
    let mut folded = Vec::new();
    for (path, module) in live() {
        if path == "lm_head" && config.tie_word_embeddings {
            return Err(Error::Adapter(TIED_HEAD.to_owned()));
        }
        let wrong = |what: String| Error::Adapter(format!("module `{path}` {what}"));
        let stem = counterpart(path, 1)
            .ok_or_else(|| wrong("has no counterpart in llama.cpp".to_owned()))?;
        let ratio = module.scaling * module.rank as f64 / f64::from(lora_alpha);
        if ratio != 1.0 {
            folded.push(path.clone());
        }
        let failed = |source: lrvd_burn::Error| wrong(format!("does not fit the model: {source}"));
        let b: Vec<f32> =
            module.b.to_f64().map_err(failed)?.iter().map(|value| (value * ratio) as f32).collect();
        let b = HostTensor::from_f32(module.b.shape(), &b).map_err(failed)?;
        let b = match heads(path, config) {
            None => b,
            Some(heads) => {
                let rows = module.d_output();
                let order = rows_in_halves(rows, heads).ok_or_else(|| {
                    wrong(format!("has {rows} rows, which are not {heads} heads of an even width"))
                })?;
                b.select_rows(&order).map_err(failed)?
            }
        };
        tensors.insert(format!("{stem}.weight.lora_a"), module.a.clone());
        tensors.insert(format!("{stem}.weight.lora_b"), b);
    }
    let text = |text: &str| GgufField::Text(text.to_owned());
    let settings = [
        ("general.architecture", text(config.family.spec().gguf)),
        ("general.type", text("adapter")),
        ("general.name", text(name)),
        ("general.file_type", GgufField::Count(0)),
        ("adapter.type", text("lora")),
        ("adapter.lora.alpha", GgufField::Float(lora_alpha)),
    ];
    write_gguf(path, &settings, &tensors)?;
    let dropped = adapter.modules.iter().filter(|(_, module)| module.rank == 0);
    Ok(GgufAdapter {
        lora_alpha,
        dropped: dropped.map(|(path, _)| path.clone()).collect(),
        ranks: live().map(|(path, module)| (path.clone(), module.rank)).collect(),
        folded,
    })
}
