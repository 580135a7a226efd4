//! Modules with a checkpoint name and a group.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::Device;

use crate::parameters::Group;

/// A module under its name in a checkpoint, wherever it is in a model.
///
/// Without one a parameter is called by its path of fields, and belongs to a head if it is trainable.
///
/// ```
/// use burn::module::{Module, Param};
/// use burn::tensor::{Device, Tensor};
/// use lrvd_burn::burn;
/// use lrvd_burn::model::{Named, NamedModule};
/// use lrvd_burn::parameters::Group;
///
/// #[derive(Module, Debug)]
/// struct Net {
///     embeddings: Named<Param<Tensor<2>>>,
///     output: Param<Tensor<2>>,
/// }
///
/// let ones = || Param::from_tensor(Tensor::<2>::ones([2, 2], &Device::flex().autodiff()));
/// let embeddings = Named::new("net.word_embeddings.weight", Group::Backbone, ones());
/// let net = Net { embeddings, output: ones() };
/// let mut found = Vec::new();
/// net.visit_parameters(&mut |p| found.push((p.name.to_owned(), p.group)));
/// assert_eq!(found[0], ("net.word_embeddings.weight".to_owned(), Group::Backbone));
/// assert_eq!(found[1], ("output".to_owned(), Group::Head));
/// ```
#[derive(Clone, Debug)]
pub struct Named<M> {
    name: Arc<str>,
    group: Group,
    module: M,
}

impl<M> Named<M> {
    /// `module`, whose parameters belong to `group` and have `name`, or names below it.
    pub fn new(name: impl Into<Arc<str>>, group: Group, module: M) -> Self {
        Self { name: name.into(), group, module }
    }

    fn map_module(self, change: impl FnOnce(M) -> M) -> Self {
        Self { module: change(self.module), ..self }
    }
}

impl<M> Deref for Named<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

impl<M> DerefMut for Named<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.module
    }
}

/// Burn's visitors report the name as a path component, and the group as the type of its container.
impl<M: Module> Module for Named<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.module.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.map_module(|module| module.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.map_module(|module| module.to_device(device))
    }

    fn train(self) -> Self {
        self.map_module(Module::train)
    }

    fn valid(&self) -> Self {
        self.clone().map_module(|module| module.valid())
    }

    fn materialize(self) -> Self {
        self.map_module(Module::materialize)
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        visitor.enter_module(&self.name, self.group.container());
        self.module.visit(visitor);
        visitor.exit_module(&self.name, self.group.container());
    }

    fn map<V: ModuleMapper>(self, mapper: &mut V) -> Self {
        mapper.enter_module(&self.name, self.group.container());
        let module = self.module.map(mapper);
        mapper.exit_module(&self.name, self.group.container());
        Self { module, ..self }
    }
}

impl<M: ModuleDisplay> ModuleDisplayDefault for Named<M> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add(&self.name, &self.module).optional()
    }
}

impl<M: ModuleDisplay> ModuleDisplay for Named<M> {}
