//! How much rank the layers needed, in a sentence.

use std::collections::{BTreeMap, BTreeSet};

use super::metric::Metric;
use super::names::{ModuleName, task_label};
use super::significance::{Difference, LEVEL};
use super::spread::Spread;
use super::summary::Summary;
use crate::record::{Results, RunRecord, RunStatus};
use crate::settings::CheckpointChoice;
use crate::text::listed;

/// Ranks that print alike are alike.
const ALIKE: f64 = 0.005;

/// One sentence for each method that learns its ranks.
pub(super) fn ranks(results: &Results, summary: &Summary) -> Vec<String> {
    let of = |method: &String| {
        let mut tasks: Vec<(String, String)> = Vec::new();
        let mut full = BTreeSet::new();
        for task in &summary.tasks {
            let runs: Vec<&RunRecord> = results
                .runs
                .iter()
                .filter(|run| run.task == *task && run.method == *method)
                .filter(|run| run.status == RunStatus::Finished)
                .collect();
            let learnt =
                |run: &&RunRecord| run.rank_budget.requested.is_none() && run.rank_events.len() > 1;
            let Some(kept) = summary.cell(Metric::Rank, method, task) else { continue };
            if runs.iter().any(learnt) {
                full.extend(summary.full_rank(method, task));
                let kept = match kept.mean {
                    0.0 => "none".to_owned(),
                    mean => format!("{mean:.2}"),
                };
                let kept = format!("{kept} on {}", task_label(task));
                tasks.push((kept, most_and_least(&runs, summary.choice)));
            }
        }
        let (_, first) = tasks.first()?;
        // What is alike for all tasks is said once.
        let alike = tasks.iter().all(|(_, place)| place == first).then(|| first.clone());
        let said: Vec<String> = tasks
            .into_iter()
            .map(|(kept, place)| {
                let told = alike.is_some() || place.is_empty();
                if told { kept } else { format!("{kept} ({place})") }
            })
            .collect();
        let alike = alike.filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
        let full: Vec<String> = full.iter().map(u32::to_string).collect();
        Some(format!(
            "Of {} ranks a module {method} kept {}{}.",
            full.join(" or "),
            listed(&said),
            alike.unwrap_or_default()
        ))
    };
    summary.methods.iter().filter_map(of).collect()
}

/// Where the ranks are: `most in layer 3, 3.33, least in layer 0, 0.33; most in value, ...`; nothing where all have the
/// same.
fn most_and_least(runs: &[&RunRecord], choice: CheckpointChoice) -> String {
    let layers = extremes(runs, choice, |name| name.layer.map(|layer| format!("layer {layer}")));
    let kinds = extremes(runs, choice, |name| Some(name.kind));
    let told = |found: &Extremes| match found {
        Extremes::Apart(text) => Some(text.clone()),
        Extremes::Alike | Extremes::Noise => None,
    };
    let mut found: Vec<String> = [&layers, &kinds].into_iter().filter_map(told).collect();
    match (layers, kinds) {
        (Extremes::Noise, Extremes::Noise) => {
            found.push("no layer or kind of module stands out significantly".into());
        }
        (Extremes::Noise, _) => found.push("no layer stands out significantly".into()),
        (_, Extremes::Noise) => found.push("no kind of module stands out significantly".into()),
        _ => {}
    }
    found.join("; ")
}

/// The groups of modules with the most and the fewest ranks.
enum Extremes {
    /// They differ: `most in value, 1.90, least in query, 0.40`.
    Apart(String),
    /// They do not differ significantly over the seeds.
    Noise,
    /// They do not differ.
    Alike,
}

fn extremes(
    runs: &[&RunRecord],
    choice: CheckpointChoice,
    group: impl Fn(ModuleName) -> Option<String>,
) -> Extremes {
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for checkpoint in runs.iter().filter_map(|run| choice.of(run)) {
        let mut own: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (path, rank) in &checkpoint.ranks {
            if let Some(name) = group(ModuleName::parse(path)) {
                own.entry(name).or_default().push(f64::from(*rank));
            }
        }
        for (name, ranks) in own {
            let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
            groups.entry(name).or_default().push(mean);
        }
    }
    let mut found: Vec<(&String, Spread)> =
        groups.iter().filter_map(|(name, ranks)| Some((name, Spread::of(ranks)?))).collect();
    found.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
    let (Some((most, high)), Some((least, low))) = (found.first(), found.last()) else {
        return Extremes::Alike;
    };
    if high.mean - low.mean < ALIKE {
        return Extremes::Alike;
    }
    let by_seed: Vec<f64> = high.values.iter().zip(&low.values).map(|(h, l)| h - l).collect();
    match Difference::of_seeds(&by_seed) {
        Some(difference) if difference.p() > LEVEL => Extremes::Noise,
        // One seed, or seeds that all agree, are reported as found.
        _ => Extremes::Apart(format!(
            "most in {most}, {:.2}, least in {least}, {:.2}",
            high.mean, low.mean
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::verdict::tests::said;
    use super::*;
    use crate::record::sample::{sample_results, six_tasks};

    #[test]
    fn one_sentence_answers_how_much_rank_each_layer_needs() {
        let mut results = sample_results();
        results.runs.retain(|run| run.method == "BayesLoRA" && run.task == "rte");
        for run in &mut results.runs {
            let last = run.checkpoints.last.as_mut().unwrap();
            for (path, rank) in &mut last.ranks {
                let name = ModuleName::parse(path);
                *rank = name.layer.unwrap_or(0) + u32::from(name.kind == "value");
            }
            last.average_rank = 11.0 / 6.0;
        }
        // Layers have 0 + ⅓ to 3 + ⅓; query and ffn out 1.5, value 2.5; all seeds agree.
        assert_eq!(
            said(&results).ranks,
            [
                "Of 8 ranks a module BayesLoRA kept 1.83 on RTE: most in layer 3, 3.33, least in layer 0, 0.33; \
              most in value, 2.50, least in query, 1.50."
            ]
        );
        let mut none = results.clone();
        for run in &mut none.runs {
            let last = run.checkpoints.last.as_mut().unwrap();
            last.ranks.values_mut().for_each(|rank| *rank = 0);
            last.average_rank = 0.0;
        }
        assert_eq!(said(&none).ranks, ["Of 8 ranks a module BayesLoRA kept none on RTE."]);
        // A seed that has it the other way round.
        for rank in results.runs[0].checkpoints.last.as_mut().unwrap().ranks.values_mut() {
            *rank = 4 - *rank;
        }
        assert!(
            said(&results).ranks[0].contains("no layer or kind of module stands out"),
            "{results:?}"
        );
    }

    #[test]
    fn what_is_alike_for_all_tasks_is_said_once() {
        let text = &said(&six_tasks()).ranks[0];
        assert!(text.starts_with("Of 8 ranks a module BayesLoRA kept 4.77 on ARC-C, "), "{text}");
        let wanted = " on WG-S: no layer or kind of module stands out significantly.";
        assert!(text.ends_with(wanted), "{text}");
    }
}
