//! Adapter folders: their files, where an adapter is found, and the base model that it belongs to.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use burn::tensor::Device;
use lrvd_burn::files::{AtomicDir, first_file, is_dir, is_file, is_there, write_atomic};
use lrvd_burn::model::{NamedModule, ranks};
use lrvd_burn::ops::Packing;
use lrvd_burn::peft::{
    AdaLoraConfig, Cap, CapReport, ExportLayout, ExportSummary, POSTERIOR_FILE, PeftAdapter,
    PeftConfig, PeftPosterior, PosteriorRun, TargetModules, WEIGHTS_FILE, peft_from_model,
    posterior_from_model,
};
use lrvd_burn::train::{latest_checkpoint, load_checkpoint};

use super::description::{BaseInfo, DESCRIPTION_FILE, Description, RunInfo};
use super::{PEFT_CONFIG, encoder_only};
use crate::answers::{AnswerSpace, Readout};
use crate::backbone::{Backbone, locate_model, split_revision};
use crate::data::InputLayout;
use crate::error::{Kind, Result};
use crate::hub::may_be_there;
use crate::run::{
    ADAPTER_DIR, CHECKPOINT_DIR, LABELS_FILE, RECORD_FILE, RunState, SETTINGS_FILE, TrainSettings,
    is_run_on_texts,
};
use crate::settings::{CheckpointChoice, Config};
use crate::task::Goal;
use crate::text::quoted;
use crate::unused::Unused;

const CHECKPOINT_VALUES: &str = "state.json";
const BATCH_SIZE: usize = 32;

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct OpenOptions {
    /// Base model [default: the one named by the adapter].
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR|GGUF|HUB-ID"))]
    pub model: Option<String>,
    /// Revision of the base model's repository: a branch, a tag or a commit [default: main].
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "REVISION", requires = "model", hide_short_help = true)
    )]
    pub revision: Option<String>,
    /// Accept a base model with other weights than the adapter was trained on.
    #[cfg_attr(feature = "cli", arg(long, hide_short_help = true))]
    pub allow_other_base: bool,
    /// Accept changed files: the adapter's, or the base model's configuration or tokenizer.
    #[cfg_attr(feature = "cli", arg(long, hide_short_help = true))]
    pub allow_changed: bool,
    /// Make it an error that a key, a tensor, a template, a row or a token is read and not used, in place of a note.
    #[cfg_attr(feature = "cli", arg(long, hide_short_help = true))]
    pub strict: bool,
    /// Longest input in tokens, in place of that of the training.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub max_length: Option<usize>,
    /// Form in which the products of an encoder read its weights.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub packing: Option<Packing>,
}

impl OpenOptions {
    /// The base model that the options name, with its revision.
    pub fn base_model(&self) -> Result<Option<String>> {
        self.model.as_ref().map(|model| named_at(model, self.revision.as_deref())).transpose()
    }
}

/// `model` at a revision, as one name: `owner/name@revision`.
pub fn named_at(model: &str, revision: Option<&str>) -> Result<String> {
    if let Some(revision) = revision
        && is_there(Path::new(model))?
    {
        bail!(
            "`--revision {revision}` is for a repository of the hub, and `{model}` is a file or folder"
        );
    }
    Ok(at_revision(model, revision))
}

fn at_revision(model: &str, revision: Option<&str>) -> String {
    match revision {
        Some(revision) if !may_be_there(model) => format!("{model}@{revision}"),
        _ => model.to_owned(),
    }
}

#[derive(Clone, Debug)]
pub struct Adapter {
    /// `adapter`, `run` or `checkpoint`.
    pub kind: &'static str,
    pub folder: PathBuf,
    pub files: AdapterFiles,
    /// Remarks for a reader: that the run of the model is not finished, or a file of it has changed.
    pub warnings: Vec<String>,
    pub(crate) options: OpenOptions,
    /// The base that it shares with others.
    shared: Option<Base>,
}

/// A base model that several adapters share: the memory of its weights, and its tokenizer.
#[derive(Clone)]
pub struct Base(pub(super) Arc<Backbone>);

