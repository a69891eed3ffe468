//! The crate's one error. Each variant carries what the operator needs; what a user may read is [`Error::user_message`].

use crate::config::ConfigError;

/// Everything that can go wrong in the domain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is missing or malformed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Postgres could not be asked.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("migration: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The wake-up queue refused a ticket.
    #[error("tickets: {0}")]
    Tickets(#[from] apalis_postgres::Error),
    /// The container engine could not be asked, or refused.
    #[error("engine, {action}: {source}")]
    Engine {
        /// What was being done, for the log.
        action: &'static str,
        /// The engine's answer.
        #[source]
        source: bollard::errors::Error,
    },
    /// The engine did not answer within the deadline of a call.
    #[error("engine, {action}: no answer within {deadline_secs} s")]
    EngineTimeout {
        /// What was being done, for the log.
        action: &'static str,
        /// The deadline of the call, in seconds.
        deadline_secs: u64,
    },
    /// The object store failed.
    #[error("artifact store: {0}")]
    ArtifactStore(#[from] object_store::Error),
    /// A file on this host could not be read or written.
    #[error("{action}: {source}")]
    Io {
        /// What was being done, for the log.
        action: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The archive could not be written.
    #[error("archive: {0}")]
    Archive(#[from] zip::result::ZipError),
    /// Our own JSON did not serialise or parse.
    #[error("json: {0}")]
    Json(#[from] serde_json::Error),
    /// A capture failed by the host's fault.
    #[error("capture: {0}")]
    Capture(String),
    /// The GPU cannot be captured on.
    #[error("GPU: {0}")]
    Gpu(String),
    /// Something that the code or the operator must mend.
    #[error("{0}")]
    Internal(String),
    /// What an operator named is not there.
    #[error("{0}")]
    NoSuch(String),
    /// What an operator ordered cannot be done; the sentence says why.
    #[error("{0}")]
    Refused(String),
    /// Somebody else owns the job now: what this attempt wants to write is refused.
    #[error("the lease of this attempt is gone")]
    LeaseLost,
}

impl Error {
    /// An [`Error::Io`] with what was being done.
    pub fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    /// An [`Error::Engine`] with what was being done.
    pub fn engine(action: &'static str) -> impl FnOnce(bollard::errors::Error) -> Self {
        move |source| Self::Engine { action, source }
    }

    /// Whether asking again in a while can help: Postgres is away, restarts, or has no connection to spare.
    #[must_use]
    pub fn is_database_away(&self) -> bool {
        use sqlx::migrate::MigrateError;
        match self {
            Self::Database(error)
            | Self::Migration(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _))
            | Self::Tickets(apalis_postgres::Error::Database(error)) => is_away(error),
            _ => false,
        }
    }

    /// Whether what failed is worth trying again where it stands, before a finished capture is thrown away for it.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.is_database_away() || matches!(self, Self::ArtifactStore(_))
    }

    /// One sentence for a user. Every error here is ours, and nothing internal is named.
    #[must_use]
    pub fn user_message(&self) -> &'static str {
        match self {
            Self::Engine { .. } | Self::EngineTimeout { .. } => {
                "The profiling host's container engine failed; submit again, and tell the operator if it happens again."
            }
            Self::Capture(_) => {
                "The profiler failed on the profiling host; submit again, and tell the operator if it happens again."
            }
            Self::Gpu(_) => {
                "The profiling host's GPU is not usable now; submit again, and tell the operator if it happens again."
            }
            Self::ArtifactStore(_) => {
                "The profile could not be stored; submit again, and tell the operator if it happens again."
            }
            _ => "The service had an internal fault; submit again, and tell the operator if it happens again.",
        }
    }
}

fn is_away(error: &sqlx::Error) -> bool {
    use sqlx::migrate::MigrateError;
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        // Classes 08 (connection), 53 (resources), 57P0x (shutdown, crash, not up yet), serialisation failures, and a server
        // that takes no writes: in a failover it is no primary any more, or not yet.
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| ["08", "53", "57P0", "40", "25006"].iter().any(|class| code.starts_with(class))),
        // apalis hands its migrator's errors on in this shape.
        sqlx::Error::Migrate(error) => match &**error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => is_away(error),
            _ => false,
        },
        _ => false,
    }
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
