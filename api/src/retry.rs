//! Lets polls outlast a passing fault of ours: a client ends its user's run at the first answer that is no success.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::error::ApiError;

/// How long one try may take: a connection that hangs must not use up the whole patience.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause between two tries; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks the database until it answers or `patience` is over.
pub async fn patiently<T, F>(patience: Duration, mut ask: impl FnMut() -> F) -> Result<T, ApiError>
where
    F: Future<Output = jobs::Result<T>>,
{
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let fault = match timeout(TRY_TIMEOUT.min(left), ask()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => ApiError::DatabaseAway(error),
            Err(_) => ApiError::DatabaseSilent,
        };
        if Instant::now() + pause >= deadline {
            return Err(fault);
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
