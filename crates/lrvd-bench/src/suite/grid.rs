//! The grid of a suite: its defaults in each profile, the options that change them, the runs that follow, and the files of a
//! plan.
//!
//! | file below `plan/` | content |
//! |---|---|
//! | `plan.json` | the [`Plan`]: experiments with their resolved settings, model, data |
//! | `runs.jsonl` | one [`PlannedRun`] on each line, in the order of a single process |
//! | `claims/` | claims of workers on runs, see `worker` |
//! | `failed/` | errors of runs, one file each |

mod arms;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use lrvd_burn::device;
use lrvd_burn::files::is_file;
use lrvd_core::error::check_range;
use minijinja::context;
use minijinja::value::Serde;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use arms::Arms;

use crate::backbone::{self, Architecture, Backbone, ModelLocation, locate_config, locate_model};
use crate::data::{Wording, shipped};
use crate::error::{Error, Result};
use crate::io::{
    JsonLayout, create_dir, read_lines, read_versioned, sha256_text, write_json, write_json_lines,
};
use crate::memory::{PlannedMemory, Sizes};
use crate::method::{MethodForm, MethodName};
use crate::record::{ModelRecord, TaskData};
use crate::run::{CLAIMS_DIR, RECORD_FILE};
use crate::settings::{Config, Facts, KlWeight, Layers, MethodSettings, Preset};
use crate::task::Task;
use crate::text::{UnknownName, grouped, templates};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// GLUE, the paper's first table: with an encoder, or in words with a language model.
    #[default]
    Glue,
    /// Multiple-choice questions with a language model: its uncertainty tables.
    Reasoning,
}

impl Suite {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Glue => "glue",
            Self::Reasoning => "reasoning",
        }
    }

    /// Methods for its models: reasoning sets are for language models, and a regression is for encoders.
    pub fn methods(self) -> impl Iterator<Item = MethodName> {
        MethodName::all().filter(move |method| self == Self::Glue || method.can().steps)
    }

    pub fn task(self, name: &str) -> Result<Task> {
        Ok(match self {
            Self::Glue => Task::named_glue(name)?,
            Self::Reasoning => Task::named("reasoning set", name, Task::reasoning())?,
        })
    }

    /// The preset called `name`; an error if it does not belong to the suite.
    pub fn preset(self, name: &str) -> Result<Preset, UnknownName> {
        UnknownName::find("preset", name, self.presets(), Preset::name)
    }

    pub const fn presets(self) -> &'static [Preset] {
        match self {
            Self::Glue => &Preset::ALL,
            Self::Reasoning => &Preset::REASONING,
        }
    }

    /// Settings of `preset` for the suite.
    pub fn config(self, preset: Preset) -> Config {
        match self {
            Self::Glue => preset.config(),
            Self::Reasoning => preset.reasoning_config(),
        }
    }

    /// The recommended settings, used if no preset is named.
    pub const fn default_preset(self) -> Preset {
        self.presets()[0]
    }

    fn defaults(self, profile: Profile) -> Result<Defaults> {
        let table = PROFILES.parse::<toml::Table>()?;
        let defaults = table[self.name()][profile.name()].clone().try_into();
        defaults.context("`profiles.toml`")
    }

    /// The pretrained model of the suite if none is named.
    pub(crate) fn model(self, profile: Profile) -> Result<ModelLocation> {
        let Defaults { model, .. } = self.defaults(profile)?;
        match profile {
            Profile::Paper => locate_model(&model),
            Profile::Quick => backbone::shipped(&model),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    model: String,
    pub tasks: Vec<Task>,
    /// Tasks with a data folder, if other ones.
    pub read_tasks: Option<Vec<Task>>,
    /// `None`: all.
    pub methods: Option<Vec<MethodName>>,
    pub seeds: Vec<u64>,
    /// Source of the ranks of the paper's first table's methods beside the one that learns them.
    pub matching: Option<Matching>,
    #[serde(default)]
    settings: toml::Table,
    raised: Option<(f64, f64)>,
}

/// The budget of a method that does not learn its ranks, beside one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Matching {
    /// With each seed the whole rank whose trained parameters are nearest to those of the other run.
    Parameters,
    /// As the paper has it: a fixed rank is the median of the other's average ranks over seeds, a budget that of its seed.
    MedianRank,
}

