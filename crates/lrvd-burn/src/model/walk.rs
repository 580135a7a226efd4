//! Walks over the parameters and linear layers of any Burn module, by names of a checkpoint.
//!
//! Burn's visitor gives a parameter and its path of field names. It does not give the object that stands on a weight,
//! nor the checkpoint's name of a field. The modules that know them, [`Attached`] and [`Names`], hand them to the walk
//! that runs on their thread; other visitors see nothing of it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
    Param,
};
use burn::tensor::{Device, Tensor};

use crate::adapter::{AdaptedLinear, Attach, Attached, set_attached};
use crate::parameters::handing::{HANDED, Handing, hand_out, hand_over, put, take};
use crate::parameters::{Group, NamedParameter, NamedParameterMut};

/// What a checkpoint calls the parameters of the struct that has this as its **first** field.
///
/// Without one, a parameter is called by its path of field names, and is part of a head if it trains.
///
/// ```
/// use burn::module::{Module, Param};
/// use burn::tensor::{Device, Tensor};
/// use lrvd_burn::burn;
/// use lrvd_burn::model::{NamedModule, Names};
/// use lrvd_burn::parameters::Group;
///
/// #[derive(Module, Debug)]
/// struct Net {
///     names: Names,
///     embeddings: Param<Tensor<2>>,
///     head: Param<Tensor<2>>,
/// }
///
/// let names = Names::below("net")
///     .renamed(&[("embeddings", "word_embeddings.weight"), ("head", "head.weight")])
///     .with_groups(&[("net.head", Group::Head)]);
/// let ones = || Param::from_tensor(Tensor::ones([2, 2], &Device::flex()));
/// let net = Net { names, embeddings: ones(), head: ones() };
/// let mut found = Vec::new();
/// net.visit_parameters(&mut |p| found.push((p.name.to_owned(), p.group)));
/// assert_eq!(found[0], ("net.word_embeddings.weight".to_owned(), Group::Backbone));
/// assert_eq!(found[1], ("net.head.weight".to_owned(), Group::Head));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    prefix: &'static str,
    fields: &'static [(&'static str, &'static str)],
    groups: &'static [(&'static str, Group)],
}

impl Names {
    /// Names that start with `prefix`, wherever the struct is in the model; an empty one adds nothing.
    #[must_use]
    pub const fn below(prefix: &'static str) -> Self {
        Self { prefix, fields: &[], groups: &[] }
    }

    /// The same, with fields called otherwise: `(field, components of the name)`; `""` leaves a field out.
    #[must_use]
    pub const fn renamed(self, fields: &'static [(&'static str, &'static str)]) -> Self {
        Self { fields, ..self }
    }

    /// The same, with a role for the parameters whose names start with a prefix.
    #[must_use]
    pub const fn with_groups(self, groups: &'static [(&'static str, Group)]) -> Self {
        Self { groups, ..self }
    }

    /// The name of the parameter or layer at `fields` below the struct.
    fn of<'a>(&self, fields: impl Iterator<Item = &'a str>) -> String {
        let renamed = |field: &'a str| {
            self.fields.iter().find(|(from, _)| *from == field).map_or(field, |(_, to)| to)
        };
        let parts = std::iter::once(self.prefix).chain(fields.map(renamed));
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
    }

    fn group(&self, name: &str) -> Group {
        let starts = |prefix: &str| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let found = self.groups.iter().find(|(prefix, _)| starts(prefix));
        found.map_or(Group::Backbone, |(_, role)| *role)
    }
}

impl Module for Names {
    fn collect_devices(&self, devices: Devices) -> Devices {
        devices
    }

    fn fork(self, _: &Device) -> Self {
        self
    }

    fn to_device(self, _: &Device) -> Self {
        self
    }

    fn train(self) -> Self {
        self
    }

    fn valid(&self) -> Self {
        *self
    }

    fn materialize(self) -> Self {
        self
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        hand_out(visitor, || *self);
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        // A walk reads them and puts nothing back.
        hand_over(mapper, self).unwrap_or_else(|names| names)
    }
}

impl ModuleDisplayDefault for Names {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_single(&self.prefix.to_owned()).optional()
    }
}

impl ModuleDisplay for Names {}

/// Where a walk is.
#[derive(Default)]
struct Place {
    /// Fields from the root, and the kind of linear layer that each is a field of.
    path: Vec<(String, Option<Linear>)>,
    /// Names in force, from the depth at which their struct starts.
    names: Vec<(usize, Names)>,
}

/// A kind of linear layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linear {
    /// An [`AdaptedLinear`].
    Adapted,
    /// A `burn::nn::Linear`.
    Composed,
}

impl Place {
    fn enter(&mut self, name: &str, container: &str) {
        // As Burn's derive reports the types.
        let linear = match container {
            "Struct:AdaptedLinear" => Some(Linear::Adapted),
            "Struct:Linear" => Some(Linear::Composed),
            _ => None,
        };
        self.path.push((name.to_owned(), linear));
    }

