//! A sweep on a real Slurm: controller, one node and munge on the loopback interface, in a temporary folder.
//!
//! One task of the array is killed and requeued, another is warned before its time limit, writes a checkpoint and requeues
//! itself; the report must be that of one process, times aside.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{forward, process, workspace};

const PROGRAMS: [&str; 5] = ["munged", "slurmctld", "slurmd", "sbatch", "scontrol"];
/// The grid, with dependencies: LoRA and AdaLoRA are given the ranks of BayesLoRA.
const GRID: [&str; 15] = [
    "bench",
    "glue",
    "--quiet",
    "--tasks",
    "cola",
    "--seeds",
    "1,2",
    "--steps",
    "60",
    "--set",
    "evaluate_every=15",
    "--set",
    "validation_rows=100",
    "--set",
    "max_length=32",
];
/// Indices of the plan: of the task that is killed and of the one that reaches its time limit. They are the first two of
/// the second array, so that both run at once.
const KILLED: usize = 2;
const LIMITED: usize = 3;
/// After so long something is wrong.
const PATIENCE: Duration = Duration::from_mins(10);

/// Starts Slurm, submits the grid to it by `program`, disturbs it, and compares.
pub(crate) fn run(program: Option<&Path>) -> Result<ExitCode> {
    if let Some(missing) = PROGRAMS.iter().find(|name| !is_installed(name)) {
        bail!("`{missing}` is not installed (Debian: apt-get install slurm-wlm munge)");
    }
    let program = match program {
        Some(program) => std::path::absolute(program)?,
        None => {
            let own = ["--package", "lrvd-cli", "--bin", "lrvd"];
            forward::build(&workspace::root()?, &own, "lrvd")?
        }
    };
    let folder = std::env::temp_dir().join(format!("lrvd-slurm-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let outcome = sweep(&program, &folder);
    if outcome.is_err() {
        for log in ["slurmctld.log", "slurmd.log", "munged.log"] {
            let text = fs::read_to_string(folder.join(log)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("---- {log}\n{}", lines[lines.len().saturating_sub(25)..].join("\n"));
        }
    }
    let _ = fs::remove_dir_all(&folder);
    outcome.map(|()| ExitCode::SUCCESS)
}

fn sweep(program: &Path, folder: &Path) -> Result<()> {
    let begun = Instant::now();
    let step = |what: &str| eprintln!("{:5.1} s  {what}", begun.elapsed().as_secs_f64());
    let slurm = Slurm::start(folder)?;
    step("Slurm answers");
    let [one, many] = ["one", "many"].map(|name| folder.join(name));
    let config = folder.join("grid.toml");
    let cluster = format!(
        "[cluster]\nengine = \"slurm\"\nprogram = \"{}\"\nat_once = 2\ncpus = 1\n",
        program.display()
    );
    fs::write(&config, cluster)?;
    let mut plan = slurm.command(program);
    plan.args(GRID).arg("--config").arg(&config).arg("--plan").arg(&many);
    let submitted = process::output(&mut plan)?;
    eprint!("{submitted}");
    // `4 runs: ID`
    let array = submitted.lines().last().and_then(|line| line.split_whitespace().last());
    let array = array.context("the second array has no id")?.to_owned();
    let lines = fs::read_to_string(many.join("plan/runs.jsonl"))?;
    let runs: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;

    let limited = slurm.wait_for(|| Ok(checkpointed(&many, &runs[LIMITED])))?;
    // It does nothing until Slurm has sent its warning, for which it looks every half a minute.
    signal("STOP", limited)?;
    let killed = slurm.wait_for(|| Ok(checkpointed(&many, &runs[KILLED])))?;
    signal("KILL", killed)?;
    step("killed a task");
    let task = format!("{array}_{LIMITED}");
    process::output(slurm.command("scontrol").args([
        "update",
        &format!("JobId={task}"),
        "TimeLimit=1",
    ]))?;
    step("set a time limit of one minute");
    let other = format!("{array}_{KILLED}");
    slurm.wait_for(|| Ok(slurm.state(&other)?.contains("JobState=FAILED").then_some(())))?;
    process::output(slurm.command("scontrol").args(["requeue", &other]))?;
    step("requeued the killed task");
    let warned = format!("/proc/{limited}/status");
    slurm.wait_for(|| Ok(is_pending(&fs::read_to_string(&warned)?).then_some(())))?;
    signal("CONT", limited)?;
    step("Slurm warned the task before its time limit");

    // Meanwhile, the same in one process.
    process::output(slurm.command(program).args(GRID).arg("--out").arg(&one))?;
    step("made the same grid in one process");
    let status = || {
        let mut status = slurm.command(program);
        status.args(["bench", "status", "--format", "json"]).arg(&many);
        let text = process::output(&mut status)?;
        let status: Value = serde_json::from_str(&text)?;
        let runs = status["runs"].as_array().context("`status` lists no runs")?;
        Ok(runs.iter().all(|run| run["state"] == "finished").then_some(()))
    };
    slurm.wait_for(status)?;
    step("every run is finished");
    for task in [other, task] {
        let state = slurm.state(&task)?;
        if !state.contains("Restarts=1") {
            bail!("task {task} was not started twice:\n{state}");
        }
    }
    let log = fs::read_to_string(many.join(format!("plan/logs/{LIMITED}.log")))?;
    if !log.contains("interrupted after a checkpoint") {
        bail!("the task that reached its limit wrote no checkpoint:\n{log}");
    }
    process::output(slurm.command(program).args(["bench", "collect"]).arg(&many))?;
    let [expected, found] = [results(&one)?, results(&many)?];
    if expected != found {
        bail!("results.json differs from that of one process:\n{}", difference(&expected, &found));
    }
    step("results.json is that of one process, times aside");
    println!("slurm-test: 1 passed, 0 failed");
    Ok(())
}

/// A controller, a node and munge, which end with this.
struct Slurm {
    config: PathBuf,
    daemons: Vec<Child>,
    begun: Instant,
}

impl Slurm {
    fn start(folder: &Path) -> Result<Self> {
        let mut slurm =
            Self { config: folder.join("slurm.conf"), daemons: Vec::new(), begun: Instant::now() };
        let (key, socket) = (folder.join("munge.key"), folder.join("munge.socket"));
        let mut bytes = [0; 64];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        fs::write(&key, bytes)?;
        private(&key)?;
        let mut munge = Command::new("munged");
        munge.args(["--foreground", "--force"]);
        for (option, file) in [
            ("key-file", "munge.key"),
            ("socket", "munge.socket"),
            ("pid-file", "munged.pid"),
            ("seed-file", "munged.seed"),
        ] {
            munge.arg(format!("--{option}={}", folder.join(file).display()));
        }
        slurm.daemon(munge, &folder.join("munged.log"))?;
        slurm.wait_for(|| Ok(socket.exists().then_some(())))?;
        fs::write(&slurm.config, configuration(folder, &socket)?)?;
        for name in ["state", "spool"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let mut controller = slurm.command("slurmctld");
        controller.args(["-D", "-i", "-f"]).arg(&slurm.config);
        slurm.daemon(controller, &folder.join("slurmctld.out"))?;
        let mut node = slurm.command("slurmd");
        node.args(["-D", "-N", "node", "-f"]).arg(&slurm.config);
        slurm.daemon(node, &folder.join("slurmd.out"))?;
        slurm.wait_for(|| {
            let mut nodes = slurm.command("scontrol");
            nodes.args(["show", "node", "node"]);
            Ok(process::output(&mut nodes)
                .is_ok_and(|text| text.contains("State=IDLE"))
                .then_some(()))
        })?;
        Ok(slurm)
    }

    fn daemon(&mut self, mut command: Command, log: &Path) -> Result<()> {
        let shown = process::show(&command);
        let log = File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemons.push(command.spawn().with_context(|| format!("cannot start `{shown}`"))?);
        Ok(())
    }

    /// A program of Slurm, or one that calls such.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", &self.config);
        command
    }

    /// What Slurm says of a job.
    fn state(&self, job: &str) -> Result<String> {
        process::output(self.command("scontrol").args(["show", "job", job]))
    }

    /// Asks until there is an answer.
    fn wait_for<T>(&self, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        loop {
            if let Some(answer) = ask()? {
                return Ok(answer);
            }
            if self.begun.elapsed() > PATIENCE {
                let queue = process::output(self.command("squeue").arg("--array"));
                bail!("nothing happens any more; the queue:\n{}", queue.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = process::output(self.command("scancel").args([
            "--user=root",
            "--signal=KILL",
            "--full",
        ]));
        // The node first, munge last.
        for daemon in self.daemons.iter_mut().rev() {
            let _ = signal("TERM", u64::from(daemon.id()));
            let _ = daemon.wait();
        }
    }
}

fn configuration(folder: &Path, socket: &Path) -> Result<String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let [controller, node] = [free_port()?, free_port()?];
    let at = |name: &str| folder.join(name).display().to_string();
    let mut text = format!("ClusterName=lrvd\nSlurmctldHost={}(127.0.0.1)\n", host.trim());
    for (key, value) in [
        ("SlurmUser", "root".to_owned()),
        ("SlurmdUser", "root".to_owned()),
        ("SlurmctldPort", controller.to_string()),
        ("SlurmdPort", node.to_string()),
        ("AuthType", "auth/munge".to_owned()),
        // A requeued job waits until its old credential has expired.
        ("AuthInfo", format!("socket={},cred_expire=5", socket.display())),
        ("StateSaveLocation", at("state")),
        ("SlurmdSpoolDir", at("spool")),
        ("SlurmctldPidFile", at("slurmctld.pid")),
        ("SlurmdPidFile", at("slurmd.pid")),
        ("SlurmctldLogFile", at("slurmctld.log")),
        ("SlurmdLogFile", at("slurmd.log")),
        ("ProctrackType", "proctrack/linuxproc".to_owned()),
        ("TaskPlugin", "task/none".to_owned()),
        ("MpiDefault", "none".to_owned()),
        ("SchedulerType", "sched/builtin".to_owned()),
        (
            "SchedulerParameters",
            "sched_interval=1,sched_min_interval=0,batch_sched_delay=0".to_owned(),
        ),
        ("SelectType", "select/cons_tres".to_owned()),
        ("SelectTypeParameters", "CR_CPU".to_owned()),
        ("AccountingStorageType", "accounting_storage/none".to_owned()),
        ("JobCompType", "jobcomp/none".to_owned()),
        ("JobAcctGatherType", "jobacct_gather/none".to_owned()),
        ("KillWait", "5".to_owned()),
        // As many processors as the test needs, whatever the machine has.
        ("SlurmdParameters", "config_overrides".to_owned()),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key}={value}");
    }
    text.push_str("NodeName=node NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\n");
    text.push_str("PartitionName=all Nodes=node Default=YES MaxTime=INFINITE State=UP\n");
    Ok(text)
}

#[expect(
    clippy::disallowed_types,
    reason = "daemons of a test need ports that no other program has"
)]
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Leaves the file to its owner.
fn private(path: &Path) -> Result<()> {
    let mut mode = Command::new("chmod");
    process::output(mode.arg("400").arg(path)).map(|_| ())
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn signal(name: &str, process_id: u64) -> Result<()> {
    let mut kill = Command::new("kill");
    process::output(kill.args(["-s", name, &process_id.to_string()])).map(|_| ())
}

/// The process that makes `run`, once there is a checkpoint of it.
fn checkpointed(out: &Path, run: &Value) -> Option<u64> {
    let [id, folder] = ["id", "folder"].map(|key| run[key].as_str().unwrap_or_default());
    let is_after_first = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let step = name.ok().and_then(|name| name.strip_prefix("step-")?.parse::<usize>().ok());
        step.is_some_and(|step| step > 0)
    };
    let checkpoints = fs::read_dir(out.join(folder).join("checkpoints"));
    if !checkpoints.is_ok_and(|mut entries| entries.any(is_after_first)) {
        return None;
    }
    let claim =
        fs::read_to_string(out.join("plan/claims").join(format!("{id}.0"))).unwrap_or_default();
    let claim: Value = serde_json::from_str(&claim).unwrap_or_default();
    claim["process"].as_u64()
}

/// Whether SIGUSR1 (10) waits for the process whose `status` file this is.
fn is_pending(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let mask = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| (mask >> 9) & 1 == 1)
}

/// `results.json` without times, and without the folder's name.
fn results(out: &Path) -> Result<Value> {
    let text = fs::read_to_string(out.join("results.json"))?;
    let mut results = serde_json::from_str(&text.replace(&out.display().to_string(), "OUT"))?;
    forget_times(&mut results);
    Ok(results)
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| {
                !key.ends_with("_at")
                    && !key.ends_with("_seconds")
                    && key != "peak_memory_bytes"
                    && key != "command"
            });
            map.values_mut().for_each(forget_times);
        }
        Value::Array(all) => all.iter_mut().for_each(forget_times),
        _ => {}
    }
}

/// The lines of both that differ first.
fn difference(a: &Value, b: &Value) -> String {
    let [a, b] = [a, b].map(|value| format!("{value:#}"));
    let differ = a.lines().zip(b.lines()).filter(|(a, b)| a != b);
    differ.take(5).map(|(a, b)| format!("{a}   {b}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_signal_is_seen() {
        assert!(is_pending("Name:\tlrvd\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000200\n"));
        assert!(!is_pending("ShdPnd:\t0000000000000100\n"));
        assert!(!is_pending(""));
    }
}
