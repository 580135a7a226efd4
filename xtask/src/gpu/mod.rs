//! `cargo xtask gpu-bench`: measurements of a borrowed GPU.
//!
//! | file | what |
//! |---|---|
//! | `stages.txt` | every stage: its time limit and its program |
//! | `run.sh` | runs them on the borrowed machine |
//! | `page.md.jinja` | the page of their results |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::bench::programs::median;
use crate::bench::report::render;
use crate::{forward, process, workspace};

const PAGE: &str = "docs/results/gpu.md";
const RUN: &str = include_str!("run.sh");
const STAGES: &str = include_str!("stages.txt");
/// A file of [`RUN`].
const RESULTS: &str = "results.jsonl";
const MODELS: &str = "benches/src/models";
const PEER: &str = "xtask/python/torch_step.py";
/// Libraries of every system on which a GPU's driver runs; others travel along.
const USUAL: [&str; 9] = [
    "linux-vdso",
    "ld-linux",
    "libc.",
    "libm.",
    "libdl.",
    "librt.",
    "libpthread.",
    "libgcc_s.",
    "libstdc++.",
];
/// Size from which an archive is too large for some ways of carrying it.
const LARGE: u64 = 64 << 20;
/// Values that the lines of several calls of `run.sh` share, or else they are no one measurement.
const SAME: [&str; 4] = ["device", "gpu", "revision", "tiny"];

/// Parts of `gpu-bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Build the program, and lay it into FOLDER and FOLDER.tar.gz with what runs it there: `run.sh OUT`.
    Pack {
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// Backend to build for.
        #[arg(long, default_value = "cuda", value_parser = ["cuda", "wgpu"])]
        features: String,
        /// A `step` of `lrvd-perf` that is built already.
        #[arg(long, value_name = "STEP")]
        program: Option<PathBuf>,
    },
    /// Write docs/results/gpu.md from the folder that `run.sh` filled; the page of a rehearsal is only printed.
    Page {
        #[arg(value_name = "OUT")]
        results: PathBuf,
        /// Only print.
        #[arg(long)]
        print: bool,
    },
}

