//! Scores of single evaluation rows from the prediction files, and names in print.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use lrvd_core::metrics::NLL_FLOOR;

use super::metric::Metric;
use crate::error::Result;
use crate::io::read_lines;
use crate::record::PredictionLine;
use crate::settings::{CheckpointChoice, MethodName};

/// A run: checkpoint, task key, method in print, seed.
type Key = (&'static str, String, String, u64);

/// Accuracy, NLL and Brier score of every evaluation row, by run: scores whose mean over rows is the run's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowScores(BTreeMap<(Key, Metric), Vec<f64>>);

impl RowScores {
    /// Adds both checkpoints of a run from its `folder`; a checkpoint without a file adds nothing, and neither do scores
    /// of a regression.
    pub(crate) fn read(
        &mut self,
        folder: &Path,
        task: &str,
        method: &str,
        seed: u64,
    ) -> Result<()> {
        for choice in CheckpointChoice::BOTH {
            let path = folder.join(format!("predictions-{}.jsonl", choice.name()));
            if !path.is_file() {
                continue;
            }
            let mut scores: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
            for line in read_lines::<PredictionLine>(&path)? {
                for (&draws, probabilities) in &line.probs {
                    for (metric, score) in row_scores(probabilities, line.label, draws) {
                        scores.entry(metric).or_default().push(score);
                    }
                }
            }
            for (metric, scores) in scores {
                self.insert(choice, task, method, seed, metric, scores);
            }
        }
        Ok(())
    }

    /// Gives all runs to the method or arm called `name`.
    pub(crate) fn rename(&mut self, name: &str) {
        let all = std::mem::take(&mut self.0).into_iter();
        let renamed = |((choice, task, _, seed), metric): (Key, Metric)| {
            ((choice, task, name.to_owned(), seed), metric)
        };
        self.0 = all.map(|(key, scores)| (renamed(key), scores)).collect();
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn insert(
        &mut self,
        choice: CheckpointChoice,
        task: &str,
        method: &str,
        seed: u64,
        metric: Metric,
        scores: Vec<f64>,
    ) {
        self.0.insert((key(choice, task, method, seed), metric), scores);
    }

    /// The scores of a run in the order of the rows.
    pub(super) fn get(
        &self,
        choice: CheckpointChoice,
        task: &str,
        method: &str,
        seed: u64,
        metric: Metric,
    ) -> Option<&[f64]> {
        self.0.get(&(key(choice, task, method, seed), metric)).map(Vec::as_slice)
    }
}

fn key(choice: CheckpointChoice, task: &str, method: &str, seed: u64) -> Key {
    (choice.name(), task.to_owned(), method.to_owned(), seed)
}

/// What one row adds to each metric; nothing for the score of a regression.
fn row_scores(probabilities: &[f64], label: f64, draws: u32) -> Vec<(Metric, f64)> {
    let label = label as usize;
    let Some(own) = probabilities.get(label).filter(|_| probabilities.len() > 1) else {
        return Vec::new();
    };
    let right = probabilities.iter().enumerate().all(|(c, p)| p < own || (p == own && c >= label));
    let squares =
        probabilities.iter().map(|p| p * p).sum::<f64>() - own * own + (own - 1.0).powi(2);
    vec![
        (Metric::Accuracy(draws), f64::from(u8::from(right))),
        (Metric::Nll(draws), -own.max(NLL_FLOOR).ln()),
        (Metric::Brier(draws), squares),
    ]
}

/// Path segments that are followed by a layer number in the checkpoints we know.
const LAYER_WORDS: [&str; 5] = ["layer", "layers", "h", "block", "blocks"];

/// Known endings of a module path after its layer number, the longest first, with the name in print. The order of
/// [`KIND_ORDER`] is the order of columns in a report.
const KINDS: [(&str, &str); 22] = [
    ("attention.self.query_proj", "query"),
    ("attention.self.key_proj", "key"),
    ("attention.self.value_proj", "value"),
    ("attention.self.query", "query"),
    ("attention.self.key", "key"),
    ("attention.self.value", "value"),
    ("attention.output.dense", "attn out"),
    ("intermediate.dense", "ffn in"),
    ("output.dense", "ffn out"),
    ("self_attn.q_proj", "query"),
    ("self_attn.k_proj", "key"),
    ("self_attn.v_proj", "value"),
    ("self_attn.o_proj", "attn out"),
    ("mlp.gate_proj", "gate"),
    ("mlp.up_proj", "ffn in"),
    ("mlp.down_proj", "ffn out"),
    ("attn.c_attn", "qkv"),
    ("attn.c_proj", "attn out"),
    ("mlp.c_fc", "ffn in"),
    ("mlp.c_proj", "ffn out"),
    ("lm_head", "lm head"),
    ("pooler.dense", "pooler"),
];

/// Names in print in the order in which data flow through a layer.
const KIND_ORDER: [&str; 10] =
    ["query", "key", "value", "qkv", "attn out", "gate", "ffn in", "ffn out", "pooler", "lm head"];

/// Known task keys (letters and digits only) and their names in print.
const TASKS: [(&str, &str); 15] = [
    ("cola", "CoLA"),
    ("mnli", "MNLI"),
    ("mrpc", "MRPC"),
    ("qnli", "QNLI"),
    ("qqp", "QQP"),
    ("rte", "RTE"),
    ("sst2", "SST-2"),
    ("stsb", "STS-B"),
    ("wnli", "WNLI"),
    ("wgs", "WG-S"),
    ("wgm", "WG-M"),
    ("arcc", "ARC-C"),
    ("arce", "ARC-E"),
    ("obqa", "OBQA"),
    ("boolq", "BoolQ"),
];

/// A module path taken apart for print: its layer and what it does there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleName {
    /// Layer number; none for a module outside the stack.
    pub(crate) layer: Option<u32>,
    /// What it is: `query`, `key`, `value`, `attn out`, `ffn in`, `ffn out`, or the path's own words.
    pub(crate) kind: String,
}

impl ModuleName {
    /// Takes a dotted path apart. A path that is not understood keeps its own words, so nothing is lost.
    ///
    /// `deberta.encoder.layer.3.attention.self.query_proj` is layer 3, `query`.
    pub(crate) fn parse(path: &str) -> Self {
        let segments: Vec<&str> = path.split('.').collect();
        let found = segments
            .windows(2)
            .position(|pair| LAYER_WORDS.contains(&pair[0]) && pair[1].parse::<u32>().is_ok());
        let (layer, rest) = match found {
            Some(at) => (segments[at + 1].parse().ok(), segments[at + 2..].join(".")),
            None => (None, path.to_owned()),
        };
        let known = KINDS.iter().find(|(ending, _)| {
            rest == *ending
                || rest.ends_with(ending) && rest[..rest.len() - ending.len()].ends_with('.')
        });
        let kind = known.map_or_else(|| rest.clone(), |(_, name)| (*name).to_owned());
        let kind = if kind.is_empty() { path.to_owned() } else { kind };
        Self { layer, kind }
    }

    /// `L3 query`, or the kind alone outside the stack.
    pub(crate) fn label(&self) -> String {
        self.layer.map_or_else(|| self.kind.clone(), |layer| format!("L{layer} {}", self.kind))
    }

    fn kind_index(&self) -> usize {
        KIND_ORDER.iter().position(|kind| *kind == self.kind).unwrap_or(KIND_ORDER.len())
    }

    /// Order in a report: by layer, modules outside the stack last, then along the data flow.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        (self.layer.is_none(), self.layer, self.kind_index(), &self.kind).cmp(&(
            other.layer.is_none(),
            other.layer,
            other.kind_index(),
            &other.kind,
        ))
    }

    /// Order of columns in a report: along the data flow, unknown kinds last by name.
    pub(crate) fn kind_order(&self, other: &Self) -> Ordering {
        (self.kind_index(), &self.kind).cmp(&(other.kind_index(), &other.kind))
    }
}

