//! `/admin`: the operators' commands by HTTP, for who has the token. Without a token in the settings none of these paths exists.
//!
//! Every use is recorded in `admin_log`, also one that is refused. A wrong token is answered after a while, one at a time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use jobs::admin::{self, AdminToken, Answer, Command};
use jobs::ids::JobId;
use jobs::queue::{Actor, Deed};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::error::ApiError;

/// What stands in the record for an order that came this way.
const WAY: &str = "http";
/// Names the person who orders, for the record; whoever has the token is believed.
const ACTOR_HEADER: &str = "x-admin-actor";
/// Largest body of an order, in bytes.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// How long the database may take for an order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer to a wrong token takes.
const WRONG_TOKEN_DELAY: Duration = Duration::from_secs(1);
/// Wrong tokens that wait for their answer; one more is turned away and not recorded, since the record would grow without end.
const MAX_WRONG_WAITING: usize = 16;

/// Who may order, and how wrong tokens are slowed down.
#[derive(Debug)]
pub struct Gate {
    token: AdminToken,
    waiting: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

impl Gate {
    /// A gate for that token.
    #[must_use]
    pub fn new(token: AdminToken) -> Self {
        Self { token, waiting: Arc::new(Semaphore::new(MAX_WRONG_WAITING)), turn: Arc::new(Semaphore::new(1)) }
    }
}

/// The paths under `/admin`; none where the settings hold no token.
pub fn router(app: &Arc<App>) -> Router<Arc<App>> {
    if app.admin.is_none() {
        return Router::new();
    }
    let orders = Router::new()
        .route("/queue", get(status))
        .route("/queue/pause", post(pause))
        .route("/queue/resume", post(resume))
        .route("/jobs", get(list))
        .route("/jobs/{id}", get(show))
        .route("/jobs/{id}/cancel", post(cancel))
        .route("/jobs/{id}/requeue", post(requeue))
        .route("/jobs/{id}/priority", post(reorder))
        .route("/workers/{name}/drain", post(drain))
        .route("/workers/{name}/unquarantine", post(unquarantine))
        .route("/prune", post(prune))
        .fallback(async |desk: Desk| desk.refuse(ApiError::NoSuchOrder).await)
        .method_not_allowed_fallback(async |desk: Desk| desk.refuse(ApiError::WrongOrderMethod).await)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(app), must_have_the_token));
    Router::new().nest("/admin", orders)
}

/// Lets nobody else in, whatever the path.
async fn must_have_the_token(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(gate) = &app.admin else { return ApiError::NoSuchPath.into_response() };
    let sent = bearer(request.headers());
    if sent.is_some_and(|token| gate.token.is(token)) {
        return next.run(request).await;
    }
    let why = if sent.is_some() { "wrong token" } else { "no token" };
    let Ok(waiting) = Arc::clone(&gate.waiting).try_acquire_owned() else {
        return ApiError::TooManyWrongTokens.into_response();
    };
    let (turn, app) = (Arc::clone(&gate.turn), Arc::clone(&app));
    let path = whole_path(request.uri());
    // Apart from the request: who hangs up is recorded all the same, and is no sooner at the next try.
    let refusal = tokio::spawn(async move {
        let _turn = turn.acquire_owned().await;
        tracing::warn!(why, "a request under /admin was refused");
        note(&app, &Actor::over(WAY, ""), &Deed { action: WAY, target: Some(path), details: None }, why).await;
        sleep(WRONG_TOKEN_DELAY).await;
        drop(waiting);
    });
    // A panic there changes nothing of the answer.
    let _ = refusal.await;
    ApiError::NoAdminToken.into_response()
}

/// The path as it was asked for: in here its start is cut off.
fn whole_path(uri: &Uri) -> String {
    format!("/admin{}", uri.path().trim_end_matches('/'))
}

/// The token of an `Authorization: Bearer` header, of which there must be one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Where an order is taken: by whom, and at which path.
struct Desk {
    app: Arc<App>,
    actor: Actor,
    path: String,
}

impl FromRequestParts<Arc<App>> for Desk {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let name = parts.headers.get(ACTOR_HEADER).and_then(|name| name.to_str().ok()).unwrap_or_default();
        let actor = Actor::over(WAY, name);
        Ok(Self { app: Arc::clone(app), actor, path: whole_path(&parts.uri) })
    }
}

type Ordered = Result<Json<Answer>, ApiError>;

