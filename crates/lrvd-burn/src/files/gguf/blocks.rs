//! Element types, and quantised blocks as floats.
//!
//! A quantised row is cut into blocks of 32 or 256 values that share a scale and perhaps an offset, in half precision.
//! The K types give every 16 or 32 values of a block a separate scale of a few bits. Products and sums are those
//! of the reference in single precision, in its order, so that results are equal to the last bit.

use half::f16;

use crate::files::HostDType;

/// Values in a block of a K type.
const K: usize = 256;

/// Values of one block.
type Unpack = fn(&[u8], &mut [f32]);

/// An element type.
#[derive(Debug)]
pub(crate) struct GgufType {
    /// Number in a file.
    number: u32,
    name: &'static str,
    /// Values in a block, and bytes of it.
    pub(super) block: (usize, usize),
    /// Element type on the host: single precision for quantised ones.
    pub(crate) dtype: HostDType,
    unpack: Option<Unpack>,
}

static TYPES: [GgufType; 13] = [
    plain(0, "F32", 4, HostDType::F32),
    plain(1, "F16", 2, HostDType::F16),
    plain(30, "BF16", 2, HostDType::BF16),
    quantised(2, "Q4_0", 32, 18, small::<4, false>),
    quantised(3, "Q4_1", 32, 20, small::<4, true>),
    quantised(6, "Q5_0", 32, 22, small::<5, false>),
    quantised(7, "Q5_1", 32, 24, small::<5, true>),
    quantised(8, "Q8_0", 32, 34, q8_0),
    quantised(10, "Q2_K", K, 84, q2_k),
    quantised(11, "Q3_K", K, 110, q3_k),
    quantised(12, "Q4_K", K, 144, middle::<4>),
    quantised(13, "Q5_K", K, 176, middle::<5>),
    quantised(14, "Q6_K", K, 210, q6_k),
];

const fn plain(number: u32, name: &'static str, bytes: usize, dtype: HostDType) -> GgufType {
    GgufType { number, name, block: (1, bytes), dtype, unpack: None }
}

const fn quantised(
    number: u32,
    name: &'static str,
    elements: usize,
    bytes: usize,
    unpack: Unpack,
) -> GgufType {
    let block = (elements, bytes);
    GgufType { number, name, block, dtype: HostDType::F32, unpack: Some(unpack) }
}

impl GgufType {
    /// Names of all types, for messages.
    pub(super) fn names() -> String {
        TYPES.each_ref().map(|kind| kind.name).join(", ")
    }

    /// The type with this number in a file.
    pub(super) fn from_number(number: u32) -> Option<&'static Self> {
        TYPES.iter().find(|kind| kind.number == number)
    }

    /// Whole blocks as little-endian values of the type on the host.
    pub(crate) fn dequantize(&self, bytes: Vec<u8>) -> Vec<u8> {
        let (Some(unpack), (elements, size)) = (self.unpack, self.block) else { return bytes };
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

/// 32 values of 4 or 5 bits, with an offset or around 0.
fn small<const BITS: u32, const OFFSET: bool>(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    let (m, block) = if OFFSET { (half(block, 2), &block[4..]) } else { (0.0, &block[2..]) };
    let (fifth_bits, quants) = match block {
        &[a, b, c, d, ref quants @ ..] if BITS == 5 => (u32::from_le_bytes([a, b, c, d]), quants),
        quants => (0, quants),
    };
    for (i, (value, q)) in out.iter_mut().zip(nibbles(quants)).enumerate() {
        let q = f32::from(q | (((fifth_bits >> i) & 1) << 4) as u8);
        *value = if OFFSET { d * q + m } else { d * (q - (1 << (BITS - 1)) as f32) };
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
        // A bit that is set means no offset.
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

/// 256 values of 4 or 5 bits.
fn middle<const BITS: u32>(block: &[u8], out: &mut [f32]) {
    let (d, d_min) = (half(block, 0), half(block, 2));
    let (scales, rest) = (&block[4..16], &block[16..]);
    let (high_bits, quants) = rest.split_at(if BITS == 5 { 32 } else { 0 });
    for (part, values) in out.chunks_exact_mut(32).enumerate() {
        let (scale, least) = six_bits(scales, part);
        let (step, least) = (d * scale, d_min * least);
        for (i, (value, byte)) in values.iter_mut().zip(&quants[32 * (part / 2)..]).enumerate() {
            let high = high_bits.get(i).map_or(0, |bits| (bits >> part) & 1);
            let q = ((byte >> (4 * (part % 2))) & 15) | (high << 4);
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