const PROFILES: &str = include_str!("profiles.toml");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Minutes on two cores, from what the repository holds.
    #[default]
    Quick,
    Paper,
}

impl Profile {
    pub const ALL: [Self; 2] = [Self::Quick, Self::Paper];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Paper => "paper",
        }
    }

    pub fn shorten(self, suite: Suite, config: Config) -> Result<Config> {
        let Defaults { settings, raised, .. } = suite.defaults(self)?;
        let config = Layers::over(&config)?.apply(&[settings], None, &[])?.finish()?;
        Ok(match raised {
            Some((kl, noise)) => config.raised(kl, noise),
            None => config,
        })
    }
}

impl Config {
    /// Multiplies the weight of every tempered divergence by `kl`, and the rate of every noise parameter that follows the
    /// likelihood by `noise`, for every method.
    ///
    /// Terms that already have the full weight of the evidence bound stay: the KL of Bayes by backprop (`1/N`), and the
    /// second optimizers of BLoB and `ScalaBL`, whose cycles keep their number in a short run. Rates that follow from the
    /// length of the run stay, too: those of Bayes by backprop and `lrvd-nts`.
    fn raised(mut self, kl: f64, noise: f64) -> Self {
        let MethodSettings { blob, scalabl, c_lora, .. } = &mut self.methods;
        if let KlWeight::Fixed(weight) = &mut self.kl_weight {
            *weight *= kl;
        }
        c_lora.kl_weight *= kl;
        let log_variance = &mut self.log_variance.learning_rate_factor;
        let own = [&mut blob.noise_rate_factor, &mut scalabl.noise_rate_factor];
        for rate in own.into_iter().chain([log_variance, &mut c_lora.learning_rate]) {
            *rate *= noise;
        }
        self
    }
}

/// Factor of the seeds of an ensemble's members: `MEMBER_SEEDS · seed + member`.
const MEMBER_SEEDS: u64 = 1000;
/// Largest seed, which keeps the seeds of members apart from each other and from values mixed into the higher bits.
const MAX_SEED: u64 = (1 << 40) / MEMBER_SEEDS - 1;

/// Options of a suite or of an arm of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteOptions {
    /// Name of the arm; `None` for the whole suite.
    pub arm: Option<String>,
    pub suite: Suite,
    pub profile: Profile,
    pub preset: Preset,
    /// Tasks; empty for those of the profile.
    pub tasks: Vec<Task>,
    /// Methods; empty for those of the suite.
    pub methods: Vec<MethodName>,
    /// Seeds; empty for those of the profile.
    pub seeds: Vec<u64>,
    pub device: String,
    /// Folder or repository; `None` for that of the profile.
    pub model: Option<String>,
    /// Folder of data; `None` means the shipped tasks (`quick`) or is an error (`paper`).
    pub data_dir: Option<PathBuf>,
    #[serde(skip)]
    pub out: PathBuf,
    #[serde(skip)]
    pub resume: bool,
    pub compare: Option<PathBuf>,
    /// `true` if trained adapters are saved with their records.
    pub keep: bool,
    pub steps: Option<usize>,
    pub draws: Option<Vec<usize>>,
    /// Settings of an arms file, applied after preset and profile.
    pub patches: Vec<toml::Table>,
    pub config: Option<PathBuf>,
    pub set: Vec<String>,
    pub command: String,
    pub git_revision: Option<String>,
    /// Of the profile, in the paper's first table; in other tables all methods have one rank.
    pub(super) matching: Option<Matching>,
}

impl SuiteOptions {
    pub fn new(suite: Suite, profile: Profile, out: PathBuf) -> Self {
        Self {
            suite,
            profile,
            preset: suite.default_preset(),
            device: device::CPU.to_owned(),
            out,
            keep: true,
            ..Self::default()
        }
    }

