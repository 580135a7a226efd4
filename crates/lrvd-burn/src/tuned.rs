//! Any Burn module with BayesLoRA: attached, trained in a loop of the user's, pruned, saved, loaded, asked.

use std::collections::BTreeSet;
use std::path::Path;

use burn::lr_scheduler::module_lr_scheduler::{ModuleLearningRate, ModuleLrSchedulerConfig};
use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor, ParamGroup};
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};
use lrvd_core::error::check_range;
use lrvd_core::noise::NoiseKey;

use crate::bayes_lora::BayesLora;
use crate::error::Error;
use crate::model::{self, NamedModule, attach_adapters};
use crate::parameters::Group;
use crate::peft::{PeftConfig, PosteriorRun};
use crate::prune::{self, PruneEvent};
use crate::sampling::{Draws, Pass, Scheme, check_seed};
use crate::selection::Selection;
use crate::train::{
    BayesLoraMethod, Model, Prediction, Run, TrainConfig, peft_template, read_adapter,
    write_adapter,
};

/// A configuration, the layers that get an adapter, and the modules that train whole; made by [`BayesLora::targets`].
#[derive(Clone, Debug)]
pub struct Adaptation {
    config: BayesLora,
    targets: Selection,
    whole: Option<Selection>,
}

impl BayesLora {
    /// Puts an adapter on the linear layers in `targets`.
    ///
    /// A [`burn::nn::Linear`] multiplies by the composed weight `W + c·A·B`, with one weight draw for a batch; an
    /// [`nn::Linear`](crate::nn::Linear) in its place (`use lrvd_burn::nn::Linear`) applies the update to activations, with every
    /// scheme and with dropout.
    #[must_use]
    pub fn targets(self, targets: impl Into<Selection>) -> Adaptation {
        Adaptation { config: self, targets: targets.into(), whole: None }
    }
}

impl Adaptation {
    /// Trains the modules and parameters in `modules` whole, such as a head; everything else is frozen.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lrvd_burn::burn::nn::{Linear, LinearConfig};
    /// # use lrvd_burn::burn::tensor::Device;
    /// # use lrvd_burn::BayesLora;
    /// let layer = |d_out| LinearConfig::new(4, d_out).init(&Device::flex());
    /// let net: Vec<Linear> = vec![layer(4), layer(3)];
    /// let tuned = BayesLora::new(2).targets(["0"]).unfreeze(["1"]).attach(net, 7)?;
    /// // A `[4, 2]` and `[2, 4]` with a variance for each rank; weight and bias of the head.
    /// assert_eq!(tuned.trainable(), [("0".to_owned(), 18), ("1".to_owned(), 15)]);
    /// # Ok::<(), lrvd_burn::Error>(())
    /// ```
    #[must_use]
    pub fn unfreeze(self, modules: impl Into<Selection>) -> Self {
        Self { whole: Some(modules.into()), ..self }
    }

    /// `model` with fresh adapters, whose initial values and noise depend on `seed`.
    ///
    /// # Errors
    ///
    /// Settings out of their range, a selection that matches nothing, a rank above the width of a layer, and a scheme or
    /// dropout that an adapted [`burn::nn::Linear`] does not support.
    pub fn attach<M: Module>(self, model: M, seed: u64) -> Result<Tuned<M>, Error> {
        let Self { config, targets, whole } = self;
        config.check()?;
        check_seed(seed)?;
        let mut model = model.freeze();
        attach_adapters(&mut model, &targets, &config.adapter(), NoiseKey::new(seed))?;
        let pass = Pass::sampled(config.scheme(), NoiseKey::new(seed));
        let scheme = match model::check_forward(&model, &pass) {
            Ok(()) => pass.scheme,
            Err(_) if config.scheme.is_none() => Scheme::PerBatch,
            Err(error) => return Err(error),
        };
        if let Some(whole) = &whole {
            unfreeze(&mut model, whole)?;
        }
        let header = PosteriorRun {
            scheme: Some(scheme),
            kl_weight: Some(config.kl_weight),
            seed: Some(seed),
            ..PosteriorRun::default()
        };
        let template = peft_template(&config.adapter());
        Ok(Tuned { model, config: Some(config), template, header, scheme, seed })
    }

    /// The ready-made loop over `model`: schedule, evaluations, checkpoints and prunes, under the seed of `settings`.
    ///
    /// Modules in the group of heads or poolers of a [`Named`](crate::model::Named) train as well.
    pub fn run<M: Model>(
        self,
        model: M,
        settings: &TrainConfig,
    ) -> Result<Run<M, BayesLoraMethod>, Error> {
        let method = Box::new(self.config.into());
        let mut run = Run::new(model.freeze(), method, &self.targets, settings)?;
        if let Some(whole) = &self.whole {
            unfreeze(&mut run.state.model, whole)?;
        }
        Ok(run)
    }
}

