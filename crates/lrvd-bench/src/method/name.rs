//! Methods by name, and the order that rank matching asks for.

use std::fmt;

use lrvd_core::adalora::matched_target_rank;
use serde::{Deserialize, Serialize};

use super::Tuning;
use super::adalora::AdaLora;
use super::bayes_lora::BayesLora;
use super::lora::Lora;
use crate::error::BenchError;
use crate::experiment::ExperimentConfig;
use crate::train::SequenceModel;

/// The methods of the first table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MethodName {
    /// LoRA at a uniform rank.
    #[serde(rename = "LoRA")]
    Lora,
    /// AdaLoRA.
    #[serde(rename = "AdaLoRA")]
    AdaLora,
    /// BayesLoRA.
    #[serde(rename = "BayesLoRA")]
    BayesLora,
}

/// The rank that a method is asked for, beyond its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankRequest {
    /// The initial rank of the settings.
    Initial,
    /// A uniform rank (LoRA) or an average target rank (AdaLoRA).
    Average(usize),
}

/// A method with its rank request, ready to run.
pub type Method<M> = Box<dyn Tuning<M>>;

impl MethodName {
    /// Every method, as the table orders them.
    pub const ALL: [Self; 3] = [Self::Lora, Self::AdaLora, Self::BayesLora];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lora => "LoRA",
            Self::AdaLora => "AdaLoRA",
            Self::BayesLora => "BayesLoRA",
        }
    }

    /// Reads a command-line spelling: letter case does not matter.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name().eq_ignore_ascii_case(name))
    }

    /// Whether the method's rank is matched to BayesLoRA's, so that it must run later.
    pub const fn is_matched(self) -> bool {
        matches!(self, Self::Lora | Self::AdaLora)
    }

    /// The rank request that matches a BayesLoRA run: the average of its final ranks over the
    /// modules, rounded half to even, and at least 1.
    pub fn matched_to(total_rank: usize, n_modules: usize) -> RankRequest {
        RankRequest::Average(matched_target_rank(total_rank, n_modules))
    }

    /// The method itself.
    ///
    /// # Errors
    ///
    /// [`BenchError`] for settings out of range.
    pub fn build<M: SequenceModel>(
        self,
        config: &ExperimentConfig,
        request: RankRequest,
    ) -> Result<Method<M>, BenchError> {
        let rank = match request {
            RankRequest::Initial => config.initial_rank,
            RankRequest::Average(rank) => rank,
        };
        Ok(match self {
            Self::Lora => Box::new(Lora::new(config, rank)),
            Self::AdaLora => Box::new(AdaLora::new(config, rank)?),
            Self::BayesLora => Box::new(BayesLora::new(config)?),
        })
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