    fn exit(&mut self) {
        self.path.pop();
        while self.names.last().is_some_and(|(depth, _)| *depth > self.path.len()) {
            self.names.pop();
        }
    }

    /// The adapter that was handed out; names come into force for the struct whose first field the walk is at.
    fn handed(&mut self) -> Option<Attached> {
        let names = match take()?.downcast::<Attached>() {
            Ok(attached) => return Some(*attached),
            Err(part) => part.downcast::<Names>().ok()?,
        };
        self.names.push((self.path.len().saturating_sub(1), *names));
        None
    }

    /// The name of what is `above` fields above the place.
    fn name(&self, above: usize) -> String {
        let (depth, names) = self.names.last().copied().unwrap_or_default();
        let end = self.path.len().saturating_sub(above).max(depth);
        names.of(self.path[depth..end].iter().map(|(field, _)| field.as_str()))
    }

    /// Whether the place is the field `name` of a linear layer of the kind that is returned.
    fn linear(&self, name: &str) -> Option<Linear> {
        let (field, linear) = self.path.last()?;
        linear.filter(|_| field == name)
    }

    /// Name and group of the parameter at the place.
    fn named<const D: usize>(&self, param: &Param<Tensor<D>>) -> (String, Group) {
        let name = self.name(0);
        let is_trained = param.base().is_require_grad();
        let group = match self.names.last() {
            Some((_, names)) => names.group(&name),
            // What trains in a model without names is part of a head.
            None if is_trained => Group::Head,
            None => Group::Backbone,
        };
        (name, group)
    }
}

/// The same parameter, without what stands on it, if it has `E` axes.
fn of_axes<const D: usize, const E: usize>(param: &Param<Tensor<D>>) -> Option<Param<Tensor<E>>> {
    let param = (param as &dyn Any).downcast_ref::<Param<Tensor<E>>>()?;
    Some(param.clone().map(|value| value))
}

/// A linear layer of a model, as a walk sees it.
pub(crate) struct Found {
    pub(crate) path: String,
    pub(crate) group: Group,
    /// Whether the layer is a `burn::nn::Linear`, which multiplies by the composed weight.
    pub(crate) is_composed: bool,
    pub(crate) layer: AdaptedLinear,
}

/// Collects the linear layers.
#[derive(Default)]
struct Layers {
    place: Place,
    found: Vec<Found>,
}

impl ModuleVisitor for Layers {
    fn enter_module(&mut self, name: &str, container: &str) {
        if container != HANDED {
            return self.place.enter(name, container);
        }
        if let Some((attached, found)) = self.place.handed().zip(self.found.last_mut()) {
            set_attached(&mut found.layer.weight, Some(attached));
        }
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let (Some(weight), Some(linear)) = (of_axes(param), self.place.linear("weight")) {
            self.found.push(Found {
                path: self.place.name(1),
                group: self.place.named(param).1,
                is_composed: linear == Linear::Composed,
                layer: AdaptedLinear { weight, bias: None },
            });
        } else if let (Some(bias), Some(_), Some(found)) =
            (of_axes(param), self.place.linear("bias"), self.found.last_mut())
        {
            found.layer.bias = Some(bias);
        }
    }
}

/// The name of a parameter of the layer at `path`; the root has no path.
fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Reads every parameter.
struct Reader<'a> {
    place: Place,
    /// Matrices, so that a tied weight is read once.
    matrices: BTreeSet<u64>,
    visit: &'a mut dyn FnMut(NamedParameter<'_>),
}

impl ModuleVisitor for Reader<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        if container != HANDED {
            return self.place.enter(name, container);
        }
        let Some(mut adapter) = self.place.handed().and_then(|attached| attached.adapter) else {
            return;
        };
        let path = self.place.name(2);
        let _quiet = Handing::off();
        adapter.each(&mut |schema, value| {
            let (name, group, transposed) =
                (joined(&path, schema.name), schema.group, schema.transposed());
            (self.visit)(NamedParameter { name: &name, group, transposed, value: &*value });
        });
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if D == 2 && !self.matrices.insert(param.id.val()) {
            return;
        }
        let (name, group) = self.place.named(param);
        let transposed = D == 2 && self.place.linear("weight").is_some();
        let _quiet = Handing::off();
        (self.visit)(NamedParameter { name: &name, group, transposed, value: param });
    }
}

/// Writes: every parameter, or the layers of a map.
struct Writer<'a> {
    place: Place,
    /// Matrices by id, so that a weight tied to an earlier one follows it.
    matrices: BTreeMap<u64, Tensor<2>>,
    parameter: Option<&'a mut dyn FnMut(NamedParameterMut<'_>)>,
    layers: BTreeMap<String, AdaptedLinear>,
}

impl Writer<'_> {
    /// The weight `param` as the tied one that stands for it now; `None` if it is the first.
    fn tied<const D: usize>(&self, param: &Param<Tensor<D>>) -> Option<Param<Tensor<D>>> {
        if D != 2 {
            return None;
        }
        let first = self.matrices.get(&param.id.val())?.clone();
        let first =
            if first.dims()[..] == param.base().dims()[..] { first } else { first.transpose() };
        Some(param.clone().map(|_| Tensor::from_dispatch(first.into_dispatch())))
    }
}

