//! Random numbers by address, on which every backend agrees.
//!
//! A counter-based generator has no state: a number is a pure function of a [`NoiseKey`] (seed, step, module,
//! stream) and an element index. A resumed run, a thread that fills one half of a tensor, or a GPU kernel that
//! computes its own noise therefore all see the same values, and nothing in the process is seeded globally.

mod draws;
mod fill;
mod philox;

pub use draws::{Generator, permutation};
pub use fill::{fill_normal, fill_normal_f64, fill_uniform};
pub use philox::{philox, words};

/// Names of the independent noise streams: the low 16 bits of [`NoiseKey::stream`].
///
/// Plain `u32` constants rather than an enum, because kernels receive the number itself. 68 to 70 are those of `lrvd-bench`'s
/// methods.
#[derive(Clone, Copy, Debug)]
pub struct Stream;

impl Stream {
    /// Weight noise of the down-projection, and rank-space activation noise of its output.
    pub const WEIGHT_A: u32 = 0;
    /// Weight noise of the up-projection.
    pub const WEIGHT_B: u32 = 1;
    /// Activation noise at the adapter's output (`moment_matched`, second draw of `nested`).
    pub const OUTPUT: u32 = 2;
    /// Activation noise in rank space (first draw of `nested`).
    pub const RANK: u32 = 3;
    /// Dropout masks.
    pub const DROPOUT: u32 = 4;
    /// Initial values of parameters.
    pub const INIT: u32 = 5;
    /// Order of the training data.
    pub const SHUFFLE: u32 = 6;
    /// Generated data sets and label noise.
    pub const DATA: u32 = 7;
    /// Flipout: signs of the input of A, `[tokens, d_input]`.
    pub const FLIP_A_INPUT: u32 = 64;
    /// Flipout: signs of the output of A, `[tokens, rank]`.
    pub const FLIP_A_OUTPUT: u32 = 65;
    /// Flipout: signs of the input of B, `[tokens, rank]`.
    pub const FLIP_B_INPUT: u32 = 66;
    /// Flipout: signs of the output of B, `[tokens, d_output]`.
    pub const FLIP_B_OUTPUT: u32 = 67;
}

/// Address of a run of random numbers: seed, step (or draw), module and stream.
///
/// Two keys that differ in any field give independent numbers. The address of element `e` is
///
/// ```text
/// Philox key     = (seed mod 2^32, seed div 2^32)
/// Philox counter = (e div 4, module, step, stream),  lane e mod 4
/// ```
///
/// The block index has 32 bits, so a key repeats after `2^34` elements.
///
/// # Examples
///
/// ```
/// use lrvd_core::noise::{NoiseKey, Stream, fill_normal, module_id};
///
/// let key = NoiseKey::new(7).at_step(3).for_module(module_id("encoder.layer.0.dense"));
/// let mut eps = [0.0f32; 6];
/// fill_normal(key.on_stream(Stream::WEIGHT_A), 0, &mut eps);
///
/// // The same elements, drawn in two pieces.
/// let mut pieces = [0.0f32; 6];
/// let (head, tail) = pieces.split_at_mut(5);
/// fill_normal(key, 5, tail);
/// fill_normal(key, 0, head);
/// assert_eq!(eps, pieces);
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoiseKey {
    /// Seed of the run.
    pub seed: u64,
    /// Optimizer step in training, index of the Monte Carlo draw in prediction.
    pub step: u32,
    /// Module that draws: [`module_id`] of its path.
    pub module: u32,
    /// One of [`Stream`], with the use index of [`NoiseKey::with_use`] in the high 16 bits.
    pub stream: u32,
}

/// Bits of [`NoiseKey::stream`] that hold the stream; the use index is above them.
const STREAM_BITS: u32 = 16;

impl NoiseKey {
    /// Key of step 0, module 0, stream 0 under `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { seed, step: 0, module: 0, stream: 0 }
    }

    /// This key at another step or draw.
    pub const fn at_step(self, step: u32) -> Self {
        Self { step, ..self }
    }

    /// This key for another module; see [`module_id`].
    pub const fn for_module(self, module: u32) -> Self {
        Self { module, ..self }
    }

    /// This key on another stream, with use index 0.
    pub const fn on_stream(self, stream: u32) -> Self {
        Self { stream, ..self }
    }

    /// This key for use number `index` of one module within one forward pass.
    ///
    /// `stream = stream mod 2^16 + 2^16 · (index mod 2^16)`; index 0 is the key without a use.
    pub const fn with_use(self, index: u32) -> Self {
        let stream = self.stream & ((1 << STREAM_BITS) - 1);
        Self { stream: stream | (index << STREAM_BITS), ..self }
    }

    /// The generator's key: low and high half of the seed.
    pub const fn philox_key(self) -> [u32; 2] {
        [self.seed as u32, (self.seed >> 32) as u32]
    }

    /// The generator's counter for one block of four elements.
    pub const fn philox_counter(self, block: u32) -> [u32; 4] {
        [block, self.module, self.step, self.stream]
    }
}

/// Number of a module from its dotted path: the 32-bit FNV-1a hash of its UTF-8 bytes.
///
/// A hash, not a running count, so that a module keeps its noise when others are added or pruned away. With
/// 200 modules two paths collide with probability `5e-6`; a collision would only correlate two noises.
///
/// Source: Fowler, Noll, Vo: offset basis `2166136261`, prime `16777619`.
pub const fn module_id(path: &str) -> u32 {
    let bytes = path.as_bytes();
    let mut hash = 0x811c_9dc5_u32;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_id_is_fnv_1a() {
        // Published FNV-1a 32-bit test vectors.
        assert_eq!(["", "a", "foobar"].map(module_id), [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
    }

    #[test]
    fn key_fields_reach_their_places() {
        let key = NoiseKey::new(0x0123_4567_89ab_cdef).at_step(5).for_module(9).on_stream(2);
        assert_eq!(key.philox_key(), [0x89ab_cdef, 0x0123_4567]);
        assert_eq!(key.philox_counter(11), [11, 9, 5, 2]);
        // The index of a use is above the stream, and replaced.
        assert_eq!(key.with_use(0), key);
        assert_eq!(key.with_use(1).stream, 0x0001_0002);
        assert_eq!(key.with_use(1).with_use(2).stream, 0x0002_0002);
        assert_eq!(key.with_use(1).on_stream(Stream::INIT).stream, Stream::INIT);
    }
}