/// Makes the parameters of the modules in `selection` trainable.
fn unfreeze(model: &mut impl NamedModule, selection: &Selection) -> Result<(), Error> {
    let mut paths = BTreeSet::new();
    let mut layers = BTreeSet::new();
    let mut modules = Vec::new();
    model.visit_parameters(&mut |p| {
        paths.extend(ancestors(p.name).map(str::to_owned));
        modules.push(p.module().to_owned());
    });
    model.visit_layers(&mut |path, _| layers.extend([path.to_owned()]));
    let known: Vec<&str> = paths.iter().map(String::as_str).collect();
    selection.check(&known, modules.into_iter())?;
    let is_any = !matches!(selection, Selection::AllLinear);
    model.visit_parameters_mut(&mut |p| {
        let contains = |path: &str| selection.contains(path) && (is_any || layers.contains(path));
        if ancestors(p.name).any(contains) {
            p.value.set_trainable(true);
        }
    });
    Ok(())
}

/// `a`, `a.b` and `a.b.c` of the name `a.b.c`.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices('.').map(|(end, _)| end);
    ends.chain([name.len()]).map(|end| &name[..end])
}

/// A model with BayesLoRA, the configuration that it was attached with, and its seed.
///
/// It is a [`Module`] with the parameters and paths of the model, so that any optimizer of Burn's trains it. A cut parameter
/// has a new [`ParamId`](burn::module::ParamId), for which an optimizer starts without moments.
///
/// # Examples
///
/// ```
/// use lrvd_burn::burn::nn::{Linear, LinearConfig};
/// use lrvd_burn::burn::optim::AdamWConfig;
/// use lrvd_burn::burn::tensor::{Device, Tensor};
/// use lrvd_burn::{BayesLora, Tuned};
///
/// let device = Device::flex().autodiff();
/// let net: Vec<Linear> = vec![LinearConfig::new(4, 3).init(&device)];
/// let mut tuned = BayesLora::new(2).targets(["0"]).attach(net, 7)?;
/// let mut optimizer = AdamWConfig::new().init();
/// let x = Tensor::<2>::ones([5, 4], &device);
/// for step in 0..3 {
///     let loss = tuned.draw(step)[0].forward(x.clone()).square().mean() + tuned.kl(5)?;
///     tuned.step(&mut optimizer, 1e-2, loss);
/// }
/// assert_eq!(tuned.ranks(), [("0".to_owned(), 2)]);
/// # Ok::<(), lrvd_burn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tuned<M> {
    model: M,
    /// `None` of an adapter from files, which do not state all of it.
    config: Option<BayesLora>,
    /// Settings of the adapter in PEFT's form.
    template: PeftConfig,
    header: PosteriorRun,
    scheme: Scheme,
    seed: u64,
}

impl<M: Module> Tuned<M> {
    /// `model` with the adapter in `folder`, everything frozen. Draws have the seed that the folder states, 0 if it states none.
    ///
    /// # Errors
    ///
    /// Files that do not fit the model, and a model other than the one that the adapter was trained on.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lrvd_burn::burn::nn::{Linear, LinearConfig};
    /// # use lrvd_burn::burn::tensor::Device;
    /// # use lrvd_burn::{BayesLora, Tuned};
    /// # let net: Vec<Linear> = vec![LinearConfig::new(4, 3).init(&Device::flex())];
    /// let tuned = BayesLora::new(2).targets(["0"]).attach(net.clone(), 7)?;
    /// # let folder = std::env::temp_dir().join(format!("tuned-load-{}", std::process::id()));
    /// tuned.save(&folder)?;
    /// let loaded = Tuned::load(net, &folder)?;
    /// assert_eq!(loaded.ranks(), tuned.ranks());
    /// # Ok::<(), lrvd_burn::Error>(())
    /// ```
    pub fn load(model: M, folder: impl AsRef<Path>) -> Result<Self, Error> {
        let mut model = model.freeze();
        let (template, header) = read_adapter(&mut model, folder.as_ref())?;
        let scheme = Scheme::PerBatch;
        let seed = header.seed.unwrap_or_default();
        Ok(Self { model, config: None, template, header, scheme, seed })
    }

