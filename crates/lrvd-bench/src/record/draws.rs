//! Repeatable numbers for the made-up results of the tests.

/// A small congruential generator, so that the sample needs no crate and never changes.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// Uniform in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as f64) / f64::from(1_u32 << 31)
    }

    /// Triangular around a centre, within one width.
    pub(crate) fn around(&mut self, centre: f64, width: f64) -> f64 {
        centre + width * (self.unit() + self.unit() - 1.0)
    }
}
