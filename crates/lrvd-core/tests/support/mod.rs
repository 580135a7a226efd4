//! Comparison and random numbers of more than one test program.

#![allow(dead_code, reason = "each program uses a part")]

/// Asserts equality relative to the largest expected entry.
#[track_caller]
pub(crate) fn assert_close(what: &str, found: &[f64], expected: &[f64], relative: f64) {
    assert_eq!(found.len(), expected.len(), "length of {what}");
    let scale = expected.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let allowed = if scale > 0.0 { relative * scale } else { 1e-300 };
    for (i, (f, w)) in found.iter().zip(expected).enumerate() {
        assert!((f - w).abs() <= allowed, "{what}[{i}]: {f}, expected {w} (allowed {allowed:e})");
    }
}

/// A small separate generator (xorshift64*, Box–Muller), so that no test depends on the crate's.
pub(crate) struct TestRng(u64);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((word >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    pub(crate) fn normals(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.normal()).collect()
    }
}
