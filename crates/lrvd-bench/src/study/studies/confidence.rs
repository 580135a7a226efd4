//! Confidence with few numbers.

use std::collections::BTreeMap;

use crate::confidence::{Effort, Measures, TEMPERED, candidates, row_losses};
use crate::record::Measurement;
use crate::settings::Preset;
use crate::study::design::{Arm, Base, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::{Evidence, Paired};
use crate::study::verdict::Judgement;
use crate::suite::{Analysis, SuiteError, Trained};
use lrvd_core::metrics::{auroc, entropy, mean};

/// The published method to be beaten, and what it answers with.
const BLOB: (&str, &str) = ("BLoB", "draws");
/// What `lrvd train` fits where nobody says otherwise.
const OURS: (&str, &str) = ("LRVD", "mean+ts");
/// What costs one number.
const TEMPERATURE: (&str, &str) = ("LoRA", "mean+ts");
/// Sentences of every other task that a model is shown.
const OTHERS: usize = 60;
/// Most modules of a model on which no effort is spared.
const MODULES: usize = 24;

/// Which few numbers make an adapter's confidence right?
pub(super) const STUDY: Study = Study {
    name: "confidence",
    question: "Which few numbers, fitted on a tenth of the training rows, make an adapter's confidence right?",
    claims: &[
        Claim {
            id: "beats-blob",
            sentence: "LRVD with one temperature beats BLoB with ten draws in NLL and in ECE",
            source: "ours",
            judge: |e| below(e, ["nll", "ece"], OURS, BLOB),
        },
        Claim {
            id: "beats-temperature",
            sentence: "It beats LoRA with one temperature in NLL and in ECE",
            source: "ours",
            judge: |e| below(e, ["nll", "ece"], OURS, TEMPERATURE),
        },
        Claim {
            id: "gates-on-lora",
            sentence: "On a plain LoRA one variance of all rank gates has a lower NLL than one temperature",
            source: "ours, .5385 against .542 in one run",
            judge: |e| below(e, ["nll"], ("LoRA", "gates"), TEMPERATURE),
        },
        Claim {
            id: "gates-on-lrvd",
            sentence: "On LRVD gates and a temperature, two numbers, have a lower NLL than a temperature alone",
            source: "ours",
            judge: |e| below(e, ["nll"], ("LRVD", "gates+ts"), OURS),
        },
        Claim {
            id: "draws",
            sentence: "Under a temperature ten draws add nothing to the mean: NLL within .005",
            source: "ours",
            judge: |e| {
                let difference = differences(e, "nll", ("LRVD", "draws+ts"), OURS);
                let verdict = difference.within(0.005);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "costs-no-accuracy",
            sentence: "LRVD answers no worse than LoRA: accuracy within .01, or above",
            source: "ours",
            judge: |e| {
                let difference = differences(e, "accuracy", OURS, TEMPERATURE);
                let verdict = difference.above(-0.01);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "knows-other-text",
            sentence: "It tells sentences of another task apart no worse than BLoB: AUROC within .02, or above",
            source: "ours",
            judge: |e| {
                let difference = differences(e, "auroc", OURS, BLOB);
                let verdict = difference.above(-0.02);
                Judgement::all([(difference, verdict)])
            },
        },
    ],
    arms: || {
        // Rows are held out for all alike; what a method keeps back by itself would be another split.
        let arm = |label: &str, method, own: &[&str]| {
            Arm::new(label, method, &[&["holdout=0.1"], own].concat())
        };
        vec![
            arm("LoRA", "lora", &[]),
            arm("LRVD", "bayeslora", &[]).on(Base::Preset(Preset::Default)),
            arm("LRVD w=.03", "bayeslora", &["kl_weight=0.03"]),
            arm("BLoB", "blob", &[]),
        ]
    },
    analysis: Some(&Confidence),
    columns: Column::COMMON,
    figures: &[Figure {
        name: "front",
        title: "NLL and calibration of every candidate",
        x: "NLL, nats",
        y: "ECE",
        log_x: false,
        curves: Curves::Points { x: "nll", y: "ece" },
    }],
    notes: NOTES,
};

const NOTES: &str = "\
`LRVD` is what `lrvd train` does where nobody says otherwise: held-out rows choose the KL weight. `LRVD w=.03` is the
constant that serves best on SST-2 with the tiny encoder. The first table is what the arms' own evaluation says; the
second has a row for every candidate of every arm, fitted on the tenth of the training rows that the seed draws and no
step sees. `numbers per module` is what a candidate keeps beside the adapter's means, over the number of modules: one
for a temperature is shared by the whole model. `+ts` is a temperature on top. `auroc` is the mean over the other
tasks at hand of how well the entropy tells their sentences (asked in the words of the trained task) from its own
validation rows; `aurc` is the area under the risk-coverage curve.

Differences in NLL have a standard error over validation rows and one over seeds, added in squares; those in ECE, accuracy and
AUROC one over seeds. `held-out nll` is that of the rows it was fitted to: it compares fits to one adapter, not adapters. On
SST-2 the rows of the training split are parts of the same sentences, so that what overfits looks good on held-out ones.

Candidates: `mean`; `draws`, ten of the posterior as trained; `noise`, ten draws with one factor on all standard
deviations (on a plain LoRA noise on A alone in the basis of TFB), `noise-module` with one per module, both for models of up
to 24 adapted modules; `gates`, one multiplier per rank with one variance, linearised; `gates-own`, shaped by the posterior's noise-to-signal ratios;
`gates-diagonal` and `gates-full`, Laplace's approximation with the prior fitted, `-scaled` with its scale fitted too;
`gates-last`, those of the adapter nearest to the output. Gates answer by the probit approximation, without draws.";

/// Fits every candidate to a trained model, and measures its answers.
struct Confidence;

impl Analysis for Confidence {
    fn measure(&self, trained: &Trained<'_>) -> Result<Vec<Measurement>, SuiteError> {
        let task = trained.context.task;
        let others = trained.other_texts(OTHERS)?;
        let asked: Vec<&[_]> = std::iter::once(task.validation.as_slice())
            .chain(others.iter().map(|(_, examples)| examples.as_slice()))
            .collect();
        let modules = trained.record.rank_budget.n_modules as usize;
        let draws = trained.context.config.draws.iter().copied().max().unwrap_or(0);
        let effort = if modules <= MODULES { Effort::default() } else { Effort::small() };
        let effort = Effort { draws, ..effort };
        let found = candidates(trained.context, trained.model, trained.method, &asked, effort)?;
        let classes: Vec<usize> = task.validation.iter().filter_map(|e| e.label.class()).collect();
        let mut all = Vec::new();
        for candidate in found {
            let name = &candidate.name;
            let mut add = |metric: &str, value: f64| {
                all.push(Measurement::new(format!("{metric}/{name}"), value));
            };
            let Some((own, other)) = candidate.answers.split_first() else { continue };
            add("numbers", candidate.stored as f64);
            add("per module", candidate.stored as f64 / modules.max(1) as f64);
            for (metric, value) in Measures::new(own, task.labels, &classes)?.named() {
                add(metric, value);
            }
            let ours = entropy(own, task.labels)?;
            let mut areas = Vec::new();
            for ((key, _), answers) in others.iter().zip(other) {
                areas.push(auroc(&ours, &entropy(answers, task.labels)?)?);
                add(&format!("auroc {key}"), areas[areas.len() - 1]);
            }
            if !areas.is_empty() {
                add("auroc", mean(&areas)?);
            }
            add("held-out nll", candidate.held_out_nll);
            add("seconds", candidate.seconds);
            if let Some(scale) = candidate.fitted.get("scale").filter(|_| !name.ends_with(TEMPERED))
            {
                add("scale", *scale);
            }
            if let Some(temperature) = candidate.fitted.get("temperature") {
                add("temperature", *temperature);
            }
            let losses = row_losses(own, task.labels, &classes).into_iter().enumerate();
            all.extend(
                losses.map(|(row, loss)| {
                    Measurement::at(format!("row nll/{name}"), row as f64, loss)
                }),
            );
        }
        Ok(all)
    }
}

/// A candidate: its arm and its name.
type Named<'a> = (&'a str, &'a str);

/// `metric` of one candidate less that of another, by task and seed.
fn differences(evidence: &Evidence, metric: &str, of: Named<'_>, from: Named<'_>) -> Paired {
    let values = |(arm, name): Named<'_>| evidence.metric(arm, &format!("{metric}/{name}"), None);
    let base = values(from);
    let pairs: Vec<f64> =
        values(of).into_iter().filter_map(|(run, value)| Some(value - base.get(&run)?)).collect();
    Paired::of(difference_name(metric, of, from), &pairs)
}

fn difference_name(metric: &str, of: Named<'_>, from: Named<'_>) -> String {
    format!("{metric}: {} of {} less {} of {}", of.1, of.0, from.1, from.0)
}

/// The same of the NLL, with the standard error of its mean over validation rows beside that over seeds.
fn losses(evidence: &Evidence, of: Named<'_>, from: Named<'_>) -> Paired {
    let paired = differences(evidence, "nll", of, from);
    let rows = |(arm, name): Named<'_>| evidence.rows(arm, &format!("row nll/{name}"));
    let base = rows(from);
    // By row, the mean over seeds.
    let mut by_row: BTreeMap<(&str, u64), Vec<f64>> = BTreeMap::new();
    for ((task, seed, row), loss) in rows(of) {
        if let Some(other) = base.get(&(task, seed, row)) {
            by_row.entry((task, row)).or_default().push(loss - other);
        }
    }
    let means: Vec<f64> = by_row.values().filter_map(|values| mean(values).ok()).collect();
    let over_rows = Paired::of("", &means).error;
    let error = match (paired.error, over_rows) {
        (Some(seeds), Some(rows)) => Some(seeds.hypot(rows)),
        _ => None,
    };
    Paired { error, ..paired }
}

/// Whether `of` is below `from` in all of `metrics`.
fn below(
    evidence: &Evidence,
    metrics: impl IntoIterator<Item = &'static str>,
    of: Named<'_>,
    from: Named<'_>,
) -> Judgement {
    Judgement::all(metrics.into_iter().map(|metric| {
        let difference = match metric {
            "nll" => losses(evidence, of, from),
            _ => differences(evidence, metric, of, from),
        };
        let verdict = difference.below(0.0);
        (difference, verdict)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::evidence::Observation;
    use crate::study::verdict::Verdict;

    /// Three seeds of every arm; `nll` by arm, candidate and row.
    fn evidence(nll: impl Fn(&str, &str, usize) -> f64) -> Evidence {
        let mut evidence = Evidence::new((STUDY.arms)());
        let arms: Vec<String> = evidence.arms.iter().map(|arm| arm.label.clone()).collect();
        for (arm, seed) in arms.iter().flat_map(|arm| (1..=3).map(move |seed| (arm, seed))) {
            let mut add = |metric: String, at: Option<f64>, value: f64| {
                let (arm, task) = (arm.clone(), "sst2".to_owned());
                let found = Measurement { metric, at, value };
                evidence.observations.push(Observation { arm, task, seed, found });
            };
            for name in ["mean", "draws", "mean+ts"] {
                let rows = (0..4).map(|row| nll(arm, name, row) + 1e-4 * (seed % 2) as f64);
                let rows: Vec<f64> = rows.collect();
                let average = rows.iter().sum::<f64>() / 4.0;
                for metric in ["nll", "ece"] {
                    add(format!("{metric}/{name}"), None, average);
                }
                for (row, loss) in rows.into_iter().enumerate() {
                    add(format!("row nll/{name}"), Some(row as f64), loss);
                }
            }
        }
        evidence
    }

    #[test]
    fn losses_are_judged_over_rows_and_seeds() {
        let verdict = |evidence: &Evidence| below(evidence, ["nll", "ece"], OURS, BLOB).verdict;
        let good = |arm: &str, name: &str, row: usize| {
            1.0 - if (arm, name) == OURS { 0.2 } else { 0.0 } + 0.01 * row as f64
        };
        assert_eq!(verdict(&evidence(good)), Verdict::Holds);
        let worse = |arm: &str, name: &str, row: usize| {
            good(arm, name, row) - if (arm, name) == BLOB { 0.4 } else { 0.0 }
        };
        assert_eq!(verdict(&evidence(worse)), Verdict::Fails);
        // The same means from rows that disagree: the error over rows is told beside that over seeds.
        let mixed = |arm: &str, name: &str, row: usize| {
            let turn = if (arm, name) == OURS { 0.8 } else { 0.0 };
            good(arm, name, row) + turn * if row.is_multiple_of(2) { 1.0 } else { -1.0 }
        };
        let paired = losses(&evidence(mixed), OURS, BLOB);
        assert!((paired.mean.unwrap_or(0.0) + 0.2).abs() < 1e-9);
        // ±0.8 around the mean of four rows: 0.8·√(4/3)/2.
        assert!((paired.error.unwrap_or(0.0) - 0.8 * (4.0_f64 / 3.0).sqrt() / 2.0).abs() < 1e-6);
        assert_eq!(verdict(&evidence(mixed)), Verdict::CannotBeSaid);
    }
}
