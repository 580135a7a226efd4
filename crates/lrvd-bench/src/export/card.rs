//! Model cards.
//!
//! The text of a card depends on the adapter, the run's own files beside it and the command alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::inspect::{AdapterReport, inspect_adapter};
use crate::adapter::{Adapter, ClassifierInfo, Description};
use crate::backbone::{is_hub_id, shared_name};
use crate::data::Wording;
use crate::error::Result;
use crate::io::read_json;
use crate::record::{CheckpointRecord, Metrics, RunRecord};
use crate::run::{ADAPTER_DIR, RECORD_FILE, RowSettings, SETTINGS_FILE, TrainSettings};
use crate::settings::CheckpointChoice;
use crate::text::{cell, code, decimals, printable, quoted};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardFormat<'a> {
    Peft { layout: &'a str, encoder: bool },
    Merged { encoder: bool },
    Gguf { file: &'a str },
}

pub(super) struct Card<'a> {
    info: Option<&'a ClassifierInfo>,
    report: AdapterReport,
    ranks: &'a BTreeMap<String, usize>,
    settings: Option<TrainSettings>,
    record: Option<RunRecord>,
    command: &'a str,
}

impl<'a> Card<'a> {
    /// The card of `adapter`, written with these ranks. Measurements and data come from the run's folder, where there
    /// is one around the adapter.
    pub(super) fn of(
        adapter: &Adapter,
        info: Option<&'a ClassifierInfo>,
        ranks: &'a BTreeMap<String, usize>,
        command: &'a str,
    ) -> Result<Self> {
        let is_kept = adapter.folder.file_name().is_some_and(|name| name == ADAPTER_DIR);
        let run = adapter.folder.parent().filter(|_| is_kept);
        let has = |name: &'static str| move |run: &&Path| run.join(name).is_file();
        // Those of a language model's run are of another kind.
        let of_texts = matches!(adapter.files.description, Some(Description::Language(_)));
        let settings = run.filter(has(SETTINGS_FILE)).filter(|_| !of_texts);
        let settings = settings.map(TrainSettings::read).transpose()?;
        let record = run.filter(has(RECORD_FILE)).map(|run| read_json(&run.join(RECORD_FILE)));
        let (report, record) = (inspect_adapter(adapter)?, record.transpose()?);
        Ok(Self { info, report, ranks, settings, record, command })
    }

    pub(super) fn text(&self, format: CardFormat<'_>) -> String {
        let mut out = self.front_matter(format);
        let _ = writeln!(out, "\n# {}\n\n{}\n", self.title(), self.summary(format));
        self.facts(&mut out);
        self.measured(&mut out);
        self.data(&mut out);
        self.modules(&mut out);
        self.loading(format, &mut out);
        printable(&out).into_owned()
    }

    fn base(&self) -> Option<&str> {
        let own = self.info.map(|info| info.base.name.as_str());
        own.or(self.report.base_model.as_deref())
    }

    /// The base where it is one that a hub knows, and not a place on some machine.
    fn hub_base(&self) -> Option<&str> {
        self.base().filter(|base| is_hub_id(base))
    }

    fn base_name(&self) -> String {
        let base = self.base().map(shared_name);
        base.map_or_else(|| "an unnamed base model".to_owned(), code)
    }

    fn front_matter(&self, format: CardFormat<'_>) -> String {
        let mut out = String::from("---\n");
        if let Some(base) = self.hub_base() {
            // A JSON text is a YAML text, whatever is in it.
            let _ = writeln!(out, "base_model: {}", Value::from(base));
        }
        let (library, tags): (&str, &[&str]) = match format {
            CardFormat::Peft { .. } => ("peft", &["lora", "lrvd"]),
            CardFormat::Merged { .. } => ("transformers", &["lrvd"]),
            CardFormat::Gguf { .. } => ("gguf", &["gguf", "lora", "lrvd"]),
        };
        let _ = writeln!(out, "library_name: {library}\ntags:");
        for tag in tags {
            let _ = writeln!(out, "- {tag}");
        }
        match format {
            CardFormat::Peft { encoder: true, .. } | CardFormat::Merged { encoder: true } => {
                out.push_str("pipeline_tag: text-classification\n");
            }
            _ => out.push_str("pipeline_tag: text-generation\n"),
        }
        let names: Vec<&str> = match self.checkpoint().and_then(|at| at.metrics.get(&0)) {
            Some(metrics) => {
                let known =
                    ["accuracy", "f1", "matthews_correlation", "pearsonr", "spearmanr", "mse"];
                let own = |name: &str| match name {
                    "mcc" | "matthews" => "matthews_correlation".to_owned(),
                    "pearson" | "spearman" => format!("{name}r"),
                    other => other.to_owned(),
                };
                let given: Vec<String> = metrics.standard.keys().map(|name| own(name)).collect();
                let has = |name: &&str| {
                    given.iter().any(|given| given == name)
                        || (*name == "accuracy" && metrics.accuracy.is_some())
                };
                known.into_iter().filter(has).collect()
            }
            None => Vec::new(),
        };
        if !names.is_empty() {
            out.push_str("metrics:\n");
            for name in names {
                let _ = writeln!(out, "- {name}");
            }
        }
        out.push_str("---\n");
        out
    }

