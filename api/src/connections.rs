//! The connections that are open, at most so many.
//!
//! When there are as many as may be, the one that idles longest is closed for the new one: somebody who opens connections and
//! says nothing on them, or says it slowly, takes nobody else's place for longer than that. One with a request in progress is
//! never closed for another; every part of a request has its own limit. Addresses are not counted: behind a proxy all clients
//! have one.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

/// The state of a connection that has a request in progress.
const IN_PROGRESS: u64 = u64::MAX;

/// The connections.
#[derive(Debug)]
pub struct Connections {
    max: usize,
    /// Grows with every change of any connection, so that states compare by their age.
    clock: AtomicU64,
    open: Mutex<HashMap<u64, Arc<State>>>,
}

#[derive(Debug)]
struct State {
    /// When it began to idle, or [`IN_PROGRESS`].
    idle_since: AtomicU64,
    must_close: Notify,
}

impl Connections {
    /// None yet, and at most so many.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, clock: AtomicU64::new(0), open: Mutex::default() })
    }

    /// Takes a connection in; `None` when there are as many as may be and each has a request in progress.
    #[must_use]
    pub fn admit(self: &Arc<Self>) -> Option<Connection> {
        let now = self.tick();
        let mut open = self.entries();
        if open.len() >= self.max {
            let idle = open.iter().map(|(&id, state)| (state.idle_since.load(Ordering::Acquire), id)).min();
            let (_, id) = idle.filter(|&(idle_since, _)| idle_since != IN_PROGRESS)?;
            if let Some(state) = open.remove(&id) {
                state.must_close.notify_one();
            }
        }
        let state = Arc::new(State { idle_since: AtomicU64::new(now), must_close: Notify::new() });
        open.insert(now, Arc::clone(&state));
        Some(Connection { id: now, state, all: Arc::clone(self) })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// A panic while the lock was held leaves the map whole.
    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Arc<State>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place among the others, until it is dropped.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    state: Arc<State>,
    all: Arc<Connections>,
}

impl Connection {
    /// Marks that a request is in progress, until the mark is dropped. HTTP/1 has one at a time.
    #[must_use]
    pub fn begin(&self) -> InProgress {
        self.state.idle_since.store(IN_PROGRESS, Ordering::Release);
        InProgress { state: Arc::clone(&self.state), all: Arc::clone(&self.all) }
    }

    /// Resolves when it must make room for another.
    pub async fn must_close(&self) {
        self.state.must_close.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.entries().remove(&self.id);
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct InProgress {
    state: Arc<State>,
    all: Arc<Connections>,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.state.idle_since.store(self.all.tick(), Ordering::Release);
    }
}

/// A response's body; with its end the request is no longer in progress.
#[derive(Debug)]
pub struct LastPart {
    /// What is sent.
    pub body: Body,
    /// The mark that goes with it.
    pub request: InProgress,
}

impl hyper::body::Body for LastPart {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_closed(connection: &Connection) -> bool {
        connection.must_close().now_or_never().is_some()
    }

    #[test]
    fn the_one_that_idles_longest_makes_room_and_none_with_a_request_in_progress_does() {
        let all = Connections::new(3);
        let [first, second, third] = [(); 3].map(|()| all.admit().unwrap());
        // The first is used again, so the second idles longest; the third has a request.
        drop(first.begin());
        let request = third.begin();
        let fourth = all.admit().unwrap();
        assert!(is_closed(&second) && !is_closed(&first) && !is_closed(&third));
        let fifth = all.admit().unwrap();
        assert!(is_closed(&first) && !is_closed(&fourth));

        let more = [fourth.begin(), fifth.begin()];
        assert!(all.admit().is_none(), "all three have a request in progress");
        drop((request, more));
        let sixth = all.admit().unwrap();
        assert!(is_closed(&third));
        drop((first, second, third, fourth, fifth, sixth));
        assert!(all.entries().is_empty());
    }
}
