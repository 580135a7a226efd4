//! Models that contain adapted layers: attach, collect, count.

mod named;
pub(crate) mod walk;

pub use named::Named;
pub use walk::{NamedModule, adapters};

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{DType, FloatDType, Tensor};
use lrvd_core::kl::KlReduction;
use lrvd_core::noise::{NoiseKey, module_id};
use tracing::{debug, trace};

use self::walk::LayerRef;
use crate::adapter::{
    AdaptedLinear, AdapterConfig, Attached, Extension, LowRankAdapter, OpExtension, Prior, UpdateOp,
};
use crate::error::Error;
use crate::ops::{Packing, recompute};
use crate::parameters::Group;
use crate::sampling::Pass;
use crate::selection::Selection;

/// Attaches a fresh adapter to every targeted layer and returns their paths in order.
///
/// Targets that match no layer, two layers of one path, a layer that has an adapter, a rank above the smaller width of
/// a targeted layer, and a kind of adapter that a [`burn::nn::Linear`] cannot apply are errors.
pub fn attach_adapters(
    model: &mut impl NamedModule,
    targets: &Selection,
    config: &AdapterConfig,
    seed: NoiseKey,
) -> Result<Vec<String>, Error> {
    config.check()?;
    let mut found = walk::layers(model);
    check_distinct(found.iter().map(|found| found.path.as_str()))?;
    let paths: Vec<&str> = found.iter().map(|found| found.path.as_str()).collect();
    let ends = |path: &&str| path.rsplit('.').next().unwrap_or(path).to_owned();
    targets.check(&paths, paths.iter().map(ends))?;
    let layers = found.len();
    let is_whole = |found: &LayerRef| found.group != Group::Backbone;
    let takes_whole = !matches!(targets, Selection::AllLinear);
    found.retain(|found| (takes_whole || !is_whole(found)) && targets.contains(&found.path));
    let width = |found: &LayerRef| found.layer.d_input().min(found.layer.d_output());
    if let Some(narrowest) = found.iter().min_by_key(|found| width(found))
        && config.rank > width(narrowest)
    {
        return Err(Error::RankTooLarge {
            layer: narrowest.path.clone(),
            rank: config.rank,
            d_input: narrowest.layer.d_input(),
            d_output: narrowest.layer.d_output(),
        });
    }
    if let Some(LayerRef { path, .. }) = found.iter().find(|found| found.layer.low_rank().is_some())
    {
        return Err(Error::AlreadyAdapted { layer: path.clone() });
    }
    if let Some(LayerRef { path, .. }) = found.iter().find(|found| found.is_composed)
        && config.dropout > 0.0
    {
        return Err(composed(path));
    }
    for LayerRef { layer, path, .. } in &mut found {
        config.attach(layer, path, seed)?;
    }
    let paths: Vec<String> = found.iter().map(|found| found.path.clone()).collect();
    *model = walk::write_layers(model, found.into_iter().map(|f| (f.path, f.layer)).collect());
    debug!(layers, adapted = paths.len(), ?targets, "attached adapters");
    for path in &paths {
        trace!(%path, "adapted");
    }
    Ok(paths)
}

/// Checks that no two layers have one path.
pub(crate) fn check_distinct<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    match paths.into_iter().find(|path| !seen.insert(*path)) {
        Some(path) => Err(Error::DuplicateLayer { layer: path.to_owned() }),
        None => Ok(()),
    }
}

/// Rank of every layer that was given an adapter, in order; pruned ones count 0.
pub fn ranks(model: &impl NamedModule) -> Vec<(String, usize)> {
    let given = |attached: &Attached| !attached.is_bare();
    let rank = |attached: Attached| {
        let rank = attached.adapter.as_ref().map_or(0, LowRankAdapter::rank);
        (attached.path.to_string(), rank)
    };
    adapters(model).into_iter().filter(given).map(rank).collect()
}

/// `Σ KL(q ‖ p)` over all adapters in nats, `[1]`; `None` if no adapter has a posterior left.
///
/// An adapter that is used twice in a forward counts once.
pub fn total_kl(
    model: &impl NamedModule,
    prior: Prior,
    reduction: KlReduction,
) -> Result<Option<Tensor<1>>, Error> {
    let mut terms = Vec::new();
    for adapter in adapters(model).iter().filter_map(|attached| attached.adapter.as_ref()) {
        terms.extend(adapter.kl(prior, reduction)?);
    }
    Ok(terms.into_iter().reduce(|sum, term| sum + term))
}

