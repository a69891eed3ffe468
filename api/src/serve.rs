//! Takes connections until it is told to stop, then lets the requests in progress end.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use jobs::queue::Queue;
use jobs::telemetry::QueueState;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// How long a client may take to send a request's headers, and a kept connection may idle between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause after a connection could not be taken: too many open files do not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Pause between two tries to bring the schema up to date.
const MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// How often the queue's gauges are brought up to date, and how long the database may take for it.
const GAUGES_PAUSE: Duration = Duration::from_secs(5);
const GAUGES_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until `stop` resolves; requests in progress then have `stop_timeout` to end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>, stop_timeout: Duration) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connections = GracefulShutdown::new();
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
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection(TokioIo::new(without_delay(stream)), service).into_owned();
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection broke off");
            }
        });
    }
    drop(listener);
    tracing::info!(requests = connections.count(), "stopping: requests in progress may end");
    if timeout(stop_timeout, connections.shutdown()).await.is_err() {
        tracing::warn!(stop_timeout_secs = stop_timeout.as_secs(), "requests were cut off by the stop");
    }
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
