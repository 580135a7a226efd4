//! Walks over the parameters and linear layers of any Burn module, by name.
//!
//! Burn's visitors report a path of fields and every parameter. A [`Named`](super::Named) reports its own name and group
//! on the way; an [`Attached`] also shows itself, carried by an empty parameter.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::adapter::{AdaptedLinear, Attach, Attached, set_attached};
use crate::parameters::{Group, NamedParameter, NamedParameterMut, ParameterValue};

/// Position of a walk: the name so far and the modules around it.
#[derive(Default)]
struct PathCursor {
    /// Components from the root; the name is the part from `start` on.
    path: String,
    start: usize,
    /// Group of the innermost [`Named`](super::Named).
    group: Option<Group>,
    entered: Vec<Entered>,
}

/// A module that a walk is in.
struct Entered {
    /// State of the cursor outside.
    len: usize,
    start: usize,
    group: Option<Group>,
    linear: Option<Linear>,
    /// `true` in an adapter, whose parameters have been visited with the whole.
    is_adapter: bool,
}

/// Kind of linear layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linear {
    /// [`AdaptedLinear`].
    Adapted,
    /// `burn::nn::Linear`.
    Composed,
}

impl PathCursor {
    fn enter(&mut self, name: &str, container: &str) {
        // As Burn's derive reports the types.
        let linear = match container {
            "Struct:AdaptedLinear" => Some(Linear::Adapted),
            "Struct:Linear" => Some(Linear::Composed),
            _ => None,
        };
        let Self { start, group, .. } = *self;
        let is_adapter = self.is_in_adapter();
        self.entered.push(Entered { len: self.path.len(), start, group, linear, is_adapter });
        if let Some(group) = Group::from_container(container) {
            (self.start, self.group) = (self.path.len(), Some(group));
        }
        self.push(name);
    }

    fn exit(&mut self) {
        if let Some(Entered { len, start, group, .. }) = self.entered.pop() {
            self.path.truncate(len);
            (self.start, self.group) = (start, group);
        }
    }

    fn push(&mut self, name: &str) {
        if self.path.len() > self.start {
            self.path.push('.');
        }
        self.path.push_str(name);
    }

    fn name(&self) -> &str {
        &self.path[self.start..]
    }

    /// Name of the module around the innermost `depth` fields.
    fn around(&self, depth: usize) -> &str {
        let outer = self.entered.len().checked_sub(depth);
        let end = outer.map_or(0, |outer| self.entered[outer].len);
        &self.path[self.start..end.max(self.start)]
    }

    fn is_in_adapter(&self) -> bool {
        self.entered.last().is_some_and(|entered| entered.is_adapter)
    }

    /// Kind of the linear layer of which the cursor is at the field `name`.
    fn linear(&self, name: &str) -> Option<Linear> {
        let entered = self.entered.last()?;
        entered.linear.filter(|_| self.path[entered.len..].trim_start_matches('.') == name)
    }

    /// Group of the parameter at the cursor: outside of every [`Named`](super::Named) a trainable one is part of a head.
    fn group(&self, param: &impl ParameterValue) -> Group {
        let by_default = || if param.is_trainable() { Group::Head } else { Group::Backbone };
        self.group.unwrap_or_else(by_default)
    }

    /// The whole of an adapter whose layer the cursor is in, if `param` carries it. Its parameters, which follow, are not
    /// visited again.
    fn adapter<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> Option<Attached> {
        let attached = param.reparameterization::<Attached>()?.clone();
        if let Some(entered) = self.entered.last_mut() {
            entered.is_adapter = true;
        }
        Some(attached)
    }

