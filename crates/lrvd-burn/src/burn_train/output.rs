//! What one step hands to burn-train's metrics.

use burn::tensor::{ExecutionError, Tensor};
use burn::train::ItemLazy;
use burn::train::metric::{Adaptor, LossInput};

use super::quantities::{ClassesInput, ExamplesInput, KlInput, NllInput, RankInput};
use crate::train::Targets;

/// Outcome of one training or validation step.
#[derive(Clone, Debug)]
pub struct StepOutput {
    /// The objective, `[1]`.
    pub loss: Tensor<1>,
    /// Mean negative log-likelihood, nats, `[1]`.
    pub nll: Tensor<1>,
    /// `Σ KL(q ‖ p)`, nats, `[1]`; `None` without a posterior.
    pub kl: Option<Tensor<1>>,
    /// Sum of ranks over the adapters.
    pub total_rank: usize,
    /// `[rows, classes]`, scores `[rows, 1]`, or those of tokens `[answers, vocabulary]`.
    pub logits: Tensor<2>,
    /// What was asked for.
    pub targets: Targets,
}

impl ItemLazy for StepOutput {
    fn sync(self) -> Result<Self, ExecutionError> {
        self.loss.device().flush()?;
        Ok(Self {
            loss: self.loss.without_autodiff(),
            nll: self.nll.without_autodiff(),
            kl: self.kl.map(Tensor::without_autodiff),
            logits: self.logits.without_autodiff(),
            ..self
        })
    }
}

impl Adaptor<LossInput> for StepOutput {
    fn adapt(&self) -> LossInput {
        LossInput::new(self.loss.clone())
    }
}

impl Adaptor<NllInput> for StepOutput {
    fn adapt(&self) -> NllInput {
        NllInput { nll: self.nll.clone(), examples: self.targets.answers() }
    }
}

impl Adaptor<KlInput> for StepOutput {
    fn adapt(&self) -> KlInput {
        KlInput { kl: self.kl.clone() }
    }
}

impl Adaptor<RankInput> for StepOutput {
    fn adapt(&self) -> RankInput {
        RankInput { total_rank: self.total_rank }
    }
}

impl Adaptor<ClassesInput> for StepOutput {
    fn adapt(&self) -> ClassesInput {
        let labels = match &self.targets {
            Targets::Classes(one_hot) => Some(one_hot.clone()),
            Targets::Scores(_) | Targets::Tokens(_) => None,
        };
        ClassesInput { logits: self.logits.clone(), labels }
    }
}

impl Adaptor<ExamplesInput> for StepOutput {
    fn adapt(&self) -> ExamplesInput {
        ExamplesInput { examples: self.targets.rows() }
    }
}