/// Sum of `term` over the adapted layers, `[1]`; `None` if it has no value for any of them.
///
/// A term of a method's objective, such as `|layer| layer.kl_elements(0.2, ElementReduction::Sum)`. A layer that is used twice in a forward counts once.
pub fn total_over_adapters(
    model: &impl NamedModule,
    mut term: impl FnMut(&AdaptedLinear) -> Option<Tensor<1>>,
) -> Option<Tensor<1>> {
    let layers = walk::layers(model).into_iter();
    layers.filter_map(|found| term(&found.layer)).reduce(|sum, term| sum + term)
}

/// Puts `op` on every fresh LoRA of `model` in place of the product of its factors; what `seed` and the layer's path name
/// are its initial values.
pub(crate) fn start_op(
    model: &mut impl NamedModule,
    op: &Arc<dyn UpdateOp>,
    seed: NoiseKey,
) -> Result<(), Error> {
    let mut found = walk::layers(model);
    found.retain(|found| found.layer.low_rank().is_some());
    for LayerRef { layer, path, is_composed, .. } in &mut found {
        if *is_composed {
            return Err(composed(path));
        }
        let Some(mut adapter) = layer.low_rank().cloned() else { continue };
        let key = seed.for_module(module_id(path));
        let extension = OpExtension::new(op.clone(), &mut adapter.a, &mut adapter.b, key)?;
        adapter.extension = Some(Extension::Op(extension));
        let rank = adapter.rank();
        layer.attach(path, adapter, rank)?;
    }
    *model = walk::write_layers(model, found.into_iter().map(|f| (f.path, f.layer)).collect());
    Ok(())
}

/// The error of an adapter that is not a matrix on a layer that needs one.
fn composed(path: &str) -> Error {
    let what = "is a `burn::nn::Linear`, whose adapter is a matrix added to its weight: dropout on the adapter's \
                input, ensembles and adapters that depend on the input need a `lrvd_burn::nn::Linear`";
    Error::layer(path, what)
}

/// Checks that `pass` can be that of a `forward` of `model` without one.
pub(crate) fn check_forward(model: &impl NamedModule, pass: &Pass) -> Result<(), Error> {
    let is_one_weight = pass.scheme.shares_weights() && pass.is_single_draw();
    let cannot =
        |found: &LayerRef| found.is_composed && found.layer.low_rank().is_some() && !is_one_weight;
    match walk::layers(model).into_iter().find(cannot) {
        Some(found) => Err(Error::UnsupportedScheme { layer: found.path, scheme: pass.scheme }),
        None => Ok(()),
    }
}

/// `model` with every adapter under `pass` in a `forward` without one: its parameters are those of `model`, so that
/// gradients reach them, and `model` itself stays at the mean. For [`train::Model`](crate::train::Model)s of layers whose
/// `forward` takes no pass.
///
/// # Errors
///
/// A [`burn::nn::Linear`] has one weight for a batch: it supports [`Scheme::Mean`](crate::sampling::Scheme::Mean) and
/// [`Scheme::PerBatch`](crate::sampling::Scheme::PerBatch), without dropout.
pub fn with_pass<M: Module>(model: &M, pass: Pass) -> Result<M, Error> {
    check_forward(model, &pass)?;
    Ok(under_pass(model, pass))
}

/// The model of [`with_pass`], without the check.
pub(crate) fn under_pass<M: Module>(model: &M, pass: Pass) -> M {
    let with_pass = |mut found: LayerRef| {
        found.layer.edit_attached(|attached| attached.pass = pass);
        (found.path, found.layer)
    };
    walk::write_layers(model, walk::layers(model).into_iter().map(with_pass).collect())
}

/// `model` with the weights of its [`AdaptedLinear`]s also in the form of `packing`, for predictions; a [`burn::nn::Linear`] has
/// one form.
///
/// The forms are made at the first pass, and clones of the model share them. A weight that has changed since is read in its
/// own form.
pub fn packed<M: Module>(model: &M, packing: Packing) -> M {
    let pack = |mut found: LayerRef| {
        if !found.is_composed {
            found.layer.set_packing(&found.path, packing);
        }
        (found.path, found.layer)
    };
    walk::write_layers(model, walk::layers(model).into_iter().map(pack).collect())
}

