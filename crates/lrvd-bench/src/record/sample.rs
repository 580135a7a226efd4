//! Made-up but plausible results for tests: of GLUE with three methods, and of the reasoning suite with twenty.

use std::collections::BTreeMap;

use lrvd_burn::train::{Choice, ChoicePoint};
use lrvd_core::noise::{Draws, NoiseKey, module_id};

use super::results::{
    BinRecord, CheckpointRecord, Checkpoints, DataFile, DataOrigin, EnergyAuc, EnergyRecord,
    EvalPoint, Metrics, ModelRecord, OodRecord, ParameterCounts, RankBudget, Reliability, Results,
    RunRecord, RunStatus, SCHEMA_VERSION, SelectiveRecord, SelectiveTarget, SplitRecord,
    StatisticRecord, TaskData, Tool,
};
use super::{RankCause, RankEvent};

/// What is made up of one method: its name; what is added to the accuracy of the task; confidence minus accuracy of
/// the deterministic answer, and of that at ten draws; adapters that are trained; share of the ranks that is left,
/// where there is a statistic.
type Made = (&'static str, f64, f64, Option<f64>, f64, Option<f64>);

const FEW: [Made; 3] = [
    ("LoRA", 0.0, 0.16, None, 1.0, None),
    ("AdaLoRA", 0.008, 0.16, None, 1.0, Some(0.5)),
    ("BayesLoRA", 0.014, 0.16, Some(0.05), 1.0, Some(0.4)),
];

const MANY: [Made; 20] = [
    ("LoRA", 0.0, 0.21, None, 1.0, None),
    ("MAP", 0.002, 0.20, None, 1.0, None),
    ("MCD", 0.001, 0.19, Some(0.15), 1.0, None),
    ("ENS-3", 0.010, 0.13, None, 3.0, None),
    ("ENS-10", 0.018, 0.10, None, 10.0, None),
    ("LoRA-Ensemble", 0.012, 0.12, None, 4.0, None),
    ("BBB", -0.03, 0.16, Some(0.08), 2.0, None),
    ("LAP", 0.0, 0.21, Some(0.04), 1.0, None),
    ("LAP-last", 0.0, 0.21, Some(0.11), 1.0, None),
    ("SWAG", 0.004, 0.18, Some(0.12), 1.0, None),
    ("MultiSWAG", 0.013, 0.11, None, 3.0, None),
    ("TFB", -0.002, 0.21, Some(0.09), 1.0, None),
    ("BLoB", -0.008, 0.12, Some(0.05), 1.48, None),
    ("ScalaBL", -0.004, 0.15, Some(0.07), 1.01, None),
    ("C-LoRA", -0.012, 0.14, Some(0.06), 5.3, None),
    ("BayesLoRA", 0.006, 0.20, Some(0.085), 1.0, Some(0.62)),
    ("BayesLoRA-fixed", 0.003, 0.20, Some(0.09), 1.0, Some(1.0)),
    ("LRVD-NTS", -0.001, 0.19, Some(0.10), 1.0, Some(0.8)),
    ("BayesLoRA-expanded", 0.008, 0.22, Some(0.12), 1.48, Some(0.7)),
    ("LoRA+TS", 0.0, 0.03, None, 1.0, None),
];

const INITIAL_RANK: u32 = 8;
const STEPS: u64 = 800;

/// One suite's tasks, with the accuracy that is usual there, methods, adapted modules and numbers of draws.
struct Suite {
    name: &'static str,
    tasks: &'static [(&'static str, f64)],
    methods: &'static [Made],
    seeds: u64,
    draws: &'static [u32],
    modules: Vec<String>,
}

impl Suite {
    fn glue() -> Self {
        let kinds = ["attention.self.query_proj", "attention.self.value_proj", "output.dense"];
        let path = |layer: u32, kind: &str| format!("deberta.encoder.layer.{layer}.{kind}");
        Self {
            name: "glue",
            tasks: &[("cola", 0.86), ("rte", 0.70), ("stsb", 0.88)],
            methods: &FEW,
            seeds: 3,
            draws: &[10],
            modules: (0..4).flat_map(|layer| kinds.map(|kind| path(layer, kind))).collect(),
        }
    }