pub(crate) fn run(action: &Action) -> Result<ExitCode> {
    let root = workspace::root()?;
    match action {
        Action::Pack { out, features, program } => {
            let build = ["--release", "--package", "lrvd-perf", "--bin", "step", "--features"];
            let program = match program {
                Some(program) => program.clone(),
                None => forward::build(&root, &[&build[..], &[features]].concat(), "step")?,
            };
            pack(&root, &program, features, out)?;
        }
        Action::Page { results, print } => {
            let file = results.join(RESULTS);
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read `{}`", file.display()))?;
            let values = values(&text).with_context(|| format!("`{}`", file.display()))?;
            let page = render(include_str!("page.md.jinja"), &values)?;
            if *print || values["machine"]["tiny"] == true {
                print!("{page}");
            } else {
                std::fs::write(root.join(PAGE), page)
                    .with_context(|| format!("cannot write `{PAGE}`"))?;
                eprintln!("wrote {PAGE}; its row of docs/results/README.md is written by hand");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lays `program` and what runs it into `folder`, and packs it.
fn pack(root: &Path, program: &Path, device: &str, folder: &Path) -> Result<()> {
    if folder.exists() {
        bail!("`{}` exists", folder.display());
    }
    let copy = |from: &Path, to: &str| {
        let to = folder.join(to);
        std::fs::create_dir_all(to.parent().unwrap_or(folder))?;
        std::fs::copy(from, &to).with_context(|| format!("cannot copy `{}`", from.display()))?;
        Ok::<_, anyhow::Error>(to)
    };
    let step = copy(program, "step")?;
    // A release is stripped; another build may be ten times as large.
    process::works(Command::new("strip").arg(&step));
    copy(&root.join(PEER), "torch_step.py")?;
    for file in std::fs::read_dir(root.join(MODELS))? {
        let file = file?;
        copy(&file.path(), &format!("models/{}", file.file_name().display()))?;
    }
    let linked = process::output(Command::new("ldd").arg(&step)).unwrap_or_default();
    for library in carried(&linked) {
        copy(library, &format!("lib/{}", library.file_name().unwrap_or_default().display()))?;
    }
    let revision = forward::revision(root).unwrap_or_else(|| "unknown".to_owned());
    for (name, text) in
        [("stages.txt", STAGES), ("device", device), ("revision", &revision), ("run.sh", RUN)]
    {
        std::fs::write(folder.join(name), text)?;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(folder.join("run.sh"), std::fs::Permissions::from_mode(0o755))?;
    }
    let archive = PathBuf::from(format!("{}.tar.gz", folder.display()));
    let name = folder.file_name().context("a folder without a name")?;
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&archive).arg("-C").arg(parent.unwrap_or(Path::new("."))).arg(name);
    process::run(&mut tar)?;
    let bytes = std::fs::metadata(&archive)?.len();
    eprintln!("wrote {} and {}, {} MiB", folder.display(), archive.display(), bytes >> 20);
    if bytes > LARGE {
        eprintln!("warning: more than {} MiB", LARGE >> 20);
    }
    Ok(())
}

/// The libraries in the output of `ldd` that travel with the program.
fn carried(ldd: &str) -> Vec<&Path> {
    let lines = ldd.lines().filter_map(|line| line.trim().split_once(" => "));
    let unusual = lines.filter(|(name, _)| !USUAL.iter().any(|usual| name.starts_with(usual)));
    unusual.filter_map(|(_, path)| Some(Path::new(path.split(" (").next()?))).collect()
}

/// The lines of one stage, those of its last start.
#[derive(Default)]
struct Stage {
    lines: Vec<Value>,
    /// `None` while it runs, and where the run was cut off.
    end: Option<Value>,
}

/// Values of the page, from the lines of `results.jsonl`.
fn values(text: &str) -> Result<Value> {
    let mut machine: Option<Value> = None;
    let mut stages = BTreeMap::<String, Stage>::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let value: Value = match serde_json::from_str(line) {
            Ok(value) => value,
            // The run was cut off while it wrote.
            Err(_) if lines.peek().is_none() => break,
            Err(error) => bail!("line {}: {error}", index + 1),
        };
        let name =
            value["stage"].as_str().with_context(|| format!("line {}: no stage", index + 1))?;
        if name == "machine" {
            let other =
                machine.as_ref().and_then(|old| SAME.iter().find(|key| old[**key] != value[**key]));
            if let Some(key) = other {
                bail!("line {}: `{key}` differs from that of an earlier run", index + 1);
            }
            machine = Some(value);
            continue;
        }
        let stage = stages.entry(name.to_owned()).or_default();
        if !value["started"].is_null() {
            *stage = Stage::default();
        } else if !value["status"].is_null() {
            stage.end = Some(value);
        } else {
            stage.lines.push(value);
        }
    }
    let machine = machine.context("no line of the machine")?;
    let names = STAGES.lines().filter(|line| !line.starts_with('#'));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let in_order: Vec<(&str, Option<&Stage>)> =
        names.map(|name| (name, stages.get(name))).collect();
    let lines = |key: &'static str| {
        let of_stages = in_order.iter().filter_map(|(_, stage)| *stage);
        of_stages.flat_map(|stage| &stage.lines).filter(move |line| !line[key].is_null())
    };
    let checks: Vec<&Value> = lines("check").collect();
    let operators: Vec<&Value> = lines("case").collect();
    let failed = checks.iter().filter_map(|check| check["failed"].as_array()).flatten();
    let failures: Vec<&str> = failed
        .chain(operators.iter().map(|row| &row["failed"]))
        .filter_map(Value::as_str)
        .collect();
    let timed: Vec<(&Stage, &Value)> = in_order
        .iter()
        .filter_map(|(_, stage)| *stage)
        .flat_map(|stage| stage.lines.iter().map(move |line| (stage, line)))
        .filter(|(_, line)| line["seconds"].is_array())
        .collect();
    let versions = timed.iter().find_map(|(_, line)| line["versions"].as_object());
    let versions = versions.map(|all| {
        all.iter()
            .map(|(name, v)| format!("{name} {}", v.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
    });
    Ok(json!({
        "versions": versions.map_or_else(|| "not measured".to_owned(), |all| all.join(", ")),
        "has_card": timed.iter().any(|(stage, _)| !card_mib(stage).is_null()),
        "steps": timed.iter().filter(|(_, line)| line["framework"] == "lrvd").map(|own| row(own, &timed)).collect::<Vec<_>>(),
        "missing": in_order.iter().filter_map(|(name, stage)| {
            let why = unmeasured(*stage)?;
            Some(json!({ "stage": name, "why": why }))
        }).collect::<Vec<_>>(),
        "facts": lines("formats").next(),
        "operators": operators.into_iter().map(compared).collect::<Vec<_>>(),
        "checks": checks,
        "failures": failures,
        "machine": machine,
    }))
}

/// A line of a kernel and its composition, with its differences as the page shows them.
fn compared(line: &Value) -> Value {
    let mut row = line.clone();
    for key in ["difference", "gradient_difference"] {
        // Infinity and NaN are null in JSON.
        let shown = line[key].as_f64().map(|difference| format!("{difference:.1e}"));
        row[key] = json!(shown.unwrap_or_else(|| "not finite".to_owned()));
    }
    row
}

/// A step of ours beside that of `PyTorch` with the same model, texts and format.
fn row((stage, line): &(&Stage, &Value), timed: &[(&Stage, &Value)]) -> Value {
    let format = if line["base"] == "bf16" { "bfloat16" } else { "float32" };
    let is_peer = |other: &Value| {
        other["dtype"] == format
            && ["config", "batch", "length"].iter().all(|key| other[*key] == line[*key])
    };
    let peer = timed.iter().find(|(_, other)| is_peer(other));
    json!({
        "config": line["config"],
        "method": line["method"],
        "base": line["base"],
        "loss": line["loss"],
        "ours": side(stage, line),
        "peer": peer.map(|(stage, line)| side(stage, line)),
    })
}

fn side(stage: &Stage, line: &Value) -> Value {
    let seconds: Vec<f64> = serde_json::from_value(line["seconds"].clone()).unwrap_or_default();
    let seconds = median(&seconds);
    let tokens = ["batch", "length"].map(|key| line[key].as_f64().unwrap_or(f64::NAN));
    json!({
        "seconds": seconds,
        "tokens_per_second": tokens[0] * tokens[1] / seconds,
        "card_mib": card_mib(stage),
        "process_mib": line["peak_rss_bytes"].as_u64().map(|bytes| bytes >> 20),
    })
}

fn card_mib(stage: &Stage) -> Value {
    stage.end.as_ref().map_or(Value::Null, |end| end["card_mib"].clone())
}

/// Why a stage has no numbers, if it has none.
fn unmeasured(stage: Option<&Stage>) -> Option<String> {
    let Some(stage) = stage else { return Some("not reached".to_owned()) };
    let Some(end) = &stage.end else { return Some("the run was cut off".to_owned()) };
    let unsupported = stage.lines.iter().find_map(|line| line["unsupported"].as_str());
    let status = end["status"].as_str().unwrap_or_default();
    match (status, end["note"].as_str().unwrap_or_default()) {
        ("done", _) => unsupported.map(str::to_owned),
        (status, "") => Some(status.to_owned()),
        (status, note) => Some(format!("{status}: {}", note.replace('|', "\\|"))),
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tempfile::TempDir;

    use super::*;

    /// A program that does what its first argument says, in place of `step`.
    const STEP: &str = r#"#!/usr/bin/env bash
case $1 in
    --facts) echo '{"formats":["f32"]}' ;;
    --nan) echo '{"case":"dropout 3","format":"f32","difference":null,"gradient_difference":0.5,"holds":false,"failed":"dropout: \"1\" for 2"}'
        echo 'Error: "1 check failed"' >&2; exit 1 ;;
    --memory) echo "thread 'main' panicked at alloc.rs:1:" >&2; echo 'out of memory' >&2
        echo 'note: run with RUST_BACKTRACE=1' >&2; exit 101 ;;
    --hang) echo '{"check":"f32","operators":["a"],"cases":2,"failed":[]}'; sleep 60 ;;
    --crash) kill -KILL $$ ;;
    --no-bf16) echo '{"unsupported":"no bf16"}' ;;
    --step) echo 'words that are no result'
        echo '{"framework":"lrvd","config":"base","method":"lora","base":"f32","batch":8,"length":128,"loss":0.5,"seconds":[0.5,0.25,1.0]}' ;;