    /// Fills in the profile's defaults and rejects what appears twice.
    fn resolved(mut self) -> Result<Self> {
        let defaults = self.suite.defaults(self.profile)?;
        if self.tasks.is_empty() {
            let read = defaults.read_tasks.filter(|_| self.data_dir.is_some());
            self.tasks = read.unwrap_or(defaults.tasks);
        }
        if self.seeds.is_empty() {
            self.seeds = defaults.seeds;
        }
        if self.methods.is_empty() {
            let all = || self.suite.methods().chain([MethodName::LORA.tempered()]).collect();
            self.methods = defaults.methods.unwrap_or_else(all);
        }
        self.methods.sort();
        let is_first_table = self.methods.iter().all(|m| MethodName::FIRST_TABLE.contains(m));
        self.matching = defaults.matching.filter(|_| is_first_table);
        let names: [(_, Vec<String>); 3] = [
            ("task", self.tasks.iter().map(ToString::to_string).collect()),
            ("method", self.methods.iter().map(ToString::to_string).collect()),
            ("seed", self.seeds.iter().map(ToString::to_string).collect()),
        ];
        for (kind, names) in names {
            let repeated = |&(i, name): &(usize, &String)| names[..i].contains(name);
            if let Some((_, name)) = names.iter().enumerate().find(repeated) {
                bail!("{kind} `{name}` is given twice");
            }
        }
        self.seeds.iter().try_for_each(|&seed| check_range("seed", seed, 0..=MAX_SEED))?;
        Ok(self)
    }

    /// Returns an error for the paper profile without data, and for the quick one without data of a task that is not shipped.
    /// `profile` is that of the command; the profile of an arm is `paper`, also with generated data.
    pub(super) fn check_data(&self, profile: Profile) -> Result<()> {
        let (own, files) = match self.suite {
            Suite::Glue => (&shipped::GLUE, "CoLA, MNLI, MRPC, QNLI, QQP, RTE and SST-2"),
            Suite::Reasoning => (&shipped::REASONING, "WinoGrande, ARC, OpenBookQA and BoolQ"),
        };
        match (profile, &self.data_dir) {
            (_, Some(_)) => Ok(()),
            (Profile::Quick, None) => self.tasks.iter().try_for_each(|task| own.check(task.name())),
            (Profile::Paper, None) => bail!(
                "the paper profile needs `--data-dir`: the folder that holds {files} in their original layouts"
            ),
        }
    }

    pub(super) fn in_arm(&self, error: Error) -> Error {
        match &self.arm {
            Some(arm) => error.context(format!("arm `{arm}`")),
            None => error,
        }
    }

    /// Settings for a model: preset, profile, the user's, and what follows from the model where the user's do not say.
    pub(super) fn config(&self, architecture: &Architecture) -> Result<Config> {
        for method in &self.methods {
            method.check_temperature()?;
            if let (false, Architecture::Llama(_)) = (method.can().steps, architecture) {
                bail!(
                    "`{}` is a regression on a frozen encoder, and the model is a language model: leave it out of `--methods`",
                    method.key()
                );
            }
        }
        let preset = self.suite.config(self.preset);
        let mut config = self.profile.shorten(self.suite, preset.clone())?;
        if let (Suite::Glue, Architecture::Llama(_)) = (self.suite, architecture) {
            // Rate and length of a profile are for a tiny encoder and for texts without a question.
            config.learning_rate = preset.learning_rate;
            config.max_length = preset.max_length;
        }
        if let Some(steps) = self.steps {
            config.evaluate_every = config.evaluate_every.min(steps);
            config.steps = steps;
        }
        if let Some(draws) = &self.draws {
            config.draws.clone_from(draws);
        }
        let layers = Layers::over(&config)?;
        let layers = layers.apply(&self.patches, self.config.as_deref(), &self.set)?;
        let facts = Facts { model: Some(architecture), ..Facts::default() };
        let config = layers.resolve(&facts)?.config;
        if let Some(key) = config.wording.given() {
            let several = self.tasks.len() > 1;
            let reason = match self.suite {
                Suite::Glue if several => "it words one task, and several are run",
                Suite::Glue => return Ok(config),
                Suite::Reasoning => "reasoning sets are asked by the prompts of `prompt`",
            };
            bail!("setting `{key}` is set: {reason}");
        }
        Ok(config)
    }