    fn reasoning() -> Self {
        let path = |layer: u32, kind: &str| format!("model.layers.{layer}.self_attn.{kind}");
        let layers = (0..5).flat_map(|layer| ["q_proj", "v_proj"].map(|kind| path(layer, kind)));
        Self {
            name: "reasoning",
            tasks: &[("arc-e", 0.71), ("obqa", 0.58)],
            methods: &MANY,
            seeds: 2,
            draws: &[1, 2, 5, 10],
            modules: layers.chain(["lm_head".to_owned()]).collect(),
        }
    }

    fn results(&self) -> Results {
        let mut runs = Vec::new();
        for task in self.tasks {
            for method in self.methods {
                runs.extend((1..=self.seeds).map(|seed| self.run(*task, *method, seed)));
            }
        }
        Results {
            schema_version: SCHEMA_VERSION,
            suite: self.name.into(),
            tool: Tool {
                name: "lrvd".into(),
                version: "0.1.0".into(),
                git_revision: Some("0123abc".into()),
            },
            profile: "quick".into(),
            preset: "default".into(),
            command: format!("cargo xtask {} --profile quick", self.name),
            device: "cpu, 2 threads".into(),
            started_at: "2026-11-21T10:00:00Z".into(),
            finished_at: "2026-11-21T10:41:07Z".into(),
            config: serde_json::json!({ "learning_rate": 1e-3, "draws": self.draws }),
            model: ModelRecord {
                name: "nano".into(),
                path: "checkpoints/nano".into(),
                weights: BTreeMap::from([("model.safetensors".into(), "ab".repeat(32))]),
                parameters: 3_400_000,
                notes: vec!["f16 on disk, f32 in memory".into()],
            },
            data: self.tasks.iter().map(|(task, _)| ((*task).to_owned(), data(task))).collect(),
            runs,
            notes: vec!["The numbers of this sample are made up.".into()],
        }
    }

    /// Numbers of draws that a method answers with, and the confidence minus accuracy there.
    fn answers(&self, (_, _, over, drawn, ..): Made) -> Vec<(u32, f64)> {
        let shown = if drawn.is_some() { self.draws } else { &[] };
        let end = drawn.unwrap_or(over);
        let at = |&k: &u32| (k, end + (over - end) * 0.8 * (1.0 / f64::from(k) - 0.1));
        std::iter::once((0, over)).chain(shown.iter().map(at)).collect()
    }