    /// The model under the noise of `step`, for one forward and backward pass: its parameters are those of `self`, so that
    /// gradients reach them.
    ///
    /// Equal seeds and steps give equal noise. Of a loaded adapter it is one weight draw per batch.
    ///
    /// # Shapes
    ///
    /// Inputs and outputs are those of the model's own forward pass.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lrvd_burn::burn::nn::{Linear, LinearConfig};
    /// # use lrvd_burn::burn::tensor::{Device, Tensor};
    /// # use lrvd_burn::BayesLora;
    /// # let net: Vec<Linear> = vec![LinearConfig::new(4, 3).init(&Device::flex())];
    /// let tuned = BayesLora { initial: 0.0, ..BayesLora::new(2) }.targets(["0"]).attach(net, 7)?;
    /// let x = Tensor::<2>::ones([5, 4], &Device::flex());
    /// let answer = |step| tuned.draw(step)[0].forward(x.clone()).sum().into_scalar::<f32>();
    /// assert!(answer(0) == answer(0) && answer(0) != answer(1));
    /// # Ok::<(), lrvd_burn::Error>(())
    /// ```
    #[must_use]
    pub fn draw(&self, step: usize) -> M {
        let key = NoiseKey::new(self.seed).at_step(step as u32);
        let pass = Pass::sampled(self.scheme, key);
        let drops = self.config.is_some_and(|config| config.dropout > 0.0);
        model::under_pass(&self.model, if drops { pass.with_dropout(key) } else { pass })
    }

    /// The divergence as a term of the loss of a mean over examples, in nats: 0 once every rank is pruned.
    ///
    /// # Formula
    ///
    /// ```text
    /// kl_weight/n_train · Σ KL(q ‖ p)
    /// ```
    ///
    /// # Shapes
    ///
    /// `[1]`.
    ///
    /// # Errors
    ///
    /// No training examples, and an adapter from files, which do not state its prior.
    pub fn kl(&self, n_train: usize) -> Result<Tensor<1>, Error> {
        let config = self.config()?;
        check_range("n_train", n_train, 1..)?;
        let weight = config.kl_weight / n_train as f64;
        let total = model::total_kl(&self.model, config.prior, config.kl_reduction)?;
        Ok(match total {
            Some(total) => total.mul_scalar(weight),
            None => Tensor::zeros([1], &self.model.devices()[0]),
        })
    }

    /// Updates the parameters by the gradients of `loss` `[1]`, the posterior's at `rate` times
    /// [`noise_rate_factor`](BayesLora::noise_rate_factor).
    ///
    /// It is short for
    ///
    /// ```text
    /// let gradients = GradientsParams::from_grads(loss.backward(), &tuned);
    /// tuned = optimizer.step(tuned.learning_rate(rate), tuned, gradients);
    /// ```
    ///
    /// and does nothing once no parameter trains: every rank is pruned, and nothing was unfrozen.
    pub fn step(&mut self, optimizer: &mut ModuleOptimizer, rate: f64, loss: Tensor<1>) {
        if loss.is_tracked() {
            let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
            let rate = self.learning_rate(rate);
            self.model = optimizer.step(rate, self.model.clone(), gradients);
        }
    }

    /// `rate`, and for the parameters of the posterior `rate` times [`noise_rate_factor`](BayesLora::noise_rate_factor).
    ///
    /// A cut parameter is another one for Burn: it is to be called for every step.
    pub fn learning_rate(&self, rate: f64) -> ModuleLearningRate {
        let Some(config) = &self.config else { return rate.into() };
        let mut noise = Vec::new();
        self.model.visit_parameters(&mut |p| {
            if p.group == Group::LogVariance {
                noise.push(p.value.id());
            }
        });
        // Constant rates have no range that `init` could reject.
        let rates = ModuleLrSchedulerConfig::new(rate.into())
            .with_group(ParamGroup::from_ids(noise), rate * config.noise_rate_factor);
        rates.init().map_or_else(|_| rate.into(), |mut rates| rates.step())
    }

    /// Removes the ranks that the [rule](BayesLora::rule) does not keep from the tensors, and returns what it kept.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lrvd_burn::burn::nn::{Linear, LinearConfig};
    /// # use lrvd_burn::burn::tensor::Device;
    /// # use lrvd_burn::BayesLora;
    /// # let net: Vec<Linear> = vec![LinearConfig::new(4, 3).init(&Device::flex())];
    /// // Noise of variance 1 on means that start at 0.
    /// let config = BayesLora { initial: 0.0, ..BayesLora::new(2) };
    /// let mut tuned = config.targets(["0"]).attach(net, 7)?;
    /// let event = tuned.prune()?;
    /// assert_eq!(event.statistics["0"].len(), 2);
    /// assert_eq!(tuned.ranks(), [("0".to_owned(), event.kept["0"].len())]);
    /// # Ok::<(), lrvd_burn::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A statistic that is not a number, and an adapter from files, which do not state its rule.
    pub fn prune(&mut self) -> Result<PruneEvent, Error> {
        let BayesLora { rule, statistic, .. } = *self.config()?;
        let event = prune::plan(&self.model, &rule, statistic)?;
        prune::apply(&mut self.model, &event, None, None);
        self.header.statistic = Some(statistic.aggregate);
        self.header.log_alpha_threshold = Some(rule.log_alpha_threshold());
        Ok(event)
    }