impl Base {
    /// A folder, a GGUF file or a repository of the Hub; its weights are loaded with the first adapter.
    pub fn open(model: &str, packing: Option<Packing>) -> Result<Self> {
        let backbone = Backbone::open(locate_model(model)?)?;
        Ok(Self(Arc::new(backbone.packed(packing)?.shared())))
    }
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Base").field(&self.0.location.name).finish()
    }
}

/// The output folder of the run that the checkpoint `dir` is of; `None` if `dir` is not one.
fn run_of(dir: &Path) -> Result<Option<&Path>> {
    let is_checkpoint = is_file(&dir.join(CHECKPOINT_VALUES))?;
    Ok(dir.parent().and_then(Path::parent).filter(|_| is_checkpoint))
}

impl Adapter {
    pub fn is_at(dir: &Path) -> Result<bool> {
        let own = [PEFT_CONFIG, SETTINGS_FILE, CHECKPOINT_VALUES].map(|name| dir.join(name));
        let files = own.into_iter().chain([dir.join(ADAPTER_DIR).join(PEFT_CONFIG)]);
        Ok(first_file(files)?.is_some())
    }

    /// `true` if `dir` holds an adapter of a language model that was trained here on texts, or a run of one.
    pub fn is_for_texts(dir: &Path) -> Result<bool> {
        for folder in [dir, &dir.join(ADAPTER_DIR)] {
            let description = Description::read(folder)?;
            if description.is_some_and(|own| own.goal.answers == AnswerSpace::Tokens) {
                return Ok(true);
            }
        }
        is_run_on_texts(run_of(dir)?.unwrap_or(dir))
    }

    /// Reads a PEFT folder, the output of a training run, or one of its checkpoints, whose model is rebuilt on `device`.
    pub fn open(dir: &Path, options: &OpenOptions, device: &Device) -> Result<Self> {
        if !is_dir(dir)? {
            bail!("there is no folder `{}`", dir.display());
        }
        if let Some(adapter) = Self::finished(dir, options)? {
            return Ok(adapter);
        }
        // The newest one, where the output folder is named, and not a checkpoint.
        let newest = || latest_checkpoint(&dir.join(CHECKPOINT_DIR));
        let run = run_of(dir)?;
        let out = run.unwrap_or(dir);
        let named = run.map(|_| dir);
        let found = match named {
            None if is_file(&dir.join(SETTINGS_FILE))? => newest()?,
            named => named.map(Path::to_owned),
        };
        let Some(found) = found else {
            bail!(
                "`{}` holds no adapter; looked for `{PEFT_CONFIG}`, `{ADAPTER_DIR}/{PEFT_CONFIG}`, \
                 `{CHECKPOINT_VALUES}`, `{CHECKPOINT_DIR}/step-*`",
                dir.display()
            );
        };
        match rebuild(out, named, options, device) {
            // A run that is still training removes a checkpoint once it has written a newer one, and at its end all.
            Err(_) if named.is_none() && !is_there(&found)? => Self::open(dir, options, device),
            rebuilt => {
                let (folder, files, warning) = rebuilt?;
                let kind = "checkpoint";
                let warnings = vec![warning];
                Ok(Self { kind, folder, files, warnings, options: options.clone(), shared: None })
            }
        }
    }

    /// Reads a PEFT folder or the output of a finished training run, to be one of several adapters on `base`.
    pub fn open_on(base: &Base, dir: &Path, options: &OpenOptions) -> Result<Self> {
        let adapter = Self::finished(dir, options)?.ok_or_else(|| {
            anyhow!(
                "`{}` holds no adapter of a finished run; looked for `{PEFT_CONFIG}`, `{ADAPTER_DIR}/{PEFT_CONFIG}`",
                dir.display()
            )
        })?;
        Ok(adapter.on(base))
    }

