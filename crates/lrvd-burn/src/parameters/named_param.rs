//! A parameter that knows its name.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{Layout, NamedParameter, NamedParameterMut, Role};

/// A parameter outside the adapted layers, with what files and optimisers must know of it.
///
/// ```
/// use lrvd_burn::burn::tensor::{Device, Tensor};
/// use lrvd_burn::parameters::{NamedParam, Role};
///
/// let scale = NamedParam::new("norm.weight", Tensor::<1>::ones([4], &Device::flex()));
/// let bias = NamedParam::new("head.bias", Tensor::<1>::zeros([2], &Device::flex()))
///     .with_role(Role::Head)
///     .trainable();
/// assert_eq!((scale.name(), bias.val().dims()), ("norm.weight", [2]));
/// ```
#[derive(Module, Debug)]
pub struct NamedParam<const D: usize> {
    /// The parameter.
    pub value: Param<Tensor<D>>,
    #[module(skip)]
    name: Arc<str>,
    #[module(skip)]
    role: Role,
    #[module(skip)]
    layout: Layout,
}

impl<const D: usize> NamedParam<D> {
    /// A frozen parameter of the backbone that a checkpoint calls `name` and holds as it is here.
    pub fn new(name: &str, value: Tensor<D>) -> Self {
        Self {
            value: Param::from_tensor(value).set_require_grad(false),
            name: name.into(),
            role: Role::Backbone,
            layout: Layout::AsStored,
        }
    }

    /// The same parameter in another role.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// The same parameter, held in another layout than the checkpoint's.
    #[must_use]
    pub fn with_layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// The same parameter, which a backward pass gives a gradient.
    #[must_use]
    pub fn trainable(mut self) -> Self {
        super::ParameterValue::set_trainable(&mut self.value, true);
        self
    }

    /// The value.
    pub fn val(&self) -> Tensor<D> {
        self.value.val()
    }

    /// Name in a checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn as_leaf(&self) -> NamedParameter<'_> {
        let Self { name, role, layout, value } = self;
        NamedParameter { name, role: *role, layout: *layout, value }
    }

    pub(crate) fn as_leaf_mut(&mut self) -> NamedParameterMut<'_> {
        let Self { name, role, layout, value } = self;
        NamedParameterMut { name, role: *role, layout: *layout, value }
    }
}
