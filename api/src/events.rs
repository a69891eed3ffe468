//! `GET /jobs/{id}/events`: what happens to a job, as it happens, by server-sent events.
//!
//! An event of the job's history has an id, and a client that was cut off goes on after the last one it has seen. Its place in
//! the queue and the estimates are told without an id: they are only ever worth as much as the newest of them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use jobs::ids::{JobId, Owner};
use jobs::queue::JobEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::app::App;
use crate::auth::Caller;
use crate::changes::Change;
use crate::error::ApiError;
use crate::forecasts::{self, Times};
use crate::job::timestamp;
use crate::retry::patiently;

/// The field in which a client that comes back says what it has seen.
const LAST_EVENT_ID: &str = "last-event-id";
/// Something is said at least this often, so that neither end takes the connection for a dead one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long the database may take for the next events; in an outage it is asked again.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the database is asked again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Where to begin, for clients that cannot set a header.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Begin {
    after: Option<String>,
}

/// Streams a job's events from the one after the last that the client has seen; 204 when there will be no more.
pub async fn stream(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    path: Result<Path<String>, PathRejection>,
    begin: Result<Query<Begin>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = path.map_err(|_| ApiError::NoSuchJob)?;
    let job: JobId = id.parse().map_err(|_| ApiError::NoSuchJob)?;
    let unusable = || ApiError::Unusable("Last-Event-ID must be the id of an event that this job had.".to_owned());
    let Query(begin) = begin.map_err(|_| unusable())?;
    let seen = match headers.get(LAST_EVENT_ID) {
        Some(id) => Some(id.to_str().map_err(|_| unusable())?.to_owned()),
        None => begin.after,
    };
    let after = seen.filter(|id| !id.is_empty()).map_or(Ok(0), |id| id.parse().map_err(|_| unusable()))?;

    // Before the first look: what comes after it is noticed.
    let (changes, moves) = (app.changes.watch(job), app.changes.watch_queue());
    let asked = patiently(app.database_patience, || app.queue.events_after(job, &caller.owner, after));
    let (events, is_over) = asked.await?.ok_or(ApiError::NoSuchJob)?;
    caller.must_not_be_refused(&app).await?;
    if is_over && events.is_empty() {
        // By this a client of the standard knows that it need not come back.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let place = app.waiters.take(caller.owner, Duration::ZERO).await.map_err(ApiError::too_many_waiters)?;
    let mut feed = Feed {
        app: Arc::clone(&app),
        job,
        owner: caller.owner,
        after,
        is_over,
        waits: false,
        told: VecDeque::new(),
        standing: None,
        next_look: Instant::now(),
        changes,
        moves,
    };
    feed.take(events);
    let events = stream::unfold((feed, place), async |(mut feed, place)| {
        let event = feed.next().await?;
        Some((Ok::<_, Infallible>(event), (feed, place)))
    });
    Ok(Sse::new(events).into_response())
}

/// What is told of a job to one client.
struct Feed {
    app: Arc<App>,
    job: JobId,
    owner: Owner,
    /// The last event of the history that was told.
    after: i64,
    /// Whether everything is read that there will be.
    is_over: bool,
    /// Whether the job waits in the queue, as far as it is told.
    waits: bool,
    /// Read and not sent yet.
    told: VecDeque<Event>,
    /// What was said last of the job's place, as text.
    standing: Option<String>,
    /// When its place is looked at again, at the earliest.
    next_look: Instant,
    changes: watch::Receiver<Change>,
    moves: watch::Receiver<u64>,
}

/// Where a job stands.
#[derive(Debug, Serialize)]
struct Standing {
    queue_position: Option<i64>,
    #[serde(flatten)]
    times: Times,
}

impl Feed {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            if Instant::now() >= self.next_look {
                self.look_at_standing().await;
                if !self.told.is_empty() {
                    continue;
                }
            }
            let app = Arc::clone(&self.app);
            tokio::select! {
                () = app.changes.closed() => return None,
                // The sender lives as long as somebody watches.
                _ = self.changes.changed() => self.read().await,
                () = moved(&mut self.moves, self.next_look), if self.waits => {}
                () = sleep(KEEP_ALIVE) => {
                    self.read().await;
                    self.told.push_back(Event::default().comment(""));
                }
            }
        }
    }

    /// Reads on in the history.
    async fn read(&mut self) {
        let queue = self.app.queue.clone();
        match timeout(READ_TIMEOUT, queue.events_after(self.job, &self.owner, self.after)).await {
            Ok(Ok(Some((events, is_over)))) => {
                // As many as are read at once: there may be more, and nobody wakes us for those.
                let may_have_more =
                    !is_over && events.len() >= usize::try_from(jobs::queue::EVENTS_AT_ONCE).unwrap_or(0);
                self.is_over = is_over;
                self.take(events);
                if may_have_more {
                    self.changes.mark_changed();
                }
            }
            // It was pruned meanwhile.
            Ok(Ok(None)) => self.is_over = true,
            Ok(Err(_)) | Err(_) => {
                sleep(READ_AGAIN).await;
                self.changes.mark_changed();
            }
        }
    }

    fn take(&mut self, events: Vec<JobEvent>) {
        for event in events {
            self.after = event.id;
            if event.kind == "job" {
                self.waits = event.data.get("status").and_then(Value::as_str) == Some("queued");
                // The estimates are others now.
                self.next_look = Instant::now();
            }
            let mut data = serde_json::Map::from_iter([("at".to_owned(), Value::from(timestamp(event.at)))]);
            data.extend(event.data);
            let told = Event::default().id(event.id.to_string()).event(event.kind);
            self.told.extend(told.json_data(data));
        }
    }

    /// Tells where the job stands, where that has changed.
    async fn look_at_standing(&mut self) {
        self.next_look = Instant::now() + forecasts::FRESH;
        let Some(standing) = self.app.forecasts.of(self.job).await else { return };
        let standing = Standing { queue_position: standing.queue_position, times: standing.into() };
        let Ok(text) = serde_json::to_string(&standing) else { return };
        if self.standing.as_ref() != Some(&text) {
            self.told.push_back(Event::default().event("standing").data(text.as_str()));
            self.standing = Some(text);
        }
    }
}

/// Resolves when the queue has moved, and not before that time.
async fn moved(moves: &mut watch::Receiver<u64>, at: Instant) {
    // The sender lives as long as somebody watches.
    let _ = moves.changed().await;
    sleep_until(at).await;
}
