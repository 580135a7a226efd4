//! A frozen linear layer with an optional adapter.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::quantization::{QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn::tensor::{FloatDType, Int, Tensor};
use lrvd_core::error::check_range;

use super::attached::{AdapterSlot, Attached, set as set_attached};
use super::kind::{Extension, LowRankAdapter};
use super::op::UpdateOp;
use super::schema::{Axis, Sizes};
use crate::error::Error;
use crate::ops::Packing;
use crate::ops::packed::Packed;
use crate::parameters::ParameterValue as _;
use crate::sampling::Pass;

/// Inputs of a block of a quantised weight, which share a scale.
const BLOCK: usize = 32;

/// Bits of a quantised base weight.
///
/// # Formula
///
/// ```text
/// w = s·q        s = max |w| / 127, q in -127 ..= 127 (8 bits)      s = max |w| / 7, q in -7 ..= 7 (4 bits)
/// ```
///
/// with one scale `s` in single precision for 32 inputs of an output. A `Q8_0` tensor of a GGUF file has the same
/// blocks and keeps its values. One of `Q4_0` does not: its `q` in `-8 ..= 7` has a scale of either sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseBits {
    /// 8 bits.
    Q8,
    /// 4 bits. Burn's CPU backend holds them in a byte each.
    Q4,
}

impl BaseBits {
    /// Burn's scheme for a weight `[d_input, d_output]`.
    pub fn scheme(self) -> QuantScheme {
        let value = match self {
            Self::Q8 => QuantValue::Q8S,
            Self::Q4 => QuantValue::Q4S,
        };
        QuantScheme::default()
            .with_value(value)
            .with_store(QuantStore::PackedU32(0))
            .per_block([BLOCK as u8, 1], ScaleDtype::F32)
    }
}

/// `y = x·W + b + update(x)`: a linear layer of a pretrained model and its adapter.
///
/// The base weight is an ordinary tensor without gradient: its backward computes `dX` and never
/// the `[d_input, d_output]` weight gradient (`cargo bench -p lrvd-perf -- frozen_base`
/// measures the difference). A layer whose adapter was pruned to rank 0 does the base product and
/// nothing else.
#[derive(Module, Debug)]
pub struct AdaptedLinear {
    /// Base weight, `[d_input, d_output]`, with the adapter on it.
    pub weight: Param<Tensor<2>>,
    /// Base bias, `[d_output]`.
    pub bias: Option<Param<Tensor<1>>>,
}

impl AdaptedLinear {
    /// A frozen layer without an adapter.
    pub fn new(weight: Tensor<2>, bias: Option<Tensor<1>>) -> Self {
        Self {
            weight: Param::from_tensor(weight).set_require_grad(false),
            bias: bias.map(|b| Param::from_tensor(b).set_require_grad(false)),
        }
    }

    /// Features in.
    pub fn d_input(&self) -> usize {
        self.weight.base().dims()[0]
    }

    /// Features out.
    pub fn d_output(&self) -> usize {
        self.weight.base().dims()[1]
    }

    /// Adapter on the weight, with its path and pass.
    pub fn attached(&self) -> Option<&Attached> {
        self.weight.reparameterization()
    }

    /// Changes what stands on the weight, if anything does.
    pub(crate) fn edit_attached<T>(
        &mut self,
        change: impl FnOnce(&mut Attached) -> T,
    ) -> Option<T> {
        let mut attached = self.attached()?.clone();
        let outcome = change(&mut attached);
        set_attached(&mut self.weight, Some(attached));
        Some(outcome)
    }

    /// Identity of the layer in the noise streams; 0 before an adapter is attached.
    pub fn noise_id(&self) -> u32 {
        self.attached().map_or(0, |attached| attached.noise_id)
    }

    /// Record of what was attached here; `None` if nothing was.
    pub fn slot(&self) -> Option<AdapterSlot> {
        self.attached()?.slot
    }

    /// The adapter; `None` before one is attached and after its last rank is pruned.
    pub fn low_rank(&self) -> Option<&LowRankAdapter> {
        self.attached()?.adapter.as_ref()
    }

    /// Update of another method, if the adapter has one.
    pub(crate) fn op(&self) -> Option<&dyn UpdateOp> {
        self.low_rank()?.op().map(|extension| &*extension.op)
    }

