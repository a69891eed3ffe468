//! Wakes those who wait for a change of a job: one connection listens for all of them, and nobody polls the database.
//!
//! It begins to listen when somebody first waits. A notification that was lost is noticed within [`CHECK`] by the number of the
//! newest event, and then everybody looks for themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobs::ids::JobId;
use jobs::queue::{Notice, Queue};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Time between two looks at whether a notification was lost.
const CHECK: Duration = Duration::from_secs(5);
/// Pause before the connection is made anew.
const AGAIN: Duration = Duration::from_secs(1);

/// What has changed of a job since somebody began to watch it. Only that it changes counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Grows with each event.
    pub events: u64,
    /// Grows with each event that is more than progress.
    pub states: u64,
}

/// The watched jobs.
#[derive(Debug)]
pub struct Changes {
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    watched: Mutex<HashMap<JobId, watch::Sender<Change>>>,
    /// Grows with each change of any job's state: the queue may have moved.
    queue_moves: watch::Sender<u64>,
    /// Number of the newest event that was heard of.
    heard: Mutex<i64>,
    closing: watch::Sender<bool>,
}

impl Changes {
    /// Nothing is watched yet.
    #[must_use]
    pub fn new(queue: Queue) -> Self {
        let shared = Shared {
            queue,
            watched: Mutex::default(),
            queue_moves: watch::Sender::new(0),
            heard: Mutex::new(0),
            closing: watch::Sender::new(false),
        };
        Self { shared: Arc::new(shared), listening: Mutex::default() }
    }

    /// Watches a job. What happens to it from here on is noticed; a caller reads its state after this.
    pub fn watch(&self, job: JobId) -> watch::Receiver<Change> {
        self.listen();
        let mut watched = lock(&self.shared.watched);
        // Nobody watches those any more.
        watched.retain(|_, sender| sender.receiver_count() > 0);
        watched.entry(job).or_default().subscribe()
    }

    /// Watches the queue as a whole.
    pub fn watch_queue(&self) -> watch::Receiver<u64> {
        self.listen();
        self.shared.queue_moves.subscribe()
    }

    /// Tells those who wait that the service stops: they are answered at once.
    pub fn close(&self) {
        self.shared.closing.send_replace(true);
    }

    /// Resolves when the service stops.
    pub async fn closed(&self) {
        // The sender lives as long as this.
        let _ = self.shared.closing.subscribe().wait_for(|closing| *closing).await;
    }

    fn listen(&self) {
        let mut listening = lock(&self.listening);
        if listening.as_ref().is_none_or(JoinHandle::is_finished) {
            *listening = Some(tokio::spawn(listen(Arc::clone(&self.shared))));
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.listening).take() {
            task.abort();
        }
    }
}

impl Shared {
    fn tell(&self, job: JobId, is_progress: bool) {
        if let Some(sender) = lock(&self.watched).get(&job) {
            sender.send_modify(|change| {
                change.events += 1;
                change.states += u64::from(!is_progress);
            });
        }
        if !is_progress {
            self.queue_moves.send_modify(|moves| *moves += 1);
        }
    }

    fn tell_all(&self) {
        for sender in lock(&self.watched).values() {
            sender.send_modify(|change| {
                change.events += 1;
                change.states += 1;
            });
        }
        self.queue_moves.send_modify(|moves| *moves += 1);
    }
}

/// Listens, and checks that nothing is missed, for good.
async fn listen(shared: Arc<Shared>) {
    tokio::join!(hear(&shared), check(&shared));
}

async fn hear(shared: &Shared) {
    loop {
        match shared.queue.listen_for_events().await {
            Ok(mut listener) => {
                // Who began to wait before this may have missed something.
                shared.tell_all();
                loop {
                    match listener.next().await {
                        Ok(Notice::Event { job, id, is_progress }) => {
                            let mut heard = lock(&shared.heard);
                            *heard = id.max(*heard);
                            drop(heard);
                            shared.tell(job, is_progress);
                        }
                        Ok(Notice::Reconnected) => shared.tell_all(),
                        Ok(Notice::CancelRequested(_)) => {}
                        Err(error) => {
                            tracing::warn!(%error, "notifications are not heard at this moment");
                            break;
                        }
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "notifications cannot be listened for yet"),
        }
        sleep(AGAIN).await;
    }
}

/// A connection can be dead without a word. So the newest event's number is asked for; where it is one that nobody was told of,
/// everybody looks. Twice, since its transaction may not be over at the first time.
async fn check(shared: &Shared) {
    let mut before = 0;
    let mut looked = 0;
    loop {
        sleep(CHECK).await;
        let Ok(Ok(newest)) = timeout(CHECK, shared.queue.newest_event()).await else { continue };
        let heard = *lock(&shared.heard);
        if newest > heard && newest > looked {
            looked = if newest == before { newest } else { looked };
            before = newest;
            shared.tell_all();
        }
    }
}

/// A panic while a lock was held leaves the maps whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
