//! A base weight in 8 or 4 bits, under an adapter in full precision: `QLoRA`.

use burn::tensor::quantization::{QuantScheme, QuantStore, QuantValue, ScaleDtype};

use super::linear::AdaptedLinear;
use crate::error::Error;

/// Inputs of a block, which share a scale.
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

impl AdaptedLinear {
    /// The layer with its base weight in `bits`; the weight has no gradient.
    ///
    /// The number of inputs must be a multiple of 32.
    pub fn quantized(mut self, bits: BaseBits) -> Result<Self, Error> {
        let weight = self.weight.base().without_autodiff();
        let [d_input, d_output] = weight.dims();
        if !d_input.is_multiple_of(BLOCK) {
            return Err(Error::Shape(format!(
                "a weight `[{d_input}, {d_output}]` cannot be quantised: expected a multiple of {BLOCK} inputs"
            )));
        }
        self.set_weight(weight.quantize_dynamic(&bits.scheme()));
        Ok(self)
    }
}
