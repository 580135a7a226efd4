//! Element types, and quantised blocks as floats.
//!
//! A quantised row is cut into blocks of 32 or 256 values that share a scale and perhaps an offset, in half precision.
//! The K types give every 16 or 32 values of a block a separate scale of a few bits. Products and sums are those
//! of the reference in single precision, in its order, so that results are equal to the last bit.

use half::f16;

use crate::files::HostDType;

/// Values in a block of a K type.
const K: usize = 256;

/// Element types that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "these are the names of the format")]
pub enum GgufType {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Half the bits of single precision.
    BF16,
    /// 4 bits, scale.
    Q4_0,
    /// 4 bits, scale and offset.
    Q4_1,
    /// 5 bits, scale.
    Q5_0,
    /// 5 bits, scale and offset.
    Q5_1,
    /// 8 bits, scale.
    Q8_0,
    /// 2 bits, scales and offsets of 4 bits for each 16.
    Q2_K,
    /// 3 bits, scales of 6 bits for each 16.
    Q3_K,
    /// 4 bits, scales and offsets of 6 bits for each 32.
    Q4_K,
    /// 5 bits, scales and offsets of 6 bits for each 32.
    Q5_K,
    /// 6 bits, scales of 8 bits for each 16.
    Q6_K,
}

/// Values of one block.
type Unpack = fn(&[u8], &mut [f32]);

/// Number in a file, type, values in a block, bytes of it, and its values where they are packed.
const TYPES: [(u32, GgufType, usize, usize, Option<Unpack>); 13] = [
    (0, GgufType::F32, 1, 4, None),
    (1, GgufType::F16, 1, 2, None),
    (30, GgufType::BF16, 1, 2, None),
    (2, GgufType::Q4_0, 32, 18, Some(q4_0)),
    (3, GgufType::Q4_1, 32, 20, Some(q4_1)),
    (6, GgufType::Q5_0, 32, 22, Some(q5_0)),
    (7, GgufType::Q5_1, 32, 24, Some(q5_1)),
    (8, GgufType::Q8_0, 32, 34, Some(q8_0)),
    (10, GgufType::Q2_K, K, 84, Some(q2_k)),
    (11, GgufType::Q3_K, K, 110, Some(q3_k)),
    (12, GgufType::Q4_K, K, 144, Some(q4_k)),
    (13, GgufType::Q5_K, K, 176, Some(q5_k)),
    (14, GgufType::Q6_K, K, 210, Some(q6_k)),
];

impl GgufType {
    /// Names of all types, for messages.
    pub(super) fn names() -> String {
        TYPES.map(|(_, kind, ..)| format!("{kind:?}")).join(", ")
    }

    /// The type with this number in a file.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        TYPES.iter().find(|row| row.0 == number).map(|row| row.1)
    }

    fn layout(self) -> (usize, usize, Option<Unpack>) {
        let row = TYPES.iter().find(|row| row.1 == self);
        let (_, _, elements, bytes, unpack) = *row.expect("the table has every type");
        (elements, bytes, unpack)
    }

    /// Elements in a block, and its bytes.
    pub(super) fn block(self) -> (usize, usize) {
        let (elements, bytes, _) = self.layout();
        (elements, bytes)
    }

    /// What a tensor of this type is on the host: quantised ones are widened to single precision.
    pub(crate) fn host_dtype(self) -> HostDType {
        match self {
            Self::F16 => HostDType::F16,
            Self::BF16 => HostDType::BF16,
            _ => HostDType::F32,
        }
    }

    /// Whole blocks as little-endian values of [`Self::host_dtype`].
    pub(crate) fn widen(self, bytes: Vec<u8>) -> Vec<u8> {
        let (elements, size, Some(unpack)) = self.layout() else { return bytes };
        let mut values = [0.0_f32; K];
        let mut out = Vec::with_capacity(bytes.len() / size * elements * size_of::<f32>());
        for block in bytes.chunks_exact(size) {
            unpack(block, &mut values[..elements]);
            out.extend(values[..elements].iter().flat_map(|value| value.to_le_bytes()));
        }
        out
    }
}

/// A number in half precision.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The lower four bits for the first half of a block, the upper ones for the second.
fn nibbles(packed: &[u8]) -> impl Iterator<Item = u8> + '_ {
    packed.iter().map(|byte| byte & 15).chain(packed.iter().map(|byte| byte >> 4))
}

