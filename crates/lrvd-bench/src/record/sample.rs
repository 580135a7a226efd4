//! A made-up but plausible set of results for tests: three methods, three tasks, three seeds, 24 modules.

use std::collections::BTreeMap;

use super::checkpoint::{
    BinRecord, CheckpointRecord, Checkpoints, EnergyAuc, EnergyRecord, Metrics, Reliability,
    SelectiveRecord, SelectiveTarget, StatisticRecord,
};
use super::draws::Draws;
use super::results::{
    DataFile, DataOrigin, EvalPoint, ModelRecord, ParameterCounts, RankBudget, Results, RunRecord,
    RunStatus, SCHEMA_VERSION, SplitRecord, TaskData, Tool,
};
use super::{RankCause, RankEvent};

const KINDS: [&str; 6] = [
    "attention.self.query_proj",
    "attention.self.key_proj",
    "attention.self.value_proj",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
];
pub(crate) const INITIAL_RANK: u32 = 8;
const STEPS: u64 = 1200;
const EVERY: u64 = 60;
const TASKS: [(&str, f64); 3] = [("cola", 0.86), ("rte", 0.70), ("stsb", 0.88)];

fn modules() -> Vec<String> {
    let path = |layer: usize, kind: &str| format!("deberta.encoder.layer.{layer}.{kind}");
    (0..4).flat_map(|layer| KINDS.iter().map(move |kind| path(layer, kind))).collect()
}

/// Ranks of all modules once a share of training is done: value and output projections of late layers keep most.
fn ranks_at(method: &str, done: f64, draws: &mut Draws) -> BTreeMap<String, u32> {
    let modules = modules().into_iter().enumerate();
    let rank = |index: usize, jitter: f64| -> u32 {
        let (layer, kind) = (index / 6, index % 6);
        let taste = if method == "AdaLoRA" {
            [0.4, 0.35, 0.7, 0.6, 0.5, 0.35]
        } else {
            [0.25, 0.3, 0.95, 0.8, 0.55, 0.02]
        };
        let keep = taste[kind] * (0.55 + 0.17 * layer as f64) + jitter;
        let floor = (f64::from(INITIAL_RANK) * keep).round().clamp(0.0, f64::from(INITIAL_RANK));
        match method {
            "LoRA" => 4,
            _ => (floor + (f64::from(INITIAL_RANK) - floor) * (1.0 - done).powi(3)).round() as u32,
        }
    };
    modules.map(|(i, path)| (path, rank(i, draws.around(0.0, 0.16)))).collect()
}

fn total(ranks: &BTreeMap<String, u32>) -> u64 {
    ranks.values().map(|rank| u64::from(*rank)).sum()
}

fn metrics(task: &str, score: f64, draws: u32) -> Metrics {
    let regression = task == "stsb";
    let shift = if draws > 0 { 0.35 } else { 1.0 };
    let standard = if regression {
        vec![("pearson", score), ("spearman", score - 0.004), ("mse", 2.2 * (1.0 - score))]
    } else if task == "cola" {
        vec![("mcc", 2.6 * score - 1.65)]
    } else {
        vec![("accuracy", score)]
    };
    let class = |x: f64| (!regression).then_some(x);
    Metrics {
        n: 1043,
        accuracy: class(score),
        macro_f1: class(score - 0.01),
        standard: standard.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        nll: class(0.3 + shift * (1.0 - score)),
        ece: class(0.02 + 0.3 * shift * (1.0 - score)),
        brier: class(1.7 * (1.0 - score)),
        entropy: class(0.4 - 0.2 * shift),
        mutual_information: (draws > 0 && !regression).then_some(0.021),
    }
}

pub(crate) fn reliability(score: f64, k: u32, draws: &mut Draws) -> Reliability {
    let over = if k > 0 { 0.05 } else { 0.16 };
    let bins: Vec<BinRecord> = (7..15_u32)
        .map(|b| {
            let confidence = (f64::from(b) + 0.5) / 15.0;
            let count = (8.0 * (1.0 + f64::from(b - 7)).powf(2.0) + 20.0 * draws.unit()) as u64;
            let accuracy =
                (confidence - over * (confidence - 0.3) + draws.around(0.0, 0.06)).clamp(0.0, 1.0);
            let (low, high) = (f64::from(b) / 15.0, f64::from(b + 1) / 15.0);
            BinRecord { low, high, count, accuracy, confidence }
        })
        .collect();
    let ece = over * 0.4 + 0.1 * (1.0 - score);
    Reliability { convention: "torchmetrics".into(), ece, bins }
}

/// Risk against coverage of a model that is right more often where it is sure.
pub(crate) fn selective(score: f64, sharpness: f64) -> SelectiveRecord {
    let risk = |coverage: f64| (1.0 - score) * coverage.powf(sharpness);
    let curve = (1..=50).map(|i| (f64::from(i) / 50.0, risk(f64::from(i) / 50.0))).collect();
    let targets = [0.01, 0.05, 0.1, 0.2].map(|target: f64| {
        let coverage = (target / (1.0 - score)).powf(1.0 / sharpness).min(1.0);
        let threshold = (coverage > 0.02).then_some(1.0 - 0.5 * coverage);
        SelectiveTarget {
            risk: target,
            threshold,
            coverage: if coverage > 0.02 { coverage } else { 0.0 },
        }
    });
    SelectiveRecord { area: (1.0 - score) / (1.0 + sharpness), targets: targets.to_vec(), curve }
}

