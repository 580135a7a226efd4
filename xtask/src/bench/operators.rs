//! Operators, timed by criterion: one call of `cargo bench`, whose estimates are read.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::measure::Sample;
use super::table::compare;
use super::{Group, Program, Side};
use crate::process;

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

/// Every operator beside its peers.
pub(crate) fn group() -> Group {
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

/// Runs the benches of `group` and reads criterion's medians.
pub(crate) fn run(root: &Path, group: &Group, quick: bool) -> Result<Vec<Sample>> {
    let ids: Vec<&str> = group.sides.iter().map(|side| side.arguments.as_str()).collect();
    // Criterion removes nothing: an old estimate must not replace a missing one.
    let home = std::env::temp_dir().join(format!("lrvd-criterion-{}", std::process::id()));
    let mut command = process::cargo(root);
    command
        .args(["bench", "--package", "lrvd-cli", "--package", "lrvd-perf"])
        .args(["--bench", "operators", "--bench", "frozen_base", "--"])
        .arg(format!("^({})$", ids.join("|")))
        .args(quick.then_some("--quick"))
        .env("CRITERION_HOME", &home);
    let samples = process::run(&mut command)
        .and_then(|()| ids.iter().map(|id| estimate(&home, id)).collect::<Result<Vec<_>>>());
    let _ = std::fs::remove_dir_all(&home);
    samples
}

/// The median of one function.
fn estimate(home: &Path, id: &str) -> Result<Sample> {
    let file = home.join(id).join("new/estimates.json");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("criterion left no estimate of `{id}`"))?;
    let value: Value = serde_json::from_str(&text).with_context(|| format!("`{id}`"))?;
    let nanoseconds = value["median"]["point_estimate"].as_f64();
    let nanoseconds = nanoseconds.with_context(|| format!("`{id}` has no median"))?;
    Ok(Sample { rounds: vec![vec![nanoseconds * 1e-9]], facts: Value::Null })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_function_is_one_of_the_benches() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/benches");
        let text = ["operators.rs", "frozen_base.rs"]
            .map(|name| std::fs::read_to_string(folder.join(name)).unwrap())
            .concat();
        for side in group().sides {
            let (operator, function) = side.arguments.split_once('/').unwrap();
            assert!(text.contains(&format!("\"{function}\"")), "{function}");
            // Sizes are put in by a format.
            let stem = operator.trim_end_matches(|c: char| c.is_ascii_digit() || c == 'x');
            assert!(text.contains(stem), "{operator}");
        }
    }

    #[test]
    fn the_median_is_read_in_seconds() {
        let home = std::env::temp_dir().join(format!("lrvd-estimate-{}", std::process::id()));
        let folder = home.join("gelu/fused/new");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("estimates.json"),
            r#"{"mean": {"point_estimate": 1.0}, "median": {"point_estimate": 2500000.0}}"#,
        )
        .unwrap();
        let found = estimate(&home, "gelu/fused");
        let missing = estimate(&home, "gelu/composite");
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!(found.unwrap().median(), 0.0025);
        assert!(missing.unwrap_err().to_string().contains("gelu/composite"));
    }
}
