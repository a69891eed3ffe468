//! What every handler works with, and which path goes to which handler.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Router, middleware};
use jobs::artifacts::ArtifactStore;
use jobs::problems::{Catalog, Problem, ProblemError, Revision};
use jobs::queue::{Queue, Quotas};
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::trace::TraceLayer;

use crate::admin::{self, Gate};
use crate::changes::Changes;
use crate::config::Config;
use crate::error::ApiError;
use crate::forecasts::Forecasts;
use crate::kernelbot::{KernelBot, Lifetimes};
use crate::known::LastKnown;
use crate::page::{self, Board};
use crate::places::Places;
use crate::{artifact, cancel, drain, events, health, job, list, observe, openapi, profile, report, upload};

/// Submissions that are queued at a time; a pool of the database has at least five connections.
const MAX_QUEUEING: usize = 2;
/// Files of archives that are read at a time, and of them those for one user: each takes a thread and a megabyte.
const MAX_ENTRIES: usize = 16;
const MAX_ENTRIES_PER_USER: usize = 4;

/// The state of the service.
#[derive(Debug)]
pub struct App {
    /// The jobs.
    pub queue: Queue,
    /// The archives.
    pub store: ArtifactStore,
    /// Says whether a CLI id is good; `None` where the operator lets everybody in.
    pub kernelbot: Option<KernelBot>,
    /// Places for uploads in progress, which bound the memory they take.
    pub uploads: Places,
    /// Places for those who wait for a change of a job on an open connection.
    pub waiters: Places,
    /// Places for the reading of single files of archives.
    pub entries: Places,
    /// How long one upload may take.
    pub upload_timeout: Duration,
    /// What may be in the queue.
    pub quotas: Quotas,
    /// Turns at queueing: who waits for other processes' submissions must not have every connection to the database.
    pub queueing: Semaphore,
    /// Whether a stored result answers for another user's job, too.
    pub share_results: bool,
    /// How long a poll waits for the database.
    pub database_patience: Duration,
    /// What is told when it stays away.
    pub known: LastKnown,
    /// Wakes those who wait for a change.
    pub changes: Changes,
    /// When jobs will start and end.
    pub forecasts: Forecasts,
    /// What the page shows to everybody.
    pub board: Board,
    /// Who may order under `/admin`; `None` where nobody may.
    pub admin: Option<Gate>,
    catalog: Arc<Catalog>,
}