pub(crate) fn statistics(
    method: &str,
    ranks: &BTreeMap<String, u32>,
    draws: &mut Draws,
) -> StatisticRecord {
    let sorted = |n: u32, centre: f64, width: f64, draws: &mut Draws| {
        let mut list: Vec<f64> = (0..n).map(|_| draws.around(centre, width)).collect();
        list.sort_by(f64::total_cmp);
        list
    };
    let bayes = method == "BayesLoRA";
    let mut present = BTreeMap::new();
    let mut removed = BTreeMap::new();
    for (path, rank) in ranks {
        let (low, high) = if bayes { (-1.2, 5.2) } else { (0.8, 0.15) };
        let width = if bayes { 2.4 } else { 0.12 };
        present.insert(path.clone(), sorted(*rank, low, width, draws));
        removed.insert(path.clone(), sorted(INITIAL_RANK - *rank, high, width / 2.2, draws));
    }
    let name = if bayes { "log_alpha" } else { "importance" };
    StatisticRecord { name: name.into(), threshold: bayes.then_some(4.0), present, removed }
}

pub(crate) fn energy(rank: u32) -> EnergyRecord {
    let curve = |power: f64| -> Vec<f64> {
        (0..=rank).map(|k| 1.0 - (1.0 - f64::from(k) / f64::from(rank)).powf(power)).collect()
    };
    let auc = |curve: &[f64]| {
        let inner: f64 = curve[1..curve.len() - 1].iter().sum();
        (inner + 0.5 * curve[curve.len() - 1]) / f64::from(rank)
    };
    let (svd, learned, magnitude, random_mean) = (curve(4.0), curve(3.2), curve(3.0), curve(1.3));
    let areas = [auc(&svd), auc(&learned), auc(&magnitude), auc(&random_mean)];
    let auc = EnergyAuc {
        svd: areas[0],
        learned: areas[1],
        magnitude: areas[2],
        random: areas[3],
        normalised_gap: Some((areas[1] - areas[3]) / (areas[0] - areas[3])),
    };
    EnergyRecord { definition: "residual".into(), svd, learned, magnitude, random_mean, auc }
}

fn checkpoint(task: &str, method: &str, score: f64, event: &RankEvent) -> CheckpointRecord {
    let mut draws = Draws(event.step + event.total_rank);
    let bayes = method == "BayesLoRA";
    let ks: &[u32] = if bayes { &[0, 10] } else { &[0] };
    let regression = task == "stsb";
    let with_energy =
        event.ranks.iter().filter(|(_, rank)| **rank > 1).map(|(p, r)| (p.clone(), energy(*r)));
    CheckpointRecord {
        step: event.step,
        ranks: event.ranks.clone(),
        total_rank: event.total_rank,
        average_rank: event.total_rank as f64 / 24.0,
        percent_rank: 100.0 * event.total_rank as f64 / (24.0 * f64::from(INITIAL_RANK)),
        metrics: ks.iter().map(|k| (*k, metrics(task, score, *k))).collect(),
        reliability: ks
            .iter()
            .filter(|_| !regression)
            .map(|k| (*k, reliability(score, *k, &mut draws)))
            .collect(),
        selective: ks
            .iter()
            .filter(|_| !regression)
            .map(|k| (*k, selective(score, if *k > 0 { 1.6 } else { 1.2 })))
            .collect(),
        predict_seconds: ks.iter().map(|k| (*k, 4.0 * f64::from((*k).max(1)))).collect(),
        statistics: (method != "LoRA").then(|| statistics(method, &event.ranks, &mut draws)),
        energy: if bayes { with_energy.collect() } else { BTreeMap::new() },
    }
}

