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

use crate::adapter::{AdaptedLinear, Attach, Attached, Parameters, set_attached};
use crate::parameters::handing::{HANDED, Handing, hand_out, hand_over, put, take};
use crate::parameters::{Group, NamedParameter, NamedParameterMut};

/// Container types of linear layers, as Burn's derive reports them: ours and `burn::nn`'s.
const ADAPTED_LINEAR: &str = "Struct:AdaptedLinear";
const BURN_LINEAR: &str = "Struct:Linear";

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
    /// Fields from the root, end to end.
    fields: String,
    /// Where each field starts, and the kind of its container.
    path: Vec<(usize, Container)>,
    /// Names in force, from the depth at which their struct starts.
    names: Vec<(usize, Names)>,
}

/// What a field is a field of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    /// An [`AdaptedLinear`].
    Adapted,
    /// A `burn::nn::Linear`.
    Composed,
    Other,
}

impl Place {
    fn enter(&mut self, name: &str, container: &str) {
        let container = match container {
            ADAPTED_LINEAR => Container::Adapted,
            BURN_LINEAR => Container::Composed,
            _ => Container::Other,
        };
        self.path.push((self.fields.len(), container));
        self.fields.push_str(name);
    }

    fn exit(&mut self) {
        if let Some((start, _)) = self.path.pop() {
            self.fields.truncate(start);
        }
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
        names.of((depth..end).map(|at| self.field(at)))
    }

    /// The field at depth `at`.
    fn field(&self, at: usize) -> &str {
        let end = self.path.get(at + 1).map_or(self.fields.len(), |(start, _)| *start);
        &self.fields[self.path[at].0..end]
    }

    /// Whether the place is the field `name`.
    fn is_at(&self, name: &str) -> bool {
        self.path.len().checked_sub(1).is_some_and(|last| self.field(last) == name)
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

    /// Whether the place is the matrix of a linear layer.
    fn is_linear<const D: usize>(&self) -> bool {
        let of_linear =
            self.path.last().is_some_and(|(_, container)| *container != Container::Other);
        D == 2 && of_linear && self.is_at("weight")
    }

    /// Whether the layer at the place multiplies by its weight's composed value.
    fn is_composed(&self) -> bool {
        self.path.last().is_some_and(|(_, container)| *container == Container::Composed)
    }
}

/// The same parameter, of two axes where `D` is 2.
fn matrix<const D: usize, const E: usize>(param: &Param<Tensor<D>>) -> Param<Tensor<E>> {
    Param::initialized(param.id, Tensor::from_dispatch(param.base().into_dispatch()))
}

/// A linear layer of a model, as a walk sees it.
pub(crate) struct Found {
    pub(crate) path: String,
    pub(crate) group: Group,
    /// Whether the layer is a `burn::nn::Linear`, which multiplies by the composed weight.
    pub(crate) is_composed: bool,
    /// Length of the path to its fields.
    depth: usize,
    pub(crate) layer: AdaptedLinear,
}

/// Reads.
struct Reader<'a> {
    place: Place,
    seen: BTreeSet<u64>,
    parameter: Option<&'a mut dyn FnMut(NamedParameter<'_>)>,
    layer: Option<&'a mut dyn FnMut(Found)>,
    pending: Option<Found>,
}

impl Reader<'_> {
    fn finish(&mut self) {
        if let Some((found, visit)) = self.pending.take().zip(self.layer.as_mut()) {
            let _quiet = Handing::off();
            visit(found);
        }
    }
}

impl ModuleVisitor for Reader<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        if container != HANDED {
            return self.place.enter(name, container);
        }
        let Some(attached) = self.place.handed() else { return };
        let _quiet = Handing::off();
        if let Some((adapter, visit)) = attached.adapter().zip(self.parameter.as_mut()) {
            let layer = self.place.name(2);
            adapter.each(&mut |schema, value| {
                let name = joined(&layer, schema.name);
                visit(NamedParameter {
                    name: &name,
                    group: schema.group,
                    transposed: schema.transposed,
                    value,
                });
            });
        }
        if let Some(found) = &mut self.pending {
            set_attached(&mut found.layer.weight, Some(attached));
        }
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
        if self.pending.as_ref().is_some_and(|found| self.place.path.len() < found.depth) {
            self.finish();
        }
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let is_linear = self.place.is_linear::<D>();
        if is_linear && self.layer.is_some() {
            self.finish();
            self.pending = Some(Found {
                path: self.place.name(1),
                group: self.place.named(param).1,
                is_composed: self.place.is_composed(),
                depth: self.place.path.len() - 1,
                layer: AdaptedLinear { weight: matrix(param), bias: None },
            });
        } else if let (1, Some(found)) = (D, &mut self.pending)
            && self.place.path.len() == found.depth + 1
            && self.place.is_at("bias")
        {
            found.layer.bias = Some(matrix(param));
        }
        if let Some(visit) = &mut self.parameter
            && self.seen.insert(param.id.val())
        {
            let (name, group) = self.place.named(param);
            let _quiet = Handing::off();
            visit(NamedParameter { name: &name, group, transposed: is_linear, value: param });
        }
    }
}

