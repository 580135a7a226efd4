//! Model cards: `card.md.jinja` and its values.
//!
//! The text of a card depends on the adapter, the run's own files beside it and the command alone.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;

use crate::adapter::{Adapter, AdapterReport, CARD_FILE, Description, HEAD_FILE, inspect_adapter};
use crate::answers::{AnswerSpace, Readout};
use crate::backbone::{is_hub_id, shared_name, split_revision};
use crate::data::Wording;
use crate::data::table::is_remote;
use crate::error::Result;
use crate::io::{cannot, read_json};
use crate::method::{FittedRows, Holdout};
use crate::record::{CheckpointRecord, Metrics, RunRecord};
use crate::run::{ADAPTER_DIR, RECORD_FILE, SETTINGS_FILE, TrainSettings};
use crate::settings::{CheckpointChoice, Config};
use crate::text::{cell, code, decimals, printable, quoted};

const TEMPLATE: &str = include_str!("card.md.jinja");
/// Names of metrics on the hub, and those of a record.
const METRICS: [(&str, &str); 6] = [
    ("accuracy", "accuracy"),
    ("f1", "f1"),
    ("matthews_correlation", "matthews"),
    ("pearsonr", "pearson"),
    ("spearmanr", "spearman"),
    ("mse", "mse"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum CardFormat<'a> {
    Peft {
        layout: &'a str,
        encoder: bool,
    },
    Merged {
        encoder: bool,
    },
    Gguf {
        file: &'a str,
    },
    Onnx {
        file: &'a str,
        int8: bool,
    },
    #[serde(rename = "sentence-transformers")]
    SentenceTransformers,
}

pub(super) struct Card<'a> {
    info: Option<&'a Description>,
    report: AdapterReport,
    ranks: &'a BTreeMap<String, usize>,
    settings: Option<TrainSettings>,
    record: Option<RunRecord>,
    command: &'a str,
}

impl<'a> Card<'a> {
    /// The card of `adapter`, with measurements and data of the run around it, if there is one.
    pub(super) fn of(
        adapter: &Adapter,
        info: Option<&'a Description>,
        ranks: &'a BTreeMap<String, usize>,
        command: &'a str,
    ) -> Result<Self> {
        let is_kept = adapter.folder.file_name().is_some_and(|name| name == ADAPTER_DIR);
        let run = adapter.folder.parent().filter(|_| is_kept);
        let has = |name: &'static str| move |run: &&Path| run.join(name).is_file();
        let settings = run.filter(has(SETTINGS_FILE)).filter(|_| !adapter.continues_texts());
        let settings = settings.map(TrainSettings::read).transpose()?;
        let record = run.filter(has(RECORD_FILE)).map(|run| read_json(&run.join(RECORD_FILE)));
        let report = inspect_adapter(adapter)?;
        let record = record.transpose()?;
        Ok(Self { info, report, ranks, settings, record, command })
    }

    pub(super) fn write(&self, format: CardFormat<'_>, folder: &Path) -> Result<()> {
        let text = self.text(format)?;
        std::fs::write(folder.join(CARD_FILE), text).map_err(cannot("write", folder))
    }

