//! Jobs that make the runs of a plan: an array of Slurm, an indexed Job of Kubernetes.
//!
//! ```toml
//! [cluster]                        # in an arms file, or in the file of `--config`
//! engine = "slurm"
//! time = "04:00:00"
//! partition = "gpu"
//! gpus = 1
//! at_once = 20
//! setup = ["module load cuda/12.4"]
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::runs::{PLAN_DIR, PlannedRun};
use crate::error::Result;
use crate::io::{create_dir, read_text, write_text};
use crate::text::templates;

const SLURM: &str = include_str!("slurm.sh.jinja");
const KUBERNETES: &str = include_str!("kubernetes.yaml.jinja");
const LOGS_DIR: &str = "logs";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    Slurm,
    Kubernetes,
}

impl Engine {
    pub const ALL: [Self; 2] = [Self::Slurm, Self::Kubernetes];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Kubernetes => "kubernetes",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    pub engine: Option<Engine>,
    /// A template of your own instead of the engine's.
    pub template: Option<PathBuf>,
    /// Name of the job; by default the suite's.
    pub name: Option<String>,
    pub at_once: Option<usize>,
    /// The command on a node, before its arguments; by default `lrvd`.
    pub program: Option<String>,
    pub gpus: Option<usize>,
    pub cpus: Option<usize>,
    /// As the engine writes it: `32G`, `32Gi`.
    pub memory: Option<String>,
    /// Container image: a file for Apptainer with Slurm, a reference with Kubernetes.
    pub image: Option<String>,
    /// Seconds for a checkpoint before the time limit, or after a termination; by default 120.
    pub signal: Option<u32>,
    /// Starts after the first at most: of an interrupted run with Slurm, of a crashed one with Kubernetes; by default 100.
    pub restarts: Option<u32>,
    /// Slurm: time limit of one start.
    pub time: Option<String>,
    pub partition: Option<String>,
    /// Slurm: further options of `sbatch`, such as `--account=lab`.
    pub options: Vec<String>,
    /// Slurm: lines of shell before the program, such as `module load cuda`.
    pub setup: Vec<String>,
    pub namespace: Option<String>,
    /// Kubernetes: Kueue's local queue.
    pub queue: Option<String>,
    /// Kubernetes: the persistent volume claim that holds the plan, and where it is mounted.
    pub volume: Option<String>,
    pub mount: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Job {
    pub file: PathBuf,
    pub text: String,
    /// Program and arguments that submit it, without the file and without what it waits for.
    pub submit: Vec<String>,
    pub runs: usize,
}

impl Cluster {
    /// The table `[cluster]` of a settings file or an arms file.
    pub fn of_file(path: &Path) -> Result<Option<Self>> {
        let in_file = |error: toml::de::Error| anyhow!("`{}`: {error}", path.display());
        let mut table: toml::Table = read_text(path)?.parse().map_err(in_file)?;
        let cluster = table.remove("cluster");
        cluster.map(|cluster| cluster.try_into().map_err(in_file)).transpose()
    }

    /// The jobs for the runs of a plan in `out`, an absolute path. Slurm gets an array for the runs that need no other, and
    /// one for each level of dependencies, which starts when the one before has ended; on Kubernetes a run that is too
    /// early exits with 75 and is started again.
    pub fn jobs(
        &self,
        engine: Engine,
        suite: &str,
        out: &Path,
        runs: &[PlannedRun],
    ) -> Result<Vec<Job>> {
        let name = self.name.clone().unwrap_or_else(|| format!("lrvd-{suite}"));
        self.check(engine, &name, out)?;
        let plan = Path::new(PLAN_DIR);
        let program = self.program.as_deref().unwrap_or("lrvd");
        let cluster = Self {
            program: Some(program.to_owned()),
            signal: self.signal.or(Some(120)),
            restarts: self.restarts.or(Some(100)),
            ..self.clone()
        };
        let cluster = Value::from(Serde(cluster));
        match engine {
            Engine::Slurm => {
                let job = |(level, indices): (usize, Vec<usize>)| {
                    let array = ranges(&indices);
                    let array = match self.at_once {
                        Some(at_once) => format!("{array}%{at_once}"),
                        None => array,
                    };
                    let values = context! {
                        name => name.as_str(), array, cluster => cluster.clone(), out => out.display().to_string()
                    };
                    Ok(Job {
                        file: plan.join(format!("job-{level}.sh")),
                        text: self.render(SLURM, &values)?,
                        submit: ["sbatch", "--parsable"].map(str::to_owned).to_vec(),
                        runs: indices.len(),
                    })
                };
                levels(runs).into_iter().enumerate().map(job).collect()
            }
            Engine::Kubernetes => {
                let place = out.display().to_string();
                let program = program.split_whitespace();
                let command = program.chain(["bench", "run", "--plan", &place]);
                let command: Vec<String> = command.map(str::to_owned).collect();
                let at_once = self.at_once.unwrap_or(runs.len()).min(runs.len());
                let values = context! { name, cluster, command, runs => runs.len(), at_once };
                Ok(vec![Job {
                    file: plan.join("job.yaml"),
                    text: self.render(KUBERNETES, &values)?,
                    submit: ["kubectl", "apply", "-f"].map(str::to_owned).to_vec(),
                    runs: runs.len(),
                }])
            }
        }
    }

