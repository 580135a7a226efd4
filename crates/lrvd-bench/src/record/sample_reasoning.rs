//! A made-up but plausible set of results of the reasoning suite for tests: twenty methods, two tasks, two seeds.

use std::collections::BTreeMap;

use super::checkpoint::{
    CheckpointRecord, Checkpoints, Metrics, OodRecord, Reliability, StatisticRecord,
};
use super::draws::Draws;
use super::results::{
    DataOrigin, EvalPoint, ModelRecord, ParameterCounts, RankBudget, Results, RunRecord, RunStatus,
    SCHEMA_VERSION, TaskData, Tool,
};
use super::sample::{INITIAL_RANK, energy, reliability, selective, split, statistics};
use super::{RankCause, RankEvent};

/// What is made up of one method.
struct Made {
    name: &'static str,
    /// Added to the accuracy of the task.
    shift: f64,
    /// Confidence minus accuracy of the deterministic answer.
    over: f64,
    /// The same at ten draws; none for a method without draws.
    over_drawn: Option<f64>,
    /// Times the parameters of one adapter, what is kept beside them included.
    size: f64,
    /// Times the training time of LoRA.
    cost: f64,
    /// Share of the ranks that is left; none for a method that keeps them all and has no statistic.
    kept: Option<f64>,
}

const fn made(
    name: &'static str,
    shift: f64,
    over: f64,
    over_drawn: Option<f64>,
    size: f64,
    cost: f64,
    kept: Option<f64>,
) -> Made {
    Made { name, shift, over, over_drawn, size, cost, kept }
}

const METHODS: [Made; 20] = [
    made("LoRA", 0.0, 0.21, None, 1.0, 1.0, None),
    made("MAP", 0.002, 0.20, None, 1.0, 1.0, None),
    made("MCD", 0.001, 0.19, Some(0.15), 1.0, 1.1, None),
    made("ENS-3", 0.010, 0.13, None, 3.0, 3.0, None),
    made("ENS-10", 0.018, 0.10, None, 10.0, 10.0, None),
    made("LoRA-Ensemble", 0.012, 0.12, None, 4.0, 3.6, None),
    made("BBB", -0.03, 0.16, Some(0.08), 2.0, 1.6, None),
    made("LAP", 0.0, 0.21, Some(0.04), 1.0, 1.2, None),
    made("LAP-last", 0.0, 0.21, Some(0.11), 1.0, 1.1, None),
    made("SWAG", 0.004, 0.18, Some(0.12), 7.0, 1.3, None),
    made("MultiSWAG", 0.013, 0.11, None, 21.0, 3.9, None),
    made("TFB", -0.002, 0.21, Some(0.09), 1.0, 1.05, None),
    made("BLoB", -0.008, 0.12, Some(0.05), 1.48, 1.9, None),
    made("ScalaBL", -0.004, 0.15, Some(0.07), 1.01, 1.5, None),
    made("C-LoRA", -0.012, 0.14, Some(0.06), 5.3, 1.8, None),
    made("BayesLoRA", 0.006, 0.20, Some(0.085), 1.0, 1.4, Some(0.62)),
    made("BayesLoRA-fixed", 0.003, 0.20, Some(0.09), 1.0, 1.4, Some(1.0)),
    made("LRVD-NTS", -0.001, 0.19, Some(0.10), 1.0, 1.4, Some(0.8)),
    made("BayesLoRA-expanded", 0.008, 0.22, Some(0.12), 1.48, 1.7, Some(0.7)),
    made("LoRA+TS", 0.0, 0.03, None, 1.0, 1.0, None),
];

const DRAWS: [u32; 4] = [1, 2, 5, 10];
const STEPS: u64 = 800;
const ROWS: u64 = 500;
/// Parameters of one adapter at the initial rank, and of the log-variances.
const ADAPTER: u64 = 13_568;
const POSTERIOR: u64 = 88;
const CLASSES: f64 = 4.0;

impl Made {
    /// SWAG keeps a mean and five deviations of every parameter beside it.
    const KEPT: f64 = 6.0;

    /// Adapters that are trained.
    fn trained(&self) -> f64 {
        if self.name.ends_with("SWAG") { self.size / (1.0 + Self::KEPT) } else { self.size.round() }
    }

    /// Numbers kept beside the trained ones: moments, a noise level, a temperature.
    fn stored(&self) -> u64 {
        match self.name {
            "SWAG" | "MultiSWAG" => (Self::KEPT * self.trained() * ADAPTER as f64) as u64,
            "TFB" | "LoRA+TS" => 1,
            _ => 0,
        }
    }
}

fn modules() -> Vec<String> {
    let path = |layer: u32, kind: &str| format!("model.layers.{layer}.self_attn.{kind}");
    (0..5)
        .flat_map(|layer| ["q_proj", "v_proj"].map(|kind| path(layer, kind)))
        .chain(["lm_head".to_owned()])
        .collect()
}