/// The service could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The queue or the artifact store could not be opened.
    #[error(transparent)]
    Jobs(#[from] jobs::Error),
    /// The client that asks `KernelBot` could not be made.
    #[error("KernelBot client: {0}")]
    KernelBot(#[from] reqwest::Error),
}

impl App {
    /// Sets everything up. Nothing is connected yet, so this works while the database is still starting.
    pub fn new(config: &Config) -> Result<Self, SetupError> {
        let kernelbot = config.kernelbot.as_ref().map(|kernelbot| {
            KernelBot::new(&kernelbot.url, kernelbot.timeout, kernelbot.max_questions, Lifetimes::default())
        });
        let queue = Queue::connect_lazy(&config.database, "ncu-api")?;
        Ok(Self {
            changes: Changes::new(queue.clone()),
            forecasts: Forecasts::new(queue.clone()),
            board: Board::new(queue.clone(), config.max_connections),
            queue,
            store: ArtifactStore::open(&config.artifacts)?,
            kernelbot: kernelbot.transpose()?,
            uploads: Places::new(config.max_uploads, config.max_uploads_per_user),
            waiters: Places::new(config.max_waiters, config.max_waiters_per_user),
            entries: Places::new(MAX_ENTRIES, MAX_ENTRIES_PER_USER),
            upload_timeout: config.upload_timeout,
            quotas: config.quotas,
            queueing: Semaphore::new(MAX_QUEUEING),
            share_results: config.share_results,
            database_patience: config.database_patience,
            known: LastKnown::default(),
            admin: config.admin_token.clone().map(Gate::new),
            catalog: Arc::new(Catalog::new(config.problems_dir.clone())),
        })
    }

    /// The problem behind a leaderboard's name.
    pub async fn problem(&self, name: String) -> Result<Arc<Problem>, ApiError> {
        let catalog = Arc::clone(&self.catalog);
        let found = tokio::task::spawn_blocking(move || catalog.problem(&name)).await;
        found.map_err(|error| ApiError::Internal(format!("catalog: {error}")))?.map_err(|error| {
            let sentence = error.to_string();
            match error {
                ProblemError::Unknown { .. } => ApiError::UnknownLeaderboard(sentence),
                ProblemError::NotProfilable(_) => ApiError::Unusable(sentence),
                ProblemError::Broken { detail, .. } => ApiError::BrokenLeaderboard { sentence, detail },
            }
        })
    }

    /// What of a problem a profile depends on; `None` where its files cannot be read now.
    pub async fn problem_version(&self, problem: Arc<Problem>) -> Option<String> {
        let catalog = Arc::clone(&self.catalog);
        let version = move || {
            let files = catalog.digests(&problem.files).ok()?;
            Some(jobs::problems::version(&catalog.revision(), &files))
        };
        tokio::task::spawn_blocking(version).await.ok().flatten()
    }

    /// The revision of the problems; unknown if it cannot be had.
    pub async fn revision(&self) -> Revision {
        let catalog = Arc::clone(&self.catalog);
        tokio::task::spawn_blocking(move || catalog.revision()).await.unwrap_or_default()
    }
}

/// Every path with what answers there. What it says to the outside is `docs/openapi.yaml`.
pub fn routes() -> [(&'static str, MethodRouter<Arc<App>>); 16] {
    [
        ("/", get(page::show)),
        ("/assets/{file}", get(page::asset)),
        ("/queue/events", get(page::events)),
        ("/sign-in", post(page::sign_in).layer(DefaultBodyLimit::max(page::MAX_FORM_BYTES))),
        ("/sign-out", post(page::sign_out).layer(DefaultBodyLimit::max(page::MAX_FORM_BYTES))),
        ("/health", get(health::show)),
        ("/openapi.yaml", get(openapi::show)),
        ("/profile", post(profile::submit).layer(DefaultBodyLimit::max(upload::MAX_FORM_BYTES))),
        ("/jobs", get(list::list)),
        ("/jobs/{id}", get(job::show).delete(cancel::cancel)),
        ("/jobs/{id}/events", get(events::stream)),
        ("/jobs/{id}/artifacts/{name}", get(artifact::download)),
        // A file's name has slashes, encoded or not.
        ("/jobs/{id}/artifacts/{name}/{*entry}", get(artifact::entry)),
        ("/jobs/{id}/compare/{other}", get(report::compare)),
        ("/jobs/{id}/report", get(report::show)),
        ("/jobs/{id}/cancel", post(page::cancel).layer(DefaultBodyLimit::max(page::MAX_FORM_BYTES))),
    ]
}

/// The service's paths.
pub fn router(app: Arc<App>) -> Router {
    let unless_set = |name, value| SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value));
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .merge(admin::router(&app))
        .fallback(async || ApiError::NoSuchPath)
        .method_not_allowed_fallback(async || ApiError::WrongMethod)
        .with_state(app)
        .layer(middleware::from_fn(drain::before_refusing))
        .layer(middleware::from_fn(observe::measured))
        .layer(CatchPanicLayer::custom(after_panic))
        // For browsers: what does not say that it is a page is none, whatever a submission has written into an answer.
        .layer(unless_set(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(unless_set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox"))
        .layer(unless_set(header::REFERRER_POLICY, "no-referrer"))
        .layer(unless_set(header::CACHE_CONTROL, "no-store"))
        // Faults are logged where they become a response, so the layer itself reports none.
        .layer(TraceLayer::new_for_http().make_span_with(observe::span).on_response(observe::answered).on_failure(()))
}

#[expect(clippy::needless_pass_by_value, reason = "the layer gives the panic away")]
fn after_panic(panic: Box<dyn Any + Send>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a text");
    ApiError::Internal(format!("panic: {text}")).into_response()
}
