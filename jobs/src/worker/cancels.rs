//! Hears at once that somebody wants a running job to end. What is not heard is seen at the next renewal of the lease.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::queue::Queue;

/// Pause before the connection is made anew.
const AGAIN: Duration = Duration::from_secs(2);

/// Says that there was a request, for whatever job: the keeper of a lease asks about its own.
#[derive(Debug, Default)]
pub(super) struct Cancels(watch::Sender<u64>);

impl Cancels {
    /// Changes with each request.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    /// Listens for good.
    pub(super) async fn hear(&self, queue: &Queue) {
        loop {
            if let Err(error) = self.listen(queue).await {
                tracing::debug!(%error, "requests to cancel are not heard at this moment");
            }
            sleep(AGAIN).await;
        }
    }

    async fn listen(&self, queue: &Queue) -> crate::Result<()> {
        let mut listener = queue.listen_for_cancels().await?;
        loop {
            listener.next().await?;
            self.0.send_modify(|requests| *requests += 1);
        }
    }
}
