//! Reference reading, comparison, random numbers and difference quotients shared by these tests.

use std::path::Path;

use serde_json::Value;

/// The file that `reference.py` wrote.
pub(crate) fn reference() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/baselines/reference.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

pub(crate) fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// Both sides compute in float64; the largest entry sets the scale of rounding.
pub(crate) const REFERENCE: f64 = 1e-12;

/// Asserts equality relative to the largest wanted entry.
#[track_caller]
pub(crate) fn assert_close(what: &str, found: &[f64], wanted: &[f64], relative: f64) {
    assert_eq!(found.len(), wanted.len(), "length of {what}");
    let scale = wanted.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let allowed = if scale > 0.0 { relative * scale } else { 1e-300 };
    for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
        assert!((f - w).abs() <= allowed, "{what}[{i}]: {f}, wanted {w} (allowed {allowed:e})");
    }
}

/// [`assert_close`] against an entry of the reference, a number or a list of them.
#[track_caller]
pub(crate) fn assert_reference(what: &str, found: &[f64], wanted: &Value) {
    let wanted = if wanted.is_number() { vec![number(wanted)] } else { numbers(wanted) };
    assert_close(what, found, &wanted, REFERENCE);
}

/// A small generator of its own (xorshift64*, Box–Muller), so that no test depends on the crate's.
pub(crate) struct TestRng(u64);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn uniform(&mut self) -> f64 {
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

    pub(crate) fn signs(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| if self.uniform() < 0.5 { -1.0 } else { 1.0 }).collect()
    }
}

/// Whether a written gradient agrees with the central difference quotient, step `ε^(1/3)·max(1, |x|)`,
/// relative to its largest entry.
pub(crate) fn gradient_error(written: &[f64], at: &[f64], f: impl Fn(&[f64]) -> f64) -> f64 {
    assert_eq!(written.len(), at.len());
    let numeric: Vec<f64> = (0..at.len())
        .map(|i| {
            let h = f64::EPSILON.cbrt() * at[i].abs().max(1.0);
            let mut moved = at.to_vec();
            moved[i] = at[i] + h;
            let (up, above) = (f(&moved), moved[i]);
            moved[i] = at[i] - h;
            let (down, below) = (f(&moved), moved[i]);
            (up - down) / (above - below)
        })
        .collect();
    let scale = numeric.iter().fold(1e-3_f64, |m, v| m.max(v.abs()));
    written.iter().zip(&numeric).map(|(w, n)| (w - n).abs() / scale).fold(0.0, f64::max)
}

/// Splits a flat slice into pieces of the given lengths.
pub(crate) fn split<'a, const N: usize>(flat: &'a [f64], lengths: [usize; N]) -> [&'a [f64]; N] {
    let mut rest = flat;
    lengths.map(|length| {
        let (piece, after): (&'a [f64], _) = rest.split_at(length);
        rest = after;
        piece
    })
}

/// `⟨x, y⟩`.
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}
