//! Where the jobs stand and when they will start and end, as it was a moment ago: one look at the queue serves all who ask.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::forecast::{Estimate, Standing, Took, forecast};
use jobs::ids::JobId;
use jobs::queue::Queue;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::job::timestamp;

/// How old an answer may be; those who wait for an event look no more often either.
pub const FRESH: Duration = Duration::from_secs(2);
/// How old the measured durations may be.
const MEASURED_FRESH: Duration = Duration::from_secs(30);
/// How long the database may take: an estimate is worth no more.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The last look.
#[derive(Debug)]
pub struct Forecasts {
    queue: Queue,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    at: Option<Instant>,
    standings: HashMap<JobId, Standing>,
    measured_at: Option<Instant>,
    measured: Vec<Took>,
}

impl Forecasts {
    /// Nobody has looked yet.
    #[must_use]
    pub fn new(queue: Queue) -> Self {
        Self { queue, seen: Mutex::default() }
    }

    /// Where a job stands; nothing of one that has ended, was not there a moment ago or is far behind.
    pub async fn of(&self, job: JobId) -> Option<Standing> {
        let mut seen = self.seen.lock().await;
        if is_over(seen.at, FRESH) {
            let looked = timeout(TIMEOUT, self.look(&mut seen)).await;
            if !matches!(looked, Ok(Ok(()))) {
                // An old estimate is none.
                seen.standings.clear();
            }
            // Also when it failed, so that not everybody tries in turn.
            seen.at = Some(Instant::now());
        }
        seen.standings.get(&job).copied()
    }

    async fn look(&self, seen: &mut Seen) -> jobs::Result<()> {
        // A service on which nothing has been measured yet soon has something.
        if seen.measured.is_empty() || is_over(seen.measured_at, MEASURED_FRESH) {
            seen.measured = self.queue.measured().await?;
            seen.measured_at = Some(Instant::now());
        }
        seen.standings = forecast(&self.queue.load().await?, &seen.measured);
        Ok(())
    }
}

fn is_over(at: Option<Instant>, age: Duration) -> bool {
    at.is_none_or(|at| at.elapsed() >= age)
}

/// Between which two times something happens, four times out of five.
#[derive(Debug, Serialize)]
pub struct Range {
    earliest: String,
    latest: String,
}

/// When a job will start and end, on the wire.
#[derive(Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "these are the names on the wire")]
pub struct Times {
    estimated_start_at: Option<String>,
    estimated_start_range: Option<Range>,
    estimated_end_at: Option<String>,
    estimated_end_range: Option<Range>,
}

impl From<Standing> for Times {
    fn from(standing: Standing) -> Self {
        let likely = |estimate: Option<Estimate>| estimate.map(|estimate| whole_seconds(estimate.likely));
        let range = |estimate: Option<Estimate>| {
            estimate.map(|Estimate { earliest, latest, .. }| Range {
                earliest: whole_seconds(earliest),
                latest: whole_seconds(latest),
            })
        };
        Self {
            estimated_start_at: likely(standing.start),
            estimated_start_range: range(standing.start),
            estimated_end_at: likely(standing.end),
            estimated_end_range: range(standing.end),
        }
    }
}

/// An estimate is not known to the microsecond.
fn whole_seconds(at: DateTime<Utc>) -> String {
    timestamp(DateTime::from_timestamp(at.timestamp(), 0).unwrap_or(at))
}