    /// Contents of `settings.json` without the data files.
    pub(super) fn settings(&self, config: &Config, backbone: &Backbone) -> Result<Value> {
        let mut settings = json!({
            "suite": self.suite.name(),
            "profile": self.profile.name(),
            "preset": self.preset.name(),
            "tasks": self.tasks.iter().map(|t| t.name()).collect::<Vec<_>>(),
            "methods": self.methods,
            "seeds": self.seeds,
            "device": self.device,
            "model": backbone.location.name,
            "weights": backbone.hashes,
            "data_dir": self.data_dir,
            "experiment": config,
        });
        let wordings = self.wordings(config, &backbone.architecture)?;
        if !wordings.is_empty() {
            settings["wording"] = json!(wordings);
        }
        Ok(settings)
    }

    /// Wordings for a language model, by task; empty for an encoder.
    fn wordings(
        &self,
        config: &Config,
        architecture: &Architecture,
    ) -> Result<BTreeMap<String, Wording>> {
        let worded = self.tasks.iter().map(|task| {
            let found = wording(*task, architecture, config)?;
            Ok(found.map(|wording| (task.name().to_owned(), wording)))
        });
        worded.filter_map(Result::transpose).collect()
    }
}

/// Wording of a GLUE task for a model of this architecture; questions have their prompts.
pub(super) fn wording(
    task: Task,
    architecture: &Architecture,
    config: &Config,
) -> Result<Option<Wording>> {
    if task.is_question() {
        return Ok(None);
    }
    architecture.wording(&config.wording, &task.goal(), Some(task), task.is_pair())
}

/// Folder of the files of a plan, below the output folder.
pub(super) const PLAN_DIR: &str = "plan";

/// A run of a plan: a line of its manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRun {
    /// Place in the plan.
    pub index: usize,
    /// Hash of its resolved settings, data, task, arm, method and seed; its folder until data and weights are read.
    pub id: String,
    /// Place of its experiment in the plan.
    #[serde(skip)]
    pub experiment: usize,
    pub arm: Option<String>,
    pub task: Task,
    pub method: MethodName,
    pub seed: u64,
    /// `true` if it is only a part of other rows.
    #[serde(rename = "member")]
    pub is_member: bool,
    /// Ids of the runs that must be finished before it: the members of an ensemble, the runs whose ranks it receives.
    pub needs: Vec<String>,
    /// Optimizer steps, those of a refinement included; 0 without training, as for a row that is made from other runs.
    pub steps: usize,
    /// Trained parameters before pruning; 0 for a row that is made from other runs.
    pub parameters: usize,
    /// Estimated memory at the peak; 0 for a row that is made from other runs.
    pub memory_gib: f64,
    /// Folder below the output folder.
    pub folder: PathBuf,
}

impl PlannedRun {
    fn new(options: &SuiteOptions, (task, method): (Task, MethodName), seed: u64) -> Self {
        let run = Self {
            index: 0,
            id: String::new(),
            experiment: 0,
            arm: options.arm.clone(),
            task,
            method,
            seed,
            is_member: false,
            needs: Vec::new(),
            steps: 0,
            parameters: 0,
            memory_gib: 0.0,
            folder: PathBuf::new(),
        };
        run.named()
    }

    fn named(self) -> Self {
        let kind = if self.is_member { "members" } else { "runs" };
        let folder = self.arm.as_deref().map(arm_folder).unwrap_or_default();
        let folder = folder.join(kind).join(self.task.name()).join(self.method.key());
        let folder = folder.join(format!("seed-{}", self.seed));
        Self { id: folder.display().to_string(), folder, ..self }
    }

