//! Fine-tuning of any Burn module where the loop is the user's: attach, train, prune, save, load, predict.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_core::kl::KlReduction;
use lrvd_core::noise::NoiseKey;
use lrvd_core::prune::{PruneRule, StatisticOptions};

use crate::adapter::{Adapter, AdapterConfig, AdapterKind, Prior};
use crate::error::Error;
use crate::files::LoadReport;
use crate::model::{self, NamedModule, attach_adapters, walk};
use crate::optimizer::AdamW;
use crate::peft::PosteriorRun;
use crate::prune::{self, PruneEvent};
use crate::sampling::{Draws, Pass};
use crate::selection::Selection;
use crate::train::{self, Prediction, write_adapter};

/// `model` with everything frozen and a fresh adapter on every targeted layer.
///
/// `model` is any Burn module. A [`burn::nn::Linear`] multiplies by the composed weight `W + c·A·B`, with one weight draw
/// a pass; an [`nn::Linear`](crate::nn::Linear) in its place (`use lrvd_burn::nn::Linear`) applies the update to activations, with
/// every scheme, dropout and kind of adapter. Heads that should train are unfrozen afterwards, by [`unfreeze`];
/// [`trainable`] lists what then trains.
///
/// Errors are those of [`attach_adapters`].
pub fn attach<M: Module>(
    model: M,
    config: AdapterConfig,
    targets: impl Into<Selection>,
    seed: u64,
) -> Result<M, Error> {
    let mut model = model.freeze();
    attach_adapters(&mut model, &targets.into(), &config, NoiseKey::new(seed))?;
    Ok(model)
}

/// `model` with the modules and parameters at `paths` trained whole, such as a head.
///
/// A path is one of fields from the root: `output` is not `attention.output`, as it is by a substring. One that means nothing
/// is an error.
pub fn unfreeze<M: Module>(mut model: M, paths: &[&str]) -> Result<M, Error> {
    let means = |path: &str, name: &str| {
        name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let (mut unknown, mut modules) = (paths.to_vec(), Vec::new());
    model.visit_parameters_mut(&mut |p| {
        unknown.retain(|path| !means(path, p.name));
        let module = p.module();
        if modules.last().is_none_or(|last| last != module) {
            modules.push(module.to_owned());
        }
        if paths.iter().any(|path| means(path, p.name)) {
            p.value.set_trainable(true);
        }
    });
    if unknown.is_empty() {
        return Ok(model);
    }
    Err(Error::UnknownTargets {
        targets: unknown.into_iter().map(str::to_owned).collect(),
        known: modules,
    })
}

/// What trains: the modules with a trainable parameter in order, and the number of its trainable values. An adapter belongs to
/// its layer.
pub fn trainable(model: &impl NamedModule) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    model.visit_parameters(&mut |p| {
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

/// `Σ KL(q ‖ p)` of the adapters from the log-uniform prior in nats, `[1]`; `None` if none has a posterior left.
///
/// The objective is `nll + kl / n` with `n` training examples; [`model::total_kl`] has the other priors.
pub fn kl(model: &impl NamedModule) -> Result<Option<Tensor<1>>, Error> {
    model::total_kl(model, Prior::LogUniform, KlReduction::Element)
}

/// Removes the rank directions that `rule` does not keep from the tensors, and their moments from `optimizer`.
///
/// The statistic is [`lrvd_core::prune`]'s `log α̂`.
pub fn prune(
    model: &mut impl NamedModule,
    rule: &PruneRule,
    optimizer: Option<&mut AdamW>,
) -> Result<PruneEvent, Error> {
    let event = prune::plan(model, rule, StatisticOptions::default())?;
    prune::apply(model, &event, optimizer, None);
    Ok(event)
}

/// Writes the adapters and every other trainable parameter as PEFT does, and the posterior beside them, into
/// `folder`, atomically. `run` is what the posterior's header says of the training; what it does not give is not written.
pub fn save(
    model: &impl NamedModule,
    folder: impl AsRef<Path>,
    run: PosteriorRun,
) -> Result<(), Error> {
    write_adapter(model, &described(model), Some(run), folder).map(drop)
}

/// `model` with the adapter in `folder`, everything frozen.
///
/// Another base model is an error, as for [`train::load_adapter`].
pub fn load<M: Module>(model: M, folder: impl AsRef<Path>) -> Result<(M, LoadReport), Error> {
    let (mut model, folder) = (model.freeze(), folder.as_ref());
    let report = train::load_adapter(&mut model, folder)?;
    Ok((model, report))
}

/// The configuration of the adapters as they themselves say it.
fn described(model: &impl NamedModule) -> AdapterConfig {
    let (mut scaling, kind) = (1.0, AdapterKind::Lora { b_bound: 0.0 });
    let mut config = AdapterConfig { kind, rank: 1, lora_alpha: 1.0, dropout: 0.0 };
    for attached in model::adapters(model) {
        if let Some(slot) = attached.slot
            && slot.initial_rank >= config.rank
        {
            (config.rank, scaling) = (slot.initial_rank, slot.scaling);
        }
        config.dropout =
            config.dropout.max(attached.adapter.as_ref().map_or(0.0, Adapter::dropout));
        if attached.low_rank().is_some_and(|adapter| adapter.singular_values().is_some()) {
            config.kind = AdapterKind::AdaLora;
        }
    }
    AdapterConfig { lora_alpha: scaling * config.rank as f64, ..config }
}

/// Logits `[rows, classes]` of `forward`: at the posterior mean for 0 draws, else of as many models drawn from the
/// posterior. [`Prediction::classes`] gives class, probability, entropy and mutual information of each row.
///
/// Draw `i` depends on `seed` and `i` only.
pub fn predict<M: Module>(
    model: &M,
    draws: usize,
    seed: u64,
    forward: impl Fn(&M) -> Tensor<2>,
) -> Result<Prediction, Error> {
    let model = model.valid();
    let (mut values, mut shape) = (Vec::new(), [0, 0]);
    for pass in (Draws { count: draws, seed }).passes()? {
        let logits = forward(&with_pass(&model, pass)?);
        shape = logits.dims();
        values.extend(logits.into_data().iter::<f64>());
    }
    Ok(Prediction::new(values, shape[0], shape[1]))
}

/// `model` with every adapter under `pass` in a `forward` without one: its parameters are those of `model`, so that
/// gradients reach them, and `model` itself stays at the mean.
///
/// A [`burn::nn::Linear`] has one weight for a batch: it supports [`Scheme::Mean`](crate::sampling::Scheme::Mean) and
/// [`Scheme::PerBatch`](crate::sampling::Scheme::PerBatch), without dropout.
pub fn with_pass<M: Module>(model: &M, pass: Pass) -> Result<M, Error> {
    model::check_scheme(model, pass.scheme)?;
    let is_one_weight = pass.scheme.shares_weights() && pass.is_single_draw();
    let mut layers = BTreeMap::new();
    for mut found in walk::layers(model) {
        if found.is_composed && found.layer.adapter().is_some() && !is_one_weight {
            return Err(model::cannot_sample(&found.path, pass.scheme));
        }
        found.layer.edit_attached(|attached| attached.pass = pass);
        layers.insert(found.path, found.layer);
    }
    Ok(walk::write_layers(model, layers))
}