    /// Rejects values that the engine would misread or silently drop.
    fn check(&self, engine: Engine, name: &str, out: &Path) -> Result<()> {
        let of_other = match engine {
            Engine::Slurm => ["namespace", "queue", "volume", "mount"],
            Engine::Kubernetes => ["time", "partition", "options", "setup"],
        };
        let values = serde_json::to_value(self)?;
        let is_set = |key: &&str| !values[key].is_null() && values[key] != json!([]);
        if let Some(key) = of_other.into_iter().find(is_set) {
            bail!("setting `cluster.{key}` has no effect with the engine {}", engine.name());
        }
        let texts = [&self.name, &self.memory, &self.time, &self.partition, &self.program];
        let lines = texts.into_iter().flatten().chain(&self.options);
        if let Some(text) = lines.into_iter().find(|text| text.contains('\n')) {
            bail!("setting `cluster`: {text:?} has more than one line");
        }
        if self.at_once == Some(0) {
            bail!("setting `cluster.at_once` is 0: expected at least 1");
        }
        if engine == Engine::Slurm {
            return Ok(());
        }
        let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_short = (1..=50).contains(&name.len());
        if !is_short || name.starts_with('-') || !name.chars().all(is_label) {
            bail!(
                "setting `cluster.name` is `{name}`: expected at most 50 of a to z, 0 to 9 and `-`"
            );
        }
        if self.image.is_none() {
            bail!("setting `cluster.image` is missing: the engine kubernetes needs one");
        }
        match (&self.volume, &self.mount) {
            (Some(_), Some(mount)) if out.starts_with(mount) => Ok(()),
            (Some(_), Some(mount)) => bail!(
                "the plan is in `{}`, which is not below `cluster.mount`, `{}`: pods could not see it",
                out.display(),
                mount.display()
            ),
            (None, None) => Ok(()),
            _ => bail!("settings `cluster.volume` and `cluster.mount` belong together"),
        }
    }

    fn render(&self, template: &str, values: &Value) -> Result<String> {
        let own = self.template.as_deref().map(read_text).transpose()?;
        let mut templates = templates()?;
        templates.add_filter("shell", |text: String| shell(&text));
        let rendered = templates.render_str(own.as_deref().unwrap_or(template), values.clone());
        rendered.map_err(|error| {
            let file = self.template.as_deref().unwrap_or(Path::new("the template"));
            anyhow!("`{}`: {error:#}", file.display())
        })
    }
}

impl Job {
    pub fn write(&self, out: &Path) -> Result<PathBuf> {
        create_dir(&out.join(PLAN_DIR).join(LOGS_DIR))?;
        let path = out.join(&self.file);
        write_text(&path, &self.text)?;
        Ok(path)
    }
}

/// Indices of the runs that can be made at once, then of those that need one of these, and so on.
fn levels(runs: &[PlannedRun]) -> Vec<Vec<usize>> {
    let mut depths: BTreeMap<&str, usize> = BTreeMap::new();
    let mut levels: Vec<Vec<usize>> = Vec::new();
    for run in runs {
        let needed = run.needs.iter().filter_map(|id| depths.get(id.as_str()));
        let depth = needed.max().map_or(0, |depth| depth + 1);
        depths.insert(&run.id, depth);
        levels.resize_with(levels.len().max(depth + 1), Vec::new);
        levels[depth].push(run.index);
    }
    levels
}

/// `text` as one word of a shell.
fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Numbers in ascending order as an engine's list: `0-2,5`.
fn ranges(numbers: &[usize]) -> String {
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = match run {
            [one] => write!(text, "{comma}{one}"),
            run => write!(text, "{comma}{}-{}", run[0], run[run.len() - 1]),
        };
    }
    text
}
