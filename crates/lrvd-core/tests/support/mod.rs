//! Comparison.

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