    /// The members that this row is made of; empty for a separate run. Temperature scaling of the row is that of each member.
    fn members(&self) -> Vec<Self> {
        let MethodForm::Ensemble { member, members } = self.method.entry().form else {
            return Vec::new();
        };
        let method = MethodName::from_name(member).unwrap_or(self.method);
        let method = if self.method.is_tempered() { method.tempered() } else { method };
        let member = |i: u64| {
            let seed = MEMBER_SEEDS * self.seed + i;
            Self { method, seed, is_member: true, ..self.clone() }.named()
        };
        (0..members as u64).map(member).collect()
    }

    pub fn label(&self) -> String {
        let arm = self.arm.as_ref().map(|arm| format!("{arm} / ")).unwrap_or_default();
        format!("{arm}{} / {} / seed {}", self.task.display_name(), self.method, self.seed)
    }

    /// `true` if it is made from the answers of the runs that it needs, without training.
    pub(super) fn is_combined(&self) -> bool {
        matches!(self.method.entry().form, MethodForm::Ensemble { .. })
    }

    pub(super) fn is_finished(&self, out: &Path) -> bool {
        out.join(&self.folder).join(RECORD_FILE).is_file()
    }

    /// Folder of its experiment: the output folder `out`, or that of its arm.
    pub(super) fn experiment_folder(&self, out: &Path) -> PathBuf {
        self.arm.as_deref().map_or_else(|| out.to_owned(), |arm| out.join(arm_folder(arm)))
    }

    /// Sets steps, parameters and memory, which follow from the settings.
    fn measure(&mut self, config: &Config, sizes: &Sizes) -> Result<()> {
        if !self.is_combined() {
            let refinement = self.method.search(config).map_or(0, |search| search.refine_steps);
            self.steps = if self.method.can().steps { config.steps + refinement } else { 0 };
            self.parameters = sizes.trained(self.method, None)?;
            self.memory_gib = sizes.memory(self.parameters).total();
        }
        Ok(())
    }
}

/// The runs of an experiment, task by task. With matched sizes, BayesLoRA comes first for every seed. The members of a row
/// come before it, once.
fn experiment_runs(options: &SuiteOptions) -> Vec<PlannedRun> {
    let mut methods = options.methods.clone();
    if options.suite == Suite::Glue {
        let first = MethodName::FIRST_TABLE;
        let place = |m: &MethodName| first.iter().rev().position(|f| f == m);
        methods.sort_by_key(|m| place(m).unwrap_or(first.len()));
    }
    let mut runs: Vec<PlannedRun> = Vec::new();
    for &task in &options.tasks {
        for &method in &methods {
            let row = |&seed: &u64| PlannedRun::new(options, (task, method), seed);
            let mut rows: Vec<PlannedRun> = options.seeds.iter().map(row).collect();
            for row in &mut rows {
                for member in row.members() {
                    row.needs.push(member.id.clone());
                    if runs.iter().all(|run| run.id != member.id) {
                        runs.push(member);
                    }
                }
                if let Some(matching) = options.matching {
                    row.needs = matched(&runs, row, matching);
                }
            }
            runs.extend(rows);
        }
    }
    runs
}

/// The runs whose learnt ranks `row` receives: that with its seed, or those of all seeds for their median.
fn matched(runs: &[PlannedRun], row: &PlannedRun, matching: Matching) -> Vec<String> {
    let learns_ranks = |method: MethodName| method.can().prunes && !method.can().budget;
    if learns_ranks(row.method) {
        return Vec::new();
    }
    let all_seeds = matching == Matching::MedianRank && !row.method.can().budget;
    let is_source = |run: &&PlannedRun| {
        run.task == row.task && learns_ranks(run.method) && (all_seeds || run.seed == row.seed)
    };
    runs.iter().filter(is_source).map(|run| run.id.clone()).collect()
}

/// The runs that `run` needs.
pub(super) fn needed<'a>(
    runs: &'a [PlannedRun],
    run: &'a PlannedRun,
) -> impl Iterator<Item = &'a PlannedRun> {
    run.needs.iter().filter_map(|id| runs.iter().find(|other| other.id == *id))
}

/// Folder of an arm below the output folder: its name, in which a dash replaces all but letters, digits and points.
pub(super) fn arm_folder(name: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = name.to_lowercase().chars().map(plain).collect();
    Path::new("arms").join(name)
}

