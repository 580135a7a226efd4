//! What every request needs, and the answers of a reply.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tokio::sync::oneshot::error::RecvError;

use super::access::Access;
use super::answer::ModelAnswer;
use super::metrics::Metrics;
use super::model::{Limits, Model};
use super::models::{Models, Served};
use super::problem::{Code, Problem};
use super::queue::{Fault, Queue, Reply};
use crate::printer::Printer;

pub(super) struct App {
    pub(super) models: Models,
    pub(super) limits: Limits,
    pub(super) access: Access,
    /// Texts and typed questions for classifiers.
    pub(super) queue: Queue,
    /// Prompts for language models, which take long: they are answered beside the others.
    pub(super) prompts: Queue,
    pub(super) metrics: Metrics,
    /// Set when the server is to end.
    pub(super) stop: Arc<AtomicBool>,
    pub(super) printer: Printer,
}

impl App {
    /// Where requests to `model` wait.
    pub(super) fn queue(&self, model: &Served) -> &Queue {
        match model.model {
            Model::Classifier { .. } => &self.queue,
            Model::Language { .. } => &self.prompts,
        }
    }

    /// Counts the answers to a request that came at `begun`.
    pub(super) fn count(&self, answers: &[ModelAnswer], begun: Instant) {
        self.metrics.seconds.observe(begun.elapsed().as_secs_f64());
        self.metrics.texts.inc_by(answers.iter().map(ModelAnswer::texts).sum::<usize>() as u64);
        self.metrics
            .withheld
            .inc_by(answers.iter().map(ModelAnswer::withheld).sum::<usize>() as u64);
    }
}

/// The answers of a reply to the texts of `fields`.
pub(super) fn answered(
    reply: Result<Reply, RecvError>,
    mut fields: Vec<String>,
) -> Result<Vec<ModelAnswer>, Problem> {
    match reply {
        Ok(Ok(answers)) => Ok(answers),
        Ok(Err((index, Fault::Text(reason)))) => {
            let field = fields.swap_remove(index);
            let message = format!("the model cannot read this text: {reason}");
            Err(Problem::at(Code::Unprocessable, field, message))
        }
        // Or the worker has ended, which it says itself.
        Ok(Err((_, Fault::Model))) | Err(_) => Err(Problem::internal()),
    }
}
