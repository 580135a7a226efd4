//! Initial values of adapter parameters.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal, fill_uniform};

use super::linear::AdaptedLinear;
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
    pub(super) fn new(layer: &AdaptedLinear, sizes: Sizes, key: NoiseKey) -> Self {
        let like = layer.weight.base();
        Self {
            sizes,
            key: key.on_stream(Stream::INIT),
            device: like.device().inner().autodiff(),
            dtype: super::adapter_dtype(like.dtype()),
        }
    }

    /// Half-width of the uniform distribution of a layer with `inputs` features, `1/sqrt(inputs)`.
    pub(super) fn bound_of(inputs: usize) -> f64 {
        1.0 / (inputs as f64).sqrt()
    }

    /// The given values.
    pub(super) fn given<const D: usize>(
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

    /// Values of `U(-bound, bound)`; members of an ensemble differ.
    pub(super) fn uniform_values(&self, schema: &ParameterSchema, bound: f64) -> Vec<f32> {
        let members = self.sizes.members;
        let n = self.len(schema) / members;
        let of_member = |member: usize| {
            let mut values = vec![0.0; n];
            if bound > 0.0 {
                fill_uniform(self.key.with_use(schema.initial_use + member as u32), 0, &mut values);
                for v in &mut values {
                    *v = (2.0 * *v - 1.0) * bound as f32;
                }
            }
            values
        };
        (0..members).flat_map(of_member).collect()
    }

    /// `U(-bound, bound)`; members of an ensemble differ.
    pub(super) fn uniform<const D: usize>(
        &self,
        schema: &ParameterSchema,
        bound: f64,
    ) -> Param<Tensor<D>> {
        self.given(schema, self.uniform_values(schema, bound))
    }

    /// `N(mean, std²)`.
    pub(super) fn normal<const D: usize>(
        &self,
        schema: &ParameterSchema,
        mean: f64,
        std: f64,
    ) -> Param<Tensor<D>> {
        let mut values = vec![0.0; self.len(schema)];
        fill_normal(self.key.with_use(schema.initial_use), 0, &mut values);
        for v in &mut values {
            *v *= std as f32;
            *v += mean as f32;
        }
        self.given(schema, values)
    }

    /// `map` of uniform numbers in `[0, 1)`.
    pub(super) fn mapped<const D: usize>(
        &self,
        schema: &ParameterSchema,
        map: impl Fn(f64) -> f64,
    ) -> Param<Tensor<D>> {
        let mut values = vec![0.0; self.len(schema)];
        fill_uniform(self.key.with_use(schema.initial_use), 0, &mut values);
        self.given(schema, values.into_iter().map(|u| map(f64::from(u)) as f32).collect())
    }

    fn len(&self, schema: &ParameterSchema) -> usize {
        schema.shape(&self.sizes).iter().product()
    }
}
