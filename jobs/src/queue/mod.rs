//! The queue: every SQL statement of the service stands here, one module a table.
//!
//! The `jobs` table is the truth about who owns a job; an apalis task is a disposable ticket that says "there is work".
//! `docs/queue.md` explains why.

mod admin;
mod admin_view;
mod adopt;
mod board;
mod digests;
mod events;
mod jobs;
mod load;
mod model;
mod own;
mod quota;
mod reaper;
mod retention;
mod reuse;
mod runs;
mod sessions;
pub mod tickets;
mod verdict;
mod view;
mod workers;

pub use admin::{Actor, Change, Deed, Orders};
pub use admin_view::{AdminAttempt, AdminJob, AdminJobDetail, AdminShape, AdminStatus, AdminWorker};
pub use adopt::{Adoption, Held, Live};
pub use board::{Board, EndedLine, OwnJob, OwnShape, QueuedLine, RunningLine, WorkerLine};
pub use events::{EVENTS_AT_ONCE, JobEvent, Listener, Notice};
pub use jobs::Renewal;
pub use model::{
    Artifact, AttemptView, Claim, ErrorKind, JobView, NewJob, PendingRun, RunEnd, RunView, State, StoredArtifact,
    UnknownState,
};
pub use ncu_runner::protocol::{ClockControl, KernelTime, Overview};
pub use own::{Cancelled, ListFilter, ListedJob};
pub use quota::{Admission, OverQuota, Quotas, SUBMISSION_LOCK};
pub use reaper::Reaped;
pub use retention::{ExpiredArtifact, PruneTurn};
pub use reuse::{Reuse, StoredResult};
pub use runs::RunLease;
pub use workers::{WorkerCounts, WorkerState};

use std::sync::LazyLock;
use std::time::Duration;

use apalis_postgres::PostgresStorage;
use chrono::{DateTime, Utc};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};

use crate::Result;
use crate::config::DatabaseConfig;

/// How long a caller waits for a connection. Long, because giving up during a short outage would end a worker's wake-up
/// loop; callers that answer a client bound their own wait.
const ACQUIRE_TIMEOUT: Duration = Duration::from_mins(1);

/// Our schema.
static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| serves_newer_schemas(sqlx::migrate!("../migrations")));

/// A release that is put back finds a schema that a newer one has migrated already. Migrations keep what the release before them
/// needs, so it works with that.
fn serves_newer_schemas(mut migrations: Migrator) -> Migrator {
    migrations.set_ignore_missing(true);
    migrations
}

/// Ends a transaction that whoever gave the connection back knows nothing of. A `begin` that was given up while it was under
/// way, because a client hung up or a time limit passed, leaves one open (sqlx 0.9.0, issue 4385), and whatever the next user
/// of the connection writes would never be committed. Where there is none, this begins and ends an empty one, in one message;
/// an error closes the connection.
async fn end_transaction(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql("BEGIN; ROLLBACK").execute(connection).await?;
    Ok(true)
}

/// The queue in Postgres. Clones share one pool.
#[derive(Debug, Clone)]
pub struct Queue {
    pool: PgPool,
}

impl Queue {
    /// A queue over a pool that connects when first used, so that a process can start before its database.
    pub fn connect_lazy(config: &DatabaseConfig, application_name: &str) -> Result<Self> {
        let options: PgConnectOptions = config.url.parse()?;
        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_release(|connection, _| Box::pin(end_transaction(connection)))
            .connect_lazy_with(options.application_name(application_name));
        Ok(Self::new(pool))
    }

    /// A queue over a given pool.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// The pool, for the wake-up backend.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Brings both schemas up to date: the one in which apalis keeps its tickets, then ours, so that ours is there only
    /// when everything is. Processes that start together take turns.
    pub async fn migrate(&self) -> Result<()> {
        serves_newer_schemas(PostgresStorage::migrations()).run(&self.pool).await?;
        Ok(MIGRATIONS.run(&self.pool).await?)
    }

    /// How many of our migrations the database does not have yet.
    pub async fn missing_migrations(&self) -> Result<usize> {
        let all = MIGRATIONS.iter().count();
        // Asked at run time: the table is the migrator's own, and not there before its first run.
        let known = sqlx::query_scalar::<_, bool>("SELECT to_regclass('_sqlx_migrations') IS NOT NULL");
        if !known.fetch_one(&self.pool).await? {
            return Ok(all);
        }
        let applied: Vec<i64> =
            sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success").fetch_all(&self.pool).await?;
        Ok(MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version)).count())
    }

    /// What time the database has.
    pub async fn now(&self) -> Result<DateTime<Utc>> {
        // Not now(), which is the start of the transaction.
        Ok(sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#).fetch_one(&self.pool).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_transaction_that_was_given_up_as_it_began_is_nobody_elses() {
        let url = std::env::var("NCU_SERVICE_TEST_DATABASE_URL")
            .expect("NCU_SERVICE_TEST_DATABASE_URL is not set; run the tests with scripts/test");
        let queue = Queue::connect_lazy(&DatabaseConfig { url, max_connections: 1 }, "a test").unwrap();
        queue.now().await.unwrap();
        // Given up after so many looks at whether it has begun: one of them is between its beginning and the answer.
        for looks in 0..200 {
            let given_up = async {
                for _ in 0..looks {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                transaction = queue.pool.begin_with("BEGIN READ ONLY") => drop(transaction.unwrap()),
                () = given_up => {}
            }
            let read_only: String =
                sqlx::query_scalar("SHOW transaction_read_only").fetch_one(&queue.pool).await.unwrap();
            assert_eq!(read_only, "off", "after {looks} looks");
        }
    }
}
