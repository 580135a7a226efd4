//! The precision in which adapters are held and divergences summed.

use burn::tensor::{DType, FloatDType, Tensor};

/// The tensor in double precision where its device can, else as it is; gradients come back in its
/// own precision.
///
/// A divergence is a difference of large logarithms summed over every weight of a model: in single
/// precision the sum loses what a small weight of it would need.
pub(super) fn widened<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().inner().supports_dtype(DType::F64) {
        tensor.cast(FloatDType::F64)
    } else {
        tensor
    }
}

/// The float type of an adapter on a weight that is stored as `weight`: double precision beside double
/// precision, single precision beside all others.
///
/// Half precision has 8 or 11 significant bits: an update of one part in a thousand would be lost.
pub fn adapter_dtype(weight: DType) -> DType {
    if weight == DType::F64 { DType::F64 } else { DType::F32 }
}