    fn finished(dir: &Path, options: &OpenOptions) -> Result<Option<Self>> {
        for (kind, folder) in [("adapter", dir.to_owned()), ("run", dir.join(ADAPTER_DIR))] {
            if is_file(&folder.join(PEFT_CONFIG))? {
                let (files, mut warnings) = AdapterFiles::read(&folder, options.allow_changed)?;
                let mut unused = Unused::default();
                for tensor in &files.peft.ignored {
                    let place = folder.join(WEIGHTS_FILE);
                    unused.add(format!("tensor {tensor}"), format_args!("`{}`", place.display()));
                }
                warnings.extend(unused.notes(options.strict)?);
                let options = options.clone();
                return Ok(Some(Self { kind, folder, files, warnings, options, shared: None }));
            }
        }
        Ok(None)
    }

    /// This adapter on `base`, whatever base it names.
    #[must_use]
    pub fn on(self, base: &Base) -> Self {
        Self { shared: Some(base.clone()), ..self }
    }

    /// The base that it names or the options name, to be shared with others.
    pub fn base_to_share(&self) -> Result<Base> {
        Ok(Base(Arc::new(self.named_base()?.shared())))
    }

    /// This adapter as plain LoRA at the posterior mean.
    pub fn plain(&self) -> Result<Self> {
        let AdapterFiles { peft, description, .. } = &self.files;
        let description = description.clone().map(Description::at_the_mean);
        Ok(self.with(AdapterFiles { peft: peft.to_lora()?, posterior: None, description }))
    }

    /// This adapter with other files.
    pub(super) fn with(&self, files: AdapterFiles) -> Self {
        Self { files, ..self.clone() }
    }

    /// `true` if it is of a language model that was trained here on texts.
    pub fn continues_texts(&self) -> bool {
        let description = self.files.description.as_ref();
        description.is_some_and(|own| own.goal.answers == AnswerSpace::Tokens)
    }

    pub(super) fn classifier(&self, backbone: &Backbone) -> Result<Description> {
        self.described(backbone)?.ok_or_else(|| {
            let dir = self.folder.display();
            anyhow!(
                "`{dir}` holds a language model, which has no classes: `lrvd generate {dir}` continues \
                 texts, `lrvd eval {dir} --data FILE` measures it"
            )
        })
    }

    /// Its description as a classifier, or what can be known of one that was made elsewhere; `None` for a language model.
    pub(crate) fn described(&self, backbone: &Backbone) -> Result<Option<Description>> {
        let mut info = match &self.files.description {
            Some(own) => Some(own.clone()).filter(|own| own.goal.answers != AnswerSpace::Tokens),
            None => Some(self.foreign(backbone)?),
        };
        match (&mut info, self.options.max_length, backbone.architecture.positions()) {
            (Some(info), Some(given), _) => {
                backbone.architecture.check_length(given)?;
                info.run.max_length = given;
            }
            (Some(info), None, Some(most)) => {
                info.run.max_length = info.run.max_length.min(most);
            }
            _ => {}
        }
        Ok(info)
    }

    /// The base model, and warnings of its files: the shared one, else [`Self::named_base`]. Its files must be those that the
    /// adapter was trained on, unless the options allow others.
    pub(crate) fn base(&self) -> Result<(Arc<Backbone>, Vec<String>)> {
        let backbone = match &self.shared {
            Some(base) => Arc::clone(&base.0),
            None => Arc::new(self.named_base()?),
        };
        let warnings = self.check_base(&backbone)?;
        Ok((backbone, warnings))
    }

    /// The base that the options name, else the one of the description, else that of PEFT's file.
    fn named_base(&self) -> Result<Backbone> {
        let PeftConfig { base_model_name_or_path, revision, .. } = &self.files.peft.config;
        let described = self.files.description.as_ref().map(|known| known.base.name.clone());
        let named = || Some(at_revision(base_model_name_or_path.as_ref()?, revision.as_deref()));
        base_of(&self.options, &self.folder, described.or_else(named))
    }