    /// Calls `visit` with name, group and layout of every parameter of an adapter at the cursor.
    fn visit_adapter(&self, attached: &mut Attached, visit: &mut dyn FnMut(NamedParameterMut<'_>)) {
        let Some(adapter) = &mut attached.adapter else { return };
        let mut name = self.around(2).to_owned();
        if !name.is_empty() {
            name.push('.');
        }
        let len = name.len();
        adapter.each(&mut |schema, value| {
            name.truncate(len);
            name.push_str(schema.name);
            let (group, transposed) = (schema.group, schema.transposed());
            visit(NamedParameter { name: &name, group, transposed, value });
        });
    }
}

/// `param` as one of `E` axes, if it has as many.
fn with_axes<const D: usize, const E: usize>(
    param: &Param<Tensor<D>>,
) -> Option<&Param<Tensor<E>>> {
    (param as &dyn Any).downcast_ref()
}

/// Linear layer of a model.
pub(crate) struct LayerRef {
    pub(crate) path: String,
    pub(crate) group: Group,
    /// `true` for a `burn::nn::Linear`, which multiplies by the composed weight.
    pub(crate) is_composed: bool,
    pub(crate) layer: AdaptedLinear,
}

/// Collector of linear layers.
#[derive(Default)]
struct LayerReader {
    cursor: PathCursor,
    found: Vec<LayerRef>,
}

impl ModuleVisitor for LayerReader {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.cursor.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.cursor.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.cursor.is_in_adapter() {
            return;
        }
        if let Some(attached) = self.cursor.adapter(param) {
            if let Some(found) = self.found.last_mut() {
                set_attached(&mut found.layer.weight, Some(attached));
            }
        } else if let (Some(weight), Some(linear)) =
            (with_axes(param), self.cursor.linear("weight"))
        {
            self.found.push(LayerRef {
                path: self.cursor.around(1).to_owned(),
                group: self.cursor.group(param),
                is_composed: linear == Linear::Composed,
                layer: AdaptedLinear { weight: weight.clone(), bias: None },
            });
        } else if let (Some(bias), Some(_), Some(found)) =
            (with_axes(param), self.cursor.linear("bias"), self.found.last_mut())
        {
            found.layer.bias = Some(bias.clone());
        }
    }
}

/// Reader of every parameter.
struct Reader<'a> {
    cursor: PathCursor,
    /// Matrices so far, so that a tied weight is read once.
    matrices: HashSet<u64>,
    visit: &'a mut dyn FnMut(NamedParameter<'_>),
}

impl ModuleVisitor for Reader<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.cursor.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.cursor.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.cursor.is_in_adapter() {
            return;
        }
        let Self { cursor, visit, .. } = self;
        if let Some(mut attached) = cursor.adapter(param) {
            cursor.visit_adapter(&mut attached, &mut |p| {
                let NamedParameter { name, group, transposed, value } = p;
                visit(NamedParameter { name, group, transposed, value: &*value });
            });
        } else if D != 2 || self.matrices.insert(param.id.val()) {
            let transposed = D == 2 && cursor.linear("weight").is_some();
            let group = cursor.group(param);
            visit(NamedParameter { name: cursor.name(), group, transposed, value: param });
        }
    }
}

/// Writer of every parameter, or of the layers of a map.
struct Writer<'a> {
    cursor: PathCursor,
    /// Matrices so far by id, each after the walk and with its new trainability if the walk has changed it: a weight that is
    /// tied to one follows it.
    matrices: HashMap<u64, (Tensor<2>, Option<bool>)>,
    parameter: Option<&'a mut dyn FnMut(NamedParameterMut<'_>)>,
    layers: BTreeMap<String, AdaptedLinear>,
}

impl Writer<'_> {
    /// The weight `param` with the value of the one that it is tied to; `None` if it is the first.
    fn tied<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Param<Tensor<D>>> {
        let (first, trains) = self.matrices.get(&param.id.val())?;
        let mut param: Param<Tensor<2>> = with_axes(param)?.clone();
        if let Some(trains) = *trains {
            // Burn freezes and unfreezes leaves of a graph only.
            param = param.map(Tensor::without_autodiff).set_require_grad(trains);
        }
        // A part of the graph, so that its gradient reaches the first.
        let is_same = first.dims() == param.base().dims();
        let value = if is_same { first.clone() } else { first.clone().transpose() };
        with_axes(&param.map(|_| value)).cloned()
    }

    fn layer_at(&self, depth: usize) -> Option<&AdaptedLinear> {
        if self.layers.is_empty() { None } else { self.layers.get(self.cursor.around(depth)) }
    }
}

impl ModuleMapper for Writer<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.cursor.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.cursor.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.cursor.is_in_adapter() {
            return param;
        }
        if let Some(mut attached) = self.cursor.adapter(&param) {
            if let Some(layer) = self.layer_at(2) {
                let empty = || Attached::empty(self.cursor.around(2));
                attached = layer.attached().cloned().unwrap_or_else(empty);
            }
            if let Some(visit) = &mut self.parameter {
                self.cursor.visit_adapter(&mut attached, visit);
            }
            return with_axes(&attached.handle()).cloned().unwrap_or(param);
        }
        let is_weight = D == 2 && self.cursor.linear("weight").is_some();
        let layer = self.layer_at(1);
        let replaced = layer.and_then(|layer| match &layer.bias {
            _ if is_weight => with_axes(&layer.weight).cloned(),
            Some(bias) if self.cursor.linear("bias").is_some() => with_axes(bias).cloned(),
            _ => None,
        });
        let attached = layer.filter(|_| is_weight).and_then(AdaptedLinear::attached).cloned();
        let tied = self.tied(&param);
        let is_first = tied.is_none();
        // Without its adapter, which is attached again below.
        let replaced = replaced.map(|param: Param<Tensor<D>>| param.map(|value| value));
        let mut param = tied.or(replaced).unwrap_or(param);
        if is_first {
            let was_trainable = param.is_trainable();
            if let Some(visit) = &mut self.parameter {
                let group = self.cursor.group(&param);
                let name = self.cursor.name();
                let value = &mut param;
                visit(NamedParameter { name, group, transposed: is_weight, value });
            }
            if let Some(param) = with_axes::<D, 2>(&param) {
                let trains = param.is_trainable();
                let change = (trains != was_trainable).then_some(trains);
                self.matrices.insert(param.id.val(), (param.base(), change));
            }
        }
        match attached {
            Some(attached) => param.apply_reparameterization(Attach(Some(attached))),
            None => param,
        }
    }
}