    fn run(&self, (task, usual): (&str, f64), method: Made, seed: u64) -> RunRecord {
        let (name, shift, over, _, size, kept) = method;
        let key = NoiseKey::new(seed).for_module(module_id(&format!("{task}/{name}")));
        let draws = &mut Draws::new(key);
        let accuracy = around(draws, usual + shift, 0.01);
        let start = self.ranks(1.0, draws);
        let end = self.ranks(kept.unwrap_or(1.0), draws);
        let event = |step: u64, cause: RankCause, ranks: &BTreeMap<String, u32>| RankEvent {
            step,
            cause,
            total_rank: total(ranks),
            ranks: ranks.clone(),
        };
        let mut rank_events = vec![event(0, RankCause::Start, &start)];
        rank_events.extend((end != start).then(|| event(STEPS / 2, RankCause::Prune, &end)));
        let (regression, bayes) = (task == "stsb", kept.is_some() && name != "AdaLoRA");
        let history = (0..=10_u64).map(|i| {
            let done = i as f64 / 10.0;
            let score = accuracy - 0.4 * (-5.0 * done).exp() + around(draws, 0.0, 0.01);
            EvalPoint {
                step: i * STEPS / 10,
                loss: (i > 0).then_some(1.4 - 0.9 * done),
                nll: (i > 0).then_some(1.38 - 0.9 * done),
                kl: bayes.then_some(9.0e3 * (1.0 - 0.3 * done)),
                kl_weight: bayes.then_some(1e-5),
                learning_rate: 1e-4 * (1.0 - done),
                accuracy: (!regression).then_some(score),
                standard: Some(score),
                nll_val: (!regression).then_some(1.2 - 0.5 * done + over * done * done),
                total_rank: total(if i < 5 { &start } else { &end }),
            }
        });
        let history = history.collect();
        let adapter = 13_568.0 * size * total(&end) as f64 / total(&start) as f64;
        let trainable_parameters = match self.name {
            "glue" => ParameterCounts {
                adapter: 98_304,
                posterior: if bayes { 192 } else { 0 },
                head: 37_442,
                stored: 0,
            },
            _ => ParameterCounts {
                adapter: adapter as u64,
                posterior: kept.map_or(0, |kept| (88.0 * kept) as u64),
                head: 0,
                // A mean and five deviations of every parameter.
                stored: if name.ends_with("SWAG") { (6.0 * adapter) as u64 } else { 0 },
            },
        };
        let fitted_after = ["LAP", "LAP-last", "TFB", "LoRA+TS"].contains(&name) || size >= 3.0;
        let last = event(STEPS, RankCause::Prune, &end);
        let best = event(STEPS - 160, RankCause::Prune, &end);
        let ood = if task == "obqa" { self.ood(method, draws) } else { BTreeMap::new() };
        let mut checkpoint =
            |accuracy, event| self.checkpoint(task, method, accuracy, event, draws);
        RunRecord {
            task: task.into(),
            method: name.into(),
            seed,
            status: RunStatus::Finished,
            rank_budget: RankBudget {
                initial_rank: INITIAL_RANK,
                requested: (name == "AdaLoRA").then_some(4.0),
                n_modules: self.modules.len() as u32,
                note: "the settings' rank".into(),
            },
            steps: STEPS,
            checkpoints: Checkpoints {
                last: Some(checkpoint(accuracy, &last)),
                best: (!fitted_after).then(|| checkpoint(accuracy + 0.006, &best)),
            },
            train_seconds: 46.0 * size + seed as f64,
            evaluate_seconds: 9.0,
            peak_memory_bytes: Some((410 + (20.0 * size) as u64) << 20),
            trainable_parameters,
            fitted: BTreeMap::new(),
            history,
            rank_events,
            choice: (end != start && bayes).then(|| choice(total(&start), total(&end))),
            ood,
        }
    }

    fn ranks(&self, kept: f64, draws: &mut Draws) -> BTreeMap<String, u32> {
        let all = f64::from(INITIAL_RANK);
        let mut rank = |i: usize| match kept {
            1.0 => all,
            _ => around(draws, all * (kept + 0.05 * (i % 4) as f64 - 0.08), 1.5).clamp(0.0, all),
        };
        let paths = self.modules.iter().enumerate();
        paths.map(|(i, path)| (path.clone(), rank(i).round() as u32)).collect()
    }

    fn checkpoint(
        &self,
        task: &str,
        method: Made,
        accuracy: f64,
        event: &RankEvent,
        draws: &mut Draws,
    ) -> CheckpointRecord {
        let (name, .., size, kept) = method;
        let answers = self.answers(method);
        let regression = task == "stsb";
        let classes: &[(u32, f64)] = if regression { &[] } else { &answers };
        let average_rank = event.total_rank as f64 / event.ranks.len() as f64;
        let energies = event.ranks.iter().filter(|(_, rank)| kept.is_some() && **rank > 1);
        CheckpointRecord {
            step: event.step,
            ranks: event.ranks.clone(),
            total_rank: event.total_rank,
            average_rank,
            percent_rank: 100.0 * average_rank / f64::from(INITIAL_RANK),
            metrics: answers
                .iter()
                .map(|&(k, over)| (k, metrics(task, accuracy, over, k)))
                .collect(),
            reliability: classes.iter().map(|&(k, over)| (k, reliability(over, draws))).collect(),
            selective: classes.iter().map(|&(k, over)| (k, selective(accuracy, over))).collect(),
            predict_seconds: answers
                .iter()
                .map(|&(k, _)| (k, 1.9 * f64::from(k.max(1)) * size.sqrt()))
                .collect(),
            statistics: kept.map(|_| statistics(name, &event.ranks, draws)),
            energy: energies.map(|(path, rank)| (path.clone(), energy(*rank))).collect(),
        }
    }

