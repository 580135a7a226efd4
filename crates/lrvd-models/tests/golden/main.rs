//! Folders of recorded numbers, recomputed from their inputs and configurations.
//!
//! This is the one place that compares the recorded kinds, whichever crate owns the code: a model test needs all
//! three lower crates. The folders beside these files are recomputed by every test run, any others by
//! `cargo xtask golden DIR…`. A recorded value is only compared with; a recorded tensor that is not compared is a
//! miss.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../../../lrvd-burn/tests/adapters/support/activation_noise.rs"]
mod activation_noise;
mod bayes;
mod case;
mod damaged;
mod items;
mod models;
mod peft;
mod tokenizer;
mod train;

use std::fmt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use burn::tensor::DType;
use rstest::rstest;

use case::{Case, Check, Json};

/// Folders that `cargo xtask golden` was given, joined as in `PATH`.
const FOLDERS: &str = "LRVD_GOLDEN_FOLDERS";
/// Variable with the path of the report on them.
const REPORT: &str = "LRVD_GOLDEN_REPORT";

/// Models are computed in both float types, each against its own tolerances.
const BOTH: &[DType] = &[DType::F32, DType::F64];
/// Formulas of the core, and integers.
const DOUBLE: &[DType] = &[DType::F64];

/// Recomputes a kind of folder.
type Recompute = fn(&mut Case) -> Result<()>;

const KINDS: [(&str, &[DType], Recompute); 19] = [
    ("deberta_sequence_classification", BOTH, models::deberta),
    ("encoder_sequence_classification", BOTH, models::deberta),
    ("encoder_states", BOTH, models::deberta),
    ("relative_position_buckets", DOUBLE, models::relative_positions),
    ("llama_causal_lm", BOTH, models::llama),
    ("llama_sequence_classification", BOTH, models::last_token),
    ("peft_lora_deberta", BOTH, peft::deberta),
    ("peft_adalora_deberta", BOTH, peft::deberta),
    ("peft_lora_encoder", BOTH, peft::deberta),
    ("peft_lora_llama", BOTH, peft::llama),
    ("train_lora", BOTH, train::verify),
    ("train_adalora", BOTH, train::verify),
    ("bayes_forward", DOUBLE, bayes::forward),
    ("bayes_kl", DOUBLE, bayes::divergence),
    ("bayes_monte_carlo", DOUBLE, bayes::monte_carlo),
    ("bayes_gauge", DOUBLE, items::gauge),
    ("bayes_energy", DOUBLE, items::energy),
    ("calibration", DOUBLE, items::calibration),
    ("tokenizer", DOUBLE, tokenizer::verify),
];

/// Result of one folder: its kind, and the checks in all float types.
struct Outcome {
    dir: PathBuf,
    result: Result<(String, Vec<Check>)>,
}

impl Outcome {
    /// Recomputes a folder; a panic is an error of this folder.
    fn of(dir: &Path) -> Self {
        let result = catch_unwind(|| recompute(dir)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Err(anyhow!("panicked: {text}"))
        });
        Self { dir: dir.to_owned(), result }
    }

    /// `true` if something was compared and every check holds.
    fn holds(&self) -> bool {
        let all_hold = |checks: &[Check]| !checks.is_empty() && checks.iter().all(Check::holds);
        self.result.as_ref().is_ok_and(|(_, checks)| all_hold(checks))
    }
}

impl fmt::Display for Outcome {
    /// One line for the folder; below it, indented, one for each check.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds() { "ok  " } else { "MISS" };
        write!(f, "{verdict}  {}: ", self.dir.display())?;
        let (kind, checks) = match &self.result {
            Ok((kind, checks)) => (kind, checks),
            Err(error) => return writeln!(f, "{error:#}"),
        };
        let held = checks.iter().filter(|check| check.holds()).count();
        write!(f, "{kind}, {held} of {} checks hold", checks.len())?;
        if let Some(check) = checks.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio)) {
            write!(f, "; closest to its tolerance: {check}")?;
        }
        writeln!(f)?;
        checks.iter().try_for_each(|check| {
            writeln!(f, "  {}  {check}", if check.holds() { "    " } else { "MISS" })
        })
    }
}

/// Recomputes a folder in every float type of its kind.
fn recompute(dir: &Path) -> Result<(String, Vec<Check>)> {
    let mut checks = Vec::new();
    let kind: String = Case::open(dir, DType::F64)?.json.read("kind")?;
    let known = KINDS.iter().find(|(known, ..)| *known == kind);
    let (_, dtypes, recompute) = known.with_context(|| format!("unknown kind `{kind}`"))?;
    for dtype in *dtypes {
        let mut case = Case::open(dir, *dtype)?;
        recompute(&mut case).with_context(|| format!("in {}", dtype.name()))?;
        checks.extend(case.finish());
    }
    Ok((kind, checks))
}

/// All folders of this crate below `kind` hold, and are as many as are known.
#[rstest]
#[case::posterior_and_metrics("bayes", 12)]
#[case::deberta("deberta", 10)]
#[case::bert("bert", 2)]
#[case::roberta("roberta", 2)]
#[case::distilbert("distilbert", 2)]
#[case::mpnet("mpnet", 2)]
#[case::modernbert("modernbert", 3)]
#[case::llama("llama", 8)]
#[case::qwen("qwen", 5)]
#[case::mistral("mistral", 2)]
#[case::adapters("peft", 19)]
#[case::tokenizers("tokenizers", 8)]
#[case::training_runs("train", 2)]
fn recorded_folders_hold(#[case] kind: &str, #[case] count: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(kind);
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert_eq!(folders.len(), count);
    for dir in folders {
        let outcome = Outcome::of(&dir);
        assert!(outcome.holds(), "{outcome}");
    }
}

#[test]
#[ignore = "`cargo xtask golden DIR…` runs it"]
fn given_folders_hold() {
    use std::io::Write;

    let given = std::env::var_os(FOLDERS).expect("folders in the environment");
    let report = std::env::var_os(REPORT).expect("the path of a report in the environment");
    let mut report = std::fs::File::create(report).unwrap();
    let mut missed = 0;
    for dir in std::env::split_paths(&given) {
        let outcome = Outcome::of(&dir);
        missed += usize::from(!outcome.holds());
        write!(report, "{outcome}").unwrap();
    }
    assert_eq!(missed, 0, "folders that do not hold");
}