    fn check_base(&self, backbone: &Backbone) -> Result<Vec<String>> {
        let OpenOptions { allow_other_base, allow_changed, .. } = self.options;
        let described = self.files.description.as_ref().map(|own| &own.base);
        let Some(BaseInfo { weights, hashes, .. }) = described else { return Ok(Vec::new()) };
        if !allow_other_base && *weights != backbone.hashes {
            return Err(Kind::OtherBase.mark(anyhow!(
                "model `{}` has other weights than the adapter was trained on ({}); pass `--allow-other-base` if that is meant",
                backbone.location.name,
                backbone.other_files(weights)
            )));
        }
        let allow = allow_changed || allow_other_base;
        let found = &backbone.files;
        let place = &backbone.location.folder;
        let check = hashes.as_ref().map(|hashes| hashes.check_base(found, place, allow));
        Ok(check.transpose()?.unwrap_or_default())
    }

    /// Rejects an adapter that was made here and has lost its description: it would be read as one of PEFT.
    pub(super) fn check_made_elsewhere(&self) -> Result<()> {
        let run = self.folder.parent().filter(|_| self.folder.ends_with(ADAPTER_DIR));
        let of_run = [SETTINGS_FILE, RECORD_FILE, LABELS_FILE];
        let of_run = of_run.into_iter().filter_map(|name| Some(run?.join(name)));
        // One that a program of the library has saved states no seed.
        let posterior = self.files.posterior.as_ref();
        let posterior = posterior.filter(|posterior| posterior.header.seed.is_some());
        let own = posterior.map(|_| self.folder.join(POSTERIOR_FILE)).into_iter().chain(of_run);
        let mut found = Vec::new();
        for file in own {
            if is_file(&file)? {
                found.push(file.display().to_string());
            }
        }
        if self.files.description.is_some() || found.is_empty() {
            return Ok(());
        }
        bail!(
            "`{}` has lost its description (`{DESCRIPTION_FILE}`), which has the classes, the temperature and the base: {} show \
             that it was made here; copy the folder again. Without `{POSTERIOR_FILE}` and outside the run's folder it is \
             read as any adapter of PEFT",
            self.folder.display(),
            quoted(found)
        );
    }

    fn foreign(&self, backbone: &Backbone) -> Result<Description> {
        self.check_made_elsewhere()?;
        let AdapterFiles { peft, posterior, .. } = &self.files;
        let encoder = backbone.answering_encoder("an adapter without `lrvd_adapter.json`")?;
        let [_, classifier] = encoder.family.head();
        let head = peft.saved.get(&format!("{classifier}.weight"));
        let width = head.and_then(|tensor| tensor.shape().first().copied());
        let own = encoder.id2label.clone();
        let numbered = |n: usize| (0..n).map(|i| format!("LABEL_{i}")).collect();
        let goal = match width.unwrap_or(own.len()) {
            1 => Goal::new("adapter", AnswerSpace::Score),
            n => Goal::classification("adapter", if n == own.len() { own } else { numbered(n) }),
        };
        let header = posterior.as_ref().map(|posterior| &posterior.header);
        // PEFT stores no length: the model's.
        let most = backbone.architecture.sizes().positions;
        let longest = backbone.tokenizer.model_max_length().map_or(most, |own| own.min(most));
        let method = peft.config.method.name();
        let run = RunInfo {
            seed: header.and_then(|header| header.seed).unwrap_or_default(),
            ranks: peft.modules.iter().map(|(path, m)| (path.clone(), m.rank)).collect(),
            log_alpha_threshold: header.and_then(|header| header.log_alpha_threshold),
            draws: if posterior.is_some() { 10 } else { 0 },
            ..RunInfo::none(method, longest, BATCH_SIZE)
        };
        let pooling = encoder.classifier_pooling;
        let own = Description::new(BaseInfo::of(backbone), goal, InputLayout::Segments, run);
        Ok(Description { pooling, ..own })
    }
}

