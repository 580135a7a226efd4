//! One plan, many workers: claims, dependencies, kill and resume, and the same results as one process.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{done, lines, lrvd, run};

/// A grid with matched ranks and an ensemble: one task, one seed, so few steps that a run takes a second.
fn grid<'a>(option: &'a str, out: &'a str, methods: &'a str, steps: &'a str) -> Vec<&'a str> {
    let mut all = vec!["bench", "glue", "--quiet", "--tasks", "cola", "--methods", methods];
    all.extend(["--seeds", "1", "--steps", steps, "--draws", "2", option, out]);
    all.extend(["--preset", "constant-weight", "--set", "validation_rows=20"]);
    all.extend(["--set", "evaluate_every=4"]);
    all
}

const MATCHED: &str = "lora,adalora,bayeslora";

fn manifest(out: &Path) -> Vec<Value> {
    lines(&std::fs::read_to_string(out.join("plan/runs.jsonl")).unwrap())
}

/// `results.json` without times, and without what names the folder.
fn results(out: &Path) -> Value {
    fn untimed(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for time in [
                    "started_at",
                    "finished_at",
                    "train_seconds",
                    "evaluate_seconds",
                    "predict_seconds",
                    "peak_memory_bytes",
                    "command",
                ] {
                    map.remove(time);
                }
                map.values_mut().for_each(untimed);
            }
            Value::Array(all) => all.iter_mut().for_each(untimed),
            _ => {}
        }
    }
    let text = std::fs::read_to_string(out.join("results.json")).unwrap();
    let mut value = serde_json::from_str(&text.replace(&out.display().to_string(), "OUT")).unwrap();
    untimed(&mut value);
    value
}