/// Letters and digits in lower case: the key under which `SST-2`, `sst2` and `SST2` are one task.
pub(crate) fn match_key(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

pub(crate) fn task_label(task: &str) -> String {
    let key = match_key(task);
    TASKS.iter().find(|(k, _)| *k == key).map_or_else(|| task.to_owned(), |(_, v)| (*v).to_owned())
}

/// Order of tasks in a table: by name in print, case ignored, as the paper does.
pub(crate) fn task_order(a: &str, b: &str) -> Ordering {
    let key = |task: &str| (task_label(task).to_lowercase(), task.to_owned());
    key(a).cmp(&key(b))
}

/// Order of methods in a table: as they are registered, unknown ones last by name.
pub(crate) fn method_order(a: &str, b: &str) -> Ordering {
    let key = |name: &str| {
        let known = MethodName::from_name(name);
        (known.is_none(), known, name.to_owned())
    };
    key(a).cmp(&key(b))
}

#[cfg(test)]
mod tests {
    use lrvd_core::metrics::Predictions;

    use super::*;

    #[test]
    fn their_means_are_those_of_the_record() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let rows = [([0.5, 0.3, 0.2], 0.0), ([0.4, 0.4, 0.2], 1.0), ([0.1, 0.2, 0.7], 2.0)];
        let lines: Vec<String> = rows
            .iter()
            .map(|(p, label)| {
                format!(
                    r#"{{"id":"a","label":{label:?},"probs":{{"0":{p:?}}},"entropy":{{}},"mutual_information":{{}}}}"#
                )
            })
            .collect();
        std::fs::write(folder.path().join("predictions-last.jsonl"), lines.join("\n"))?;
        let mut scores = RowScores::default();
        scores.read(folder.path(), "sst2", "LoRA", 1)?;
        let mean = |metric| -> Option<f64> {
            let own = scores.get(CheckpointChoice::Last, "sst2", "LoRA", 1, metric)?;
            Some(own.iter().sum::<f64>() / own.len() as f64)
        };
        let all = rows.map(|(p, _)| p).concat();
        let predictions = Predictions::new(&all, 3, &[0, 1, 2])?;
        assert_eq!(mean(Metric::Accuracy(0)), Some(predictions.accuracy()));
        for (metric, expected) in
            [(Metric::Nll(0), predictions.nll()), (Metric::Brier(0), predictions.brier())]
        {
            assert!(mean(metric).is_some_and(|m| (m - expected).abs() < 1e-12), "{metric:?}");
        }
        assert_eq!(mean(Metric::Nll(10)), None);
        let best = scores.get(CheckpointChoice::Best, "sst2", "LoRA", 1, Metric::Nll(0));
        assert_eq!(best, None, "no file");
        assert_eq!(row_scores(&[0.3], 0.0, 0), [], "a regression");
        Ok(())
    }

    #[test]
    fn paths_of_known_checkpoints() {
        let cases = [
            ("deberta.encoder.layer.3.attention.self.query_proj", Some(3), "query"),
            ("deberta.encoder.layer.11.attention.output.dense", Some(11), "attn out"),
            ("deberta.encoder.layer.0.output.dense", Some(0), "ffn out"),
            ("encoder.layer.0.intermediate.dense", Some(0), "ffn in"),
            ("base_model.model.model.layers.7.self_attn.v_proj", Some(7), "value"),
            ("lm_head", None, "lm head"),
            ("transformer.h.2.mlp.c_proj", Some(2), "ffn out"),
            ("encoder.layer.4.my_output.dense", Some(4), "my_output.dense"),
            ("encoder.layer.five.thing", None, "encoder.layer.five.thing"),
            ("encoder.layer.5", Some(5), "encoder.layer.5"),
            ("", None, ""),
        ];
        for (path, layer, kind) in cases {
            let name = ModuleName::parse(path);
            assert_eq!((name.layer, name.kind.as_str()), (layer, kind), "{path}");
        }
    }

    #[test]
    fn modules_sort_by_number_not_by_text() {
        let mut paths = [
            "encoder.layer.10.attention.self.key_proj",
            "lm_head",
            "encoder.layer.2.output.dense",
            "encoder.layer.2.attention.self.query_proj",
        ];
        paths.sort_by(|a, b| ModuleName::parse(a).order(&ModuleName::parse(b)));
        let labels: Vec<String> = paths.iter().map(|p| ModuleName::parse(p).label()).collect();
        assert_eq!(labels, ["L2 query", "L2 ffn out", "L10 key", "lm head"]);
    }

    #[test]
    fn tasks_and_methods_have_a_fixed_order() {
        let mut tasks = ["sst2", "agreement", "rte", "cola", "STS-B"];
        tasks.sort_by(|a, b| task_order(a, b));
        assert_eq!(tasks.map(task_label), ["agreement", "CoLA", "RTE", "SST-2", "STS-B"]);
        let mut methods = ["yours", "BayesLoRA", "LoRA", "mine", "AdaLoRA"];
        methods.sort_by(|a, b| method_order(a, b));
        assert_eq!(methods, ["LoRA", "AdaLoRA", "BayesLoRA", "mine", "yours"]);
    }
}
