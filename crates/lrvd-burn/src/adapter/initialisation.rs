//! Initial values of adapter parameters.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal, fill_uniform};

use super::schema::{ParameterSchema, Sizes};

/// Makes the trainable parameters of one layer; values depend on the key, which names seed and layer,
/// and the schema's use index only.
pub(super) struct Initialiser {
    pub(super) sizes: Sizes,
    key: NoiseKey,
    device: Device,
    dtype: DType,
}

impl Initialiser {
    /// Beside the base weight `like`.
    pub(super) fn new(like: &Tensor<2>, sizes: Sizes, key: NoiseKey) -> Self {
        Self {
            sizes,
            key: key.on_stream(Stream::INIT),
            device: like.device().inner().autodiff(),
            dtype: adapter_dtype(like.dtype()),
        }
    }

    /// Half-width of the uniform distribution of a layer with `inputs` features, `1/sqrt(inputs)`.
    pub(super) fn bound_of(inputs: usize) -> f64 {
        1.0 / (inputs as f64).sqrt()
    }

    /// The given values.
    fn given<const D: usize>(
        &self,
        schema: &ParameterSchema,
        values: Vec<f32>,
    ) -> Param<Tensor<D>> {
        let data = TensorData::new(values, schema.shape(&self.sizes));
        Param::from_tensor(Tensor::from_data(data, (&self.device, self.dtype)).require_grad())
    }

    /// `value` everywhere, in the full precision of the adapter.
    pub(super) fn constant<const D: usize>(
        &self,
        schema: &ParameterSchema,
        value: f64,
    ) -> Param<Tensor<D>> {
        let shape = schema.shape(&self.sizes);
        let full = Tensor::full(shape, value, (&self.device, self.dtype));
        Param::from_tensor(full.require_grad())
    }

    /// `map` of the numbers that `fill` draws.
    fn drawn(
        &self,
        schema: &ParameterSchema,
        fill: impl Fn(NoiseKey, u64, &mut [f32]),
        map: impl Fn(f32) -> f32,
    ) -> Vec<f32> {
        let len: usize = schema.shape(&self.sizes).iter().product();
        drawn(self.key.with_use(schema.initial_use), len, fill, map)
    }

    /// `U(-bound, bound)`.
    pub(super) fn uniform<const D: usize>(
        &self,
        schema: &ParameterSchema,
        bound: f64,
    ) -> Param<Tensor<D>> {
        let at = |u: f32| if bound > 0.0 { (2.0 * u - 1.0) * bound as f32 } else { 0.0 };
        self.given(schema, self.drawn(schema, fill_uniform, at))
    }

    /// `N(mean, std²)`.
    pub(super) fn normal<const D: usize>(
        &self,
        schema: &ParameterSchema,
        mean: f64,
        std: f64,
    ) -> Param<Tensor<D>> {
        let at = |z: f32| z * std as f32 + mean as f32;
        self.given(schema, self.drawn(schema, fill_normal, at))
    }

    /// `map` of uniform numbers in `[0, 1)`.
    pub(super) fn mapped<const D: usize>(
        &self,
        schema: &ParameterSchema,
        map: impl Fn(f64) -> f64,
    ) -> Param<Tensor<D>> {
        let at = |u: f32| map(f64::from(u)) as f32;
        self.given(schema, self.drawn(schema, fill_uniform, at))
    }
}

/// `map` of the `len` uniform numbers in `[0, 1)` from which a parameter starts; `key` names seed and layer, `initial_use`
/// the [parameter](ParameterSchema::initial_use).
pub fn initial_uniform(
    key: NoiseKey,
    initial_use: u32,
    len: usize,
    map: impl Fn(f32) -> f32,
) -> Vec<f32> {
    drawn(key.on_stream(Stream::INIT).with_use(initial_use), len, fill_uniform, map)
}

fn drawn(
    key: NoiseKey,
    len: usize,
    fill: impl Fn(NoiseKey, u64, &mut [f32]),
    map: impl Fn(f32) -> f32,
) -> Vec<f32> {
    let mut values = vec![0.0; len];
    fill(key, 0, &mut values);
    values.into_iter().map(map).collect()
}

/// The float type of an adapter on a weight that is stored as `weight`: double precision beside double
/// precision, single precision beside all others.
///
/// Half precision has 8 or 11 significant bits: an update of one part in a thousand would be lost.
pub fn adapter_dtype(weight: DType) -> DType {
    if weight == DType::F64 { DType::F64 } else { DType::F32 }
}