    /// Changes the adapter; shapes must stay, and so must the kind of the extension ([`AdaptedLinear::extend`] changes
    /// it).
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut LowRankAdapter) -> T) -> Option<T> {
        self.low_rank()?;
        self.edit_attached(|attached| attached.adapter.as_mut().map(change))?
    }

    /// Replaces the base weight; the adapter stays.
    pub fn set_weight(&mut self, weight: Tensor<2>) {
        let attached = self.attached().cloned();
        self.weight = self.weight.clone().map(|_| weight);
        set_attached(&mut self.weight, attached);
    }

    /// Extension of the adapter's two factors; `None` for plain ones.
    pub fn extension(&self) -> Option<&Extension> {
        self.low_rank()?.extension.as_ref()
    }

    /// Current rank: 0 without an adapter and after the last rank is pruned.
    pub fn rank(&self) -> usize {
        self.low_rank().map_or(0, LowRankAdapter::rank)
    }

    /// `true` if the batch of `pass` holds several draws that differ from this layer on: its adapter is random.
    pub fn is_stochastic(&self, pass: &Pass) -> bool {
        let is_random = |extension: &Extension| match extension {
            Extension::SingularValues(_) => false,
            Extension::Op(extension) => extension.op.is_random(),
            Extension::Gaussian(_) => true,
        };
        pass.draws > 1 && self.extension().is_some_and(is_random)
    }

    /// `true` if a row of the output has the same distribution whatever rows are beside it; if weights are drawn, it is the same
    /// row.
    pub fn is_row_independent(&self, pass: &Pass) -> bool {
        let alone = self.op().is_none_or(UpdateOp::is_row_independent);
        self.low_rank().is_none() || alone && pass.dropout.is_none()
    }

    /// Puts `adapter` on the layer at module path `path` in place of what was there; rank 0 leaves only the
    /// slot, so that no work remains. The path names the layer in files and in the noise.
    ///
    /// On an error the layer is unchanged.
    pub fn attach(
        &mut self,
        path: &str,
        mut adapter: LowRankAdapter,
        initial_rank: usize,
    ) -> Result<(), Error> {
        check_range("dropout", adapter.dropout, 0.0..1.0)?;
        let (d_input, d_output) = (self.d_input(), self.d_output());
        let sizes = Sizes { d_input, d_output, rank: adapter.rank() };
        let mut outcome = Ok(());
        adapter.each(&mut |schema, value| {
            let (name, found) = (schema.name, value.shape());
            let expected = schema.expected(&sizes, &found);
            if outcome.is_ok() && expected != found {
                let expected = format!("{expected:?}");
                outcome = Err(Error::module(path, name, expected, format_args!("{found:?}")));
            }
        });
        outcome?;
        self.place(path, adapter, initial_rank);
        Ok(())
    }

    /// Has the products of the layer read its weight in the form of `packing`.
    pub(crate) fn set_packing(&mut self, path: &str, packing: Packing) {
        let mut attached = self.attached().cloned().unwrap_or_else(|| Attached::empty(path));
        attached.packed = Some(Arc::new(Packed::new(packing)));
        set_attached(&mut self.weight, Some(attached));
    }

    /// The base weight, and the form in which products read it.
    pub(crate) fn packed(&self) -> (Tensor<2>, Option<Arc<Packed>>) {
        let packed = self.attached().and_then(|attached| attached.packed.clone());
        (self.weight.base(), packed)
    }

    /// Leaves the slot of an adapter that has no rank left.
    pub fn attach_empty(&mut self, path: &str, slot: AdapterSlot) {
        let (_, packed) = self.packed();
        let attached = Attached { slot: Some(slot), packed, ..Attached::empty(path) };
        set_attached(&mut self.weight, Some(attached));
    }

    /// Puts `extension` beside the factors, `None` for plain ones, and returns what was there.
    ///
    /// The [slot](AdaptedLinear::slot) goes with an [`UpdateOp`]: no LoRA file can hold it, and a
    /// layer without a slot is not written to one. Plain factors are the mean of a posterior and of noise on the entries.
    ///
    /// On an error the layer is unchanged.
    pub fn extend(&mut self, extension: Option<Extension>) -> Result<Option<Extension>, Error> {
        let Some((attached, adapter)) = self.attached().zip(self.low_rank()) else {
            let path = self.attached().map_or("", |attached| &attached.path);
            return Err(Error::layer(path, "has no adapter"));
        };
        let initial_rank = attached.slot.map_or(adapter.rank(), |slot| slot.initial_rank);
        let (path, old) = (attached.path.clone(), adapter.extension.clone());
        let adapter = LowRankAdapter { extension, ..adapter.clone() };
        self.attach(&path, adapter, initial_rank)?;
        Ok(old)
    }

    /// Takes the adapter and its slot off.
    pub fn detach(&mut self) -> Option<LowRankAdapter> {
        let adapter = self.low_rank().cloned();
        set_attached(&mut self.weight, None);
        adapter
    }

    /// Keeps only the rank directions `kept` of the adapter.
    pub fn select_ranks(&mut self, kept: &[usize]) {
        self.edit_attached(|attached| {
            attached.adapter = attached.adapter.take().filter(|_| !kept.is_empty());
            if let Some(adapter) = &mut attached.adapter {
                adapter.each(&mut |schema, value| schema.cut(value, kept));
            }
        });
    }

    /// As [`AdaptedLinear::attach`], for shapes that are right.
    pub(crate) fn place(&mut self, path: &str, adapter: LowRankAdapter, initial_rank: usize) {
        let old = self.attached().filter(|attached| *attached.path == *path);
        let mut attached = old.cloned().unwrap_or_else(|| Attached::empty(path));
        attached.slot = AdapterSlot::of(&adapter, initial_rank);
        attached.adapter = (adapter.rank() > 0).then_some(adapter);
        set_attached(&mut self.weight, Some(attached));
    }

    /// The layer with its outputs `ids` only, as a part of the graph; `weight` holds those columns of the
    /// base weight, `[d_input, ids]`.
    ///
    /// Nothing is computed or held for the other outputs.
    #[must_use]
    pub fn with_outputs(&self, weight: Tensor<2>, ids: &Tensor<1, Int>) -> Self {
        let mut layer = self.clone();
        layer.set_weight(weight);
        if let Some(bias) = &mut layer.bias {
            bias.gather(0, ids);
        }
        layer.edit_attached(|attached| {
            let Some(adapter) = &mut attached.adapter else { return };
            adapter.each(&mut |schema, value| {
                if let Some(axis) = schema.axes.iter().position(|axis| *axis == Axis::Output) {
                    value.gather(axis, ids);
                }
            });
        });
        layer
    }

    /// The dense update `c·A·diag(E)·B` at the posterior mean, `[d_input, d_output]`; `None` without an adapter, and of
    /// an [`UpdateOp`].
    pub fn delta(&self) -> Option<Tensor<2>> {
        let adapter = self.low_rank().filter(|adapter| adapter.op().is_none())?;
        let [a, b] = [&adapter.a, &adapter.b].map(|factor| factor.val().without_autodiff());
        let a = match adapter.singular_values() {
            Some(e) => a * e.val().without_autodiff().unsqueeze_dim(0),
            None => a,
        };
        Some(a.matmul(b).mul_scalar(adapter.scaling))
    }

    /// The layer as a plain linear one, with the posterior mean of the update in its weight.
    ///
    /// The sum is made in the type of the update and rounded once to that of the weight.
    ///
    /// # Errors
    ///
    /// [`Error::Layer`] of an adapter with an [`UpdateOp`]: no weight can take it in.
    pub fn merge(self) -> Result<Linear, Error> {
        if self.op().is_some() {
            let path = self.attached().map_or("", |attached| &attached.path);
            return Err(Error::layer(path, "has an update that is not one matrix"));
        }
        let weight = self.weight.base().without_autodiff().dequantize();
        let weight = match self.delta() {
            Some(delta) => {
                let [stored, wide] = [&weight, &delta].map(Tensor::dtype).map(FloatDType::from);
                (weight.cast(wide) + delta).cast(stored)
            }
            None => weight,
        };
        let bias = self.bias.map(|b| b.val().without_autodiff());
        Ok(Linear { weight: Param::from_tensor(weight), bias: bias.map(Param::from_tensor) })
    }

    /// The layer with its base weight in `bits`; the weight has no gradient.
    ///
    /// The number of inputs must be a multiple of 32.
    pub fn quantized(mut self, bits: BaseBits) -> Result<Self, Error> {
        let weight = self.weight.base().without_autodiff();
        let [d_input, d_output] = weight.dims();
        if !d_input.is_multiple_of(BLOCK) {
            let expected = format!("a multiple of {BLOCK} inputs to quantise");
            return Err(Error::tensor(expected, format_args!("shape [{d_input}, {d_output}]")));
        }
        self.set_weight(weight.quantize_dynamic(&bits.scheme()));
        Ok(self)
    }
}
