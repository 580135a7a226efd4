//! Pairs: what finds its partner, what does not, and what is said of it.

#![allow(clippy::unwrap_used)]

use super::{Comparison, ComparisonRow, compare};
use crate::record::sample::{sample_reasoning, sample_results, set_accuracy};
use crate::report::metric::Metric;
use crate::report::published::Published;
use crate::report::summary::CheckpointChoice;

const TABLE: &str = "metric,method,task,mean,std\naccuracy,LoRA,CoLA,0.625,0.25\naccuracy,LoRA,RTE,0.875,0.03\nrank,LoRA,CoLA,8,\naccuracy,LoRA,WNLI,0.5,\nperplexity,LoRA,CoLA,1,\n";

fn comparison() -> Comparison {
    let mut results = sample_results();
    set_accuracy(&mut results, "cola", "LoRA", &[(0.25, 0.0), (0.5, 0.0), (0.75, 0.0)]);
    set_accuracy(&mut results, "rte", "LoRA", &[(0.5, 0.0), (0.5, 0.0), (0.5, 0.0)]);
    let published = Published::parse(TABLE, "glue.csv").unwrap();
    compare(&results, &published, CheckpointChoice::Last)
}

#[test]
fn differences_and_standard_errors() {
    let comparison = comparison();
    assert_eq!(comparison.rows.len(), 4);
    assert_eq!(comparison.n_unmatched, 2);
    let first = &comparison.rows[0];
    assert_eq!((first.task.as_str(), first.difference), ("cola", Some(-0.125)));
    // Both deviations 0.25 at three seeds: -0.125 / (0.25 · sqrt(2/3)) = -0.612372...
    assert!((first.standard_errors.unwrap() + 0.612_372_435_695_794_5).abs() < 1e-12);
    assert_eq!(comparison.rows[3].standard_errors, None, "no published deviation");
    assert!(first.caveat.is_none());
    let rte = &comparison.rows[1];
    assert!(rte.caveat.as_ref().unwrap().contains("subset"), "{:?}", rte.caveat);
}

#[test]
fn text_marks_tasks_that_are_not_comparable() {
    let text = comparison().render_text();
    let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap().to_owned();
    assert_eq!(
        line("accuracy  LoRA    CoLA"),
        "accuracy  LoRA    CoLA  0.500 ±.250  0.625 ±.250  −0.125      −0.6"
    );
    assert!(line("accuracy  LoRA    RTE").ends_with('*'));
    assert!(text.contains("* 2 of 5 published numbers have no measured partner"));
    assert!(text.contains("* published numbers of tasks that did not run here: WNLI\n"));
    assert!(text.contains("* published metrics that are not measured here: perplexity\n"));
    assert!(comparison().render_markdown().contains("| accuracy | LoRA | CoLA | 0.500 ±.250 |"));
}

/// The layout of the paper's tables, with made-up numbers: per cent, parameters in millions, names that are not ours.
const REASONING: &str = "metric,method,task,mean,std\n\
accuracy,LoRA,OBQA,80.5,0.25\naccuracy,MCD,OBQA,81.25,0.5\naccuracy,ENS,OBQA,82,\n\
accuracy,BayesLoRA_k10,OBQA,83,1\naccuracy,BayesLoRA_r8_noprune_k0,OBQA,81,1\naccuracy,IVON_k10,OBQA,84,\n\
accuracy,LoRA,BoolQ,86,0.2\nece,BLoB_k10,OBQA,4.5,0.5\nnll,LAP,OBQA,0.5,\n\
params_m,LoRA,all,4.48,\nparams_m_min,BayesLoRA_k0,all,2.40,\nparams_m_max,BayesLoRA_k10,all,3.87,\n";

#[test]
fn the_papers_uncertainty_tables_find_their_partners() {
    let results = sample_reasoning();
    let published = Published::parse(REASONING, "reasoning.csv").unwrap();
    assert!(published.was_percent);
    let comparison = compare(&results, &published, CheckpointChoice::Last);
    assert_eq!(comparison.rows.len(), published.rows.len(), "nothing is dropped");
    let row = |metric: Metric, method: &str, task: &str| {
        let same = |r: &&ComparisonRow| r.metric == metric && r.method == method && r.task == task;
        comparison.rows.iter().find(same).unwrap_or_else(|| panic!("{metric:?} {method} {task}"))
    };
    for (metric, method) in [
        (Metric::Accuracy(0), "LoRA"),
        (Metric::Accuracy(10), "MCD"),
        (Metric::Accuracy(0), "ENS-10"),
        (Metric::Accuracy(10), "BayesLoRA"),
        (Metric::Accuracy(0), "BayesLoRA-fixed"),
        (Metric::Ece(10), "BLoB"),
        (Metric::Nll(10), "LAP"),
    ] {
        assert!(row(metric, method, "obqa").measured.is_some(), "{metric:?} {method}");
    }
    assert_eq!(row(Metric::Accuracy(0), "LoRA", "obqa").published, 0.805);
    assert_eq!(row(Metric::Ece(10), "BLoB", "obqa").published_std, Some(0.005));
    assert!(row(Metric::Accuracy(10), "IVON", "obqa").measured.is_none());
    assert!(row(Metric::Accuracy(0), "LoRA", "BoolQ").measured.is_none());

    let lora = row(Metric::Parameters, "LoRA", "all tasks");
    assert_eq!((lora.published, lora.published_text().as_str()), (4_480_000.0, "4.480 M"));
    let least = row(Metric::Parameters, "BayesLoRA", "all tasks, fewest");
    let most = row(Metric::Parameters, "BayesLoRA", "all tasks, most");
    let mean = |row: &ComparisonRow| row.measured.as_ref().unwrap().mean;
    assert!(mean(least) < mean(most));

    let text = comparison.render_text();
    assert!(text.contains("accuracy    IVON             10  OBQA"), "{text}");
    assert!(!text.contains("BoolQ   "), "it did not run\n{text}");
    assert!(text.contains("* published numbers of tasks that did not run here: BoolQ\n"));
    assert!(text.contains("accuracy and ECE in reasoning.csv are per cent"));
}
