//! The queue: every SQL statement of the service stands here, one module a table.
//!
//! The `jobs` table is the truth about who owns a job; an apalis task is a disposable ticket that says "there is work".
//! `docs/queue.md` explains why.

mod admin;
mod admin_view;
mod adopt;
mod jobs;
mod model;
mod reaper;
mod retention;
mod runs;
pub mod tickets;
mod verdict;
mod view;
mod workers;

pub use admin::{Actor, Change, Deed, Orders};
pub use admin_view::{AdminAttempt, AdminJob, AdminJobDetail, AdminShape, AdminStatus, AdminWorker};
pub use adopt::{Adoption, Held, Live};
pub use jobs::Renewal;
pub use model::{
    Artifact, AttemptView, Claim, ErrorKind, JobView, NewJob, PendingRun, RunEnd, RunView, State, StoredArtifact,
    UnknownState,
};
pub use ncu_runner::protocol::{ClockControl, KernelTime, Overview};
pub use reaper::Reaped;
pub use retention::{ExpiredArtifact, PruneTurn};
pub use runs::RunLease;
pub use workers::{WorkerCounts, WorkerState};

use std::time::Duration;

use apalis_postgres::PostgresStorage;
use chrono::{DateTime, Utc};
use sqlx::PgPool;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::config::DatabaseConfig;
use crate::{Error, Result};

/// How long a caller waits for a connection. Long, because giving up during a short outage would end a worker's wake-up
/// loop; callers that answer a client bound their own wait.
const ACQUIRE_TIMEOUT: Duration = Duration::from_mins(1);

/// Our schema.
static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

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
        PostgresStorage::setup(&self.pool).await.map_err(Error::Tickets)?;
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