pub(super) const SCHEMA: u32 = 4;
const PLAN_FILE: &str = "plan.json";
const RUNS_FILE: &str = "runs.jsonl";
const ID_DIGITS: usize = 16;

/// The options of every arm, or the only ones, resolved.
pub(super) fn experiments(
    options: &SuiteOptions,
    arms: Option<&Arms>,
) -> Result<Vec<SuiteOptions>> {
    let all = arms.map_or_else(|| Ok(vec![options.clone()]), |arms| arms.experiments(options))?;
    all.into_iter().map(|own| own.clone().resolved().map_err(|e| own.in_arm(e))).collect()
}

/// An arm, or the whole suite: everything that its runs have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    pub options: SuiteOptions,
    pub settings: Value,
    pub config: Config,
    pub data: BTreeMap<String, TaskData>,
}

impl Experiment {
    /// Its runs in the plan: `place` is its own, and `index` that of the first run.
    pub(super) fn runs(
        &self,
        place: usize,
        index: usize,
        sizes: &Sizes,
    ) -> Result<Vec<PlannedRun>> {
        let mut runs = experiment_runs(&self.options);
        for (run, index) in runs.iter_mut().zip(index..) {
            run.index = index;
            run.experiment = place;
            run.measure(&self.config, sizes)?;
        }
        self.identify(&mut runs);
        Ok(runs)
    }

    /// Replaces the provisional ids of its `runs` by hashes of everything that they depend on: the settings but the lists that may
    /// grow, the files of their task, and not the places of files, which count by their content.
    fn identify(&self, runs: &mut [PlannedRun]) {
        let hash = |run: &PlannedRun| {
            let mut settings = self.settings.clone();
            if let Some(settings) = settings.as_object_mut() {
                for other in ["tasks", "methods", "seeds", "model", "data_dir"] {
                    settings.remove(other);
                }
                let files = self.data.get(run.task.name()).map(TaskData::hashes);
                settings.insert("data_files".to_owned(), json!(files));
            }
            let PlannedRun { arm, task, method, seed, is_member, .. } = run;
            let text = json!([settings, arm, task.name(), method, seed, is_member]).to_string();
            sha256_text(&text)[..ID_DIGITS].to_owned()
        };
        let ids: BTreeMap<String, String> =
            runs.iter().map(|run| (run.id.clone(), hash(run))).collect();
        for run in runs {
            for id in std::iter::once(&mut run.id).chain(&mut run.needs) {
                if let Some(hash) = ids.get(id) {
                    id.clone_from(hash);
                }
            }
        }
    }
}

/// A whole sweep: everything that a worker needs to make any of its runs, and a report to describe them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub(super) schema_version: u32,
    pub(super) started_at: String,
    pub(super) backbone: ModelRecord,
    pub(super) arms: Option<Arms>,
    pub(super) experiments: Vec<Experiment>,
    #[serde(skip)]
    pub runs: Vec<PlannedRun>,
}

impl Plan {
    /// The options that all experiments have in common, from the first one.
    pub(super) fn options(&self) -> &SuiteOptions {
        &self.experiments[0].options
    }

    pub(super) fn write(&self, out: &Path) -> Result<()> {
        let folder = out.join(PLAN_DIR);
        create_dir(&folder.join(CLAIMS_DIR))?;
        write_json(&folder.join(PLAN_FILE), self, JsonLayout::Pretty)?;
        write_json_lines(&folder.join(RUNS_FILE), self.runs.iter())
    }

