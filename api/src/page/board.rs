//! What everybody sees of the queue, looked up once for all who look: neither the database nor the rendering notices how many
//! browsers follow the page.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::stream;
use jobs::queue::{self, Queue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::html;
use crate::error::ApiError;

/// How old a look may be that answers for another, and the pause between two of those that the followers share.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How long the database may take for one.
const PATIENCE: Duration = Duration::from_secs(2);
/// A proxy closes a stream on which nothing is sent for long.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Of the connections, the part that followers may hold: clients come first.
const CONNECTIONS_PER_VIEWER: usize = 4;
/// More than this is no audience.
const MAX_VIEWERS: usize = 256;

/// The queue as it was seen last.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// What was seen.
    pub board: Arc<queue::Board>,
    /// When.
    pub at: DateTime<Utc>,
    /// Whether the database did not answer since.
    pub is_late: bool,
}

/// The one place that looks.
#[derive(Debug)]
pub struct Board {
    shared: Arc<Shared>,
    watching: Mutex<Option<JoinHandle<()>>>,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    last: tokio::sync::Mutex<Option<(Option<Look>, Instant)>>,
    /// The newest event, as it is sent to everybody; empty before the first.
    events: watch::Sender<Bytes>,
    closing: watch::Sender<bool>,
}

impl Board {
    /// Nobody looks yet.
    #[must_use]
    pub fn new(queue: Queue, max_connections: usize) -> Self {
        let shared = Shared {
            queue,
            last: tokio::sync::Mutex::default(),
            events: watch::Sender::default(),
            closing: watch::Sender::default(),
        };
        let places = (max_connections / CONNECTIONS_PER_VIEWER).clamp(1, MAX_VIEWERS);
        Self { shared: Arc::new(shared), watching: Mutex::default(), places: Arc::new(Semaphore::new(places)) }
    }

    /// The queue as it is, or as it was seen last; `None` where the database has not answered yet.
    pub async fn look(&self) -> Option<Look> {
        self.shared.look().await
    }

    /// Follows the queue: the body of a stream of events. The first comes at once, further ones when something has changed.
    pub fn follow(&self) -> Result<Body, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| ApiError::TooManyViewers)?;
        self.watch();
        let mut events = self.shared.events.subscribe();
        // What is there already is new to this one.
        events.mark_changed();
        let viewer = Viewer { events, closing: self.shared.closing.subscribe(), _place: place };
        Ok(Body::from_stream(stream::unfold(viewer, Viewer::next)))
    }

    /// Ends all streams, since the service stops: browsers come back to the one that follows.
    pub fn close(&self) {
        self.shared.closing.send_replace(true);
    }

    fn watch(&self) {
        // A panic while the lock was held leaves it whole.
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if watching.as_ref().is_none_or(JoinHandle::is_finished) {
            *watching = Some(tokio::spawn(watch_queue(Arc::clone(&self.shared))));
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let watching = self.watching.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = watching.take() {
            task.abort();
        }
    }
}

impl Shared {
    /// The lock is held while the database is asked, so that the others wait for the answer.
    async fn look(&self) -> Option<Look> {
        let mut last = self.last.lock().await;
        if let Some((look, since)) = &*last
            && since.elapsed() < MAX_AGE
        {
            return look.clone();
        }
        let before = last.take().and_then(|(look, _)| look);
        let look = match timeout(PATIENCE, self.queue.board()).await {
            Ok(Ok(board)) => Some(Look { board: Arc::new(board), at: Utc::now(), is_late: false }),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the queue cannot be shown as it is now");
                before.map(|look| Look { is_late: true, ..look })
            }
            Err(_) => before.map(|look| Look { is_late: true, ..look }),
        };
        // From the end, so that who has waited through an outage is not sent to wait once more.
        *last = Some((look.clone(), Instant::now()));
        look
    }
}

/// Looks for all who follow, while somebody does.
async fn watch_queue(shared: Arc<Shared>) {
    let mut told: Option<Look> = None;
    let mut pause = interval(MAX_AGE);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pause.tick().await;
        if shared.events.receiver_count() == 0 {
            continue;
        }
        let Some(look) = shared.look().await else { continue };
        let is_news = told.as_ref().is_none_or(|told| (&told.board, told.is_late) != (&look.board, look.is_late));
        if is_news {
            shared.events.send_replace(event(&html::board(&look).into_string()));
            told = Some(look);
        }
    }
}

/// A string of JSON has no line break, which would end the event.
fn event(html: &str) -> Bytes {
    Bytes::from(format!("event: queue\ndata: {}\n\n", serde_json::Value::from(html)))
}

/// One browser that follows.
struct Viewer {
    events: watch::Receiver<Bytes>,
    closing: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

impl Viewer {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let bytes = tokio::select! {
            _ = self.closing.wait_for(|closing| *closing) => return None,
            changed = self.events.changed() => {
                changed.ok()?;
                let event = self.events.borrow_and_update().clone();
                // Before the first look: the head of the answer goes out, and the browser knows that it is connected.
                if event.is_empty() { Bytes::from_static(b":\n\n") } else { event }
            }
            () = sleep(HEARTBEAT) => Bytes::from_static(b":\n\n"),
        };
        Some((Ok(bytes), self))
    }
}
