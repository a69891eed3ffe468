//! What the worker talks to over the network: the database and the artifact store.

use std::time::Duration;

use chrono::Utc;
use tokio::time::timeout;

use super::Finding;
use crate::artifacts::ArtifactStore;
use crate::queue::Queue;
use crate::worker::WorkerConfig;
use crate::{Error, Result};

const DATABASE: &str = "database";
const CLOCK: &str = "clock";
const STORE: &str = "artifact store";

/// How long the database may take.
const DATABASE_DEADLINE: Duration = Duration::from_secs(10);
/// How long the store may take for a small object.
const STORE_DEADLINE: Duration = Duration::from_secs(30);
/// How far this host's clock may be from the database's: the times of one job come from both.
const MAX_SKEW: chrono::TimeDelta = chrono::TimeDelta::seconds(5);

/// Whether it is there and its schema is ours, and whether it has the same time.
pub(super) async fn database(config: &WorkerConfig) -> Vec<Finding> {
    let asked = async {
        let queue = Queue::connect_lazy(&config.database, "ncu-worker doctor")?;
        let before = Utc::now();
        let theirs = queue.now().await?;
        let ours = before + (Utc::now() - before) / 2;
        Ok::<_, Error>((queue.missing_migrations().await?, theirs - ours))
    };
    let answer = timeout(DATABASE_DEADLINE, asked)
        .await
        .unwrap_or_else(|_| Err(Error::Internal(format!("no answer within {} s", DATABASE_DEADLINE.as_secs()))));
    match answer {
        Ok((missing, skew)) => vec![schema(missing), clock(skew)],
        Err(error) => vec![Finding::failed(
            DATABASE,
            error.to_string(),
            "start Postgres, and let NCU_SERVICE_DATABASE_URL name a database that this host reaches",
        )],
    }
}

fn schema(missing: usize) -> Finding {
    match missing {
        0 => Finding::ok(DATABASE, "reachable, schema up to date"),
        n => Finding::warning(
            DATABASE,
            format!("reachable, migrations not applied: {n}"),
            "run `ncu-worker migrate`, or start a worker, which does it",
        ),
    }
}

fn clock(skew: chrono::TimeDelta) -> Finding {
    let millis = skew.num_milliseconds();
    if skew.abs() <= MAX_SKEW {
        Finding::ok(CLOCK, format!("{millis} ms from the database's"))
    } else {
        Finding::warning(
            CLOCK,
            format!("{} s from the database's", millis / 1000),
            "let both hosts keep their time by NTP",
        )
    }
}

/// Writes, looks for, reads and deletes a small object.
pub(super) async fn store(config: &WorkerConfig) -> Finding {
    let url = &config.artifacts_url;
    let probed: Result<()> = match ArtifactStore::open(url) {
        Ok(store) => timeout(STORE_DEADLINE, store.probe())
            .await
            .unwrap_or_else(|_| Err(Error::Internal(format!("no answer within {} s", STORE_DEADLINE.as_secs())))),
        Err(error) => Err(error),
    };
    match probed {
        Ok(()) => Finding::ok(STORE, format!("{url} takes, gives back and deletes an object")),
        Err(error) => Finding::failed(
            STORE,
            format!("{url}: {error}"),
            "let this user write there; NCU_SERVICE_ARTIFACTS_URL names another store, AWS_* the credentials of S3",
        ),
    }
}

/// Only the API talks to it.
pub(super) fn kernelbot() -> Finding {
    Finding::skipped("KernelBot", "only the API asks it; a worker needs it not")
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::doctor::Status;

    #[test]
    fn a_clock_that_is_seconds_off_is_named() {
        assert_eq!(clock(TimeDelta::milliseconds(-800)).status, Status::Ok);
        for skew in [TimeDelta::seconds(6), TimeDelta::seconds(-6)] {
            assert_eq!(clock(skew).status, Status::Warning);
        }
    }
}
