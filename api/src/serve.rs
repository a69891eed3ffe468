//! Takes connections until it is told to stop, then lets the requests in progress end.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use jobs::queue::Queue;
use jobs::telemetry::QueueState;
use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::config::Config;
use crate::connections::{Connection, Connections, LastPart};
use crate::stall::Unstalled;

/// Longest head of a request, in bytes, and most fields in it; a proxy or two add some.
const MAX_HEAD_BYTES: usize = 32 << 10;
const MAX_FIELDS: usize = 100;
/// What is read ahead of one connection, in bytes.
const MAX_BUFFER_BYTES: usize = 2 * MAX_HEAD_BYTES;
/// Pause after a connection could not be taken: too many open files do not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Pause between two tries to bring the schema up to date.
const MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// How often the queue's gauges are brought up to date, and how long the database may take for it.
const GAUGES_PAUSE: Duration = Duration::from_secs(5);
const GAUGES_TIMEOUT: Duration = Duration::from_secs(2);

/// What connections are bound by.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many are open at a time.
    pub max_connections: usize,
    /// How long a client may take to send a request's head, to go on reading an answer, and to send its next request.
    pub idle_timeout: Duration,
    /// How long requests in progress may take after a stop.
    pub stop_timeout: Duration,
}

impl From<&Config> for Limits {
    fn from(config: &Config) -> Self {
        let Config { max_connections, idle_timeout, stop_timeout, .. } = *config;
        Self { max_connections, idle_timeout, stop_timeout }
    }
}

/// Serves until `stop` resolves, then lets the requests in progress end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>, limits: &Limits) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_headers(MAX_FIELDS)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES);
    let (connections, in_progress) = (Connections::new(limits.max_connections), GracefulShutdown::new());
    let mut stop = pin!(stop);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    accept_failed(&error).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        // Closed at once, without a word: a client tries a poll that had no answer again, and none that had a bad one.
        let Some(connection) = connections.admit() else {
            tracing::warn!(connections = limits.max_connections, "a connection was refused: all are in use");
            continue;
        };
        let connection = Arc::new(connection);
        let service = service(router.clone(), Arc::clone(&connection));
        let stream = TokioIo::new(Unstalled::new(without_delay(stream), limits.idle_timeout));
        let served = in_progress.watch(builder.serve_connection(stream, service));
        tokio::spawn(async move {
            tokio::select! {
                ended = served => if let Err(error) = ended {
                    tracing::debug!(%error, "connection broke off");
                },
                () = connection.must_close() => tracing::debug!("an idle connection made room for another"),
            }
        });
    }
    drop(listener);
    tracing::info!(requests = in_progress.count(), "stopping: requests in progress may end");
    if timeout(limits.stop_timeout, in_progress.shutdown()).await.is_err() {
        tracing::warn!(stop_timeout_secs = limits.stop_timeout.as_secs(), "requests were cut off by the stop");
    }
}

/// The router, on a connection that knows whether a request is in progress.
fn service(
    router: Router,
    connection: Arc<Connection>,
) -> impl Service<Request<Incoming>, Response = Response<LastPart>, Error = Infallible, Future: Send> + Send {
    let router = TowerToHyperService::new(router);
    service_fn(move |request| {
        let request_in_progress = connection.begin();
        let answer = router.call(request);
        async move { Ok(answer.await?.map(|body| LastPart { body, request: request_in_progress })) }
    })
}

/// A client that hangs up while it waits to be taken is no trouble of ours; anything else deserves a pause.
async fn accept_failed(error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::error!(%error, "no connection could be taken");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn without_delay(stream: TcpStream) -> TcpStream {
    // Only speed is at stake.
    let _ = stream.set_nodelay(true);
    stream
}

/// The socket that systemd listens on for this program, where it does: connections that come while the program is replaced wait
/// in it, and none is refused.
pub fn passed_socket() -> io::Result<Option<TcpListener>> {
    let Some(socket) = ListenFd::from_env().take_tcp_listener(0)? else { return Ok(None) };
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket).map(Some)
}

/// Resolves when the process is asked to stop, by SIGTERM or SIGINT.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Keeps what the gauges of the queue show.
pub async fn watch_queue(queue: Queue) {
    loop {
        let state = timeout(GAUGES_TIMEOUT, queue.state()).await;
        QueueState::show(state.ok().and_then(Result::ok));
        tokio::time::sleep(GAUGES_PAUSE).await;
    }
}

/// Brings the schema up to date, however long the database takes to come up.
pub async fn migrate(queue: Queue) {
    let mut failed = false;
    while let Err(error) = queue.migrate().await {
        // Once: the same line every second would bury the others.
        if !std::mem::replace(&mut failed, true) {
            tracing::warn!(%error, "the schema cannot be brought up to date yet; trying again until it can");
        }
        tokio::time::sleep(MIGRATION_PAUSE).await;
    }
    tracing::info!("the schema is up to date");
}
