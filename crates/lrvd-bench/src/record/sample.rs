//! Results for tests, from the files in `sample/`.

use std::collections::BTreeMap;

use super::results::{Results, RunRecord};

fn read(file: &[u8]) -> Results {
    serde_json::from_reader(flate2::read::GzDecoder::new(file)).expect("a results file")
}

/// GLUE with three methods, three tasks and three seeds.
pub(crate) fn sample_results() -> Results {
    read(include_bytes!("sample/glue.json.gz"))
}

/// The reasoning suite with twenty methods, two tasks and two seeds.
pub(crate) fn sample_reasoning() -> Results {
    read(include_bytes!("sample/reasoning.json.gz"))
}

/// The reasoning suite with all its tasks: the runs of OBQA under four more names.
pub(crate) fn six_tasks() -> Results {
    let mut results = sample_reasoning();
    let obqa: Vec<RunRecord> = results.runs.iter().filter(|r| r.task == "obqa").cloned().collect();
    let data = results.data["obqa"].clone();
    for task in ["arc-c", "boolq", "wg-m", "wg-s"] {
        results.data.insert(task.to_owned(), data.clone());
        results.runs.extend(obqa.iter().map(|run| RunRecord {
            task: task.to_owned(),
            baseline: None,
            ood: BTreeMap::new(),
            ..run.clone()
        }));
    }
    results
}

/// Plans the runs that there are.
pub(crate) fn plan_runs(results: &mut Results) {
    for run in &results.runs {
        let methods = results.planned.entry(run.task.clone()).or_default();
        *methods.entry(run.method.clone()).or_default() += 1;
    }
}

/// Sets the accuracy of `methods` at the last checkpoint, seed by seed, and at the best one to `best`.
pub(crate) fn set_accuracy<const N: usize>(
    results: &mut Results,
    task: &str,
    best: f64,
    methods: [(&str, [f64; 3]); N],
) {
    for (method, values) in methods {
        let runs = results.runs.iter_mut().filter(|run| run.task == task && run.method == method);
        for (run, last) in runs.zip(values) {
            let at = &mut run.checkpoints;
            for (record, value) in [(&mut at.last, last), (&mut at.best, best)] {
                let metrics = record.as_mut().and_then(|record| record.metrics.get_mut(&0));
                metrics.expect("every checkpoint has metrics").accuracy = Some(value);
            }
        }
    }
}
