//! Every comparison with its target.

use super::programs::FOLDER;
use super::{Axis, Comparison, Group, Program, Side};

/// `BayesLoRA` next to LoRA: weights per sequence, and moment-matched.
const BESIDE_LORA: [f64; 2] = [1.05, 1.15];
/// LoRA next to Burn's own: 1.4 times as fast.
const BESIDE_APPLY_LORA: f64 = 1.0 / 1.4;
/// Predictions: a name, and what is asked. "Pruned" means that the last layer alone is left with adapters.
const PREDICTIONS: [(&str, &str); 5] = [
    ("mean", "--draws 0"),
    ("sequential", "--draws 10 --way sequential"),
    ("batched", "--draws 10 --way batched"),
    ("pruned-mean", "--draws 0 --live-layers 1"),
    ("pruned-batched", "--draws 10 --way batched --live-layers 1"),
];
/// Which of them is held against which, with the largest ratio.
const PREDICTED: [(&str, &str, Option<f64>); 4] = [
    ("sequential", "mean", None),
    ("batched", "sequential", Some(0.6)),
    ("batched", "mean", None),
    ("pruned-batched", "pruned-mean", Some(3.0)),
];
/// Predictions of a classifier that was trained and pruned here: what a side is called, and what is asked.
const TRAINED: [(&str, &str); 6] = [
    ("the mean", "--draws 0"),
    ("ten draws, one by one", "--draws 10 --way sequential"),
    ("ten draws, several in a pass", "--draws 10 --way batched"),
    ("ten draws where the mean is undecided", "--draws 10 --way cascade"),
    ("adapters on the last layer: the mean", "--draws 0 --live-layers 1"),
    ("adapters on the last layer: ten draws", "--draws 10 --way batched --live-layers 1"),
];
/// Rank of both programs unless a side says otherwise.
pub(crate) const RANK: usize = 8;

/// Group of criterion, and which of its functions is held against which others.
type Operator = (&'static str, &'static str, &'static [&'static str]);

const OPERATORS: [Operator; 13] = [
    ("gelu", "fused", &["composite"]),
    ("gated_silu", "fused", &["composite"]),
    ("layer_norm", "fused", &["composite"]),
    ("rms_norm", "fused", &["composite"]),
    ("causal_attention_8x8", "fused", &["composite"]),
    ("causal_attention_12x64", "fused", &["composite"]),
    ("adapted_linear_192x768", "fused", LAYERS),
    ("adapted_linear_768x768", "fused", LAYERS),
    ("adapted_linear_768x3072", "fused", LAYERS),
    ("adapted_linear_192x768", "fused_forward", FORWARD),
    ("adapted_linear_768x768", "fused_forward", FORWARD),
    ("adapted_linear_768x3072", "fused_forward", FORWARD),
    ("forward_and_backward_1024x768x3072", "frozen_base", &["trainable_base"]),
];
const LAYERS: &[&str] = &["composite", "burn_lora", "burn_linear"];
const FORWARD: &[&str] = &["composite_forward", "burn_lora_forward", "burn_linear_forward"];

/// All groups; with AVX-512 the targets against PyTorch are others.
pub(crate) fn groups(avx512: bool) -> Vec<Group> {
    let base = if avx512 { 1.0 } else { 0.9 };
    let mut groups = vec![
        steps("nano", "DeBERTa nano: 4 layers of 192, 8 texts of 128 tokens", 1.0, 4, 15),
        steps("base", "DeBERTa-v3-base: 12 layers of 768, 8 texts of 128 tokens", base, 3, 3),
        steps("smollm2", "SmolLM2-135M: 30 layers of 576, 8 texts of 100 tokens", 1.0, 3, 3),
    ];
    groups.extend([(1, 32), (1, 128), (4, 128)].map(draws));
    groups.push(trained());
    groups.push(growth("tokens", "length", &[32, 64, 128, 256, 512]));
    groups.push(growth("rank", "rank", &[4, 8, 16, 32, 64]));
    groups.push(growth("layers", "layers", &[2, 4, 8, 16]));
    groups.extend([pruned("nano", 3, 10), pruned("base", 2, 3), operators()]);
    groups
}

fn ours(label: impl Into<String>, arguments: String) -> Side {
    Side { label: label.into(), program: Program::Ours, arguments }
}

fn compare(name: String, ours: usize, reference: usize, target: Option<f64>) -> Comparison {
    Comparison { name, ours, reference, target, worth: None }
}