/// The name of a parameter of the layer at `path`; the root has no path.
fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
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
        Some(Param::initialized(param.id, Tensor::from_dispatch(first.into_dispatch())))
    }

    fn keep<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if D == 2 {
            let value = Tensor::from_dispatch(param.base().without_autodiff().into_dispatch());
            self.matrices.insert(param.id.val(), value);
        }
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
        if let Some((adapter, visit)) = attached.adapter_mut().zip(self.parameter.as_mut()) {
            adapter.each_mut(&mut |schema, value| {
                let name = joined(&path, schema.name);
                visit(NamedParameterMut {
                    name: &name,
                    group: schema.group,
                    transposed: schema.transposed,
                    value,
                });
            });
        }
        drop(quiet);
        put(|| attached);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let is_linear = self.place.is_linear::<D>();
        let has_layers = !self.layers.is_empty();
        let layer =
            (is_linear && has_layers).then(|| self.layers.get(&self.place.name(1))).flatten();
        if let Some(tied) = self.tied(&param) {
            return match layer {
                Some(layer) => standing_on(tied, layer),
                None => tied,
            };
        }
        let mut param = param;
        if let Some(layer) = layer {
            param = standing_on(matrix(&layer.weight), layer);
        } else if D == 1
            && has_layers
            && self.place.is_at("bias")
            && let Some(bias) = self.layers.get(&self.place.name(1)).and_then(|l| l.bias.as_ref())
        {
            param = matrix(bias);
        }
        if let Some(visit) = &mut self.parameter {
            let (name, group) = self.place.named(&param);
            let _quiet = Handing::off();
            visit(NamedParameterMut {
                name: &name,
                group,
                transposed: is_linear,
                value: &mut param,
            });
        }
        self.keep(&param);
        param
    }
}

/// The weight with what stands on that of `layer`.
fn standing_on<const D: usize>(
    weight: Param<Tensor<D>>,
    layer: &AdaptedLinear,
) -> Param<Tensor<D>> {
    match layer.attached() {
        Some(attached) => weight.apply_reparameterization(Attach::new(attached)),
        None => weight,
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
        read(self, Some(visit), None);
    }

    /// The same, to write.
    fn visit_parameters_mut(&mut self, visit: &mut dyn FnMut(NamedParameterMut<'_>)) {
        write(self, Some(visit), BTreeMap::new());
    }

    /// Calls `visit` with path and layer for every linear layer that can carry an adapter.
    fn visit_layers(&self, visit: &mut dyn FnMut(&str, &AdaptedLinear)) {
        each_layer(self, &mut |found| visit(&found.path, &found.layer));
    }

    /// The same, to write.
    fn visit_layers_mut(&mut self, visit: &mut dyn FnMut(&str, &mut AdaptedLinear)) {
        let mut layers = BTreeMap::new();
        each_layer(self, &mut |mut found| {
            visit(&found.path, &mut found.layer);
            layers.insert(found.path, found.layer);
        });
        write_layers(self, layers);
    }
}

impl<M: Module> NamedModule for M {}

/// Calls `visit` for what stands on each layer's weight: the shortest walk.
pub fn visit_adapters<M: Module>(model: &M, visit: &mut dyn FnMut(&Attached)) {
    struct Adapters<'a>(&'a mut dyn FnMut(&Attached));

    impl ModuleVisitor for Adapters<'_> {
        fn enter_module(&mut self, _: &str, container: &str) {
            if container == HANDED
                && let Some(Ok(attached)) = take().map(<Box<dyn Any>>::downcast::<Attached>)
            {
                let _quiet = Handing::off();
                (self.0)(&attached);
            }
        }
    }

    let _handing = Handing::on();
    model.visit(&mut Adapters(visit));
}

/// Calls `visit` for every linear layer.
pub(crate) fn each_layer<M: Module>(model: &M, visit: &mut dyn FnMut(Found)) {
    read(model, None, Some(visit));
}

/// Puts `layers` in the place of those of the same paths.
pub(crate) fn write_layers<M: Module>(model: &mut M, layers: BTreeMap<String, AdaptedLinear>) {
    write(model, None, layers);
}

fn read<'a, M: Module>(
    model: &M,
    parameter: Option<&'a mut dyn FnMut(NamedParameter<'_>)>,
    layer: Option<&'a mut dyn FnMut(Found)>,
) {
    let (place, seen, pending) = (Place::default(), BTreeSet::new(), None);
    let mut reader = Reader { place, seen, parameter, layer, pending };
    let _handing = Handing::on();
    model.visit(&mut reader);
    reader.finish();
}

fn write<M: Module>(
    model: &mut M,
    parameter: Option<&mut dyn FnMut(NamedParameterMut<'_>)>,
    layers: BTreeMap<String, AdaptedLinear>,
) {
    let (place, matrices) = (Place::default(), BTreeMap::new());
    let mut writer = Writer { place, matrices, parameter, layers };
    let _handing = Handing::on();
    *model = model.clone().map(&mut writer);
}