    /// The plan of the output folder `out`.
    pub fn read(out: &Path) -> Result<Self> {
        let folder = out.join(PLAN_DIR);
        if !is_file(&folder.join(PLAN_FILE))? {
            bail!(
                "`{}` holds no plan; `lrvd bench glue --plan {0}` or `lrvd bench reasoning --plan {0}` writes one",
                out.display()
            );
        }
        let mut plan: Self = read_versioned(&folder.join(PLAN_FILE), SCHEMA)?;
        let path = folder.join(RUNS_FILE);
        for (place, run) in read_lines::<PlannedRun>(&path)?.into_iter().enumerate() {
            let in_line =
                |text: String| anyhow!("`{}`, line {}: {text}", path.display(), place + 1);
            if run.index != place {
                return Err(in_line(format!("expected index {place}, found {}", run.index)));
            }
            let is_own = |experiment: &Experiment| experiment.options.arm == run.arm;
            let experiment = plan.experiments.iter().position(is_own);
            let experiment = experiment.ok_or_else(|| in_line(format!("no arm {:?}", run.arm)))?;
            let is_missing = |id: &&String| plan.runs.iter().all(|other| other.id != **id);
            if let Some(id) = run.needs.iter().find(is_missing) {
                return Err(in_line(format!("no run `{id}` before this one")));
            }
            plan.runs.push(PlannedRun { experiment, ..run });
        }
        Ok(plan)
    }

    /// The first run that `run` needs and that is not finished.
    pub(super) fn missing<'a>(&'a self, out: &Path, run: &'a PlannedRun) -> Option<&'a PlannedRun> {
        needed(&self.runs, run).find(|run| !run.is_finished(out))
    }

    /// Folder of the run that events call `label`, below the output folder.
    pub fn folder_of(&self, label: &str) -> PathBuf {
        let run = self.runs.iter().find(|run| run.label() == label);
        run.map(|run| run.folder.clone()).unwrap_or_default()
    }

    /// Place of the run with this number or id.
    pub fn find(&self, name: &str) -> Result<usize> {
        let by_number = name.parse().ok().filter(|&index: &usize| index < self.runs.len());
        by_number.or_else(|| self.runs.iter().position(|run| run.id == name)).ok_or_else(|| {
            anyhow!(
                "the plan has no run `{name}`: expected an index from 0 to {} or an id",
                self.runs.len().saturating_sub(1)
            )
        })
    }
}

/// A suite or an arm of it, planned without data and weights.
#[derive(Clone, Debug, Serialize)]
pub struct DryRun {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    pub suite: Suite,
    pub profile: Profile,
    pub device: String,
    /// Name, layers, width and parameters.
    pub model: Value,
    pub modules: usize,
    /// Every method once, in the order of the tables.
    pub methods: Vec<PlannedMethod>,
    /// Estimated memory at the peak of the largest method.
    pub memory: PlannedMemory,
    pub runs: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wording: BTreeMap<String, Wording>,
    pub settings: Config,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedMethod {
    pub method: String,
    /// Trained parameters before pruning; of an ensemble those of all members.
    pub parameters: usize,
    /// Trainings that no earlier row has made.
    pub trainings: usize,
    /// Optimizer steps of one of them, those of a refinement included.
    pub steps: usize,
}

impl DryRun {
    /// Plans the suite, or each of its `arms`. Reads the `config.json` of a named model, and nothing for the model of the
    /// paper's profile.
    pub fn of(options: &SuiteOptions, arms: Option<&Arms>) -> Result<Vec<Self>> {
        let all = experiments(options, arms)?;
        all.iter().map(|own| Self::new(own).map_err(|error| own.in_arm(error))).collect()
    }