    pub(super) fn text(&self, format: CardFormat<'_>) -> Result<String> {
        let Self { info, report, ranks, settings, .. } = self;
        let base = info.map(|info| info.base.name.as_str()).or(report.base_model.as_deref());
        // The base if it is on a hub, and not a folder of some machine.
        let hub_base = base.filter(|base| is_hub_id(base)).map(|base| split_revision(base).0);
        let hash = |(file, hash): (&String, &String)| format!("{} sha256 `{hash}`", code(file));
        let classes = |info: &Description| match &*info.goal.answers.names() {
            [] => "none: a number is predicted".to_owned(),
            classes => quoted(classes),
        };
        // Of a path on some machine its last part.
        let file = |file: &str| {
            let name = Path::new(file).file_name().filter(|_| !is_remote(file));
            code(&name.map_or_else(|| file.into(), |name| name.to_string_lossy()))
        };
        let data: BTreeMap<_, _> =
            settings.iter().flat_map(|settings| settings.data.values().flatten()).collect();
        let modules = report.modules.iter().map(|module| {
            let rank = ranks.get(&module.path).copied().unwrap_or(0);
            let scale = module.scaling.map_or_else(String::new, |scale| scale.to_string());
            (code(&module.path), rank, module.initial_rank, scale)
        });
        let temperature = info.and_then(Description::mean_temperature);
        let function = match info.map(|info| &info.goal.answers) {
            Some(AnswerSpace::Score) => "identity",
            Some(AnswerSpace::Labels { .. }) => "sigmoid",
            _ => "softmax",
        };
        let values = context! {
            hub_base,
            // A JSON text is a YAML text, whatever is in it.
            hub_base_yaml => hub_base.map(|base| serde_json::Value::from(base).to_string()),
            base => base.map(shared_name).map_or_else(|| "an unnamed base model".to_owned(), code),
            format => Serde(format),
            metrics => self.metrics(),
            info => Serde(info),
            ranks => format!("{} modules, {} ranks in all", ranks.len(), ranks.values().sum::<usize>()),
            weights => info.map(|info| info.base.weights.iter().map(hash).collect::<Vec<_>>().join("; ")),
            classes => info.map(classes),
            question => info.and_then(Description::wording).as_ref().map(Wording::describe),
            has_choices => info.is_some_and(|info| matches!(
                info.goal.answers,
                AnswerSpace::Choice { .. } | AnswerSpace::Questions { .. }
            )),
            temperature => temperature.as_ref().map(f64::to_string),
            function => function,
            output => if function == "identity" { "logits" } else { "probabilities" },
            report => Serde(report),
            head => report.saved_parameters.values().sum::<usize>(),
            head_file => HEAD_FILE,
            classifier_pooling => info.and_then(Description::classifier_pooling),
            head_path => report.saved_parameters.keys().next().and_then(|name| Some(name.rsplit_once('.')?.0)),
            written_by => format!("lrvd {}, `{}`", env!("CARGO_PKG_VERSION"), self.command),
            measured => self.measured(),
            data => data.iter().map(|(name, hash)| (file(name), (*hash).clone())).collect::<Vec<_>>(),
            modules => modules.collect::<Vec<_>>(),
            labels => info.map_or(1, |info| info.goal.answers.width()),
            is_worded => info.is_some_and(|info| info.layout.readout() != Readout::Head),
        };
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
        environment.set_syntax(syntax.build()?);
        environment.add_filter("cell", |text: String| cell(&text));
        let text = environment.render_named_str("card.md", TEMPLATE, values);
        let text = text.map_err(|error| anyhow!("model card: {error}"))?;
        Ok(printable(&text).into_owned())
    }

    fn checkpoint(&self) -> Option<&CheckpointRecord> {
        let both = &self.record.as_ref()?.checkpoints;
        match self.info?.run.checkpoint {
            CheckpointChoice::Best => both.best.as_ref(),
            CheckpointChoice::Last => both.last.as_ref(),
        }
    }

    fn metrics(&self) -> Vec<&'static str> {
        let Some(metrics) = self.checkpoint().and_then(|at| at.metrics.get(&0)) else {
            return Vec::new();
        };
        let has = |own: &str| {
            metrics.standard.contains_key(own) || own == "accuracy" && metrics.accuracy.is_some()
        };
        METRICS.into_iter().filter(|(_, own)| has(own)).map(|(name, _)| name).collect()
    }

    /// Measurements on the validation rows: the number of draws and the values, line by line.
    fn measured(&self) -> Option<Value> {
        let record = self.record.as_ref()?;
        let at = self.checkpoint()?;
        let n = at.metrics.values().map(|metrics| metrics.n).max().unwrap_or(0);
        let share = self.settings.as_ref().and_then(|settings| settings.rows.validation_split);
        let rows = match share {
            Some(share) => format!(
                "{n} rows of the {} % of the training file that were drawn once and not trained on",
                100.0 * share
            ),
            None => format!("{n} validation rows"),
        };
        let experiment = self.settings.as_ref().map(|settings| &settings.experiment);
        let fitted = self.settings.as_ref().zip(self.info).map(|(settings, info)| {
            let config = &settings.experiment;
            let is_drawn = share.is_some();
            Holdout::new(settings.method, config, n as usize, is_drawn, &info.goal.answers).fitted
        });
        let value = |metrics: &Metrics, name: &str| match name {
            "accuracy" => metrics.accuracy,
            "NLL" => metrics.nll,
            "ECE" => metrics.ece,
            "Brier" => metrics.brier,
            name => metrics.standard.get(name).copied().flatten(),
        };
        let standard = at.metrics.values().next().into_iter().flat_map(|m| m.standard.keys());
        let names = std::iter::once("accuracy").chain(standard.map(String::as_str));
        let is_known = |name: &&str| at.metrics.values().any(|m| value(m, name).is_some());
        let header: Vec<&str> = names.chain(["NLL", "ECE", "Brier"]).filter(is_known).collect();
        let line = |(draws, metrics): (&u32, &Metrics)| -> Vec<String> {
            let values = header.iter().map(|name| value(metrics, name));
            let texts = values.map(|value| value.map_or_else(String::new, |v| decimals(v, 4)));
            std::iter::once(draws.to_string()).chain(texts).collect()
        };
        let table: Vec<_> = at.metrics.iter().map(line).collect();
        Some(context! {
            rows,
            seed => record.seed,
            step => at.step,
            header => header.iter().map(ToString::to_string).collect::<Vec<_>>(),
            table,
            chosen => experiment.is_some_and(Config::chooses_model),
            tempered => fitted == Some(FittedRows::Validation),
        })
    }
}
