//! Noise streams of adapters, beyond those that `lrvd_core` names.

/// Numbers of further streams, the low 16 bits of
/// [`NoiseKey::stream`](lrvd_core::noise::NoiseKey::stream).
///
/// They start far above those of [`Stream`](lrvd_core::noise::Stream), so that both can grow. The use
/// index of [`NoiseKey::with_use`](lrvd_core::noise::NoiseKey::with_use) is 0 for tokens and 1 for
/// rows that all sequences share.
#[derive(Clone, Copy, Debug)]
pub struct AdapterStream;

impl AdapterStream {
    /// Flipout: signs of the input of A, `[tokens, d_input]`.
    pub const FLIP_A_INPUT: u32 = 64;
    /// Flipout: signs of the output of A, `[tokens, rank]`.
    pub const FLIP_A_OUTPUT: u32 = 65;
    /// Flipout: signs of the input of B, `[tokens, rank]`.
    pub const FLIP_B_INPUT: u32 = 66;
    /// Flipout: signs of the output of B, `[tokens, d_output]`.
    pub const FLIP_B_OUTPUT: u32 = 67;
    /// Normals of random rank scales, `[1 | sequences, rank]`.
    pub const SCALE: u32 = 68;
    /// Normals of a contextual rank matrix, `[1 | sequences, rank, rank]`.
    pub const CONTEXT: u32 = 69;
    /// The same with a matrix per token, `[n, tokens, rank, rank]`.
    pub const CONTEXT_TOKEN: u32 = 70;
}