esac
"#;

    /// A folder as it is packed, with `stages` and the program above.
    fn packed(stages: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let step = folder.path().join("fake");
        std::fs::write(&step, STEP).unwrap();
        process::run(Command::new("chmod").arg("+x").arg(&step)).unwrap();
        let root = workspace::root().unwrap();
        let pack_folder = folder.path().join("pack");
        pack(&root, &step, "cuda", &pack_folder).unwrap();
        assert!(folder.path().join("pack.tar.gz").is_file());
        assert!(pack_folder.join("models/base.json").is_file());
        std::fs::write(pack_folder.join("stages.txt"), stages).unwrap();
        folder
    }

    /// The exit status of `run.sh`, and what it left.
    fn measure(folder: &TempDir, more: &[&str]) -> (Option<i32>, String) {
        let out = folder.path().join("out");
        let mut command = Command::new("bash");
        command
            .arg(folder.path().join("pack/run.sh"))
            .arg(&out)
            .args(["--python", "no-such-python"])
            .args(more);
        let status = command.output().unwrap().status.code();
        (status, std::fs::read_to_string(out.join(RESULTS)).unwrap_or_default())
    }

    #[test]
    fn every_way_to_fail_is_recorded_and_the_others_go_ahead() {
        let folder = packed(
            "device 9 ours --facts\ndropout 9 ours --nan\nllama-1b-lora-bf16 9 step --memory\n\
             noise 1 ours --hang\ncomposites 9 ours --crash\nbase-lora-bf16 9 step --no-bf16\n\
             base-pytorch-f32 9 pytorch --config base\nbase-lora-f32 9 step --step\n",
        );
        let (status, text) = measure(&folder, &[]);
        assert_eq!(status, Some(1), "{text}");
        let found = values(&text).unwrap();
        let missing = found["missing"].as_array().unwrap().iter();
        let why: BTreeMap<&str, &str> = missing
            .map(|row| (row["stage"].as_str().unwrap(), row["why"].as_str().unwrap()))
            .collect();
        assert_eq!(why["dropout"], "failed: Error: \"1 check failed\"");
        assert_eq!(why["llama-1b-lora-bf16"], "failed: out of memory");
        assert_eq!(why["noise"], "timed out: 1 s");
        assert!(why["composites"].starts_with("failed: killed"), "{why:?}");
        assert_eq!(why["base-lora-bf16"], "no bf16");
        assert!(why["base-pytorch-f32"].starts_with("skipped: `no-such-python` has no"), "{why:?}");
        assert_eq!(why["kl_log_uniform"], "not reached");
        assert!(!why.contains_key("base-lora-f32"), "{why:?}");
        // What came before an end is kept.
        assert_eq!(found["checks"].as_array().unwrap().len(), 1);
        assert_eq!(found["failures"], json!(["dropout: \"1\" for 2"]));
        let ours = &found["steps"][0]["ours"];
        assert_eq!((&ours["seconds"], &ours["tokens_per_second"]), (&json!(0.5), &json!(2048.0)));
        let page = render(include_str!("page.md.jinja"), &found).unwrap();
        assert!(
            page.contains("| base | lora | f32 | 500 ms, 2048 tokens/s | 0.500 |  |  |"),
            "{page}"
        );
        assert!(
            page.contains("| dropout 3 | f32 | | | | not finite | 5.0e-1 | **no** |"),
            "{page}"
        );
    }

    #[test]
    fn a_later_run_adds_what_is_not_done() {
        let folder = packed("device 9 ours --facts\nnoise 1 ours --hang\n");
        assert_eq!(measure(&folder, &[]).0, Some(1));
        // Nothing is overwritten.
        assert_eq!(measure(&folder, &[]).0, Some(2));
        std::fs::write(
            folder.path().join("pack/stages.txt"),
            "device 9 ours --facts\nnoise 9 ours --facts\n",
        )
        .unwrap();
        let (status, text) = measure(&folder, &["--resume"]);
        assert_eq!(status, Some(0), "{text}");
        let starts = text.lines().filter(|line| line.contains("started")).count();
        assert_eq!(starts, 3, "{text}");
        let found = values(&text).unwrap();
        let rows = found["missing"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["why"] == "not reached"), "{rows:?}");
        assert!(
            found["checks"].as_array().unwrap().is_empty(),
            "those of the cut start are dropped"
        );
        assert!(values(&text.replacen("\"cuda\"", "\"wgpu\"", 1)).is_err());
    }

    #[test]
    fn without_a_device_nothing_else_is_tried() {
        let folder = packed("device 9 ours --memory\nnoise 9 ours --facts\n");
        let (status, text) = measure(&folder, &[]);
        assert_eq!((status, text.matches("started").count()), (Some(1), 1), "{text}");
        for bad in [&["--fast"][..], &["--minutes", "0"], &["--device"], &["second"]] {
            assert_eq!(measure(&folder, bad).0, Some(2), "{bad:?}");
        }
    }

    #[test]
    fn a_run_that_was_cut_off_keeps_its_lines() {
        let text = "{\"stage\":\"machine\",\"device\":\"cuda\"}\n{\"stage\":\"noise\",\"started\":\"1\"}\n\
                    {\"stage\":\"noise\",\"check\":\"f32\",\"failed\":[]}\n{\"stage\":\"noi";
        let found = values(text).unwrap();
        assert_eq!(found["checks"].as_array().unwrap().len(), 1);
        let missing = found["missing"].as_array().unwrap();
        let noise = missing.iter().find(|row| row["stage"] == "noise").unwrap();
        assert_eq!(noise["why"], "the run was cut off");
        let error = values(&format!("{text}\n{{}}\n")).unwrap_err().to_string();
        assert!(error.starts_with("line 4: "), "{error}");
    }

    /// A typing error would show on the borrowed machine.
    #[test]
    fn every_stage_names_operators_and_models_that_exist() {
        let root = workspace::root().unwrap();
        let cases = root.join("crates/lrvd-burn/tests/ops_checks/cases.rs");
        let cases = std::fs::read_to_string(cases).unwrap();
        for line in STAGES.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(words[1].parse::<u32>().is_ok(), "{line}");
            assert!(["ours", "step", "pytorch"].contains(&words[2]), "{line}");
            let value = |option| {
                let place = words.iter().position(|word| *word == option)?;
                words.get(place + 1).copied()
            };
            for operator in value("--operators").into_iter().flat_map(|names| names.split(',')) {
                assert!(cases.contains(&format!("\"{operator} ")), "{operator}");
            }
            if let Some(model) = value("--config") {
                assert!(root.join(MODELS).join(format!("{model}.json")).is_file(), "{model}");
            }
        }
    }

    #[test]
    fn libraries_that_a_system_may_lack_travel_along() {
        let ldd = "\tlinux-vdso.so.1 (0x1)\n\tlibz3.so.4 => /lib/libz3.so.4 (0x2)\n\
                   \tlibc.so.6 => /lib/libc.so.6 (0x3)\n\t/lib64/ld-linux-x86-64.so.2 (0x4)\n";
        assert_eq!(carried(ldd), [Path::new("/lib/libz3.so.4")]);
    }
}
