//! A run from the first step to the saved adapter.

use std::path::Path;

use burn::tensor::FloatDType;
use half::bf16;
use lrvd_core::noise::NoiseKey;
use lrvd_core::schedule::LrSchedule;
use sha2::{Digest as _, Sha256};

use super::checkpoint::{Checkpoints, hex, latest_checkpoint, load_checkpoint};
use super::config::TrainConfig;
use super::data::Model;
use super::method::{Method, Setup};
use super::predict::{Inputs, Prediction};
use super::search::RankSearch;
use super::state::TrainState;
use crate::adapter::{AdapterConfig, AdapterKind};
use crate::error::Error;
use crate::files::{AtomicDir, WeightStore, is_file};
use crate::model::{NamedModule, attach_adapters, start_op};
use crate::optimizer::AdamW;
use crate::parameters::Group;
use crate::peft::{
    AdaLoraConfig, ExportLayout, ExportSummary, POSTERIOR_FILE, PeftAdapter, PeftConfig,
    PeftPosterior, PosteriorRun, TargetModules, WEIGHTS_FILE, attach_peft, attach_posterior,
    peft_from_model, posterior_from_model,
};
use crate::selection::Selection;

/// A model with what trains it.
///
/// # Examples
///
/// ```
/// use lrvd_burn::adapter::AdaptedLinear;
/// use lrvd_burn::burn;
/// use lrvd_burn::burn::module::Module;
/// use lrvd_burn::burn::tensor::{Device, Tensor};
/// use lrvd_burn::sampling::Pass;
/// use lrvd_burn::train::{Inputs, Model, OrderConfig, Ordered, Rows, Targets, Watch};
/// use lrvd_burn::{BayesLora, TrainConfig};
///
/// #[derive(Module, Debug)]
/// struct Net {
///     layer: AdaptedLinear,
/// }
///
/// impl Model for Net {
///     type Input = Tensor<2>;
///
///     fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
///         self.layer.forward_with(input.clone(), pass)
///     }
/// }
///
/// let device = Device::flex();
/// let net = Net { layer: AdaptedLinear::new(Tensor::<2>::ones([4, 2], &device), None) };
/// let classes = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0]], &device);
/// let rows = Rows::new(Tensor::<2>::ones([2, 4], &device), Targets::Classes(classes));
/// let config = TrainConfig { steps: 3, ..TrainConfig::default() };
/// let mut run = BayesLora::new(2).targets(["layer"]).run(net, &config)?;
/// let mut batches = Ordered::new(&rows, OrderConfig::shuffled(2), config.seed)?;
/// run.fit(&mut batches, &mut Watch::default())?;
/// let prediction = run.predict(&Inputs::new(&rows).drawn(10))?;
/// assert_eq!((prediction.members(), prediction.rows, prediction.width), (10, 2, 2));
/// # Ok::<(), lrvd_burn::Error>(())
/// ```
pub struct Run<M, T: ?Sized> {
    /// Everything that changes.
    pub state: TrainState<M>,
    /// The method.
    pub method: Box<T>,
    /// The settings, which were checked.
    pub config: TrainConfig,
    pub(super) schedule: LrSchedule,
    pub(super) search: Option<RankSearch>,
}

impl<M: Model, T: Method<M> + ?Sized> Run<M, T> {
    /// Puts fresh adapters of `method` on the layers of `model` in `targets`, and unfreezes its head; of BayesLoRA
    /// [`Adaptation::run`](crate::Adaptation::run) does so.
    ///
    /// # Errors
    ///
    /// Settings out of their range, and what [`attach_adapters`] rejects: targets that match no layer, a rank above the width of
    /// a layer, a layer that has an adapter.
    pub fn new(
        mut model: M,
        method: Box<T>,
        targets: &Selection,
        config: &TrainConfig,
    ) -> Result<Self, Error> {
        let schedule = config.check()?;
        let Setup { adapter, groups, op, .. } = method.setup(config)?;
        groups.check()?;
        attach_adapters(&mut model, targets, &adapter, NoiseKey::new(config.seed))?;
        if let Some(op) = op {
            start_op(&mut model, &op, NoiseKey::new(config.seed))?;
        }
        model.visit_parameters_mut(&mut |p| match p.group {
            Group::Head => p.value.set_trainable(true),
            Group::Pooler => p.value.set_trainable(config.train_pooler),
            _ => {}
        });
        let optimizer = AdamW::new(config.optimizer, groups).with_b_factor(config.lora_plus_ratio);
        let state = TrainState::new(model, optimizer);
        Ok(Self { state, method, config: config.clone(), schedule, search: None })
    }

    /// Chooses the ranks of the run, not yet trained, by `search`: the model is trained at its mean, cut, and refined with
    /// the posterior. `search` takes the place of the method's schedule and divisor of the divergence, and of its changes of ranks.
    pub fn searching(mut self, search: RankSearch) -> Result<Self, Error> {
        search.prepare(&self.setup()?, &mut self.state.model)?;
        Ok(Self { search: Some(search), ..self })
    }

    /// The method's adapters under the settings.
    pub fn setup(&self) -> Result<Setup, Error> {
        self.method.setup(&self.config)
    }

    /// Steps of the whole run: those of the settings, and those of a search for ranks after its cut.
    pub fn steps(&self) -> usize {
        self.config.steps + self.search.map_or(0, |search| search.refine_steps)
    }

    /// Header of the posterior's file; `None` of adapters without a posterior.
    pub fn posterior(&self) -> Result<Option<PosteriorRun>, Error> {
        let of_run = |run: PosteriorRun| match self.search {
            None => run,
            // The cut takes the place of the rule, and its weight that of the method.
            Some(search) => PosteriorRun {
                statistic: Some(search.statistic.aggregate),
                log_alpha_threshold: None,
                kl_weight: self.state.kl_weight,
                ..run
            },
        };
        Ok(self.setup()?.posterior.map(of_run))
    }

