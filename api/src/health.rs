//! `GET /health`: what this service is and can do, for clients, load balancers and people.
//!
//! It answers 200 even when the database is away, with `"status": "degraded"`: a client's pre-check needs the
//! capabilities, and polls wait for the database anyway.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jobs::capture::options::REQUEST_FIELDS;
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
    // A database that is there but not migrated yet does not count as ready.
    let reachable = matches!(tokio::time::timeout(DATABASE_TIMEOUT, app.queue.missing_migrations()).await, Ok(Ok(0)));
    let revision = app.revision().await;
    Json(Health {
        status: if reachable { "ok" } else { "degraded" },
        version: env!("CARGO_PKG_VERSION"),
        capabilities: Capabilities { request_capture_options: REQUEST_FIELDS },
        problems: Problems { revision: revision.commit, dirty: revision.dirty },
        database: if reachable { "ok" } else { "unavailable" },
    })
}