    fn title(&self) -> String {
        match self.info {
            Some(info) => {
                format!("{}: {} on {}", info.goal.name, info.run.method, self.base_name())
            }
            None => format!("Low-rank adapter for {}", self.base_name()),
        }
    }

    fn summary(&self, format: CardFormat<'_>) -> String {
        let total: usize = self.ranks.values().sum();
        let ranks = format!("{} modules, {total} ranks in all", self.ranks.len());
        match format {
            CardFormat::Peft { layout, .. } => {
                format!("A low-rank adapter for {}, layout `{layout}`: {ranks}.", self.base_name())
            }
            CardFormat::Merged { .. } => format!(
                "{} with a low-rank adapter multiplied in, at the mean of its posterior where it has one, in single \
                 precision: {ranks}.",
                self.base_name()
            ),
            CardFormat::Gguf { .. } => {
                format!("A low-rank adapter for {} in llama.cpp: {ranks}.", self.base_name())
            }
        }
    }

    fn facts(&self, out: &mut String) {
        out.push_str("| | |\n|---|---|\n");
        let mut row = |name: &str, value: String| {
            let _ = writeln!(out, "| {name} | {} |", cell(&value));
        };
        let hashes = |map: &BTreeMap<String, String>| {
            let one = |(file, hash): (&String, &String)| format!("{} sha256 `{hash}`", code(file));
            map.iter().map(one).collect::<Vec<_>>().join("; ")
        };
        row("base model", self.base_name());
        if let Some(info) = self.info {
            row("base weights", hashes(&info.base.weights));
            row("method", info.run.method.clone());
            row("task", info.goal.name.clone());
            let classes = match info.goal.classes.as_slice() {
                [] => "none: a number is predicted".to_owned(),
                classes => quoted(classes),
            };
            row("classes", classes);
            if let Some(wording) = info.wording.as_ref().map(Wording::describe) {
                row("question", wording);
            }
            if let Some(pairs) = info.pairs {
                let kind = match (info.has_choices(), pairs) {
                    (true, true) => "questions about a passage, with choices",
                    (true, false) => "questions with choices",
                    (false, true) => "pairs of texts",
                    (false, false) => "single texts",
                };
                row("inputs", format!("{kind}, at most {} tokens", info.run.max_length));
            }
            let which = match info.run.checkpoint {
                CheckpointChoice::Best => "best",
                CheckpointChoice::Last => "last",
            };
            row(
                "training",
                format!("seed {}, {} steps, the {which} checkpoint", info.run.seed, info.run.step),
            );
            if let Some(temperature) = info.temperatures.get(&0) {
                row(
                    "temperature",
                    format!(
                        "divide logits by {temperature} for the probabilities that were measured"
                    ),
                );
            }
        }
        let head: usize = self.report.saved_parameters.values().sum();
        row(
            "trained values",
            format!(
                "{} in adapters, {} in the posterior, {head} in pooler and head",
                self.report.adapter_parameters, self.report.posterior_parameters
            ),
        );
        row("written by", format!("lrvd {}, `{}`", env!("CARGO_PKG_VERSION"), self.command));
    }

    fn checkpoint(&self) -> Option<&CheckpointRecord> {
        let both = &self.record.as_ref()?.checkpoints;
        match self.info?.run.checkpoint {
            CheckpointChoice::Best => both.best.as_ref(),
            CheckpointChoice::Last => both.last.as_ref(),
        }
    }

