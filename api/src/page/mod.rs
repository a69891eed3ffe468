//! `GET /`: the queue for everybody, and for who signs in with a CLI id the own jobs. HTML without a script, but for what keeps it
//! up to date.

mod assets;
mod board;
mod html;
mod visitor;

use std::sync::Arc;
use std::time::Duration;

use axum::Form;
use axum::extract::rejection::{FormRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jobs::browser::BrowserSecret;
use jobs::ids::{JobId, Owner};
use maud::Markup;
use serde::Deserialize;

pub use assets::show as asset;
pub use board::{Board, Look};
pub use visitor::Visitor;

use crate::app::App;
use crate::auth::Credential;
use crate::error::ApiError;
use crate::kernelbot::Verdict;
use crate::retry::patiently;
use html::Own;

/// Largest form of the page, in bytes.
pub const MAX_FORM_BYTES: usize = 4096;
/// Own jobs on the page.
const MAX_JOBS: u32 = 50;
/// How long the database may take for them, and for what a form asks.
const PATIENCE: Duration = Duration::from_secs(3);
/// Scripts and styles are ours alone and never inline; forms go nowhere else; nobody frames the page.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                       form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What the form to sign in carries.
#[derive(Deserialize)]
pub struct SignIn {
    token: String,
    cli_id: String,
}

/// What a form carries that is only a button.
#[derive(Deserialize)]
pub struct Button {
    token: String,
}

/// Shows the page. In an outage of the database it shows what it can.
pub async fn show(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    match Visitor::of(&app, &headers).await {
        Ok(visitor) => page(&app, &headers, &visitor, None).await,
        Err(error) => {
            error.log();
            let visitor = Visitor::without_session(&headers);
            let look = app.board.look().await;
            answer(StatusCode::OK, &html::page(look.as_ref(), &visitor, &Own::Away))
        }
    }
}

/// Streams the queue as it changes.
pub async fn events(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, ApiError> {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepts.contains("text/event-stream") {
        return Err(ApiError::NotAStream);
    }
    let body = app.board.follow()?;
    // A proxy that collects what it passes on would hold the events back.
    let headers = [("content-type", "text/event-stream"), ("x-accel-buffering", "no")];
    Ok((headers, body).into_response())
}

/// Signs in with a CLI id that `KernelBot` knows.
pub async fn sign_in(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    form: Result<Form<SignIn>, FormRejection>,
) -> Response {
    let form = form.map_err(|_| ApiError::ForeignForm);
    let signed_in = async {
        let Form(SignIn { token, cli_id }) = form?;
        let visitor = Visitor::of(&app, &headers).await?;
        visitor.must_have_sent(&headers, &token)?;
        let owner = known_owner(&app, &cli_id).await?;
        if visitor.owner.is_some() {
            app.queue.end_session(&visitor.secret.session_key()).await.map_err(ApiError::DatabaseAway)?;
        }
        // A new secret each time: one that somebody has planted in the browser is worth nothing.
        let secret = BrowserSecret::random();
        let key = secret.session_key();
        patiently(PATIENCE, || app.queue.open_session(&key, &owner, visitor::SESSION_LIFETIME)).await?;
        tracing::info!(?owner, "signed in at the page");
        Ok(secret)
    };
    match signed_in.await {
        Ok(secret) => to_the_page(Some(visitor::session_cookie(&secret, &headers))),
        Err(error @ ApiError::ForeignForm) => refused(&error),
        // The form again, but for who is signed in already, by another tab.
        Err(error) => match Visitor::of(&app, &headers).await {
            Ok(visitor) if visitor.owner.is_none() => {
                error.log();
                page(&app, &headers, &visitor, Some(&error)).await
            }
            _ => refused(&error),
        },
    }
}

/// Ends the session.
pub async fn sign_out(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    form: Result<Form<Button>, FormRejection>,
) -> Response {
    let signed_out = async {
        let visitor = sender(&app, &headers, form).await?;
        let key = visitor.secret.session_key();
        patiently(PATIENCE, || app.queue.end_session(&key)).await
    };
    match signed_out.await {
        Ok(()) => to_the_page(Some(visitor::no_session_cookie(&headers))),
        Err(error) => refused(&error),
    }
}

/// Cancels a job of who is signed in.
pub async fn cancel(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    path: Result<Path<String>, PathRejection>,
    form: Result<Form<Button>, FormRejection>,
) -> Response {
    let cancelled = async {
        let visitor = sender(&app, &headers, form).await?;
        let owner = visitor.owner.ok_or(ApiError::NotSignedIn)?;
        let Path(id) = path.map_err(|_| ApiError::NoSuchJob)?;
        let id: JobId = id.parse().map_err(|_| ApiError::NoSuchJob)?;
        // One that has ended meanwhile is shown so by the page.
        patiently(PATIENCE, || app.queue.cancel_own(id, &owner)).await?.ok_or(ApiError::NoSuchJob)?;
        tracing::info!(job = %id, "its owner cancels a job at the page");
        Ok(())
    };
    match cancelled.await {
        Ok(()) => to_the_page(None),
        Err(error) => refused(&error),
    }
}

/// Who sent a form that is a button; nobody else than a page of this service does.
async fn sender(
    app: &App,
    headers: &HeaderMap,
    form: Result<Form<Button>, FormRejection>,
) -> Result<Visitor, ApiError> {
    let Form(Button { token }) = form.map_err(|_| ApiError::ForeignForm)?;
    let visitor = Visitor::of(app, headers).await?;
    if visitor.owner.is_none() && Visitor::has_session(headers) {
        return Err(ApiError::NotSignedIn);
    }
    visitor.must_have_sent(headers, &token)?;
    Ok(visitor)
}

/// The owner behind a CLI id that may come in: the question and its limits are those of a submission.
async fn known_owner(app: &App, cli_id: &str) -> Result<Owner, ApiError> {
    if app.kernelbot.is_none() && cli_id.trim().is_empty() {
        return Ok(Owner::from_credential(""));
    }
    let credential = Credential::typed(cli_id)?;
    match &app.kernelbot {
        Some(kernelbot) => match kernelbot.verdict(&credential).await {
            Verdict::Valid => Ok(credential.owner()),
            Verdict::Invalid => Err(ApiError::RefusedCredential),
            Verdict::Unknown => Err(ApiError::KernelBotAway),
        },
        None => Ok(credential.owner()),
    }
}

async fn page(app: &App, headers: &HeaderMap, visitor: &Visitor, refusal: Option<&ApiError>) -> Response {
    let look = app.board.look().await;
    let sentence = refusal.map(words);
    let own = match visitor.owner {
        None => Own::SignIn { refusal: sentence.as_deref(), is_checked: app.kernelbot.is_some() },
        Some(owner) => match patiently(PATIENCE, || app.queue.own_jobs(&owner, MAX_JOBS)).await {
            Ok(jobs) => Own::Jobs(jobs),
            Err(error) => {
                error.log();
                Own::Away
            }
        },
    };
    let status = refusal.map_or(StatusCode::OK, ApiError::status);
    let mut response = answer(status, &html::page(look.as_ref(), visitor, &own));
    if let Some(cookie) = visitor.new_cookie(headers) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Why somebody is not signed in; what a client is told speaks of headers and submissions.
fn words(error: &ApiError) -> String {
    match error {
        ApiError::NoCredential | ApiError::MalformedCredential => {
            "This is no CLI id: take the one in ~/.popcorn.yaml, as it stands there.".to_owned()
        }
        ApiError::RefusedCredential => {
            "KernelBot does not accept this CLI id: run `popcorn reregister` and sign in with the new one.".to_owned()
        }
        ApiError::KernelBotAway => {
            "KernelBot could not be asked about your CLI id: sign in again in a minute.".to_owned()
        }
        other => other.to_string(),
    }
}

fn refused(error: &ApiError) -> Response {
    error.log();
    answer(error.status(), &html::refusal(&error.to_string()))
}

/// Back to the page, so that a reload repeats nothing.
fn to_the_page(cookie: Option<HeaderValue>) -> Response {
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// A page of this service. Its forms need `Origin`, which a browser leaves out of them where it may name no referrer at all.
fn answer(status: StatusCode, page: &Markup) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "same-origin"),
    ];
    (status, headers, page.0.clone()).into_response()
}
