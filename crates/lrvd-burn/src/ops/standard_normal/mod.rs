//! Counter-based standard-normal noise.

#[cfg(feature = "cube")]
pub(crate) mod cube;

use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape, Tensor, TensorData};
use lrvd_core::noise::{NoiseKey, fill_normal, fill_normal_f64};

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::Value;

/// Standard-normal numbers, elements `0, 1, …` of `key` in row-major order; a constant for gradients.
///
/// Device and element type are those of `like`, whose values do not matter.
///
/// # Numerics
///
/// The definition is [`lrvd_core::noise::fill_normal`]; on the CPU the bits are its bits. Other
/// backends use the same words and formula and their own `ln`, `cos`, `sin`: about `1e-6` apart.
pub fn standard_normal<const K: usize, const D: usize>(
    like: &Tensor<K>,
    shape: [usize; D],
    key: NoiseKey,
) -> Tensor<D> {
    let op = StandardNormal { shape: Shape::new(shape), key };
    op::fused(op, Operands::of([like.clone().into_dispatch()]))
}

#[derive(Clone, Debug)]
pub(super) struct StandardNormal {
    pub(super) shape: Shape,
    pub(super) key: NoiseKey,
}

impl FusedOp for StandardNormal {
    /// Made on the host, for backends without a generator.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [like] = x.all().map(Value::<B>);
        let (shape, count) = (self.shape.clone(), self.shape.num_elements());
        let data = if like.dtype() == DType::F64 {
            let mut numbers = vec![0.0f64; count];
            fill_normal_f64(self.key, 0, &mut numbers);
            TensorData::new(numbers, shape)
        } else {
            let mut numbers = vec![0.0f32; count];
            fill_normal(self.key, 0, &mut numbers);
            TensorData::new(numbers, shape)
        };
        like.host(data).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        let forward = match dtype {
            DType::F32 => cpu::forward::<f32>,
            DType::F64 => cpu::forward::<f64>,
            _ => return None,
        };
        Some(op::Form { forward, gradient: None })
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(op::Form { forward: cube::forward, gradient: None })
    }
}

#[cfg(feature = "flex")]
mod cpu {
    use burn::backend::Flex;

    use super::StandardNormal;
    use crate::ops::cpu::{Real, TASK, run};
    use crate::ops::op::{Fused, Operands};

    pub(super) fn forward<E: Real>(
        op: &StandardNormal,
        _like: Operands<Flex>,
        _: bool,
    ) -> Fused<Flex> {
        let mut numbers = vec![E::ZERO; op.shape.num_elements()];
        let tasks = numbers.chunks_mut(TASK).enumerate().collect();
        run(tasks, |(task, chunk): (usize, &mut [E])| {
            E::fill_normal(op.key, (task * TASK) as u64, chunk);
        });
        Fused { out: E::tensor(numbers, op.shape.clone()), saved: Operands::of([]) }
    }
}