    fn measured(&self, out: &mut String) {
        out.push_str("\n## Measured\n\n");
        let (Some(record), Some(at)) = (&self.record, self.checkpoint()) else {
            out.push_str("There is no training record beside the adapter.\n");
            return;
        };
        let n = at.metrics.values().map(|metrics| metrics.n).max().unwrap_or(0);
        let share = self.settings.as_ref().and_then(|settings| match &settings.rows {
            RowSettings::Classes(own) => own.validation_split,
            RowSettings::Texts(own) => own.validation_split,
        });
        let rows = match share {
            Some(share) => format!(
                "{n} rows, {} % of the training file, drawn once and not trained on",
                100.0 * share
            ),
            None => format!("{n} validation rows"),
        };
        let chosen = match self.info.map(|info| info.run.checkpoint) {
            Some(CheckpointChoice::Best) => {
                " The checkpoint was chosen on these rows, so this is optimistic."
            }
            _ => "",
        };
        let _ = writeln!(
            out,
            "On {rows}; one run, seed {}, {} steps.{chosen} With 0 draws the mean answers.\n",
            record.seed, at.step
        );
        let columns = |metrics: &Metrics| {
            let mut columns: Vec<(String, Option<f64>)> =
                vec![("accuracy".to_owned(), metrics.accuracy)];
            columns
                .extend(metrics.standard.iter().map(|(name, value)| (name.clone(), Some(*value))));
            columns.extend(
                [("NLL", metrics.nll), ("ECE", metrics.ece), ("Brier", metrics.brier)]
                    .map(|(name, value)| (name.to_owned(), value)),
            );
            columns
        };
        let all: Vec<_> =
            at.metrics.iter().map(|(draws, metrics)| (draws, columns(metrics))).collect();
        let Some((_, first)) = all.first() else { return };
        let shown: Vec<usize> = (0..first.len())
            .filter(|&i| all.iter().any(|(_, row)| row.get(i).is_some_and(|(_, v)| v.is_some())))
            .collect();
        let header: Vec<&str> = shown.iter().map(|&i| first[i].0.as_str()).collect();
        let _ = writeln!(
            out,
            "| draws | {} |\n|---|{}",
            header.join(" | "),
            "---|".repeat(header.len())
        );
        for (draws, row) in &all {
            let cell = |&i: &usize| {
                row.get(i).and_then(|(_, v)| *v).map_or_else(String::new, |v| decimals(v, 4))
            };
            let _ = writeln!(
                out,
                "| {draws} | {} |",
                shown.iter().map(cell).collect::<Vec<_>>().join(" | ")
            );
        }
    }

    fn data(&self, out: &mut String) {
        let Some(settings) = &self.settings else { return };
        out.push_str("\n## Data\n\n| file | sha256 |\n|---|---|\n");
        for (file, hash) in &settings.data {
            let name =
                Path::new(file).file_name().map_or_else(|| file.into(), |n| n.to_string_lossy());
            let _ = writeln!(out, "| {} | `{hash}` |", cell(&code(&name)));
        }
    }

    fn modules(&self, out: &mut String) {
        out.push_str("\n## Ranks\n\n| module | rank | of | scale |\n|---|---|---|---|\n");
        for module in &self.report.modules {
            let rank = self.ranks.get(&module.path).copied().unwrap_or(0);
            let scale = module.scaling.map_or_else(String::new, |scale| scale.to_string());
            let path = cell(&code(&module.path));
            let _ = writeln!(out, "| {path} | {rank} | {} | {scale} |", module.initial_rank);
        }
    }

    fn loading(&self, format: CardFormat<'_>, out: &mut String) {
        out.push_str("\n## How to load it\n\n");
        let base = self.hub_base().unwrap_or("BASE");
        let class = |encoder| {
            if encoder { "AutoModelForSequenceClassification" } else { "AutoModelForCausalLM" }
        };
        match format {
            CardFormat::Peft { encoder, .. } => {
                let class = class(encoder);
                let labels = self.info.map_or(1, |info| info.goal.n_labels());
                let named = if self.hub_base().is_none() { " --model BASE" } else { "" };
                let count = if encoder { format!(", num_labels={labels}") } else { String::new() };
                let _ = writeln!(
                    out,
                    "```python\nfrom peft import PeftModel\nfrom transformers import {class}\n\n\
                     base = {class}.from_pretrained(\"{base}\"{count})\n\
                     model = PeftModel.from_pretrained(base, \"FOLDER\")\n```\n\n\
                     With its uncertainty: `lrvd predict FOLDER{named} \"a text\"`."
                );
            }
            CardFormat::Merged { encoder } => {
                let class = class(encoder);
                let _ = writeln!(
                    out,
                    "```python\nfrom transformers import AutoTokenizer, {class}\n\n\
                     model = {class}.from_pretrained(\"FOLDER\")\n\
                     tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```"
                );
            }
            CardFormat::Gguf { file } => {
                let _ = writeln!(out, "```sh\nllama-cli -m BASE.gguf --lora {file}\n```");
            }
        }
        if self.info.is_some_and(|info| !info.has_head()) {
            out.push_str(
                "\nThe classes are answered in words: ask the question above, and compare the logits of the answers' \
                 first tokens.\n",
            );
        }
    }
}
