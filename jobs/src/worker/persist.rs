//! Writes that must go through: a result is not thrown away because Postgres restarts or the artifact store is full.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Result;

/// How long a write is tried. An outage that lasts longer outlasts the lease as well, so the job is another's by then.
const PATIENCE: Duration = Duration::from_mins(10);

/// Repeats a write while the database or the store is away. The write must be one that may be repeated: a lost connection does not
/// tell whether it went through.
pub async fn persist<T, F: Future<Output = Result<T>>>(what: &'static str, write: impl Fn() -> F) -> Result<T> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(200);
    loop {
        match write().await {
            Err(error) if error.may_pass() && started.elapsed() < PATIENCE => {
                tracing::warn!(%error, what, "a write failed; trying again");
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            result => return result,
        }
    }
}