/// Number of ensemble members that share a batch, 1 without members: how often a caller repeats its
/// batch with [`repeat_for_members`](crate::adapter::repeat_for_members).
pub fn members(model: &impl NamedModule) -> Result<usize, Error> {
    let mut expected = None;
    for attached in adapters(model) {
        let Some(Extension::Op(extension)) = attached.adapter.and_then(|a| a.extension) else {
            continue;
        };
        let (found, path) = (extension.op.members(), &attached.path);
        let expected = *expected.get_or_insert(found);
        if found != expected {
            let expected = format!("{expected} as in other layers");
            return Err(Error::module(path, "members", expected, found));
        }
    }
    Ok(expected.unwrap_or(1))
}

/// Numbers of trainable values by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainableCounts {
    /// Adapter factors.
    pub adapter: usize,
    /// Posterior parameters.
    pub posterior: usize,
    /// Pooler and head.
    pub head: usize,
    /// Unfrozen backbone weights.
    pub backbone: usize,
}

/// Counts the trainable values of `model` by role.
pub fn trainable_counts(model: &impl NamedModule) -> TrainableCounts {
    let mut counts = TrainableCounts::default();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            let n = p.value.len();
            match p.group {
                Group::AdapterMean => counts.adapter += n,
                Group::LogVariance => counts.posterior += n,
                Group::Pooler | Group::Head => counts.head += n,
                Group::Backbone => counts.backbone += n,
            }
        }
    });
    counts
}

/// `forward(block, x)`, of whose activations the graph holds only `x`.
///
/// The backward pass runs `forward` again, with the same noise: all of it is keyed. It costs one more forward of the block
/// and holds the activations of one block at a time. Gradients reach `x`, the trainable parameters of `block` and
/// weights in it that are tied to trainable ones; whatever else `forward` captures is a constant. Where nothing has a gradient, the block runs as it is, and so does one
/// without trainable parameters that has an [`UpdateOp`]: it sees each use once.
///
/// # References
///
/// Chen et al. 2016, arXiv:1604.06174.
pub fn recomputed<M: Module + Sync + 'static>(
    block: &M,
    x: Tensor<3>,
    forward: impl Fn(&M, Tensor<3>) -> Tensor<3> + Send + Sync + 'static,
) -> Tensor<3> {
    let mut parts = Vec::new();
    block.visit_parameters(&mut |p| {
        if p.value.is_tracked() && !p.value.is_empty() {
            parts.push(p.value.tracked());
        }
    });
    let has_op = || walk::layers(block).iter().any(|found| found.layer.op().is_some());
    if parts.is_empty() && (!x.is_tracked() || has_op()) {
        return forward(block, x);
    }
    let dtypes: Vec<FloatDType> = parts.iter().map(|part| part.dtype().into()).collect();
    let parameters = end_to_end(parts, &x);
    let block = block.clone();
    let run = move |x: Tensor<3>, parameters: Tensor<1>| {
        let (mut block, mut start, mut dtypes) = (block.clone(), 0, dtypes.iter());
        block.visit_parameters_mut(&mut |p| {
            if p.value.is_tracked()
                && !p.value.is_empty()
                && let Some(dtype) = dtypes.next()
            {
                let len = p.value.len();
                p.value.track(parameters.clone().narrow(0, start, len).cast(*dtype));
                start += len;
            }
        });
        forward(&block, x)
    };
    recompute(x, parameters, run)
}

/// `parts` in one tensor, as a node of the graph has a fixed number of parents; of several types in a wider one, which holds
/// all values exactly. Without parts a constant beside `x`.
fn end_to_end(parts: Vec<Tensor<1>>, x: &Tensor<3>) -> Tensor<1> {
    let Some(first) = parts.first().map(Tensor::dtype) else {
        return Tensor::zeros([1], (&x.device(), x.dtype()));
    };
    let is_one = parts.iter().all(|part| part.dtype() == first);
    let has_double = parts.iter().any(|part| part.dtype() == DType::F64);
    let wide = if has_double { FloatDType::F64 } else { FloatDType::F32 };
    let parts = parts.into_iter().map(|part| if is_one { part } else { part.cast(wide) });
    Tensor::cat(parts.collect(), 0)
}
