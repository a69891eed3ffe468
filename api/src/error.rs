//! Every answer that is no success, and the sentence a user reads in it.
//!
//! Each variant displays as that sentence. What the operator needs travels as the source and goes to the log, once,
//! where the error becomes a response.

use std::error::Error as StdError;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jobs::queue::{OverQuota, Quotas, State};
use serde_json::json;

use crate::conditions::{self, Part};
use crate::places::Full;

/// Largest submission that is accepted, in bytes: what `KernelBot` accepts.
pub const MAX_FILE_BYTES: usize = 1_000_000;

/// Why a request was refused, or which fault of ours kept us from answering it.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request carries no CLI id.
    #[error("No CLI id was sent in the X-Popcorn-Cli-Id header: run `popcorn register` and submit again.")]
    NoCredential,
    /// The request carries something that cannot be a CLI id.
    #[error("The X-Popcorn-Cli-Id header does not hold a CLI id: run `popcorn reregister` and submit again.")]
    MalformedCredential,
    /// `KernelBot` does not know the CLI id.
    #[error("KernelBot does not accept this CLI id: run `popcorn reregister` and submit again.")]
    RefusedCredential,
    /// `KernelBot` could not say whether the CLI id is good.
    #[error("KernelBot could not be asked about your CLI id: submit again in a minute.")]
    KernelBotAway,
    /// A web page that its reader happened to open must not submit in the reader's place.
    #[error("Submissions are not taken from web pages: submit with popcorn-cli or scripts/ncu-client.")]
    FromAWebPage,

    /// A form that was not sent by a page of this service, or by one that is too old.
    #[error("This form is not from this page, or the page is too old: load the page again and repeat.")]
    ForeignForm,
    /// Something for which somebody must be signed in at the page.
    #[error("You are not signed in any more: sign in again and repeat.")]
    NotSignedIn,
    /// A request that does not expect the only kind of answer that there is.
    #[error("This path streams events: ask for it with the header Accept: text/event-stream.")]
    NotAStream,
    /// As many browsers as may watch the queue.
    #[error("Too many pages are following the queue at this moment: load the page again in a minute.")]
    TooManyViewers,

    /// No such job, or another owner's: the answer is the same, so that ids cannot be tried out.
    #[error("There is no job of this id that belongs to your CLI id.")]
    NoSuchJob,
    /// The job has no archive of that name.
    #[error("There is no artifact of this name in a job that belongs to your CLI id.")]
    NoSuchArtifact,
    /// The archive has no file of that name.
    #[error("There is no file of this name in the archive: manifest.json and ncu-details.txt are in every one.")]
    NoSuchEntry,
    /// Nothing of the archive lies in the range that is asked for.
    #[error("The archive has {bytes} bytes, and the range begins behind its end.")]
    NoSuchRange {
        /// Its size.
        bytes: u64,
    },
    /// A job that has ended cannot be cancelled.
    #[error("The job has ended already and is {}: there is nothing to cancel.", .state.as_str())]
    JobHasEnded {
        /// How.
        state: State,
    },
    /// The archive was there, and its time is over.
    #[error("This profile has expired and was removed: submit again for a new one.")]
    ArtifactExpired,
    /// Two jobs whose numbers do not compare.
    #[error("{0}")]
    NotComparable(String),
    /// No such path.
    #[error("There is nothing at this path: the service has /health, /profile and /jobs.")]
    NoSuchPath,
    /// The path exists, the method does not.
    #[error(
        "This path does not take that method: jobs are submitted with POST /profile and cancelled with DELETE, the rest is read \
         with GET."
    )]
    WrongMethod,

    /// A request under `/admin` without the token, or with another.
    #[error("Orders under /admin need the operators' token in the header Authorization: Bearer …")]
    NoAdminToken,
    /// Many wrong tokens at once.
    #[error("Too many requests with a wrong token: try again in a minute.")]
    TooManyWrongTokens,
    /// No such order.
    #[error("There is no such order: /admin has queue, jobs, workers and prune.")]
    NoSuchOrder,
    /// The order exists, the method does not.
    #[error("This order does not take that method: what only shows is GET, everything else POST.")]
    WrongOrderMethod,
    /// What an operator named is not there.
    #[error("{0}")]
    NoSuchTarget(String),
    /// What an operator ordered cannot be done.
    #[error("{0}")]
    OrderRefused(String),

    /// The body is no form.
    #[error("The submission is expected as multipart/form-data.")]
    NotAForm,
    /// The form cannot be read.
    #[error("The upload broke off or is not a well-formed multipart form: submit again.")]
    MalformedForm,
    /// The body did not arrive in time.
    #[error("The upload took longer than {limit_secs} seconds: submit again over a faster connection.")]
    UploadTooSlow {
        /// The limit, in seconds.
        limit_secs: u64,
    },
    /// The file is too large.
    #[error("The submission is larger than {MAX_FILE_BYTES} bytes: submit a smaller file.")]
    TooLarge,
    /// As many uploads as are allowed at once are in progress.
    #[error("Too many submissions are being uploaded at this moment: submit again in a minute.")]
    TooManyUploads,
    /// As many uploads as one user is allowed at once are in progress.
    #[error("You are uploading {max} submissions at this moment already: submit again when one of them is through.")]
    TooManyUploadsOfOne {
        /// The limit.
        max: usize,
    },

    /// As many requests wait for a change as may.
    #[error("Too many clients wait for a change at this moment: ask without waiting, or again in a minute.")]
    TooManyWaiters,
    /// As many requests of one user wait for a change as may.
    #[error(
        "You have {max} connections that wait for a change, and may have no more: end one of them, or ask without waiting."
    )]
    TooManyWaitersOfOne {
        /// The limit.
        max: usize,
    },
    /// As many files of archives are being read as may.
    #[error(
        "Too many files of archives are being read at this moment: try again in a minute, or fetch the whole archive."
    )]
    TooManyReads,

    /// As many jobs wait as may.
    #[error("The queue is full, with {max} jobs ahead of yours: submit again in a few minutes.")]
    QueueFull {
        /// The limit.
        max: u32,
    },
    /// The user has as many jobs that have not ended as one may have.
    #[error("You have {max} jobs that wait or run, and may have no more: submit again when one of them has ended.")]
    TooManyJobs {
        /// The limit.
        max: u32,
    },
    /// The user has submitted as many jobs within an hour as one may.
    #[error("You have submitted {max} jobs within an hour, and may submit no more: submit again in {}.", minutes(*.wait))]
    TooManyJobsPerHour {
        /// The limit.
        max: u32,
        /// When the next one is taken.
        wait: Duration,
    },
    /// The user has submitted as much within an hour as one may.
    #[error("Your submissions of the last hour would come to more than {max} bytes: submit again in {}.", minutes(*.wait))]
    TooManyBytesPerHour {
        /// The limit.
        max: u64,
        /// When this one is taken.
        wait: Duration,
    },

    /// No such leaderboard; the sentence names those that are close.
    #[error("{0}")]
    UnknownLeaderboard(String),
    /// The form was read, and something in it cannot be used.
    #[error("{0}")]
    Unusable(String),

    /// The leaderboard's files on this host are broken.
    #[error("{sentence}")]
    BrokenLeaderboard {
        /// For the user.
        sentence: String,
        /// For the log.
        detail: String,
    },
    /// The database could not be asked.
    #[error("The service cannot reach its database at this moment: try again in a minute.")]
    DatabaseAway(#[source] jobs::Error),
    /// The database did not answer in time.
    #[error("The service cannot reach its database at this moment: try again in a minute.")]
    DatabaseSilent,
    /// The store of the archives could not be asked.
    #[error("The profile cannot be read from the store at this moment: try again in a minute.")]
    StoreAway(#[source] jobs::Error),
    /// A defect of this program.
    #[error("The service had an internal fault: try again, and tell its operator if it stays.")]
    Internal(String),
}

/// When a client that is told so may come back: what is over by then is no matter of ours to foresee.
const COME_BACK: Duration = Duration::from_mins(1);

impl ApiError {
    /// The refusal of a submission that is over a quota.
    #[must_use]
    pub fn over_quota(over: OverQuota, quotas: &Quotas) -> Self {
        match over {
            OverQuota::QueueFull => Self::QueueFull { max: quotas.max_queue },
            OverQuota::Unfinished => Self::TooManyJobs { max: quotas.max_unfinished },
            OverQuota::JobsPerHour { wait } => Self::TooManyJobsPerHour { max: quotas.max_jobs_per_hour, wait },
            OverQuota::BytesPerHour { wait } => Self::TooManyBytesPerHour { max: quotas.max_bytes_per_hour, wait },
        }
    }

    /// The refusal of an upload for which there is no place.
    #[must_use]
    pub fn too_many_uploads(full: Full) -> Self {
        match full {
            Full::OfOwner { max } => Self::TooManyUploadsOfOne { max },
            Full::All => Self::TooManyUploads,
        }
    }

    /// The refusal of a request that would wait, for which there is no place.
    #[must_use]
    pub fn too_many_waiters(full: Full) -> Self {
        match full {
            Full::OfOwner { max } => Self::TooManyWaitersOfOne { max },
            Full::All => Self::TooManyWaiters,
        }
    }

    /// The status it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoCredential
            | Self::MalformedCredential
            | Self::RefusedCredential
            | Self::NotSignedIn
            | Self::NoAdminToken => StatusCode::UNAUTHORIZED,
            Self::FromAWebPage | Self::ForeignForm => StatusCode::FORBIDDEN,
            Self::NotAStream => StatusCode::NOT_ACCEPTABLE,
            Self::OrderRefused(_) | Self::NotComparable(_) | Self::JobHasEnded { .. } => StatusCode::CONFLICT,
            Self::NoSuchRange { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::NoSuchJob
            | Self::NoSuchArtifact
            | Self::NoSuchEntry
            | Self::NoSuchPath
            | Self::NoSuchOrder
            | Self::NoSuchTarget(_)
            | Self::UnknownLeaderboard(_) => StatusCode::NOT_FOUND,
            Self::ArtifactExpired => StatusCode::GONE,
            Self::WrongMethod | Self::WrongOrderMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAForm => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::MalformedForm => StatusCode::BAD_REQUEST,
            Self::UploadTooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unusable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooManyWrongTokens
            | Self::TooManyUploadsOfOne { .. }
            | Self::TooManyWaitersOfOne { .. }
            | Self::TooManyJobs { .. }
            | Self::TooManyJobsPerHour { .. }
            | Self::TooManyBytesPerHour { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::KernelBotAway
            | Self::TooManyUploads
            | Self::TooManyWaiters
            | Self::TooManyReads
            | Self::TooManyViewers
            | Self::QueueFull { .. }
            | Self::DatabaseAway(_)
            | Self::DatabaseSilent
            | Self::StoreAway(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::BrokenLeaderboard { .. } | Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// When to come back, for the header of that name.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyJobsPerHour { wait, .. } | Self::TooManyBytesPerHour { wait, .. } => Some(*wait),
            _ => matches!(self.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
                .then_some(COME_BACK),
        }
    }

    /// Whether there is too much to do, which is nobody's fault.
    fn is_load(&self) -> bool {
        matches!(
            self,
            Self::TooManyUploads
                | Self::TooManyWaiters
                | Self::TooManyReads
                | Self::TooManyViewers
                | Self::QueueFull { .. }
        )
    }

    /// Whether the database is away, and no more than that.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::DatabaseSilent => true,
            Self::DatabaseAway(error) => error.is_database_away(),
            _ => false,
        }
    }

    /// What only the operator may read.
    fn operator_text(&self) -> String {
        match self {
            Self::BrokenLeaderboard { detail, .. } | Self::Internal(detail) => detail.clone(),
            Self::DatabaseSilent => "the database did not answer in time".to_owned(),
            _ => self.source().map_or_else(String::new, ToString::to_string),
        }
    }
}

impl ApiError {
    /// Tells the operator, once, what became of a request.
    pub fn log(&self) {
        let status = self.status();
        if self.is_load() {
            tracing::warn!(status = status.as_u16(), "{self}");
        } else if status.is_server_error() {
            tracing::error!(status = status.as_u16(), cause = self.operator_text(), "{self}");
        } else {
            tracing::debug!(status = status.as_u16(), "{self}");
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.log();
        let status = self.status();
        let mut response = (status, Json(json!({ "detail": self.to_string() }))).into_response();
        if let Some(wait) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        if let Self::NoSuchRange { bytes } = self {
            response.headers_mut().extend(conditions::content_range(Part::Unsatisfiable, bytes));
        }
        response
    }
}

/// A wait in words, rounded up.
fn minutes(wait: Duration) -> String {
    match wait.as_secs().div_ceil(60) {
        0 | 1 => "a minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}