fn ranks(kept: f64, draws: &mut Draws) -> BTreeMap<String, u32> {
    let all = f64::from(INITIAL_RANK);
    let mut rank = |i: usize| {
        if kept < 1.0 {
            (all * (kept + 0.05 * (i % 4) as f64 - 0.08) + draws.around(0.0, 1.5)).clamp(0.0, all)
        } else {
            all
        }
    };
    modules().into_iter().enumerate().map(|(i, path)| (path, rank(i).round() as u32)).collect()
}

fn metrics(accuracy: f64, over: f64, draws: u32) -> Metrics {
    let wrong = 1.0 - accuracy;
    Metrics {
        n: ROWS,
        accuracy: Some(accuracy),
        macro_f1: Some(accuracy - 0.008),
        standard: BTreeMap::from([("accuracy".into(), accuracy)]),
        nll: Some(0.25 + 1.6 * wrong + 4.5 * over * over + 0.8 * over),
        ece: Some(over.abs()),
        brier: Some(1.3 * wrong + 1.6 * over * over),
        entropy: Some(0.55 - over),
        mutual_information: (draws > 0).then_some(0.03 + 0.2 / (1.0 + 40.0 * over)),
    }
}

/// Over-confidence at a number of draws: it falls towards that at ten.
fn over_at(method: &Made, k: u32) -> f64 {
    let end = method.over_drawn.unwrap_or(method.over);
    match k {
        0 => method.over,
        k => end + (method.over - end) * 0.8 / f64::from(k) - 0.08 * (method.over - end) / 10.0,
    }
}

fn checkpoint(method: &Made, task: &str, accuracy: f64, event: &RankEvent) -> CheckpointRecord {
    let mut draws = Draws((event.step + event.total_rank * 77 + method.name.len() as u64) << 24);
    draws.unit();
    let shown: &[u32] = if method.over_drawn.is_some() { &DRAWS } else { &[] };
    let ks = || std::iter::once(0).chain(shown.iter().copied());
    let jitter = if task == "obqa" { 1.0 } else { 0.7 };
    let lost = |k: u32| if k == 0 { 0.0 } else { 0.02 / f64::from(k) };
    let ranks = event.ranks.clone();
    let energies = ranks.iter().filter(|(_, r)| **r > 1).map(|(p, r)| (p.clone(), energy(*r)));
    let statistic: Option<StatisticRecord> =
        method.kept.map(|_| statistics("BayesLoRA", &ranks, &mut draws));
    CheckpointRecord {
        step: event.step,
        total_rank: event.total_rank,
        average_rank: event.total_rank as f64 / ranks.len() as f64,
        percent_rank: 100.0 * event.total_rank as f64
            / (ranks.len() as f64 * f64::from(INITIAL_RANK)),
        metrics: ks()
            .map(|k| (k, metrics(accuracy - lost(k), jitter * over_at(method, k), k)))
            .collect(),
        reliability: ks()
            .filter(|k| [0, 10].contains(k))
            .map(|k| {
                let bins = reliability(accuracy, k, &mut draws);
                (k, Reliability { ece: jitter * over_at(method, k), ..bins })
            })
            .collect(),
        selective: ks()
            .map(|k| (k, selective(accuracy, 1.0 + 0.6 / (1.0 + 10.0 * over_at(method, k)))))
            .collect(),
        predict_seconds: ks()
            .map(|k| (k, 1.9 * f64::from(k.max(1)) * method.size.sqrt()))
            .collect(),
        energy: if method.kept.is_some() { energies.collect() } else { BTreeMap::new() },
        statistics: statistic,
        ranks,
    }
}

fn ood(method: &Made, draws: &mut Draws) -> BTreeMap<String, BTreeMap<u32, OodRecord>> {
    let mut sets = BTreeMap::new();
    for (set, level) in [("arc-e", 0.62), ("arc-c", 0.71)] {
        let shown: &[u32] = if method.over_drawn.is_some() { &DRAWS } else { &[] };
        let record = |k: u32, draws: &mut Draws| OodRecord {
            n: 299,
            auroc_entropy: draws.around(level + 0.1 * (0.2 - over_at(method, k)), 0.03),
            auroc_mutual_information: (k > 1).then(|| draws.around(level + 0.03, 0.04)),
        };
        let by_draws = std::iter::once(0).chain(shown.iter().copied());
        sets.insert(set.to_owned(), by_draws.map(|k| (k, record(k, draws))).collect());
    }
    sets
}