    fn ood(&self, method: Made, draws: &mut Draws) -> BTreeMap<String, BTreeMap<u32, OodRecord>> {
        let mut record = |(k, over): (u32, f64), level: f64| OodRecord {
            n: 299,
            auroc_entropy: around(draws, level + 0.1 * (0.2 - over), 0.03),
            auroc_mutual_information: (k > 1).then(|| around(draws, level + 0.03, 0.04)),
            accuracy: Some(level - 0.2),
            nll: Some(1.9 - level + over),
            ece: Some(over),
        };
        [("arc-e", 0.62), ("arc-c", 0.71)]
            .map(|(set, level)| {
                let answers = self.answers(method).into_iter();
                (set.to_owned(), answers.map(|at| (at.0, record(at, level))).collect())
            })
            .into()
    }
}

fn around(draws: &mut Draws, centre: f64, width: f64) -> f64 {
    centre + width * (draws.uniform() + draws.uniform() - 1.0)
}

fn total(ranks: &BTreeMap<String, u32>) -> u64 {
    ranks.values().map(|rank| u64::from(*rank)).sum()
}

fn metrics(task: &str, accuracy: f64, over: f64, draws: u32) -> Metrics {
    let standard = match task {
        "stsb" => vec![("pearson", accuracy), ("spearman", accuracy - 0.004)],
        "cola" => vec![("matthews", 2.6 * accuracy - 1.65)],
        _ => vec![("accuracy", accuracy)],
    };
    let class = |x: f64| (task != "stsb").then_some(x);
    Metrics {
        n: 500,
        accuracy: class(accuracy),
        macro_f1: class(accuracy - 0.008),
        standard: standard.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        nll: class(0.25 + 1.6 * (1.0 - accuracy) + 0.8 * over),
        ece: class(over.abs()),
        brier: class(1.3 * (1.0 - accuracy) + 1.6 * over * over),
        entropy: class(0.55 - over),
        mutual_information: class(0.03 + 0.2 / (1.0 + 40.0 * over)).filter(|_| draws > 0),
    }
}

fn reliability(over: f64, draws: &mut Draws) -> Reliability {
    let bins = (7..15_u32).map(|b| {
        let (low, high) = (f64::from(b) / 15.0, f64::from(b + 1) / 15.0);
        let confidence = f64::midpoint(low, high);
        let accuracy = confidence - over * (confidence - 0.3) + around(draws, 0.0, 0.06);
        let count = (8.0 * f64::from(b - 6).powi(2) + 20.0 * draws.uniform()) as u64;
        BinRecord { low, high, count, accuracy: accuracy.clamp(0.0, 1.0), confidence }
    });
    Reliability { convention: "torchmetrics".into(), ece: over.abs(), bins: bins.collect() }
}

/// Risk against coverage of a model that is right more often where it is sure.
fn selective(accuracy: f64, over: f64) -> SelectiveRecord {
    let sharpness = 1.0 + 0.6 / (1.0 + 10.0 * over);
    let risk = |coverage: f64| (1.0 - accuracy) * coverage.powf(sharpness);
    let curve = (1..=50).map(|i| (f64::from(i) / 50.0, risk(f64::from(i) / 50.0))).collect();
    let targets = [0.01, 0.05, 0.1, 0.2].map(|risk: f64| {
        let coverage = (risk / (1.0 - accuracy)).powf(1.0 / sharpness).min(1.0);
        let threshold = (coverage > 0.02).then_some(1.0 - 0.5 * coverage);
        SelectiveTarget { risk, threshold, coverage: threshold.map_or(0.0, |_| coverage) }
    });
    SelectiveRecord { area: (1.0 - accuracy) / (1.0 + sharpness), targets: targets.to_vec(), curve }
}

fn statistics(method: &str, ranks: &BTreeMap<String, u32>, draws: &mut Draws) -> StatisticRecord {
    let (name, threshold, low, high, width) = match method {
        "AdaLoRA" => ("importance", None, 0.8, 0.15, 0.12),
        _ => ("log_alpha", Some(4.0), -1.2, 5.2, 2.4),
    };
    let mut sorted = |n: u32, centre: f64, width: f64| {
        let mut list: Vec<f64> = (0..n).map(|_| around(draws, centre, width)).collect();
        list.sort_by(f64::total_cmp);
        list
    };
    let (mut present, mut removed) = (BTreeMap::new(), BTreeMap::new());
    for (path, rank) in ranks {
        present.insert(path.clone(), sorted(*rank, low, width));
        removed.insert(path.clone(), sorted(INITIAL_RANK - *rank, high, width / 2.2));
    }
    StatisticRecord { name: name.into(), threshold, present, removed }
}