/// Any Burn module as a model with adapters: its parameters by name and its linear layers by path.
///
/// A linear layer is a [`burn::nn::Linear`] or an [`AdaptedLinear`]. Parameters come in the order of the fields,
/// those of an adapter after the weight of its layer. Names are paths of fields, or those of [`Named`](super::Named) modules.
/// A weight that shares its `ParamId` with an earlier one is tied to it: it is not visited, and follows the first through
/// walks that write, transposed where its shape is. Its gradient is part of that of the first; a transposed one takes part in one
/// backward pass, and needs a walk that writes before the next.
pub trait NamedModule: Module {
    /// Calls `visit` for every parameter, adapters included.
    fn visit_parameters(&self, visit: &mut dyn FnMut(NamedParameter<'_>)) {
        let (cursor, matrices) = Default::default();
        self.visit(&mut Reader { cursor, matrices, visit });
    }

    /// Calls `visit` for every parameter, adapters included, which it may change.
    fn visit_parameters_mut(&mut self, visit: &mut dyn FnMut(NamedParameterMut<'_>)) {
        *self = write(self.clone(), Some(visit), BTreeMap::new());
    }

    /// Calls `visit` with path and layer for every linear layer that can carry an adapter.
    fn visit_layers(&self, visit: &mut dyn FnMut(&str, &AdaptedLinear)) {
        for found in layers(self) {
            visit(&found.path, &found.layer);
        }
    }

    /// Calls `visit` with path and layer for every linear layer that can carry an adapter, which it may change.
    fn visit_layers_mut(&mut self, visit: &mut dyn FnMut(&str, &mut AdaptedLinear)) {
        let changed = layers(self).into_iter().map(|mut found| {
            visit(&found.path, &mut found.layer);
            (found.path, found.layer)
        });
        *self = write_layers(self, changed.collect());
    }
}

impl<M: Module> NamedModule for M {}

/// Attached adapters of all layers, in order, those without ranks included.
pub fn adapters<M: Module>(model: &M) -> Vec<Attached> {
    let attached = |found: LayerRef| {
        let mut attached = found.layer.attached()?.clone();
        attached.path = found.path.into();
        Some(attached)
    };
    let of_adapter = |attached: &Attached| attached.packed.is_none() || !attached.is_bare();
    layers(model).into_iter().filter_map(attached).filter(of_adapter).collect()
}

/// Linear layers of `model`.
pub(crate) fn layers<M: Module>(model: &M) -> Vec<LayerRef> {
    let mut reader = LayerReader::default();
    model.visit(&mut reader);
    reader.found
}

/// `model` with `layers` in the place of those of the same paths.
pub(crate) fn write_layers<M: Module>(model: &M, layers: BTreeMap<String, AdaptedLinear>) -> M {
    write(model.clone(), None, layers)
}

/// Makes the weights of `model` anew that are parts of a graph, which one backward pass consumes: those that are tied to a
/// trainable one, transposed. A model without any stays as it is.
pub(crate) fn renew_tied<M: Module>(model: &mut M) {
    let mut tied = HasTied(false);
    model.visit(&mut tied);
    if tied.0 {
        *model = write(model.clone(), None, BTreeMap::new());
    }
}

/// `true` once a walk has met a parameter that is a part of a graph and not a leaf of it.
struct HasTied(bool);

impl ModuleVisitor for HasTied {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0 |= param.is_tracked() && !param.is_trainable();
    }
}

fn write<M: Module>(
    model: M,
    parameter: Option<&mut dyn FnMut(NamedParameterMut<'_>)>,
    layers: BTreeMap<String, AdaptedLinear>,
) -> M {
    let (cursor, matrices) = Default::default();
    model.map(&mut Writer { cursor, matrices, parameter, layers })
}