    /// Continues from the newest checkpoint; `false` if there is none.
    pub fn resume(&mut self, checkpoints: &Checkpoints) -> Result<bool, Error> {
        let Some(path) = latest_checkpoint(&checkpoints.folder)? else { return Ok(false) };
        load_checkpoint(&path, &mut self.state, &mut *self.method)?;
        Ok(true)
    }

    /// The model's answers to `inputs`.
    ///
    /// # Shapes
    ///
    /// `[draws, rows, width]`, one member without draws; ensembles have as many for each draw as members.
    ///
    /// # Errors
    ///
    /// Settings of the draws out of their range, logits of tokens, and [`Error::Stopped`] once the watch ends the prediction.
    pub fn predict(&self, inputs: &Inputs<'_, M::Input>) -> Result<Prediction, Error> {
        self.method.predict(&self.state.model.clone().valid(), inputs)
    }

    /// Writes the adapters, every other trainable parameter and the posterior of the model as it is now
    /// into `folder`, atomically.
    ///
    /// The layout is the one that keeps every rank as it is.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<ExportSummary, Error> {
        let template = peft_template(&self.setup()?.adapter);
        write_adapter(&self.state.compacted(), &template, self.posterior()?, folder)
    }
}

/// Settings of adapters that started as `config`; its targets are replaced by the paths that have an adapter.
pub(crate) fn peft_template(config: &AdapterConfig) -> PeftConfig {
    let targets = TargetModules::Names(Vec::new());
    let template = match config.kind {
        AdapterKind::AdaLora => {
            let adalora = AdaLoraConfig { init_r: config.rank, ..AdaLoraConfig::default() };
            PeftConfig::adalora(adalora, config.lora_alpha, targets)
        }
        _ => PeftConfig::lora(config.rank, config.lora_alpha, targets),
    };
    PeftConfig { lora_dropout: config.dropout, ..template }
}

/// Writes the adapters of `model`, every other trainable parameter, and the posterior of `run` if it has one, into `folder`,
/// atomically.
pub(crate) fn write_adapter(
    model: &impl NamedModule,
    template: &PeftConfig,
    run: Option<PosteriorRun>,
    folder: impl AsRef<Path>,
) -> Result<ExportSummary, Error> {
    let adapter = peft_from_model(model, template)?;
    let posterior = match run {
        Some(run) => posterior_from_model(model, run)?,
        None => None,
    };
    let building = AtomicDir::create(folder)?;
    let base = [(BASE_KEY.to_owned(), base_hash(model, &adapter.config))].into();
    let summary = adapter.write_with(building.path(), ExportLayout::Ragged, base)?;
    if let Some(posterior) = posterior {
        posterior.write(building.path(), &adapter)?;
    }
    building.commit()?;
    Ok(summary)
}

/// Puts the adapter in `folder`, with its posterior if there is one, on `model`, frozen. Returns the settings of the adapter, and
/// of its run what the posterior states.
///
/// A model whose other parameters are not those that the adapter was saved with is an error: shapes alone do not tell. They
/// are compared in bfloat16, so the same model may be in single or half precision, and not at all with an adapter that
/// another program wrote.
pub(crate) fn read_adapter(
    model: &mut impl NamedModule,
    folder: &Path,
) -> Result<(PeftConfig, PosteriorRun), Error> {
    let adapter = PeftAdapter::read(folder)?;
    attach_peft(model, &adapter, false)?;
    let mut run = PosteriorRun::default();
    if is_file(&folder.join(POSTERIOR_FILE))? {
        let posterior = PeftPosterior::read(folder, &adapter)?;
        attach_posterior(model, &posterior)?;
        let header = posterior.header;
        run = PosteriorRun {
            scheme: header.scheme,
            statistic: header.statistic,
            log_alpha_threshold: header.log_alpha_threshold,
            kl_weight: header.kl_weight,
            seed: header.seed,
        };
    }
    check_base(model, folder, &adapter.config)?;
    Ok((adapter.config, run))
}

/// Key of the hash of the base model among the texts of the adapter's tensors.
const BASE_KEY: &str = "lrvd_base_sha256";

/// Checks that the parameters of `model` that are not of the adapter in `folder` are those that it was saved with, if it says.
fn check_base(model: &impl NamedModule, folder: &Path, config: &PeftConfig) -> Result<(), Error> {
    let path = folder.join(WEIGHTS_FILE);
    let file = WeightStore::open(&path)?;
    let Some(expected) = file.metadata().get(BASE_KEY) else { return Ok(()) };
    let found = base_hash(model, config);
    if found == *expected {
        return Ok(());
    }
    let what = format!(
        "belongs to another base model: the SHA-256 of the weights of its base is {expected}, of this one {found}"
    );
    Err(Error::file(path, what))
}

/// SHA-256 of name, shape and values of every parameter that is neither an adapter's nor stored whole beside it, in bfloat16.
fn base_hash(model: &impl NamedModule, config: &PeftConfig) -> String {
    let mut hash = Sha256::new();
    model.visit_parameters(&mut |p| {
        let is_adapter = matches!(p.group, Group::AdapterMean | Group::LogVariance);
        if is_adapter || config.saves(p.name) {
            return;
        }
        hash.update(format!("{} {:?}\n", p.name, p.value.shape()));
        let values = p.value.flat().cast(FloatDType::F32).into_data();
        for value in values.iter::<f32>() {
            hash.update(bf16::from_f32(value).to_le_bytes());
        }
    });
    hex(&hash.finalize())
}
