//! Start and stop, and the connections between.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use lrvd_bench::{Error, Result, no_threads};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tracing::{debug, warn};

use super::access::Access;
use super::app::App;
use super::metrics::Metrics;
use super::model::{Limits, Model};
use super::models::{Load, Models, Served};
use super::queue::Queue;
use super::routes::router;
use crate::printer::Printer;

/// Interval at which a stop request is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// Time in which requests end after a stop, beyond their own.
const GRACE: Duration = Duration::from_secs(1);
/// Longest time that a connection may take to send the head of its next request, to start one, or to read a part of an
/// answer; `--timeout` if that is shorter.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time to the next attempt where the system has no connection to give.
const PAUSE: Duration = Duration::from_secs(1);

/// A socket that listens; nothing is accepted yet.
pub(crate) struct Server {
    runtime: Runtime,
    listener: TcpListener,
    pub(crate) access: Access,
    limits: Limits,
}

impl Server {
    /// Listens at `address`, as a server that is also called `names`, needs `key`, if there is one, and is asked by pages of
    /// the sites `origins`.
    pub(crate) fn open(
        address: SocketAddr,
        names: Vec<String>,
        key: Option<String>,
        origins: Vec<String>,
        limits: Limits,
    ) -> Result<Self> {
        if limits.queue < limits.max_texts {
            bail!(
                "a request may have {} texts, and {} may wait; raise `--queue` or lower `--max-texts`",
                limits.max_texts,
                limits.queue
            );
        }
        let runtime =
            Builder::new_current_thread().enable_io().enable_time().build().map_err(stopped)?;
        let listen = |error: io::Error| anyhow!("cannot listen at `{address}`: {error}");
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let access = Access { address, names, key, origins };
        Ok(Self { runtime, listener, access, limits })
    }

    /// Answers by the models, at least one, under their names until `stop` is set, then what was accepted. `load` loads those that
    /// are added; `started` is called once requests are taken.
    pub(crate) fn run(
        self,
        models: Vec<(Option<String>, Model)>,
        load: Load,
        stop: Arc<AtomicBool>,
        printer: Printer,
        started: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Self { runtime, listener, access, limits } = self;
        let serve = |(name, model): (Option<String>, Model)| {
            let served = Served::new(name, model, &limits)?;
            let first = [served.model.first()];
            // What cannot answer says so now.
            let answered = served.model.answer(&first, served.model.options(), &mut |_| true);
            let name = served.card.name();
            answered.map_err(|error| anyhow!("the model `{name}` does not answer: {error}"))?;
            Ok(served)
        };
        let models = models.into_iter().map(serve).collect::<Result<_>>()?;
        started()?;

        let models = Models::new(models, limits.max_adapters, load);
        let app = Arc::new(App {
            models,
            limits,
            access,
            queue: Queue::new(limits.queue),
            prompts: Queue::new(limits.queue),
            metrics: Metrics::default(),
            stop,
            printer,
        });
        let ended = thread::scope(|scope| {
            let prompts = thread::Builder::new().spawn_scoped(scope, || app.work(&app.prompts))?;
            let http = || {
                runtime.block_on(accept(listener, &app));
                app.queue.close();
                app.prompts.close();
                // An adapter that is still being loaded is not waited for.
                runtime.shutdown_background();
            };
            let http = thread::Builder::new().spawn_scoped(scope, http);
            let http = http.inspect_err(|_| app.prompts.close())?;
            app.work(&app.queue);
            Ok(http.join().and(prompts.join()))
        });
        let ended = ended.map_err(|error: io::Error| no_threads(1, error))?;
        ended.map_err(|_| stopped("it panicked"))
    }
}

fn stopped(reason: impl Display) -> Error {
    anyhow!("the server stopped: {reason}")
}

/// Accepts until the stop, then waits until all is answered or has had its time.
async fn accept(listener: TcpListener, app: &Arc<App>) {
    let Limits { timeout: limit, max_connections, .. } = app.limits;
    let patience = limit.min(PATIENCE);
    let mut http = http1::Builder::new();
    // The deadline counts while a connection is idle, too.
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    let service = TowerToHyperService::new(router(Arc::clone(app)));
    let places = Arc::new(Semaphore::new(max_connections));
    let open = GracefulShutdown::new();
    while !app.stop.load(Ordering::Relaxed) {
        // Beyond the limit connections wait with the system until one ends.
        let Ok(Ok(place)) = timeout(LOOK, Arc::clone(&places).acquire_owned()).await else {
            continue;
        };
        let Ok(accepted) = timeout(LOOK, listener.accept()).await else { continue };
        let stream = match accepted {
            Ok((stream, _)) => bounded(stream, patience),
            Err(error) if is_of_the_client(&error) => continue,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        let connection = open.watch(http.serve_connection(TokioIo::new(stream), service.clone()));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    // Connections that remain have not sent their request.
    let _ = timeout(limit + GRACE, open.shutdown()).await;
}

/// `stream`, which fails if its other end reads nothing of an answer for so long.
fn bounded(stream: TcpStream, patience: Duration) -> std::pin::Pin<Box<TimeoutStream<TcpStream>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(patience));
    Box::pin(stream)
}

/// True if the error is of one connection, and the next may be accepted at once.
fn is_of_the_client(error: &io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};

    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
