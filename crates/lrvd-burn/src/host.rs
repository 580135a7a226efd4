//! Values of tensors on the host.

use burn::tensor::{DType, Tensor};

use crate::error::Error;
use crate::files::HostTensor;

/// The values of `tensor` in row-major order.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.without_autodiff().into_data().iter::<f64>().collect()
}

/// The values of a flattened tensor under `shape`, in single precision unless they are doubles.
pub(crate) fn stored(flat: Tensor<1>, shape: &[usize]) -> Result<HostTensor, Error> {
    let data = flat.into_data();
    if data.dtype() == DType::F64 {
        HostTensor::from_f64(shape, &data.iter::<f64>().collect::<Vec<_>>())
    } else {
        HostTensor::from_f32(shape, &data.iter::<f32>().collect::<Vec<_>>())
    }
}
