//! The values of a parameter, whatever its number of axes.

use std::fmt::Debug;

use burn::module::{Param, ParamId};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};

/// A parameter of any rank: read through `&`, written through `&mut`.
pub trait ParameterValue: Debug {
    /// Burn's name for it, which it keeps through updates and prunes.
    fn id(&self) -> ParamId;

    /// Shape in memory.
    fn shape(&self) -> Vec<usize>;

    /// Number of values.
    fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether the parameter holds no value, as the factors of rank 0 do.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a backward pass gives it a gradient.
    fn is_trainable(&self) -> bool;

    /// The values, flattened in memory order, cut off from any graph.
    fn flat(&self) -> Tensor<1>;

    /// The values, flattened in memory order, as a part of the graph.
    fn tracked(&self) -> Tensor<1>;

    /// Replaces the values by a part of a graph.
    fn track(&mut self, values: Tensor<1>);

    /// The gradient that `gradients` holds for it, flattened in memory order.
    fn gradient(&self, gradients: &Gradients) -> Option<Tensor<1>>;

    /// Replaces the values; shape, identity and trainability stay.
    fn set_flat(&mut self, values: Tensor<1>);

    /// Freezes or unfreezes the parameter.
    fn set_trainable(&mut self, trainable: bool);

    /// Replaces the values from host data of the same shape, keeping dtype and trainability.
    fn set_data(&mut self, data: TensorData);

    /// Keeps the indices `kept` along `axis`, in order; identity and trainability stay.
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

    fn flat(&self) -> Tensor<1> {
        let value = self.base().without_autodiff().dequantize();
        let len = value.shape().num_elements();
        value.reshape([len])
    }

    fn tracked(&self) -> Tensor<1> {
        let value = self.base();
        let len = value.shape().num_elements();
        value.reshape([len])
    }

    fn track(&mut self, values: Tensor<1>) {
        *self = Param::initialized(self.id, values.reshape(self.base().dims()));
    }

    fn gradient(&self, gradients: &Gradients) -> Option<Tensor<1>> {
        let value = self.base();
        let len = value.shape().num_elements();
        value.grad(gradients).map(|gradient| gradient.reshape([len]))
    }

    fn set_flat(&mut self, values: Tensor<1>) {
        let shape = self.base().dims();
        replace(self, values.reshape(shape));
    }

    fn set_trainable(&mut self, trainable: bool) {
        let value = self.base().without_autodiff();
        let value = if trainable { value.autodiff().require_grad() } else { value };
        *self = Param::initialized(self.id, value);
    }

    fn set_data(&mut self, data: TensorData) {
        let old = self.base();
        let device: Device = old.device().inner();
        replace(self, Tensor::from_data(data, (&device, old.dtype())));
    }

    fn select(&mut self, axis: usize, kept: &[usize]) {
        let value = select(self.base().without_autodiff(), axis, kept);
        replace(self, value);
    }

    fn gather(&mut self, axis: usize, ids: &Tensor<1, Int>) {
        *self = Param::initialized(self.id, self.base().select(axis, ids.clone()));
    }
}

/// `tensor` with only the indices `kept` along `axis`.
pub(crate) fn select<const D: usize>(tensor: Tensor<D>, axis: usize, kept: &[usize]) -> Tensor<D> {
    let kept: Vec<i32> = kept.iter().map(|&i| i as i32).collect();
    let device = tensor.device();
    tensor.select(axis, Tensor::from_ints(kept.as_slice(), &device))
}

/// The tensor without its autodiff association.
pub(crate) fn plain<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().is_autodiff() { tensor.inner() } else { tensor }
}

/// Puts `value` into `param`, trainable exactly if the old value was.
pub(crate) fn replace<const D: usize>(param: &mut Param<Tensor<D>>, value: Tensor<D>) {
    let value =
        if param.base().is_require_grad() { value.autodiff().require_grad() } else { value };
    *param = Param::initialized(param.id, value);
}
