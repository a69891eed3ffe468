//! Every answer that is no success, and the sentence a user reads in it.
//!
//! Each variant displays as that sentence. What the operator needs travels as the source and goes to the log, once,
//! where the error becomes a response.

use std::error::Error as StdError;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

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

    /// No such job, or another owner's: the answer is the same, so that ids cannot be tried out.
    #[error("There is no job of this id that belongs to your CLI id.")]
    NoSuchJob,
    /// The job has no archive of that name.
    #[error("There is no artifact of this name in a job that belongs to your CLI id.")]
    NoSuchArtifact,
    /// The archive was there, and its time is over.
    #[error("This profile has expired and was removed: submit again for a new one.")]
    ArtifactExpired,
    /// No such path.
    #[error("There is nothing at this path: the service has /health, /profile and /jobs.")]
    NoSuchPath,
    /// The path exists, the method does not.
    #[error("This path does not take that method: jobs are submitted with POST /profile, the rest is read with GET.")]
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

impl ApiError {
    /// The status it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoCredential | Self::MalformedCredential | Self::RefusedCredential | Self::NoAdminToken => {
                StatusCode::UNAUTHORIZED
            }
            Self::TooManyWrongTokens => StatusCode::TOO_MANY_REQUESTS,
            Self::OrderRefused(_) => StatusCode::CONFLICT,
            Self::NoSuchJob
            | Self::NoSuchArtifact
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
            Self::KernelBotAway
            | Self::TooManyUploads
            | Self::DatabaseAway(_)
            | Self::DatabaseSilent
            | Self::StoreAway(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::BrokenLeaderboard { .. } | Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            tracing::error!(status = status.as_u16(), cause = self.operator_text(), "{self}");
        } else {
            tracing::debug!(status = status.as_u16(), "{self}");
        }
        (status, Json(json!({ "detail": self.to_string() }))).into_response()
    }
}