    /// Writes the adapters and every other trainable parameter as PEFT does, and the posterior with the settings that were used
    /// next to them, into `folder`, atomically.
    ///
    /// # Errors
    ///
    /// A folder that exists or cannot be written, and values that are not finite.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<(), Error> {
        write_adapter(&self.model, &self.template, Some(self.header), folder).map(drop)
    }

    /// Answers to `batches`, which are taken one after the other, of as many models drawn from the posterior; at its mean for 0
    /// draws.
    ///
    /// Every batch has the answers of these models: draw `i` depends on the seed and `i` only.
    ///
    /// # Shapes
    ///
    /// `forward` returns logits `[rows, classes]`, or scores `[rows, 1]`, of as many rows as its batch has; the prediction has
    /// the rows of all batches, in order.
    ///
    /// # Errors
    ///
    /// Batches whose logits have different numbers of columns.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lrvd_burn::burn::nn::{Linear, LinearConfig};
    /// # use lrvd_burn::burn::tensor::{Device, Tensor};
    /// # use lrvd_burn::BayesLora;
    /// # let net: Vec<Linear> = vec![LinearConfig::new(4, 3).init(&Device::flex())];
    /// # let tuned = BayesLora::new(2).targets(["0"]).attach(net, 7)?;
    /// let batches = (0..3).map(|_| Tensor::<2>::ones([8, 4], &Device::flex()));
    /// let answers = tuned.predict(10, batches, |net, x| net[0].forward(x.clone()))?.classes()?;
    /// assert_eq!(answers.len(), 24);
    /// # Ok::<(), lrvd_burn::Error>(())
    /// ```
    pub fn predict<I>(
        &self,
        draws: usize,
        batches: impl IntoIterator<Item = I>,
        forward: impl Fn(&M, &I) -> Tensor<2>,
    ) -> Result<Prediction, Error> {
        let model = self.model.valid();
        let passes = Draws { count: draws, seed: self.seed }.passes()?.into_iter();
        let models: Vec<M> = passes.map(|pass| model::under_pass(&model, pass)).collect();
        let mut values = vec![Vec::new(); models.len()];
        let mut rows = 0;
        let mut width = 0;
        for batch in batches {
            let mut found = [0, 0];
            for (values, model) in values.iter_mut().zip(&models) {
                let logits = forward(model, &batch);
                found = logits.dims();
                values.extend(logits.into_data().iter::<f64>());
            }
            if rows > 0 && found[1] != width {
                return Err(Error::argument("forward", format!("{width} columns"), found[1]));
            }
            rows += found[0];
            width = found[1];
        }
        Ok(Prediction::new(values.concat(), rows, width))
    }

    /// Rank of every layer with an adapter, in order; pruned ones count 0.
    pub fn ranks(&self) -> Vec<(String, usize)> {
        model::ranks(&self.model)
    }

    /// Modules with a trainable parameter in order, and the number of its trainable values. An adapter belongs to its layer.
    pub fn trainable(&self) -> Vec<(String, usize)> {
        let mut found: Vec<(String, usize)> = Vec::new();
        self.model.visit_parameters(&mut |p| {
            if !p.value.is_trainable() {
                return;
            }
            let module = p.module();
            match found.iter_mut().find(|(name, _)| name == module) {
                Some((_, values)) => *values += p.value.len(),
                None => found.push((module.to_owned(), p.value.len())),
            }
        });
        found
    }

    /// The model at the mean of the posterior.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model with its adapters.
    pub fn into_model(self) -> M {
        self.model
    }

    fn config(&self) -> Result<&BayesLora, Error> {
        let from_files = || {
            Error::argument(
                "adapter",
                "one that was attached",
                "one from files, which state neither prior nor rule",
            )
        };
        self.config.as_ref().ok_or_else(from_files)
    }

    fn with(self, change: impl FnOnce(M) -> M) -> Self {
        Self { model: change(self.model), ..self }
    }
}

/// Parameters and paths are those of the model.
impl<M: Module> Module for Tuned<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.model.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.with(|model| model.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.with(|model| model.to_device(device))
    }

    fn train(self) -> Self {
        self.with(Module::train)
    }

    fn valid(&self) -> Self {
        Self { model: self.model.valid(), ..self.clone() }
    }

    fn materialize(self) -> Self {
        self.with(Module::materialize)
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.model.visit(visitor);
    }

    fn map<V: ModuleMapper>(self, mapper: &mut V) -> Self {
        self.with(|model| model.map(mapper))
    }
}