    fn new(options: &SuiteOptions) -> Result<Self> {
        let location = match (&options.model, options.profile) {
            (Some(name), _) => Some(locate_config(name)?),
            (None, Profile::Quick) => Some(options.suite.model(options.profile)?),
            (None, Profile::Paper) => None,
        };
        let published = |name: &str| format!("{name}, sizes as published");
        let (name, architecture) = match (location, options.suite) {
            (Some(location), _) => (location.name, Architecture::read(&location.folder)?),
            (None, Suite::Glue) => (published("DeBERTa-v3-base"), Architecture::deberta_v3_base()?),
            (None, Suite::Reasoning) => (published("Llama-2-7B"), Architecture::llama_2_7b()?),
        };
        let config = options.config(&architecture)?;
        let sizes = Sizes::new(&architecture, &config);
        let mut runs = experiment_runs(options);
        runs.iter_mut().try_for_each(|run| run.measure(&config, &sizes))?;
        let mut methods: Vec<PlannedMethod> = Vec::new();
        let mut counted = BTreeSet::new();
        for run in runs.iter().filter(|run| !run.is_member) {
            let trained: Vec<&PlannedRun> =
                if run.is_combined() { needed(&runs, run).collect() } else { vec![run] };
            let trainings = trained.iter().filter(|run| counted.insert(&run.id)).count();
            let method = run.method.name();
            match methods.iter_mut().find(|row| row.method == method) {
                Some(row) => row.trainings += trainings,
                None => methods.push(PlannedMethod {
                    method,
                    parameters: trained.iter().map(|run| run.parameters).sum(),
                    trainings,
                    steps: trained.first().map_or(0, |run| run.steps),
                }),
            }
        }
        let described = |run: &PlannedRun| {
            let note = match run {
                run if run.is_combined() => " (from other runs)",
                run if run.is_member => " (member)",
                _ => "",
            };
            run.label() + note
        };
        let backbone::Sizes { layers, hidden, .. } = architecture.sizes();
        let parameters = architecture.parameters();
        Ok(Self {
            arm: options.arm.clone(),
            suite: options.suite,
            profile: options.profile,
            device: options.device.clone(),
            modules: sizes.layers.len(),
            methods,
            // Members of an ensemble are trained one after another.
            memory: sizes.memory(runs.iter().map(|run| run.parameters).max().unwrap_or(0)),
            runs: runs.iter().map(described).collect(),
            wording: options.wordings(&config, &architecture)?,
            model: json!({ "name": name, "layers": layers, "hidden": hidden, "parameters": parameters }),
            settings: config,
        })
    }

    pub fn render_text(&self) -> Result<String> {
        let width = self.methods.iter().map(|row| row.method.len()).max().unwrap_or(0).max(6);
        let head =
            format!("{:width$}  {:>19}  trainings  steps each", "method", "parameters, at most");
        let rows = self.methods.iter().map(|row| {
            let count = grouped(row.parameters as u64, ',');
            let steps = grouped(row.steps as u64, ',');
            format!("{:width$}  {count:>19}  {:>9}  {steps:>10}", row.method, row.trainings)
        });
        let wording = |(task, own): (&String, &Wording)| format!("{task}: {}\n", own.describe());
        let values = context! {
            plan => Serde(self),
            trainings => self.methods.iter().map(|row| row.trainings).sum::<usize>(),
            steps => self.methods.iter().map(|row| row.trainings * row.steps).sum::<usize>(),
            methods => std::iter::once(head).chain(rows).collect::<Vec<_>>(),
            wordings => self.wording.iter().map(wording).collect::<String>(),
        };
        Ok(templates()?.render_str(include_str!("dry_run.txt.jinja"), values)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_from_the_run_with_the_same_seed_and_the_papers_rank_from_all() {
        let all = MethodName::FIRST_TABLE;
        let mixed = [MethodName::LORA, MethodName::BAYES_LORA, MethodName::LORA.tempered()];
        // BayesLoRA, AdaLoRA and LoRA, with two seeds each.
        let cases = [
            (Profile::Quick, all, "[[], [], [0], [1], [0], [1]]"),
            (Profile::Paper, all, "[[], [], [0], [1], [0, 1], [0, 1]]"),
            (Profile::Quick, mixed, "[[], [], [], [], [], []]"),
        ];
        for (profile, methods, expected) in cases {
            let options = SuiteOptions {
                tasks: vec![Task::named_glue("sst2").unwrap()],
                methods: methods.to_vec(),
                seeds: vec![1, 2],
                ..SuiteOptions::new(Suite::Glue, profile, "unused".into())
            };
            let runs = experiment_runs(&options.resolved().unwrap());
            let place = |run: &PlannedRun| runs.iter().position(|other| other.id == run.id);
            let needs = |run| needed(&runs, run).map(|run| place(run).unwrap()).collect();
            let found: Vec<Vec<usize>> = runs.iter().map(needs).collect();
            assert_eq!(format!("{found:?}"), expected, "{profile:?}");
        }
    }
}