impl ModuleMapper for Writer<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        if container != HANDED {
            return self.place.enter(name, container);
        }
        let Some(mut attached) = self.place.handed() else { return };
        let quiet = Handing::off();
        let path = self.place.name(2);
        if let Some(layer) = self.layers.get(&path) {
            attached = layer.attached().cloned().unwrap_or_else(|| Attached::empty(&path));
        }
        if let Some((adapter, visit)) = attached.adapter.as_mut().zip(self.parameter.as_mut()) {
            adapter.each(&mut |schema, value| {
                let (name, group, transposed) =
                    (joined(&path, schema.name), schema.group, schema.transposed());
                visit(NamedParameterMut { name: &name, group, transposed, value });
            });
        }
        drop(quiet);
        put(|| attached);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let is_linear = D == 2 && self.place.linear("weight").is_some();
        let has_layers = !self.layers.is_empty();
        let layer = has_layers.then(|| self.layers.get(&self.place.name(1))).flatten();
        let tied = self.tied(&param);
        let is_first = tied.is_none();
        let of_layer = layer.and_then(|layer| match &layer.bias {
            _ if is_linear => of_axes(&layer.weight),
            Some(bias) if self.place.linear("bias").is_some() => of_axes(bias),
            _ => None,
        });
        let mut param = tied.or(of_layer).unwrap_or(param);
        if is_first && let Some(visit) = &mut self.parameter {
            let (name, group) = self.place.named(&param);
            let _quiet = Handing::off();
            let value = &mut param;
            visit(NamedParameterMut { name: &name, group, transposed: is_linear, value });
        }
        if is_first && D == 2 {
            let value = Tensor::from_dispatch(param.base().without_autodiff().into_dispatch());
            self.matrices.insert(param.id.val(), value);
        }
        match layer.filter(|_| is_linear).and_then(AdaptedLinear::attached) {
            Some(attached) => param.apply_reparameterization(Attach(Some(attached.clone()))),
            None => param,
        }
    }
}

/// Any Burn module as a model with adapters: its parameters by checkpoint name and its linear layers by path.
///
/// A linear layer is a [`burn::nn::Linear`] or an [`AdaptedLinear`]. Parameters come in the order of the fields,
/// those of an adapter after the weight it stands on. A weight that shares its `ParamId` with an earlier one is tied
/// to it: it is not visited, and follows what a walk makes of the first, transposed where its shape is.
pub trait NamedModule: Module {
    /// Calls `visit` for every parameter, adapters included.
    fn visit_parameters(&self, visit: &mut dyn FnMut(NamedParameter<'_>)) {
        let (place, matrices) = (Place::default(), BTreeSet::new());
        let _handing = Handing::on();
        self.visit(&mut Reader { place, matrices, visit });
    }

    /// The same, to write.
    fn visit_parameters_mut(&mut self, visit: &mut dyn FnMut(NamedParameterMut<'_>)) {
        *self = write(self.clone(), Some(visit), BTreeMap::new());
    }

    /// Calls `visit` with path and layer for every linear layer that can carry an adapter.
    fn visit_layers(&self, visit: &mut dyn FnMut(&str, &AdaptedLinear)) {
        for found in layers(self) {
            visit(&found.path, &found.layer);
        }
    }

    /// The same, to write.
    fn visit_layers_mut(&mut self, visit: &mut dyn FnMut(&str, &mut AdaptedLinear)) {
        let changed = layers(self).into_iter().map(|mut found| {
            visit(&found.path, &mut found.layer);
            (found.path, found.layer)
        });
        *self = write_layers(self, changed.collect());
    }
}

impl<M: Module> NamedModule for M {}

/// What stands on the weight of each layer, in order.
pub fn adapters<M: Module>(model: &M) -> Vec<Attached> {
    let attached = |found: Found| {
        let mut attached = found.layer.attached()?.clone();
        attached.path = found.path.into();
        Some(attached)
    };
    layers(model).into_iter().filter_map(attached).collect()
}

/// The linear layers of `model`.
pub(crate) fn layers<M: Module>(model: &M) -> Vec<Found> {
    let mut layers = Layers::default();
    let _handing = Handing::on();
    model.visit(&mut layers);
    layers.found
}

/// `model` with `layers` in the place of those of the same paths.
pub(crate) fn write_layers<M: Module>(model: &M, layers: BTreeMap<String, AdaptedLinear>) -> M {
    write(model.clone(), None, layers)
}

fn write<M: Module>(
    model: M,
    parameter: Option<&mut dyn FnMut(NamedParameterMut<'_>)>,
    layers: BTreeMap<String, AdaptedLinear>,
) -> M {
    let (place, matrices) = (Place::default(), BTreeMap::new());
    let _handing = Handing::on();
    model.map(&mut Writer { place, matrices, parameter, layers })
}
