//! Parameters by name, for loading, saving, the optimizer and checks.
//!
//! Burn identifies parameters by random ids. State of the optimizer, pruning and files use names of a checkpoint, which
//! survive a reload, from the walks of [`NamedModule`](crate::model::NamedModule).

use std::fmt::Debug;

use burn::module::{Param, ParamId};
use burn::tensor::{Gradients, Int, Tensor, TensorData};

/// Role of a parameter, and its group in the optimizer; never derived from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Pretrained weight of the frozen model.
    Backbone,
    /// Adapter factor: posterior mean of A or B, AdaLoRA's singular values, members, the mean of
    /// random scales, a contextual network.
    AdapterMean,
    /// Posterior parameter of the adapter: log-variance, log noise-to-signal ratio, or the parameter
    /// of a standard deviation.
    LogVariance,
    /// Layer between encoder and head that fine-tuning starts anew, at the adapter's rate.
    Pooler,
    /// Task head, trained from scratch.
    Head,
}

impl Group {
    const CONTAINERS: [(Self, &'static str); 5] = [
        (Self::Backbone, "Named:Backbone"),
        (Self::AdapterMean, "Named:AdapterMean"),
        (Self::LogVariance, "Named:LogVariance"),
        (Self::Pooler, "Named:Pooler"),
        (Self::Head, "Named:Head"),
    ];

    /// Type of container that a [`Named`](crate::model::Named) of the group reports to Burn's visitors.
    pub(crate) fn container(self) -> &'static str {
        Self::CONTAINERS[self as usize].1
    }

    /// Inverse of [`Group::container`].
    pub(crate) fn from_container(container: &str) -> Option<Self> {
        Self::CONTAINERS.iter().find(|(_, name)| *name == container).map(|(group, _)| *group)
    }
}

/// One stop of a walk over a model's parameters.
#[derive(Clone, Copy, Debug)]
pub struct NamedParameter<'a, V = &'a dyn ParameterValue> {
    /// Name in a checkpoint, e.g. `deberta.encoder.layer.0.output.dense.weight`.
    pub name: &'a str,
    /// Its role.
    pub group: Group,
    /// `true` if a checkpoint has it transposed, as it has linear weights: `[d_output, d_input]`.
    pub transposed: bool,
    /// The parameter.
    pub value: V,
}

impl<V> NamedParameter<'_, V> {
    /// Path of the module that has the parameter; the name of a parameter without one.
    pub fn module(&self) -> &str {
        self.name.rsplit_once('.').map_or(self.name, |(module, _)| module)
    }
}

/// One stop of a walk that may change the parameters.
pub(crate) type NamedParameterMut<'a> = NamedParameter<'a, &'a mut dyn ParameterValue>;

/// A parameter of any rank: read through `&`, written through `&mut`.
pub trait ParameterValue: Debug {
    /// Burn's id, which stays through updates; a parameter whose shape changes gets another.
    fn id(&self) -> ParamId;

    /// Shape in memory.
    fn shape(&self) -> Vec<usize>;

    /// Number of values.
    fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// `true` without any value, as in factors of rank 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `true` if a backward pass computes its gradient.
    fn is_trainable(&self) -> bool;

    /// `true` if the values are part of a graph: of a trainable parameter, and of a weight that is tied to one, transposed.
    fn is_tracked(&self) -> bool;

    /// The values, flattened in memory order, cut off from any graph.
    fn flat(&self) -> Tensor<1>;

    /// The values, flattened in memory order, as a part of the graph.
    fn tracked(&self) -> Tensor<1>;

    /// Replaces the values by a part of a graph.
    fn track(&mut self, values: Tensor<1>);

    /// Its gradient in `gradients`, flattened in memory order.
    fn gradient(&self, gradients: &Gradients) -> Option<Tensor<1>>;

    /// Replaces the values; shape, identity and trainability stay.
    fn set_flat(&mut self, values: Tensor<1>);

    /// Freezes or unfreezes the parameter.
    fn set_trainable(&mut self, trainable: bool);

    /// Replaces the values from host data of the same shape, keeping dtype and trainability.
    fn set_data(&mut self, data: TensorData);

    /// Keeps the indices `kept` along `axis`, in order; trainability stays, and the identity is a new one.
    fn select(&mut self, axis: usize, kept: &[usize]);

    /// Keeps the entries `ids` along `axis` as a part of the graph: gradients reach the tensor that they
    /// were taken from.
    fn gather(&mut self, axis: usize, ids: &Tensor<1, Int>);
}

impl<const D: usize> ParameterValue for Param<Tensor<D>> {
    fn id(&self) -> ParamId {
        self.id
    }

    fn shape(&self) -> Vec<usize> {
        self.base().dims().to_vec()
    }

    fn is_trainable(&self) -> bool {
        self.base().is_require_grad()
    }

    fn is_tracked(&self) -> bool {
        self.base().is_tracked()
    }

    fn flat(&self) -> Tensor<1> {
        let value = self.base().without_autodiff().dequantize();
        value.reshape([self.len()])
    }

    fn tracked(&self) -> Tensor<1> {
        self.base().reshape([self.len()])
    }

    fn track(&mut self, values: Tensor<1>) {
        change(self, |old| values.reshape(old.dims()));
    }

    fn gradient(&self, gradients: &Gradients) -> Option<Tensor<1>> {
        self.base().grad(gradients).map(|gradient| gradient.reshape([self.len()]))
    }

    fn set_flat(&mut self, values: Tensor<1>) {
        replace(self, values.reshape(self.base().dims()));
    }

    fn set_trainable(&mut self, trainable: bool) {
        change(self, |old| {
            let value = old.without_autodiff();
            if trainable { value.autodiff() } else { value }
        });
        *self = self.clone().set_require_grad(trainable);
    }

    fn set_data(&mut self, data: TensorData) {
        let old = self.base();
        replace(self, Tensor::from_data(data, (&old.device().inner(), old.dtype())));
    }

    fn select(&mut self, axis: usize, kept: &[usize]) {
        replace(self, select(self.base().without_autodiff(), axis, kept));
        // Burn's optimizers know a parameter by its id: moments of the old shape would be broadcast, and the update
        // with them.
        self.id = ParamId::new();
    }

    fn gather(&mut self, axis: usize, ids: &Tensor<1, Int>) {
        change(self, |old| old.select(axis, ids.clone()));
    }
}

/// The values of `tensor` on the host, in row-major order.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.without_autodiff().into_data().iter::<f64>().collect()
}

/// `tensor` with only the indices `kept` along `axis`.
pub(crate) fn select<const D: usize>(tensor: Tensor<D>, axis: usize, kept: &[usize]) -> Tensor<D> {
    let kept: Vec<i32> = kept.iter().map(|&i| i as i32).collect();
    let device = tensor.device();
    tensor.select(axis, Tensor::from_ints(kept.as_slice(), &device))
}

/// Puts `value` into `param`, trainable exactly if the old value was.
pub(crate) fn replace<const D: usize>(param: &mut Param<Tensor<D>>, value: Tensor<D>) {
    change(
        param,
        |old| {
            if old.is_require_grad() { value.autodiff().require_grad() } else { value }
        },
    );
}

/// Replaces the old value of `param` by `value` of it; id, trainability and Burn's mappers for records stay, and what is
/// attached goes.
fn change<const D: usize>(
    param: &mut Param<Tensor<D>>,
    value: impl FnOnce(Tensor<D>) -> Tensor<D>,
) {
    *param = param.clone().map(value);
}
