//! Philox4x32-10: four random words from a counter and a key.

use super::NoiseKey;

/// Multipliers of the two halves of a round.
const MULTIPLIER: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// Weyl increments of the key: the golden ratio and `√3 − 1`, as 32-bit fractions.
const KEY_STEP: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// Blocks computed side by side: enough to keep the vector units busy, few enough to stay in the first cache
/// level. Of 4, 8, 16 and 32, sixteen was fastest on plain x86-64.
pub(super) const BATCH: usize = 16;
/// Words in a block.
pub(super) const LANES: usize = 4;

/// Four uniform words of one block: the bijection Philox4x32 with ten rounds.
///
/// ```text
/// round:  (c0, c1, c2, c3) ← (hi(M1·c2) ⊕ c1 ⊕ k0,  lo(M1·c2),  hi(M0·c0) ⊕ c3 ⊕ k1,  lo(M0·c0))
/// between rounds:  (k0, k1) ← (k0 + W0, k1 + W1)  mod 2^32
/// ```
///
/// Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011.
///
/// # Examples
///
/// ```
/// // First known-answer vector of the authors' library.
/// let block = lrvd_core::noise::philox([0; 4], [0; 2]);
/// assert_eq!(block, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
/// ```
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..ROUNDS {
        let p0 = u64::from(MULTIPLIER[0]) * u64::from(c0);
        let p1 = u64::from(MULTIPLIER[1]) * u64::from(c2);
        c0 = (p1 >> 32) as u32 ^ c1 ^ k0;
        c1 = p1 as u32;
        c2 = (p0 >> 32) as u32 ^ c3 ^ k1;
        c3 = p0 as u32;
        k0 = k0.wrapping_add(KEY_STEP[0]);
        k1 = k1.wrapping_add(KEY_STEP[1]);
    }
    [c0, c1, c2, c3]
}

/// [`BATCH`] consecutive blocks, one array per lane: the same rounds as [`philox`], laid out so that the
/// compiler turns each line into vector instructions. Block indices wrap at `2^32`.
///
/// Words are kept in 64-bit cells whose upper halves hold leftovers: the widening vector multiply reads only the
/// lower half of each cell, so that no shuffling is needed between rounds.
#[inline(always)]
pub(super) fn philox_batch(key: NoiseKey, first_block: u32) -> [[u32; BATCH]; LANES] {
    const LOW: u64 = u32::MAX as u64;
    let [mut k0, mut k1] = key.philox_key();
    let [_, module, step, stream] = key.philox_counter(first_block).map(u64::from);
    let mut c0 = [0u64; BATCH];
    for (i, c) in c0.iter_mut().enumerate() {
        *c = u64::from(first_block.wrapping_add(i as u32));
    }
    let mut c1 = [module; BATCH];
    let mut c2 = [step; BATCH];
    let mut c3 = [stream; BATCH];
    for _ in 0..ROUNDS {
        let (xor0, xor1) = (u64::from(k0), u64::from(k1));
        for i in 0..BATCH {
            let p0 = u64::from(MULTIPLIER[0]) * (c0[i] & LOW);
            let p1 = u64::from(MULTIPLIER[1]) * (c2[i] & LOW);
            c0[i] = (p1 >> 32) ^ c1[i] ^ xor0;
            c1[i] = p1;
            c2[i] = (p0 >> 32) ^ c3[i] ^ xor1;
            c3[i] = p0;
        }
        k0 = k0.wrapping_add(KEY_STEP[0]);
        k1 = k1.wrapping_add(KEY_STEP[1]);
    }
    let mut words = [[0; BATCH]; LANES];
    for (words, lane) in words.iter_mut().zip([c0, c1, c2, c3]) {
        for i in 0..BATCH {
            words[i] = lane[i] as u32;
        }
    }
    words
}

/// Fills `out` with the raw words of the blocks `first_block, first_block + 1, …` of `key`.
///
/// `out[i]` is lane `i mod 4` of block `first_block + i div 4` (mod `2^32`); the last block may be cut.
pub fn words(key: NoiseKey, first_block: u32, out: &mut [u32]) {
    for (batch, chunk) in out.chunks_mut(BATCH * LANES).enumerate() {
        let lanes = philox_batch(key, first_block.wrapping_add((batch * BATCH) as u32));
        for (i, word) in chunk.iter_mut().enumerate() {
            *word = lanes[i % LANES][i / LANES];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three published vectors `philox4x32 10` of the Random123 library's `kat_vectors`.
    #[test]
    fn known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        // The digits of pi.
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn runs_of_words_are_the_blocks_one_by_one_and_wrap() {
        let key = NoiseKey::new(0xfeed_beef_0000_0001).at_step(4).for_module(77).on_stream(3);
        for first in [0, 5, u32::MAX - 3] {
            let mut run = [0u32; 75];
            words(key, first, &mut run);
            for (i, &word) in run.iter().enumerate() {
                let counter = key.philox_counter(first.wrapping_add(i as u32 / 4));
                assert_eq!(word, philox(counter, key.philox_key())[i % 4], "word {i} from {first}");
            }
        }
    }
}
