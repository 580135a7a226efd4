//! What every request needs, and the answers of a reply.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tokio::sync::oneshot::error::RecvError;

use super::access::Access;
use super::answer::Answer;
use super::metrics::Metrics;
use super::model::Limits;
use super::models::Models;
use super::problem::{Code, Problem};
use super::queue::{Fault, Queue, Reply};
use crate::printer::Printer;

pub(super) struct App {
    pub(super) models: Models,
    pub(super) limits: Limits,
    pub(super) access: Access,
    pub(super) queue: Queue,
    pub(super) metrics: Metrics,
    /// Set when the server is to end.
    pub(super) stop: Arc<AtomicBool>,
    pub(super) printer: Printer,
}

impl App {
    /// Counts the answers to a request that came at `begun`.
    pub(super) fn count(&self, answers: &[Answer], begun: Instant) {
        self.metrics.seconds.observe(begun.elapsed().as_secs_f64());
        self.metrics.texts.inc_by(answers.iter().map(Answer::texts).sum::<usize>() as u64);
        self.metrics.withheld.inc_by(answers.iter().map(Answer::withheld).sum::<usize>() as u64);
    }
}

/// The answers of a reply to the texts of `fields`.
pub(super) fn answered(
    reply: Result<Reply, RecvError>,
    mut fields: Vec<String>,
) -> Result<Vec<Answer>, Problem> {
    match reply {
        Ok(Ok(answers)) => Ok(answers),
        Ok(Err((index, Fault::Text(reason)))) => {
            let field = fields.swap_remove(index);
            let message = match &*field {
                "questions" => format!("the model does not answer this: {reason}"),
                _ => format!("the model cannot read this text: {reason}"),
            };
            Err(Problem::at(Code::UnreadableText, field, message))
        }
        // Or the worker has ended, which it says itself.
        Ok(Err((_, Fault::Model))) | Err(_) => Err(Problem::internal()),
    }
}