/// The base model that the options name, else the one that `folder` names, which may have been made on another machine.
fn base_of(options: &OpenOptions, folder: &Path, named: Option<String>) -> Result<Backbone> {
    if let Some(name) = options.base_model()? {
        return Backbone::open(locate_model(&name)?)?.packed(options.packing);
    }
    let folder = folder.display();
    let name = named.ok_or_else(|| {
        anyhow!("`{folder}` does not name its base model; pass `--model DIR|GGUF|HUB-ID`")
    })?;
    let backbone = locate_model(&name).and_then(Backbone::open).with_context(|| {
        format!(
            "`{folder}` names its base model `{name}`, which cannot be opened here: `--model DIR|GGUF|HUB-ID` gives its new \
             place"
        )
    })?;
    backbone.packed(options.packing)
}

/// The model at the checkpoint that is `named`, or at the newest one, its folder, and the warning that the run is not finished.
fn rebuild(
    out: &Path,
    named: Option<&Path>,
    options: &OpenOptions,
    device: &Device,
) -> Result<(PathBuf, AdapterFiles, String)> {
    let settings = TrainSettings::read(out)?;
    let backbone = base_of(options, out, Some(settings.model.clone()))?;
    let task = settings.without_rows(&backbone)?;
    let mut run = settings.start(&backbone, &task, device).fresh()?;
    // Not before the model is there, which takes longer than a checkpoint may live.
    let newest = || latest_checkpoint(&out.join(CHECKPOINT_DIR));
    let folder = match named {
        Some(named) => named.to_owned(),
        None => newest()?.ok_or_else(|| anyhow!("`{}` has no checkpoint", out.display()))?,
    };
    load_checkpoint(&folder, &mut run.state, &mut *run.method)?;
    run.state.compact();
    let kl_weight = kl_weight(&run)?;
    let done = run.state.done;
    let steps = settings.experiment.steps;
    let description = settings.description(done, CheckpointChoice::Last);
    let files = AdapterFiles::of(&run.state.model, &settings.experiment, kl_weight, description)?;
    let without = if settings.method.is_tempered() {
        ", without the temperature that the end of the training fits"
    } else {
        ""
    };
    let warning = format!(
        "warning: the run in `{}` is not finished: this is its checkpoint after {done} of {steps} steps{without}",
        out.display()
    );
    Ok((folder, files, warning))
}

pub(crate) const CARD_FILE: &str = "README.md";

#[derive(Clone, Debug)]
pub struct AdapterFiles {
    pub peft: PeftAdapter,
    pub posterior: Option<PeftPosterior>,
    pub description: Option<Description>,
}

/// Factor of the KL that a posterior was trained with in the end; 0 of a method without one.
pub(super) fn kl_weight(run: &RunState) -> Result<f64> {
    Ok(run.posterior()?.and_then(|posterior| posterior.kl_weight).unwrap_or_default())
}