/// A training step of each method beside PyTorch's, beside LoRA's, and LoRA's beside Burn's.
fn steps(config: &str, title: &str, pytorch: f64, rounds: usize, steps: usize) -> Group {
    let size = match config {
        "smollm2" => "smollm2 --length 100".to_owned(),
        _ => format!("{config} --length 128"),
    };
    let side = |label, method| ours(label, format!("--config {size} --method {method}"));
    let torch = Side {
        label: "PyTorch + PEFT, LoRA".to_owned(),
        program: Program::Torch,
        arguments: format!("--config {size}"),
    };
    let mut sides = vec![
        torch,
        side("LoRA", "lora"),
        side("BayesLoRA, weights per sequence", "bayeslora"),
        side("BayesLoRA, moment-matched", "moment-matched"),
    ];
    let mut comparisons = vec![
        compare(format!("{config}-lora-pytorch"), 1, 0, Some(pytorch)),
        compare(format!("{config}-bayeslora-pytorch"), 2, 0, None),
        compare(format!("{config}-moment-matched-pytorch"), 3, 0, None),
        compare(format!("{config}-bayeslora-lora"), 2, 1, Some(BESIDE_LORA[0])),
        compare(format!("{config}-moment-matched-lora"), 3, 1, Some(BESIDE_LORA[1])),
    ];
    // Burn's form would adapt the tied head's matrix where it is an embedding as well.
    if config != "smollm2" {
        sides.push(side("LoRA by Burn's `apply_lora`", "apply-lora"));
        let name = format!("{config}-lora-apply_lora");
        comparisons.push(compare(name, 1, 4, Some(BESIDE_APPLY_LORA)));
    }
    let title = format!("One training step, {title}, rank 8");
    Group { name: config.to_owned(), title, sides, comparisons, axis: None, rounds, steps }
}

/// Ten draws for `rows` texts of `length` tokens by each way, beside the mean.
fn draws((rows, length): (usize, usize)) -> Group {
    let model = format!("--config nano --method bayeslora --batch {rows} --length {length}");
    let side = |(name, arguments): (&str, &str)| ours(name, format!("{model} {arguments}"));
    let index = |expected: &str| PREDICTIONS.iter().position(|(name, _)| *name == expected);
    let comparison = |(left, right, target): (&str, &str, Option<f64>)| {
        let name = format!("draws-{rows}x{length}-{left}-{right}");
        Some(compare(name, index(left)?, index(right)?, target))
    };
    Group {
        name: format!("draws-{rows}x{length}"),
        title: format!(
            "Ten draws for a prediction, DeBERTa nano, {rows} x {length} tokens at once"
        ),
        sides: PREDICTIONS.into_iter().map(side).collect(),
        comparisons: PREDICTED.into_iter().filter_map(comparison).collect(),
        axis: None,
        rounds: 3,
        steps: 10,
    }
}

/// The same for a classifier that has learnt, whose answers must be worth as much.
fn trained() -> Group {
    let side =
        |(label, arguments): (&str, &str)| ours(label, format!("--trained {FOLDER} {arguments}"));
    let name = "draws-trained".to_owned();
    let comparison = |what: &str, ours, reference, target| {
        compare(format!("{name}-{what}"), ours, reference, target)
    };
    let cascade = comparison("cascade-mean", 3, 0, Some(3.0));
    Group {
        title: "Ten draws for 500 held-out texts, the shipped DeBERTa after 400 steps on a generated task (SST-2)"
            .to_owned(),
        sides: TRAINED.into_iter().map(side).collect(),
        comparisons: vec![
            comparison("sequential-mean", 1, 0, None),
            comparison("batched-sequential", 2, 1, None),
            comparison("batched-mean", 2, 0, None),
            Comparison { worth: Some(1), ..cascade },
            comparison("shared-mean", 5, 4, Some(3.0)),
        ],
        axis: None,
        rounds: 3,
        steps: 5,
        name,
    }
}

/// A step of `BayesLoRA` at each value of `option`.
fn growth(unit: &'static str, option: &str, values: &[usize]) -> Group {
    let side = |value: &usize| {
        let arguments = format!("--config nano --method bayeslora --{option} {value}");
        ours(format!("{value} {unit}"), arguments)
    };
    let name = format!("{unit}-nano");
    Group {
        title: format!("BayesLoRA's step against {unit}, DeBERTa nano, 8 texts"),
        sides: values.iter().map(side).collect(),
        comparisons: vec![compare(format!("{name}-growth"), values.len() - 1, 0, None)],
        axis: Some(Axis { unit, at: values.iter().map(|&value| value as f64).collect() }),
        rounds: 3,
        steps: 8,
        name,
    }
}