/// Starts the run `index` and waits for a checkpoint of it.
fn started(out: &Path, index: usize) -> Child {
    let child = Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
        .args(["bench", "run", "--index", &index.to_string(), "--plan"])
        .arg(out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let checkpoints =
        out.join(manifest(out)[index]["folder"].as_str().unwrap()).join("checkpoints");
    let is_after_first = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let step = name.ok().and_then(|name| name.strip_prefix("step-")?.parse::<usize>().ok());
        step.is_some_and(|step| step > 0)
    };
    while !std::fs::read_dir(&checkpoints).is_ok_and(|mut entries| entries.any(is_after_first)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

/// How many runs are in each state.
fn states(out: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let status = done(&["bench", "status", out, "--format", "json"]).json();
    for run in status["runs"].as_array().unwrap() {
        *counts.entry(run["state"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    counts
}

#[test]
fn runs_made_one_by_one_give_what_one_process_gives() {
    let dir = tempfile::tempdir().unwrap();
    let [one, many] = ["one", "many"].map(|name| dir.path().join(name));
    let [one_name, many_name] = [&one, &many].map(|out| out.display().to_string());
    done(&grid("--out", &one_name, MATCHED, "4"));
    done(&grid("--plan", &many_name, MATCHED, "4"));
    let lines = manifest(&many);
    let of = |key: &str| lines.iter().map(|line| line[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("method"), ["BayesLoRA", "AdaLoRA", "LoRA"]);
    assert!(of("steps").iter().all(|steps| *steps == 4));
    assert_eq!(lines[0]["needs"], serde_json::json!([]));
    for line in &lines[1..] {
        assert_eq!(line["needs"], serde_json::json!([lines[0]["id"]]));
        assert!(line["memory_gib"].as_f64().unwrap() > 0.0);
    }
    // The ids follow from settings and data, not from the folder.
    let ids = |out: &Path| manifest(out).into_iter().map(|l| l["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&one), ids(&many));
    assert_eq!(
        states(&many_name),
        BTreeMap::from([("ready".to_owned(), 1), ("waiting".to_owned(), 2)])
    );

    let make = |variable: &str, index: &str| {
        let output =
            lrvd().args(["bench", "run", "--plan", &many_name]).env(variable, index).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = make("JOB_COMPLETION_INDEX", "2");
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("needs CoLA / BayesLoRA / seed 1, which is not finished"), "{said}");
    assert!(!many.join("runs").exists(), "nothing is started");
    for (variable, index) in
        [("SLURM_ARRAY_TASK_ID", "0"), ("JOB_COMPLETION_INDEX", "2"), ("SLURM_ARRAY_TASK_ID", "1")]
    {
        let (code, said) = make(variable, index);
        assert_eq!(code, Some(0), "{said}");
        let partial = done(&["bench", "collect", &many_name]);
        assert!(partial.stdout.contains("BayesLoRA"), "{}", partial.stdout);
    }
    let record = many.join("runs/cola/lora/seed-1/record.json");
    let before = std::fs::read(&record).unwrap();
    done(&["bench", "run", "--plan", &many_name, "--index", "2"]);
    assert_eq!(std::fs::read(&record).unwrap(), before, "done is done");
    assert_eq!(results(&many), results(&one));
    assert_eq!(states(&many_name), BTreeMap::from([("finished".to_owned(), 3)]));
    assert!(record.with_file_name("metrics.jsonl").is_file());
    assert_eq!(std::fs::read_dir(many.join("plan/claims")).unwrap().count(), 0);

    run(&["bench", "run", "--plan", &many_name, "--index", "3"])
        .rejected("the plan has no run `3`");
    run(&["bench", "status", &dir.path().display().to_string()]).rejected("holds no plan");
}

#[test]
fn a_killed_and_a_signalled_run_continue_and_end_in_the_same_results() {
    let dir = tempfile::tempdir().unwrap();
    let [one, many] = ["one", "many"].map(|name| dir.path().join(name));
    let [one_name, many_name] = [&one, &many].map(|out| out.display().to_string());
    done(&grid("--out", &one_name, "lora,mcd", "24"));
    done(&grid("--plan", &many_name, "lora,mcd", "24"));
    let make = |index: &str| run(&["bench", "run", "--plan", &many_name, "--index", index]);

    let mut killed = started(&many, 0);
    let busy = make("0");
    assert!(busy.code == 75 && busy.stderr.contains("makes it"), "{} {}", busy.code, busy.stderr);
    let _ = killed.kill();
    assert!(!killed.wait().unwrap().success());
    // Its claim is still there, and its lock is not.
    assert_eq!(std::fs::read_dir(many.join("plan/claims")).unwrap().count(), 1);
    assert_eq!(
        states(&many_name),
        BTreeMap::from([("interrupted".to_owned(), 1), ("ready".to_owned(), 1)])
    );
    assert_eq!(make("0").code, 0);

    let signalled = started(&many, 1);
    signal(&signalled, "-USR1");
    let output = signalled.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.ends_with("interrupted after a checkpoint\n"), "{said}");
    assert_eq!(make("1").code, 0);
    // It continued where it was.
    let metrics = many.join("runs/cola/mcd/seed-1/metrics.jsonl");
    let starts: Vec<u64> = lines(&std::fs::read_to_string(metrics).unwrap())
        .iter()
        .filter(|line| line["event"] == "run")
        .map(|line| line["done"].as_u64().unwrap())
        .collect();
    assert!(matches!(starts[..], [0, resumed] if resumed > 0), "{starts:?}");
    done(&["bench", "collect", &many_name]);
    assert_eq!(results(&many), results(&one));
}

#[test]
fn two_workers_make_every_run_once() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let name = out.display().to_string();
    done(&grid("--plan", &name, "lora,ens-3,mcd,bayeslora", "3"));
    let worker = || {
        let command = ["bench", "run", "--all", "--plan", &name];
        let mut worker = Command::new(assert_cmd::cargo::cargo_bin("lrvd"));
        worker.args(command).env("SLURM_ARRAY_TASK_ID", "0").stderr(Stdio::null()).spawn().unwrap()
    };
    for mut worker in [worker(), worker(), worker()] {
        assert!(worker.wait().unwrap().success());
    }
    let lines_of = |run: &Value| -> Vec<Value> {
        let path: PathBuf = out.join(run["folder"].as_str().unwrap()).join("metrics.jsonl");
        std::fs::read_to_string(path).map_or_else(|_| Vec::new(), |text| lines(&text))
    };
    for run in manifest(&out) {
        let starts = lines_of(&run).iter().filter(|line| line["event"] == "run").count();
        let is_row_of_others = run["steps"] == 0;
        assert_eq!(starts, usize::from(!is_row_of_others), "{run}");
    }
    assert_eq!(states(&name), BTreeMap::from([("finished".to_owned(), 7)]));
    let one = dir.path().join("one").display().to_string();
    done(&grid("--out", &one, "lora,ens-3,mcd,bayeslora", "3"));
    done(&["bench", "collect", &name]);
    assert_eq!(results(&out), results(Path::new(&one)));
}

#[test]
fn a_failed_run_is_reported_and_ends_what_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let name = out.display().to_string();
    done(&grid("--plan", &name, MATCHED, "2"));
    let file = out.join("data/CoLA/train.tsv");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.split_once('\n').unwrap().1).unwrap();
    let make = |index: &str| run(&["bench", "run", "--plan", &name, "--index", index]);
    make("0").rejected("the data files of cola in");
    make("1").rejected("needs CoLA / BayesLoRA / seed 1, which failed: the data files of cola");
    assert_eq!(states(&name)["failed"], 1);
    std::fs::write(&file, text).unwrap();
    run(&["bench", "run", "--plan", &name]);
    assert_eq!(states(&name), BTreeMap::from([("finished".to_owned(), 3)]));
}

#[test]
fn jobs_are_rendered_as_they_would_be_submitted() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = |suite: &str, settings: &str, more: &[&str]| {
        let file = dir.path().join("grid.toml");
        std::fs::write(&file, settings).unwrap();
        let config = file.display().to_string();
        let mut command =
            vec!["bench", suite, "--dry-run", "--plan", "/mnt/grids/one", "--config", &config];
        command.extend(more);
        run(&command)
    };
    let expected = |file: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/jobs");
        std::fs::read_to_string(folder.join(file)).unwrap()
    };
    let slurm = "steps = 3\n[cluster]\nengine = \"slurm\"\ntime = \"04:00:00\"\npartition = \"gpu\"\n\
                 gpus = 1\nat_once = 20\nsetup = [\"module load cuda/12.4\"]\noptions = [\"--account=lab\"]\n";
    let shown = jobs("glue", slurm, &["--tasks", "cola,sst2", "--seeds", "1,2,3"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert_eq!(shown.stdout, expected("slurm.sh"));
    let kubernetes = "[cluster]\nimage = \"lab/lrvd:0.1\"\ngpus = 1\ncpus = 8\nmemory = \"64Gi\"\n\
                      queue = \"gpus\"\nnamespace = \"lab\"\nvolume = \"grids\"\nmount = \"/mnt/grids\"\n";
    let shown = jobs("reasoning", kubernetes, &["--cluster", "kubernetes"]);
    assert_eq!(shown.stdout, expected("kubernetes.yaml"), "{}", shown.stderr);

    // A template of one's own.
    let template = dir.path().join("own.sh");
    std::fs::write(&template, "{{ name }} {{ array }} {{ cluster.program }} {{ out | shell }}\n")
        .unwrap();
    let own = template.display().to_string();
    let more = ["--tasks", "cola", "--seeds", "1", "--template", &own];
    let shown = jobs("glue", "[cluster]\nengine = \"slurm\"\nname = \"mine\"\n", &more);
    let expected = "# sbatch --parsable /mnt/grids/one/plan/job-0.sh\nmine 0 lrvd /mnt/grids/one\n\n\
                    # sbatch --parsable /mnt/grids/one/plan/job-1.sh\nmine 1-2 lrvd /mnt/grids/one\n\n";
    assert_eq!(shown.stdout, expected, "{}", shown.stderr);
    std::fs::write(&template, "{{ partion }}\n").unwrap();
    jobs("glue", "[cluster]\nengine = \"slurm\"\n", &more).rejected("undefined");

    let rejected = |settings: &str, more: &[&str], message: &str| {
        jobs("glue", settings, more).rejected(message);
    };
    rejected("[cluster]\nengine = \"pbs\"\n", &[], "`pbs`");
    rejected("[cluster]\npartion = \"gpu\"\n", &["--cluster", "slurm"], "`partion`");
    rejected(
        "[cluster]\nqueue = \"x\"\n",
        &["--cluster", "slurm"],
        "setting `cluster.queue` has no effect",
    );
    rejected("", &["--cluster", "kubernetes"], "setting `cluster.image` is missing");
    rejected("", &["--cluster", "slrum"], "`slurm`");
    let elsewhere = "[cluster]\nimage = \"i\"\nvolume = \"v\"\nmount = \"/srv\"\n";
    rejected(elsewhere, &["--cluster", "kubernetes"], "is not below `cluster.mount`");
}