impl AdapterFiles {
    /// Reads the adapters, the head and the posterior of `model` back; `kl_weight` is the one that the posterior was trained with
    /// in the end. Pooler and head are always stored: the base checkpoint has none.
    pub(super) fn of(
        model: &impl NamedModule,
        config: &Config,
        kl_weight: f64,
        mut description: Description,
    ) -> Result<Self> {
        let (task_type, whole): (_, &[&str]) = match &description.layout {
            // It answers by its own head, which is adapted and not replaced.
            layout if layout.readout() != Readout::Head => ("CAUSAL_LM", &[]),
            _ => ("SEQ_CLS", &["pooler", "pre_classifier", "head", "classifier", "score"]),
        };
        // A RoBERTa has no module called pooler, and a mean needs none.
        let mut found = Vec::new();
        model.visit_parameters(&mut |p| found.extend(p.name.split('.').map(str::to_owned)));
        let whole = whole.iter().filter(|module| found.iter().any(|part| part == *module));
        let mut diagonal = false;
        let mut initial_rank = config.initial_rank;
        let mut dropout = config.adapter_dropout;
        model.visit_layers(&mut |_, layer| {
            if let Some(adapter) = layer.low_rank() {
                diagonal |= adapter.singular_values().is_some();
                dropout = adapter.dropout;
            }
            if let Some(slot) = layer.slot() {
                initial_rank = slot.initial_rank;
            }
        });
        // The export lists the paths.
        let targets = TargetModules::AllLinear;
        let template = if diagonal {
            let adalora = AdaLoraConfig { init_r: initial_rank, ..AdaLoraConfig::default() };
            PeftConfig::adalora(adalora, config.lora_alpha, targets)
        } else {
            PeftConfig::lora(initial_rank, config.lora_alpha, targets)
        };
        let (base, revision) = split_revision(&description.base.name);
        let template = PeftConfig {
            base_model_name_or_path: Some(base.to_owned()),
            revision: revision.map(str::to_owned),
            task_type: Some(task_type.to_owned()),
            modules_to_save: whole.map(ToString::to_string).collect(),
            lora_dropout: dropout,
            ..template
        };
        let peft = peft_from_model(model, &template)?;
        let run = PosteriorRun {
            scheme: Some(config.training_scheme.scheme()),
            statistic: Some(config.prune.statistic),
            log_alpha_threshold: description.run.log_alpha_threshold,
            kl_weight: Some(kl_weight),
            seed: Some(description.run.seed),
        };
        let posterior = posterior_from_model(model, run)?;
        let own = &mut description.run;
        own.ranks = ranks(model).into_iter().collect();
        own.initial_rank = Some(initial_rank);
        Ok(Self { peft, posterior, description: Some(description) })
    }

    /// Reads `folder`, and returns warnings of changed files, which are errors without `allow_changed`.
    pub(super) fn read(folder: &Path, allow_changed: bool) -> Result<(Self, Vec<String>)> {
        let description = Description::read(folder)?;
        let known = description.as_ref().and_then(|known| known.base.hashes.as_ref());
        let check = known.map(|hashes| hashes.check(folder, DESCRIPTION_FILE, allow_changed));
        let warnings = check.transpose()?.unwrap_or_default();
        let peft = PeftAdapter::read(folder)?;
        let peft = encoder_only::join(peft, description.as_ref(), folder)?;
        let has_posterior = is_file(&folder.join(POSTERIOR_FILE))?;
        let posterior = has_posterior.then(|| PeftPosterior::read(folder, &peft)).transpose()?;
        Ok((Self { peft, posterior, description }, warnings))
    }

    /// The adapter with no module above `cap`; the posterior stays behind, since it is one of other directions.
    pub fn capped(&self, cap: Cap) -> Result<(Self, CapReport)> {
        let (peft, report) = self.peft.capped(cap)?;
        let description = self.description.clone().map(Description::at_the_mean);
        let description = description.map(Description::without_thresholds);
        Ok((Self { peft, posterior: None, description }, report))
    }

    /// Writes the folder `target`, whole or not at all, in place of one that may be there; with the model card that `card`
    /// returns, and in the ragged layout with the posterior.
    pub(crate) fn write(
        &self,
        target: &Path,
        layout: ExportLayout,
        card: impl FnOnce(&ExportSummary) -> Result<Option<String>>,
    ) -> Result<ExportSummary> {
        let building = AtomicDir::create(target)?;
        let summary = match encoder_only::split(&self.peft, self.description.as_ref()) {
            Some((encoder, prefix)) => {
                encoder_only::write_head(&self.peft, building.path())?;
                encoder_only::whole(encoder.write(building.path(), layout)?, &prefix)
            }
            None => self.peft.write(building.path(), layout)?,
        };
        let mut description = self.description.clone();
        match &self.posterior {
            Some(posterior) if layout == ExportLayout::Ragged => {
                posterior.write(building.path(), &self.peft)?;
            }
            Some(_) => description = description.map(Description::at_the_mean),
            None => {}
        }
        if let Some(mut description) = description {
            description.base.hashes.get_or_insert_default().take(building.path())?;
            description.write(building.path())?;
        }
        if let Some(text) = card(&summary)? {
            write_atomic(building.path().join(CARD_FILE), text.as_bytes())?;
        }
        building.commit_replacing()?;
        Ok(summary)
    }
}