/// A step after a prune to a part of the rank, or to a part of the modules.
fn pruned(config: &str, rounds: usize, steps: usize) -> Group {
    let side = |label: String, rest: &str| {
        ours(label, format!("--config {config} --method bayeslora --rank 20 {rest}"))
    };
    let mut sides = vec![side("all of the rank".to_owned(), "--keep 100")];
    let mut comparisons = Vec::new();
    let points =
        [("keep", "rank", [50, 25, 10].as_slice()), ("modules", "modules", &[50, 25, 10, 0])];
    for (option, of, percents) in points {
        for percent in percents {
            sides.push(side(format!("{percent} % of the {of}"), &format!("--{option} {percent}")));
            let name = format!("pruned-{config}-{of}-{percent}");
            comparisons.push(compare(name, sides.len() - 1, 0, Some(1.0)));
        }
    }
    Group {
        name: format!("pruned-{config}"),
        title: format!("BayesLoRA's step after a prune from rank 20, DeBERTa {config}"),
        sides,
        comparisons,
        axis: None,
        rounds,
        steps,
    }
}

/// Every operator beside its peers.
fn operators() -> Group {
    let (mut sides, mut comparisons) = (Vec::new(), Vec::new());
    for (operator, ours, others) in OPERATORS {
        let side = |function: &str| Side {
            label: format!("{operator}, {}", function.replace('_', " ")),
            program: Program::Criterion,
            arguments: format!("{operator}/{function}"),
        };
        let first = sides.len();
        sides.push(side(ours));
        for other in others {
            sides.push(side(other));
            let name = format!("{operator}-{ours}-{other}");
            comparisons.push(compare(name, first, sides.len() - 1, None));
        }
    }
    Group {
        name: "operators".to_owned(),
        title: "Operators, forward and backward unless named forward".to_owned(),
        sides,
        comparisons,
        axis: None,
        rounds: 1,
        steps: 20,
    }
}

/// Training steps on the GPU `device`, after tuning and compiling kernels in the steps before.
pub(crate) fn on_gpu(device: &str) -> Vec<Group> {
    let of = |(config, title)| {
        let mut group = steps(config, title, 1.0, 3, 20);
        group.comparisons.retain(|c| c.reference == 0);
        for comparison in &mut group.comparisons {
            comparison.target = None;
        }
        for side in &mut group.sides {
            let device = if side.program == Program::Torch { "cuda" } else { device };
            side.arguments = format!("{} --device {device}", side.arguments);
        }
        group
    };
    let titles = ["DeBERTa nano", "DeBERTa-v3-base"].map(|m| format!("{m}, 8 texts of 128 tokens"));
    ["nano", "base"].iter().zip(&titles).map(|(config, title)| of((config, title))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_sides_exist() {
        let all = groups(false);
        let mut names = BTreeSet::new();
        for group in &all {
            assert!(names.insert(&group.name), "{}", group.name);
            for comparison in &group.comparisons {
                assert!(names.insert(&comparison.name), "{}", comparison.name);
                assert!(comparison.ours.max(comparison.reference) < group.sides.len());
                assert_ne!(comparison.ours, comparison.reference);
            }
            if group.name.starts_with("draws-4") {
                assert_eq!(group.comparisons.len(), PREDICTED.len());
            }
            assert!(group.axis.as_ref().is_none_or(|axis| axis.at.len() == group.sides.len()));
        }
    }

    #[test]
    fn the_target_against_pytorch_depends_on_the_vector_units() {
        let of_base = |avx512| {
            let all = groups(avx512);
            let of =
                all.iter().flat_map(|g| &g.comparisons).find(|c| c.name == "base-lora-pytorch");
            of.and_then(|comparison| comparison.target)
        };
        assert_eq!((of_base(false), of_base(true)), (Some(0.9), Some(1.0)));
    }

    #[test]
    fn every_function_is_one_of_the_benches() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/benches/operators.rs");
        let text = std::fs::read_to_string(file).unwrap();
        for side in operators().sides {
            let (operator, function) = side.arguments.split_once('/').unwrap();
            assert!(text.contains(&format!("\"{function}\"")), "{function}");
            // Sizes are put in by a format.
            let stem = operator.trim_end_matches(|c: char| c.is_ascii_digit() || c == 'x');
            assert!(text.contains(stem), "{operator}");
        }
    }

    #[test]
    fn a_gpu_is_timed_beside_pytorch() {
        let base = on_gpu("cuda:1").remove(1);
        assert_eq!(base.comparisons.len(), 3);
        assert_eq!(base.sides[0].arguments, "--config base --length 128 --device cuda");
        let ours = "--config base --length 128 --method lora --device cuda:1";
        assert_eq!(base.sides[1].arguments, ours);
        assert!(!base.uses(4), "not Burn's");
    }
}
