//! MC dropout: dropout that stays on.
//!
//! Objective: mean negative log-likelihood with dropout on the adapter's input. Prediction: the
//! probabilities of `k` passes with that dropout on, averaged; `k = 0` is without it. Dropout of the
//! backbone is on in training if the experiment says so, and never in prediction: it does not belong
//! to what was learnt. Parameters: `rank·(d_input + d_output)` per layer. Source: Gal and
//! Ghahramani 2016, arXiv:1506.02142.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Attach, Logits, Predict, RankPolicy, Regularise};
use lrvd_models::AutoClassifier;

use super::setup::adapter;
use super::{Inputs, PostHoc, RankRequest};
use crate::settings::ExperimentConfig;

#[derive(Clone, Debug)]
pub(super) struct McDropout {
    adapter: AdapterConfig,
}

impl McDropout {
    pub(super) fn new(config: &ExperimentConfig, request: RankRequest) -> Self {
        let dropout = config.methods.mcd.dropout;
        let kind = AdapterKind::Lora { b_bound: config.lora_b_bound };
        Self { adapter: AdapterConfig { dropout, ..adapter(config, kind, request) } }
    }
}

impl Attach<AutoClassifier> for McDropout {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }
}

impl Regularise<AutoClassifier> for McDropout {}
impl RankPolicy<AutoClassifier> for McDropout {}

impl Predict<AutoClassifier> for McDropout {
    fn predict(
        &self,
        model: &AutoClassifier,
        inputs: &Inputs<'_>,
        draws: usize,
    ) -> Result<Logits, lrvd_burn::Error> {
        inputs.predict_with(model, draws, |key| Pass::mean().with_adapter_dropout(key))
    }
}

impl PostHoc for McDropout {}