fn run(task: (&str, f64), method: (&str, f64), seed: u64) -> RunRecord {
    let mut draws = Draws((seed * 7919 + task.0.len() as u64 * 31 + method.0.len() as u64) << 32);
    draws.unit();
    let ceiling = draws.around(task.1 + method.1, 0.012);
    let mut history = Vec::new();
    let mut rank_events: Vec<RankEvent> = Vec::new();
    for step in (0..=STEPS).step_by(EVERY as usize) {
        let done = step as f64 / STEPS as f64;
        let ranks = ranks_at(
            method.0,
            done,
            &mut Draws((seed * 31 + task.0.len() as u64 * 97 + method.0.len() as u64) << 30),
        );
        let total_rank = total(&ranks);
        let cause = if step == 0 { RankCause::Start } else { RankCause::Prune };
        if rank_events.last().is_none_or(|last| last.ranks != ranks) {
            rank_events.push(RankEvent { step, cause, ranks, total_rank });
        }
        let speed = 6.0 - 150.0 * method.1;
        let score = ceiling - 0.25 * (-speed * done).exp() + draws.around(0.0, 0.008);
        let trained = |x: f64| (step > 0).then_some(x);
        let bayes = |x: f64| (method.0 == "BayesLoRA").then_some(x);
        history.push(EvalPoint {
            step,
            loss: trained(0.7 - 0.4 * done),
            nll: trained(0.68 - 0.4 * done),
            kl: bayes(5.0e4 * (1.0 - 0.4 * done)),
            kl_weight: bayes(1e-6),
            learning_rate: 1e-3 * (1.0 - done),
            accuracy: (task.0 != "stsb").then_some(score),
            standard: Some(if task.0 == "cola" { 2.6 * score - 1.65 } else { score }),
            nll_val: (task.0 != "stsb").then_some(0.9 * (1.0 - score) + 0.12 * done * done),
            total_rank,
        });
    }
    let ranks = ranks_at(
        method.0,
        1.0,
        &mut Draws((seed * 31 + task.0.len() as u64 * 97 + method.0.len() as u64) << 30),
    );
    let last = RankEvent { step: STEPS, cause: RankCause::Prune, total_rank: total(&ranks), ranks };
    let best = RankEvent {
        step: STEPS - 240,
        ..rank_events[rank_events.len() - 2.min(rank_events.len())].clone()
    };
    let posterior = if method.0 == "BayesLoRA" { 192 } else { 0 };
    RunRecord {
        task: task.0.into(),
        method: method.0.into(),
        seed,
        status: RunStatus::Finished,
        rank_budget: RankBudget {
            initial_rank: INITIAL_RANK,
            requested: (method.0 == "AdaLoRA").then_some(4.0),
            n_modules: 24,
            note: "matched to BayesLoRA".into(),
        },
        steps: STEPS,
        checkpoints: Checkpoints {
            last: Some(checkpoint(task.0, method.0, ceiling, &last)),
            best: Some(checkpoint(task.0, method.0, ceiling + 0.006, &best)),
        },
        train_seconds: draws.around(190.0 + 60.0 * method.1 / 0.01, 6.0),
        evaluate_seconds: 41.0,
        peak_memory_bytes: Some((512 << 20) + (seed << 20)),
        trainable_parameters: ParameterCounts {
            adapter: 98_304,
            posterior,
            head: 37_442,
            stored: 0,
        },
        fitted: BTreeMap::new(),
        history,
        rank_events,
        ood: BTreeMap::new(),
    }
}

pub(crate) fn split(file: &str, rows: u64, origin: DataOrigin) -> SplitRecord {
    let sha256 = format!("{:064x}", rows * 0x9e37_79b9);
    SplitRecord { files: vec![DataFile { path: file.into(), sha256 }], rows, origin }
}

fn data(task: &str) -> TaskData {
    let (train, dev, metric) = match task {
        "rte" => (DataOrigin::Subset, DataOrigin::LocalDev, "accuracy"),
        "cola" => (DataOrigin::Official, DataOrigin::Official, "mcc"),
        _ => (DataOrigin::Official, DataOrigin::Official, "pearson"),
    };
    TaskData {
        train: split(&format!("{task}/train.tsv"), 8551, train),
        validation: split(&format!("{task}/dev.tsv"), 1043, dev),
        standard_metric: metric.into(),
        note: String::new(),
    }
}

/// The sample.
pub(crate) fn sample_results() -> Results {
    let methods = [("LoRA", 0.0), ("AdaLoRA", 0.008), ("BayesLoRA", 0.014)];
    let mut runs = Vec::new();
    for task in TASKS {
        for method in methods {
            runs.extend((1..=3).map(|seed| run(task, method, seed)));
        }
    }
    Results {
        schema_version: SCHEMA_VERSION,
        suite: "glue".into(),
        tool: Tool {
            name: "lrvd".into(),
            version: "0.1.0".into(),
            git_revision: Some("0123abc".into()),
        },
        profile: "quick".into(),
        preset: "default".into(),
        command: "cargo xtask glue --profile quick --seeds 1,2,3".into(),
        device: "cpu, 2 threads".into(),
        started_at: "2026-11-21T10:00:00Z".into(),
        finished_at: "2026-11-21T10:41:07Z".into(),
        config: serde_json::json!({
            "learning_rate": 1e-3, "batch_size": 32, "targets": ["query", "key", "value"],
            "prune": {"log_alpha_threshold": 4.0, "every": 60, "min_rank": 0}, "kl_weight": 1e-6,
        }),
        model: ModelRecord {
            name: "deberta-v3-nano".into(),
            path: "checkpoints/deberta-v3-nano".into(),
            weights: BTreeMap::from([("model.safetensors".into(), "ab".repeat(32))]),
            parameters: 3_400_000,
            notes: vec!["f16 on disk, f32 in memory".into()],
        },
        data: TASKS.iter().map(|(task, _)| ((*task).to_owned(), data(task))).collect(),
        runs,
        notes: vec!["The numbers of this sample are made up.".into()],
    }
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
