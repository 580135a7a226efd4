//! Start and stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lrvd_bench::BackboneError;
use lrvd_bench::classify::{ClassifyError, Input, SavedClassifier};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::card::ModelCard;
use super::metrics::Metrics;
use super::queue::{Blame, Fault, Key, Queue};
use super::routes::{App, Limits, router};
use super::worker::work;
use crate::printer::Printer;

/// How often the wish to stop is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// What requests get to leave with, beyond their own time.
const GRACE: Duration = Duration::from_secs(1);

/// A server cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot listen at `{address}`: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("the server stopped: {0}")]
    Io(#[from] std::io::Error),
    #[error("the model does not answer: {0}")]
    Model(#[from] ClassifyError),
    #[error("{draws} draws are more than a request may ask for; raise `--max-draws`, {most}")]
    Draws { draws: usize, most: usize },
    #[error(
        "a request may have {texts} texts, and {queue} may wait; raise `--queue` or lower `--max-texts`"
    )]
    Queue { texts: usize, queue: usize },
}

/// A socket that listens; nothing is accepted yet.
pub(crate) struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

impl Server {
    /// Listens at `address`.
    ///
    /// # Errors
    ///
    /// [`ServeError::Listen`] if that is not possible, [`ServeError::Queue`] for limits that exclude each other.
    pub(crate) fn open(address: SocketAddr, limits: Limits) -> Result<Self, ServeError> {
        if limits.queue < limits.max_texts {
            return Err(ServeError::Queue { texts: limits.max_texts, queue: limits.queue });
        }
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let listen = |source| ServeError::Listen { address, source };
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Self { runtime, listener, address, limits })
    }

    /// The address, with its port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is set, then what was accepted. `draws` and `seed` are for requests that name none, `limit` is
    /// the entropy above which answers are withheld, in place of the classifier's own. `started` is called once requests
    /// are taken.
    ///
    /// # Errors
    ///
    /// [`ServeError::Draws`] for more draws than the limits allow, [`ServeError::Model`] if the model does not answer a
    /// first text, [`ServeError::Io`] if the socket fails.
    pub(crate) fn run<E: From<ServeError>>(
        self,
        mut classifier: SavedClassifier,
        key: (usize, u64),
        limit: Option<f64>,
        stop: Arc<AtomicBool>,
        printer: Printer,
        started: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { runtime, listener, limits, .. } = self;
        let (draws, seed) = key;
        if draws > limits.max_draws {
            return Err(ServeError::Draws { draws, most: limits.max_draws }.into());
        }
        // One call is one pass.
        classifier.info.batch_size = limits.batch_size;
        let texts = [limits.max_texts, limits.max_bytes];
        let card = ModelCard::new(&classifier, draws, seed, limit, limits.max_draws, texts);
        // What cannot answer says so now.
        let pair = (card.pairs == Some(true)).then(|| "second".to_owned());
        let first = Input { text: "first".to_owned(), pair, choices: Vec::new() };
        classifier.predict(&[first], draws, seed, 0).map_err(ServeError::Model)?;
        started()?;

        let (queue, metrics) = (Queue::new(limits.queue), Metrics::default());
        let app = Arc::new(App { card, limits, queue, metrics, stop, printer });
        let answer = |inputs: &[Input], key: Key| {
            classifier
                .predict(inputs, key.draws, key.seed, 0)
                .map_err(|error| fault(&error, printer))
        };
        let ended = std::thread::scope(|scope| {
            let http = scope.spawn(|| {
                let ended = runtime.block_on(accept(listener, &app));
                app.queue.close();
                ended
            });
            let is_shared = |key: Key| classifier.is_batch_free(key.draws);
            work(&app.queue, &app.metrics, limits.batch_size, is_shared, answer);
            http.join()
        });
        let panicked = || std::io::Error::other("it panicked");
        let ended = ended.unwrap_or_else(|_| Err(panicked())).map_err(ServeError::Io);
        Ok(ended?)
    }
}

/// Accepts until the stop, then until all is answered or has had its time.
async fn accept(listener: TcpListener, app: &Arc<App>) -> std::io::Result<()> {
    let stopped = |stop: Arc<AtomicBool>| async move {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK).await;
        }
    };
    let server = axum::serve(listener, router(Arc::clone(app)))
        .with_graceful_shutdown(stopped(Arc::clone(&app.stop)));
    let server = tokio::spawn(server.into_future());
    stopped(Arc::clone(&app.stop)).await;
    match tokio::time::timeout(app.limits.timeout + GRACE, server).await {
        Ok(ended) => ended.unwrap_or_else(|error| Err(std::io::Error::other(error))),
        // Whoever is still there has not sent its request.
        Err(_) => Ok(()),
    }
}

/// What a request is told; what is not the text's fault is said here.
fn fault(error: &ClassifyError, printer: Printer) -> Fault {
    let is_text = matches!(
        error,
        ClassifyError::Backbone(BackboneError::Tokenizer(_) | BackboneError::Wording(_))
            | ClassifyError::Pairs { .. }
    );
    if !is_text {
        printer.error(error);
    }
    Fault { blame: if is_text { Blame::Text } else { Blame::Model }, message: error.to_string() }
}
