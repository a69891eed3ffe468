//! `GET /health`: what this service is and can do, for clients, load balancers and people.
//!
//! It answers 200 even when the database is away, with `"status": "degraded"`: a client's pre-check needs the
//! capabilities, and polls wait for the database anyway.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jobs::capture::options::REQUEST_FIELDS;
use jobs::queue::{Queue, WorkerCounts};
use serde::Serialize;

use crate::app::App;

/// How long the database may take to answer before it counts as away.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer.
#[derive(Debug, Serialize)]
pub struct Health {
    status: &'static str,
    version: &'static str,
    capabilities: Capabilities,
    problems: Problems,
    database: &'static str,
    /// Null while the database is away.
    workers: Option<Workers>,
    /// Whether an operator has stopped the taking of jobs; null while the database is away.
    paused: Option<bool>,
    /// What an operator should look at; null when all is well.
    detail: Option<&'static str>,
}

/// A monitor that is to wake somebody watches `ready`.
#[derive(Debug, Serialize)]
struct Workers {
    alive: i64,
    ready: i64,
    busy: i64,
}

#[derive(Debug, Serialize)]
struct Capabilities {
    request_capture_options: [&'static str; REQUEST_FIELDS.len()],
}

#[derive(Debug, Serialize)]
struct Problems {
    revision: Option<String>,
    dirty: Option<bool>,
}

/// Says how the service is.
pub async fn show(State(app): State<Arc<App>>) -> Json<Health> {
    let answer = tokio::time::timeout(DATABASE_TIMEOUT, ask(&app.queue)).await.ok().flatten();
    let (workers, paused) = answer.unzip();
    let reachable = workers.is_some();
    let revision = app.revision().await;
    Json(Health {
        status: if reachable { "ok" } else { "degraded" },
        version: env!("CARGO_PKG_VERSION"),
        capabilities: Capabilities { request_capture_options: REQUEST_FIELDS },
        problems: Problems { revision: revision.commit, dirty: revision.dirty },
        database: if reachable { "ok" } else { "unavailable" },
        detail: detail(workers, paused),
        paused,
        workers: workers.map(|WorkerCounts { alive, ready, busy }| Workers { alive, ready, busy }),
    })
}

/// `None` where the database does not tell. One that is there but not migrated yet does not count as ready.
async fn ask(queue: &Queue) -> Option<(WorkerCounts, bool)> {
    match queue.missing_migrations().await {
        Ok(0) => Some((queue.worker_counts().await.ok()?, queue.is_paused().await.ok()?)),
        _ => None,
    }
}

fn detail(workers: Option<WorkerCounts>, paused: Option<bool>) -> Option<&'static str> {
    match workers {
        None => Some("The database is away; polls wait for it."),
        _ if paused == Some(true) => {
            Some("The queue is paused: jobs are accepted and wait until an operator resumes it.")
        }
        Some(WorkerCounts { alive: 0, .. }) => Some("No worker is alive, so jobs wait: start ncu-worker run."),
        Some(WorkerCounts { ready: 0, .. }) => {
            Some("No worker takes jobs now, so they wait: ncu-worker doctor says why, on each worker's host.")
        }
        Some(_) => None,
    }
}