impl Desk {
    /// Does it. A command records itself; what never became one is recorded here.
    async fn order(self, command: Result<Command, ApiError>) -> Ordered {
        let command = match command {
            Ok(command) => command,
            Err(error) => return Err(self.refuse(error).await),
        };
        tracing::info!(actor = self.actor.as_str(), ?command, "an operator's order");
        match timeout(ORDER_TIMEOUT, admin::run(&self.app.queue, &self.actor, &command)).await {
            Ok(Ok(answer)) => Ok(Json(answer)),
            Ok(Err(jobs::Error::NoSuch(sentence))) => Err(ApiError::NoSuchTarget(sentence)),
            Ok(Err(jobs::Error::Refused(sentence))) => Err(ApiError::OrderRefused(sentence)),
            Ok(Err(error)) => Err(ApiError::DatabaseAway(error)),
            Err(_) => Err(ApiError::DatabaseSilent),
        }
    }

    async fn refuse(self, error: ApiError) -> ApiError {
        let deed = Deed { action: WAY, target: Some(self.path), details: None };
        note(&self.app, &self.actor, &deed, &error.to_string()).await;
        error
    }
}

/// Notes a refusal. One that cannot be noted is refused all the same.
async fn note(app: &App, actor: &Actor, deed: &Deed, why: &str) {
    match timeout(ORDER_TIMEOUT, app.queue.note_refusal(actor, deed, why)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a refusal could not be recorded"),
        Err(_) => tracing::warn!("a refusal could not be recorded in time"),
    }
}

/// The body as JSON; an empty one counts as `{}`.
fn body<T: DeserializeOwned>(bytes: Result<Bytes, BytesRejection>, expected: &str) -> Result<T, ApiError> {
    let unusable = || ApiError::Unusable(format!("The body is expected as JSON like {expected}."));
    let bytes = bytes.map_err(|_| unusable())?;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(text).map_err(|_| unusable())
}

type IdPath = Result<Path<String>, PathRejection>;

fn job(path: IdPath) -> Result<JobId, ApiError> {
    let unknown = || ApiError::NoSuchTarget("There is no job of this id.".to_owned());
    let Path(id) = path.map_err(|_| unknown())?;
    admin::job_id(&id).map_err(|_| unknown())
}

fn worker(path: IdPath) -> Result<String, ApiError> {
    path.map(|Path(name)| name).map_err(|_| ApiError::NoSuchOrder)
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pause {
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Priority {
    priority: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    #[serde(default)]
    ended: bool,
    #[serde(default = "usual_limit")]
    limit: u32,
}

fn usual_limit() -> u32 {
    admin::USUAL_LIMIT
}

async fn status(desk: Desk) -> Ordered {
    desk.order(Ok(Command::Status)).await
}

async fn pause(desk: Desk, bytes: Result<Bytes, BytesRejection>) -> Ordered {
    let pause: Result<Pause, _> = body(bytes, r#"{"reason": "a new driver"}"#);
    desk.order(pause.map(|Pause { reason }| Command::Pause { reason })).await
}

async fn resume(desk: Desk) -> Ordered {
    desk.order(Ok(Command::Resume)).await
}

async fn list(desk: Desk, which: Result<Query<Which>, QueryRejection>) -> Ordered {
    let unusable = |_| ApiError::Unusable("The list takes ?ended=true and ?limit=N.".to_owned());
    desk.order(which.map(|Query(Which { ended, limit })| Command::List { ended, limit }).map_err(unusable)).await
}

async fn show(desk: Desk, id: IdPath) -> Ordered {
    desk.order(job(id).map(|job| Command::Show { job })).await
}

async fn cancel(desk: Desk, id: IdPath) -> Ordered {
    desk.order(job(id).map(|job| Command::Cancel { job })).await
}

async fn requeue(desk: Desk, id: IdPath) -> Ordered {
    desk.order(job(id).map(|job| Command::Requeue { job })).await
}

async fn reorder(desk: Desk, id: IdPath, bytes: Result<Bytes, BytesRejection>) -> Ordered {
    let priority: Result<Priority, _> = body(bytes, r#"{"priority": 1}"#);
    let command = job(id).and_then(|job| Ok(Command::Reorder { job, priority: priority?.priority }));
    desk.order(command).await
}

async fn drain(desk: Desk, name: IdPath) -> Ordered {
    desk.order(worker(name).map(|worker| Command::Drain { worker })).await
}

async fn unquarantine(desk: Desk, name: IdPath) -> Ordered {
    desk.order(worker(name).map(|worker| Command::Unquarantine { worker })).await
}

async fn prune(desk: Desk) -> Ordered {
    desk.order(Ok(Command::Prune)).await
}