/// Fifth bits of 32 values.
fn fifth_bits(block: &[u8], at: usize) -> impl Iterator<Item = u8> {
    let bits = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    (0..32).map(move |i| ((bits >> i) & 1) as u8)
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (value, q) in out.iter_mut().zip(nibbles(&block[2..])) {
        *value = d * (f32::from(q) - 8.0);
    }
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (value, q) in out.iter_mut().zip(nibbles(&block[4..])) {
        *value = d * f32::from(q) + m;
    }
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    let quants = nibbles(&block[6..]).zip(fifth_bits(block, 2));
    for (value, (low, high)) in out.iter_mut().zip(quants) {
        *value = d * (f32::from(low | (high << 4)) - 16.0);
    }
}

fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    let quants = nibbles(&block[8..]).zip(fifth_bits(block, 4));
    for (value, (low, high)) in out.iter_mut().zip(quants) {
        *value = d * f32::from(low | (high << 4)) + m;
    }
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (value, &q) in out.iter_mut().zip(&block[2..]) {
        *value = f32::from(q as i8) * d;
    }
}

/// Two bits of each of 256 values: four values 32 apart share a byte, and so do both halves.
fn two_bits(packed: &[u8], element: usize) -> u8 {
    let (half, within) = (element / 128, element % 128);
    (packed[32 * half + within % 32] >> (2 * (within / 32))) & 3
}

fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, quants) = (&block[..16], &block[16..80]);
    let (d, d_min) = (half(block, 80), half(block, 82));
    for (element, value) in out.iter_mut().enumerate() {
        let scale = scales[element / 16];
        let (step, least) = (d * f32::from(scale & 15), d_min * f32::from(scale >> 4));
        *value = step * f32::from(two_bits(quants, element)) - least;
    }
}

fn q3_k(block: &[u8], out: &mut [f32]) {
    let (high_bits, quants, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for (element, value) in out.iter_mut().enumerate() {
        let part = element / 16;
        let low = (scales[part % 8] >> (4 * (part / 8))) & 15;
        let high = (scales[8 + part % 4] >> (2 * (part / 4))) & 3;
        let step = d * (f32::from(low | (high << 4)) - 32.0);
        // A bit that is set stands for no offset.
        let offset = if (high_bits[element % 32] >> (element / 32)) & 1 == 0 { 4.0 } else { 0.0 };
        *value = step * (f32::from(two_bits(quants, element)) - offset);
    }
}

/// Scale and offset of a part of 32 values, six bits each.
fn six_bits(packed: &[u8], part: usize) -> (f32, f32) {
    let (scale, least) = if part < 4 {
        (packed[part] & 0x3f, packed[part + 4] & 0x3f)
    } else {
        let (low, i) = (packed[part + 4], part - 4);
        ((low & 0x0f) | ((packed[i] >> 2) & 0x30), (low >> 4) | ((packed[i + 4] >> 2) & 0x30))
    };
    (f32::from(scale), f32::from(least))
}

fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, d_min) = (half(block, 0), half(block, 2));
    let (scales, quants) = (&block[4..16], &block[16..]);
    for (part, values) in out.chunks_exact_mut(32).enumerate() {
        let (scale, least) = six_bits(scales, part);
        let (step, least) = (d * scale, d_min * least);
        for (value, byte) in values.iter_mut().zip(&quants[32 * (part / 2)..]) {
            *value = step * f32::from((byte >> (4 * (part % 2))) & 15) - least;
        }
    }
}

fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, d_min) = (half(block, 0), half(block, 2));
    let (scales, high_bits, quants) = (&block[4..16], &block[16..48], &block[48..]);
    for (part, values) in out.chunks_exact_mut(32).enumerate() {
        let (scale, least) = six_bits(scales, part);
        let (step, least) = (d * scale, d_min * least);
        let bytes = quants[32 * (part / 2)..].iter().zip(high_bits);
        for (value, (byte, high)) in values.iter_mut().zip(bytes) {
            let q = ((byte >> (4 * (part % 2))) & 15) | (((high >> part) & 1) << 4);
            *value = step * f32::from(q) - least;
        }
    }
}

fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low_bits, high_bits, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(block, 208);
    for (element, value) in out.iter_mut().enumerate() {
        let (half, within) = (element / 128, element % 128);
        let low = (low_bits[64 * half + within % 64] >> (4 * (within / 64))) & 15;
        let high = (high_bits[32 * half + within % 32] >> (2 * (within / 32))) & 3;
        let step = d * f32::from(scales[element / 16] as i8);
        *value = step * (f32::from(low | (high << 4)) - 32.0);
    }
}