fn run(task: (&str, f64), method: &Made, seed: u64) -> RunRecord {
    let mut draws =
        Draws((seed * 7919 + task.0.len() as u64 * 31 + method.name.len() as u64 * 13) << 30);
    draws.unit();
    let accuracy = draws.around(task.1 + method.shift, 0.01);
    let start = ranks(1.0, &mut draws);
    let end = ranks(method.kept.unwrap_or(1.0), &mut draws);
    let total = |ranks: &BTreeMap<String, u32>| ranks.values().map(|r| u64::from(*r)).sum::<u64>();
    let event = |step: u64, cause: RankCause, ranks: &BTreeMap<String, u32>| RankEvent {
        step,
        cause,
        total_rank: total(ranks),
        ranks: ranks.clone(),
    };
    let mut rank_events = vec![event(0, RankCause::Start, &start)];
    if end != start {
        rank_events.push(event(STEPS / 2, RankCause::Prune, &end));
    }
    let history = (0..=10_u64).map(|i| {
        let done = i as f64 / 10.0;
        EvalPoint {
            step: i * STEPS / 10,
            loss: (i > 0).then_some(1.4 - 0.9 * done),
            nll: (i > 0).then_some(1.38 - 0.9 * done),
            kl: method.kept.map(|_| 9.0e3 * (1.0 - 0.3 * done)),
            kl_weight: method.kept.map(|_| 1e-5),
            learning_rate: 1e-4 * (1.0 - done),
            accuracy: Some(accuracy - 0.4 * (-5.0 * done).exp() + draws.around(0.0, 0.01)),
            standard: Some(accuracy - 0.4 * (-5.0 * done).exp()),
            nll_val: Some(1.2 - 0.5 * done + method.over * done * done),
            total_rank: if i < 5 { total(&start) } else { total(&end) },
        }
    });
    let share = total(&end) as f64 / total(&start) as f64;
    let last = event(STEPS, RankCause::Prune, &end);
    let best = event(STEPS - 160, RankCause::Prune, &end);
    let has_best = method.size < 3.0 && !method.name.starts_with("LAP") && method.name != "TFB";
    RunRecord {
        task: task.0.into(),
        method: method.name.into(),
        seed,
        status: RunStatus::Finished,
        rank_budget: RankBudget {
            initial_rank: INITIAL_RANK,
            requested: None,
            n_modules: modules().len() as u32,
            note: "the settings' rank".into(),
        },
        steps: STEPS,
        checkpoints: Checkpoints {
            last: Some(checkpoint(method, task.0, accuracy, &last)),
            best: has_best.then(|| checkpoint(method, task.0, accuracy + 0.006, &best)),
        },
        fitted: BTreeMap::new(),
        history: history.collect(),
        rank_events,
        train_seconds: 46.0 * method.cost + seed as f64,
        evaluate_seconds: 9.0,
        peak_memory_bytes: Some((410 + (20.0 * method.size) as u64) << 20),
        trainable_parameters: ParameterCounts {
            adapter: (ADAPTER as f64 * method.trained() * share) as u64,
            posterior: match (method.kept, method.over_drawn) {
                (Some(kept), _) => (POSTERIOR as f64 * kept) as u64,
                (None, Some(_)) => ((method.size.fract()) * ADAPTER as f64) as u64,
                _ => 0,
            },
            head: 0,
            stored: method.stored(),
        },
        ood: if task.0 == "obqa" { ood(method, &mut draws) } else { BTreeMap::new() },
    }
}

fn data(task: &str) -> TaskData {
    TaskData {
        train: split(&format!("{task}/train.jsonl"), 4957, DataOrigin::Official),
        validation: split(&format!("{task}/localdev.jsonl"), ROWS, DataOrigin::LocalDev),
        standard_metric: "accuracy".into(),
        note: String::new(),
    }
}

/// The sample.
pub(crate) fn sample_reasoning() -> Results {
    let tasks = [("arc-e", 0.71), ("obqa", 0.58)];
    let mut runs = Vec::new();
    for task in tasks {
        for method in &METHODS {
            runs.extend((1..=2).map(|seed| run(task, method, seed)));
        }
    }
    Results {
        schema_version: SCHEMA_VERSION,
        suite: "reasoning".into(),
        tool: Tool {
            name: "lrvd".into(),
            version: "0.1.0".into(),
            git_revision: Some("0123abc".into()),
        },
        profile: "quick".into(),
        preset: "default".into(),
        command: "cargo xtask reasoning --profile quick --seeds 1,2".into(),
        device: "cpu, 2 threads".into(),
        started_at: "2026-11-21T10:00:00Z".into(),
        finished_at: "2026-11-21T11:12:31Z".into(),
        config: serde_json::json!({
            "prompt": "clean", "learning_rate": 1e-4, "batch_size": 4, "draws": DRAWS,
            "targets": ["q_proj", "v_proj", "lm_head"], "initial_rank": INITIAL_RANK, "classes": CLASSES,
        }),
        model: ModelRecord {
            name: "stories260K (shipped)".into(),
            path: "assets/stories260K".into(),
            weights: BTreeMap::from([("stories260K.bin".into(), "cd".repeat(32))]),
            parameters: 260_032,
            notes: vec!["llama2.c layout, f32".into()],
        },
        data: tasks.iter().map(|(task, _)| ((*task).to_owned(), data(task))).collect(),
        runs,
        notes: vec!["The numbers of this sample are made up.".into()],
    }
}

/// The sample over all six sets of the suite.
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
