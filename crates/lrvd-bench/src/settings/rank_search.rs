//! The search for ranks by held-out rows.

use super::table::settings;

/// Share of `rows` training rows that is held out by default where a method needs some: a tenth, or as much as 5000 rows
/// are, since they are answered several times. They are drawn: a file may be in any order.
pub fn holdout_share(rows: usize) -> f64 {
    0.1_f64.min(5000.0 / rows.max(1) as f64)
}

settings! {
    /// The search for ranks of `kl_weight = "auto"`.
    ///
    /// ```text
    /// train    the whole model for `steps` steps at its mean, without divergence, as LoRA is trained
    /// rotate   every update to its singular directions
    /// cut      the fewest directions over all modules whose held-out loss is non-inferior to that of the whole model: the upper end of
    ///          the one-sided 95 % interval of the mean difference is at most `margin`
    /// refine   `refine · steps` further steps with the posterior, at `rate` times the learning rates; the means stay if they are
    ///          non-inferior to the whole model, too
    /// ```
    ///
    /// The held-out rows are `holdout` of the training rows, or a tenth and at most 5000. Fewer than 100 show nothing: all ranks stay.
    #[derive(Copy)]
    #[serde(default)]
    pub struct RankSearchSettings {
        /// The most that the held-out loss may rise by the cut, nats a row (squared error of numbers).
        margin: f64 = 0.01, in 0.0..=1e3;
        /// Steps of the refinement as a share of `steps`.
        refine: f64 = 0.1, in 0.0..=1.0;
        /// Peak learning rates of the refinement as a share of those of the whole model.
        rate: f64 = 0.1, in 0.0..=1e3;
        /// What the noise of a draw may cost, nats a row: the weight of the divergence in the refinement follows from it.
        noise: f64 = 0.01, in 0.0..=1e6;
        /// What the noise starts the refinement with: `ln` of its energy over that of the mean, the same for every rank.
        log_alpha: f64 = -4.0, in -20.0..=0.0;
    }
}