fn energy(rank: u32) -> EnergyRecord {
    let [svd, learned, magnitude, random_mean] = [4.0, 3.2, 3.0, 1.3].map(|power| {
        let left = |k: u32| 1.0 - f64::from(k) / f64::from(rank);
        (0..=rank).map(|k| 1.0 - left(k).powf(power)).collect::<Vec<f64>>()
    });
    let area = |curve: &[f64]| (curve.iter().sum::<f64>() - 0.5) / f64::from(rank);
    let (bound, order, random) = (area(&svd), area(&learned), area(&random_mean));
    let auc = EnergyAuc {
        svd: bound,
        learned: order,
        magnitude: area(&magnitude),
        random,
        normalised_gap: Some((order - random) / (bound - random)),
    };
    EnergyRecord { definition: "residual".into(), svd, learned, magnitude, random_mean, auc }
}

fn data(task: &str) -> TaskData {
    let (train, dev) = match task {
        "rte" => (DataOrigin::Subset, DataOrigin::LocalDev),
        "cola" | "stsb" => (DataOrigin::Official, DataOrigin::Official),
        _ => (DataOrigin::Official, DataOrigin::LocalDev),
    };
    let split = |name: &str, rows: u64, origin: DataOrigin| SplitRecord {
        files: vec![DataFile { path: format!("{task}/{name}"), sha256: format!("{rows:064x}") }],
        rows,
        origin,
    };
    let metric = match task {
        "cola" => "matthews",
        "stsb" => "pearson",
        _ => "accuracy",
    };
    TaskData {
        train: split("train", 4957, train),
        validation: split("dev", 500, dev),
        standard_metric: metric.into(),
        note: String::new(),
    }
}

/// GLUE with three methods, three tasks and three seeds.
pub(crate) fn sample_results() -> Results {
    Suite::glue().results()
}

/// The reasoning suite with twenty methods, two tasks and two seeds.
pub(crate) fn sample_reasoning() -> Results {
    Suite::reasoning().results()
}

pub(crate) fn six_tasks() -> Results {
    let mut results = sample_reasoning();
    let obqa: Vec<RunRecord> = results.runs.iter().filter(|r| r.task == "obqa").cloned().collect();
    for task in ["arc-c", "boolq", "wg-m", "wg-s"] {
        results.data.insert(task.to_owned(), data(task));
        results.runs.extend(obqa.iter().map(|run| RunRecord {
            task: task.to_owned(),
            ood: BTreeMap::new(),
            ..run.clone()
        }));
    }
    results
}

/// Sets accuracy at the last and the best checkpoint, seed by seed.
pub(crate) fn set_accuracy(results: &mut Results, task: &str, method: &str, values: &[(f64, f64)]) {
    let runs = results.runs.iter_mut().filter(|run| run.task == task && run.method == method);
    for (run, (last, best)) in runs.zip(values) {
        for (record, value) in
            [(&mut run.checkpoints.last, last), (&mut run.checkpoints.best, best)]
        {
            let metrics = record.as_mut().and_then(|record| record.metrics.get_mut(&0));
            metrics.expect("every checkpoint has metrics").accuracy = Some(*value);
        }
    }
}

/// A search for ranks that kept `end` of `start`.
fn choice(start: u64, end: u64) -> Choice {
    let point = |total_rank: u64, difference: f64| ChoicePoint {
        total_rank: total_rank as usize,
        loss: 0.6 + difference,
        difference,
        upper: 2.0 * difference,
    };
    Choice {
        step: STEPS as usize,
        rows: 800,
        margin: 0.01,
        points: vec![point(start, 0.0), point(end, 0.002), point(end / 2, 0.03)],
        chosen: 1,
        refined: Some(point(end, 0.001)),
    }
}
