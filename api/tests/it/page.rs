//! The page at `/`: what everybody sees, who may sign in, and which forms count.

use std::time::Duration;

use jobs::browser::BrowserSecret;
use jobs::ids::Owner;
use reqwest::{Method, StatusCode};

use crate::support::outage::Wire;
use crate::support::{Answer, Form, Service, description, send};

/// A browser: it keeps cookies, and sends forms as the page has them.
struct Browser<'a> {
    service: &'a Service,
    cookies: Vec<(String, String)>,
    page: String,
}

impl<'a> Browser<'a> {
    async fn open(service: &'a Service) -> Self {
        let mut browser = Self { service, cookies: Vec::new(), page: String::new() };
        browser.load().await;
        browser
    }

    async fn load(&mut self) {
        let answer = self.send(Method::GET, "/", None, None).await;
        assert_eq!(answer.status, StatusCode::OK);
        self.page = String::from_utf8(answer.bytes).unwrap();
    }

    fn token(&self) -> String {
        self.page.split_once("name=\"token\" value=\"").unwrap().1.split('"').next().unwrap().to_owned()
    }

    fn origin(&self) -> String {
        format!("http://{}", self.service.address)
    }

    async fn send(&mut self, method: Method, path: &str, form: Option<&str>, origin: Option<&str>) -> Answer {
        let mut request = self.service.request(method, path, None).header("Accept", "text/html");
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request = request.header("Cookie", cookies.join("; "));
        }
        if let Some(origin) = origin {
            request = request.header("Origin", origin);
        }
        if let Some(form) = form {
            request = request.header("Content-Type", "application/x-www-form-urlencoded").body(form.to_owned());
        }
        let answer = send(request).await;
        for cookie in answer.headers.get_all("set-cookie") {
            let (name, value) = cookie.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        answer
    }

    /// Sends a form of the page, with what it adds to the token.
    async fn submit(&mut self, path: &str, fields: &str) -> Answer {
        let (form, origin) = (format!("token={}{fields}", self.token()), self.origin());
        self.send(Method::POST, path, Some(&form), Some(&origin)).await
    }

    async fn sign_in(&mut self, cli_id: &str) -> Answer {
        let answer = self.submit("/sign-in", &format!("&cli_id={cli_id}")).await;
        self.load().await;
        answer
    }

    fn session(&self) -> Option<&str> {
        self.cookies.iter().find(|(name, _)| name == "ncu_session").map(|(_, value)| value.as_str())
    }
}

#[tokio::test]
async fn everybody_sees_the_queue_and_nobodys_name() {
    let service = Service::start().await;
    let (first, second) = (service.accepted("good-alice").await, service.accepted("good-bob").await);
    service.queue.note_gpus("secret-worker", "secret-host", "NVIDIA H200").await.unwrap();
    let claim = service.queue.claim("secret-worker", Duration::from_mins(1)).await.unwrap().unwrap();
    let board = service.queue.board().await.unwrap();
    assert_eq!((board.running.len(), board.queued.len()), (1, 1));
    let page = Browser::open(&service).await.page;
    assert!(page.contains("<strong>1</strong> running, <strong>1</strong> waiting"), "{page}");
    assert!(page.contains("qr_v2") && page.contains("NVIDIA H200") && page.contains("runs a job"), "{page}");
    service.queue.cancel(claim.id).await.unwrap();
    service.queue.finish_cancelled(claim.id, claim.token).await.unwrap();
    // This one has looked a moment ago; another has not.
    let other = Service::start_on(&service.database, &[]).await;
    let ended = Browser::open(&other).await.page;
    assert!(ended.contains("<span class=\"state failed\">cancelled</span>"), "{ended}");
    // Its start, as operators see it.
    let owner = format!("{:?}", Owner::from_credential("good-alice"));
    let owner = owner.trim_start_matches("Owner(").trim_end_matches(')');
    for secret in [first.as_str(), &second, "alice", "bob", "submission.py", "secret-", owner] {
        assert!(!page.contains(secret) && !ended.contains(secret), "{secret} is on the page");
    }
}

#[tokio::test]
async fn who_signs_in_sees_the_own_jobs_until_the_session_ends() {
    let service = Service::start().await;
    let (own, foreign) = (service.accepted("good-alice").await, service.accepted("good-bob").await);
    let mut browser = Browser::open(&service).await;
    let answer = browser.sign_in("bad-alice").await;
    assert_eq!((answer.status, browser.session()), (StatusCode::UNAUTHORIZED, None));
    assert!(String::from_utf8_lossy(&answer.bytes).contains("KernelBot does not accept this CLI id"), "{answer:?}");
    assert_eq!(browser.sign_in("no%20id").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(browser.sign_in("ill-id").await.status, StatusCode::SERVICE_UNAVAILABLE);

    assert_eq!(browser.sign_in("good-alice").await.status, StatusCode::SEE_OTHER);
    assert!(browser.page.contains(&format!("/jobs/{own}")) && !browser.page.contains(&foreign), "{}", browser.page);
    let session = browser.session().unwrap().to_owned();
    assert!(!session.contains("alice"));
    let stored = crate::secrets::dump(&service.pool).await;
    assert!(stored.contains("sessions") && !stored.contains(&session), "the cookie is in the database");
    // KernelBot was asked for the submission, and its word counts for the page.
    assert_eq!(service.kernelbot.asked("good-alice"), 1);

    // The session reads what is its owner's, at another API on that database as well.
    let other = Service::start_on(&service.database, &[]).await;
    browser.service = &other;
    let job = browser.send(Method::GET, &format!("/jobs/{own}"), None, None).await;
    assert_eq!(job.json()["id"], own);
    assert_eq!(browser.send(Method::GET, &format!("/jobs/{foreign}"), None, None).await.status, StatusCode::NOT_FOUND);
    // And it submits nothing: the cookie alone is no credential there.
    let cookie = format!("ncu_session={session}");
    let submitted = Form::usual().onto(service.request(Method::POST, "/profile", None)).header("Cookie", cookie);
    assert_eq!(send(submitted).await.status, StatusCode::UNAUTHORIZED);

    let copied = browser.cookies.clone();
    assert_eq!(browser.submit("/sign-out", "").await.status, StatusCode::SEE_OTHER);
    assert_eq!(browser.session(), None);
    browser.cookies = copied;
    browser.load().await;
    assert!(!browser.page.contains(&own), "a copied cookie outlives the session");

    browser.cookies.clear();
    browser.load().await;
    browser.sign_in("good-alice").await;
    sqlx::query("UPDATE sessions SET expires_at = now()").execute(&service.pool).await.unwrap();
    let job = browser.send(Method::GET, &format!("/jobs/{own}"), None, None).await;
    assert_eq!(job.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_oldest_session_of_an_owner_makes_room_and_nobody_elses() {
    let service = Service::start().await;
    let (alice, bob) = (Owner::from_credential("good-alice"), Owner::from_credential("good-bob"));
    let lifetime = Duration::from_mins(1);
    let (foreign, first) = (BrowserSecret::random().session_key(), BrowserSecret::random().session_key());
    service.queue.open_session(&foreign, &bob, lifetime).await.unwrap();
    service.queue.open_session(&first, &alice, lifetime).await.unwrap();
    for more in 1..=10 {
        assert_eq!(service.queue.session_owner(&first).await.unwrap(), Some(alice), "before {more} more");
        service.queue.open_session(&BrowserSecret::random().session_key(), &alice, lifetime).await.unwrap();
    }
    assert_eq!(service.queue.session_owner(&first).await.unwrap(), None);
    assert_eq!(service.queue.session_owner(&foreign).await.unwrap(), Some(bob));
}

#[tokio::test]
async fn a_form_counts_only_from_the_page_of_the_same_browser() {
    let service = Service::start().await;
    let (own, foreign) = (service.accepted("good-alice").await, service.accepted("good-bob").await);
    let mut browser = Browser::open(&service).await;
    let visit = browser.token();
    browser.sign_in("good-alice").await;
    let (token, origin) = (browser.token(), browser.origin());
    let mut stranger = Browser::open(&service).await;
    stranger.sign_in("good-bob").await;
    let cancel = format!("/jobs/{own}/cancel");
    let evil = Some("http://evil.example");
    for (path, form, from) in [
        (cancel.as_str(), format!("token={token}"), evil),
        (&cancel, format!("token={token}"), Some("null")),
        (&cancel, format!("token={token}"), None),
        (&cancel, format!("token={}", stranger.token()), Some(origin.as_str())),
        (&cancel, format!("token={visit}"), Some(&origin)),
        (&cancel, "token=".to_owned(), Some(&origin)),
        (&cancel, String::new(), Some(&origin)),
        ("/sign-out", format!("token={token}"), evil),
        ("/sign-in", format!("token={token}&cli_id=good-mallory"), evil),
        ("/sign-in", format!("token={visit}&cli_id=good-mallory"), Some(&origin)),
    ] {
        let answer = browser.send(Method::POST, path, Some(&form), from).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {form} {from:?}");
    }
    assert_eq!(service.kernelbot.asked("good-mallory"), 0);
    let open = "SELECT count(*) FROM jobs WHERE state = 'queued'";
    assert_eq!(sqlx::query_scalar::<_, i64>(open).fetch_one(&service.pool).await.unwrap(), 2);

    assert_eq!(browser.submit(&format!("/jobs/{foreign}/cancel"), "").await.status, StatusCode::NOT_FOUND);
    // One that nobody runs is ended by the worker that would take it.
    assert_eq!(browser.submit(&cancel, "").await.status, StatusCode::SEE_OTHER);
    let cancelled = "SELECT cancel_requested FROM jobs ORDER BY seq";
    let cancelled: Vec<bool> = sqlx::query_scalar(cancelled).fetch_all(&service.pool).await.unwrap();
    assert_eq!(cancelled, [true, false]);
    browser.load().await;
    assert!(!browser.page.contains(&cancel), "what is cancelled is offered for that again");
}

#[tokio::test]
async fn followers_hear_of_a_change_and_the_database_does_not_hear_of_them() {
    let service = Service::start().await;
    let mut followers = Vec::new();
    for _ in 0..20 {
        followers.push(events(&service).await);
    }
    let first = Duration::from_secs(10);
    for follower in &mut followers {
        assert!(tokio::time::timeout(first, heard(follower, "Nothing waits.")).await.unwrap());
    }
    service.accepted("good-alice").await;
    for follower in &mut followers {
        assert!(tokio::time::timeout(first, heard(follower, "qr_v2")).await.unwrap());
    }
    // A stop ends the streams at once, and lets nobody wait for them.
    service.app.board.close();
    for mut follower in followers {
        assert!(!tokio::time::timeout(first, heard(&mut follower, "never said")).await.unwrap());
    }
}

async fn events(service: &Service) -> reqwest::Response {
    let request = service.request(Method::GET, "/queue/events", None).header("Accept", "text/event-stream");
    let response = request.send().await.unwrap();
    let answer = Answer { status: response.status(), headers: response.headers().clone(), bytes: Vec::new() };
    description::check(&Method::GET, "/queue/events", &answer);
    response
}

/// Reads a stream until it says something; `false` when it ends before.
async fn heard(response: &mut reqwest::Response, what: &str) -> bool {
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(&String::from_utf8_lossy(&chunk));
        if text.contains(what) {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_browser_is_told_what_the_page_may_load_and_nothing_else_is_a_page() {
    let service = Service::start().await;
    let answer = send(service.request(Method::GET, "/", None)).await;
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'") && !policy.contains("unsafe")
    );
    assert_eq!(
        (&answer.headers["referrer-policy"], &answer.headers["cache-control"]),
        (&"same-origin".parse().unwrap(), &"no-store".parse().unwrap())
    );
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict") && !cookie.contains("Secure"), "{cookie}");
    let tls = send(service.request(Method::GET, "/", None).header("X-Forwarded-Proto", "https")).await;
    assert!(tls.headers["set-cookie"].to_str().unwrap().ends_with("; Secure"));
    // Nothing on it is inline, and what it loads is there.
    let page = String::from_utf8(answer.bytes).unwrap();
    assert!(!page.contains("style=") && !page.contains("<style") && !page.contains("onclick"));
    let assets: Vec<&str> = page.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert_eq!(assets.len(), 2, "{page}");
    for asset in assets {
        let answer = send(service.request(Method::GET, asset, None)).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(answer.headers["cache-control"].to_str().unwrap().contains("immutable"));
    }
}

/// For the test that sees every described answer.
pub async fn every_described_answer(service: &Service) {
    for method in [Method::GET, Method::HEAD] {
        let get = |path: &str| service.request(method.clone(), path, None);
        let page = send(get("/")).await;
        assert_eq!(page.status, 200);
        assert_eq!(send(get("/assets/none.css")).await.status, 404);
        assert_eq!(send(get("/queue/events")).await.status, 406);
    }
    let page = Browser::open(service).await.page;
    let style = page.split('"').find(|part| part.starts_with("/assets/")).unwrap();
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(send(service.request(method, style, None)).await.status, 200);
    }
    let head =
        |service: &Service| service.request(Method::HEAD, "/queue/events", None).header("Accept", "text/event-stream");
    assert_eq!(send(head(service)).await.status, 200);
    let narrow = Service::start_with(&[("NCU_SERVICE_MAX_CONNECTIONS", "4")]).await;
    let _stream = events(&narrow).await;
    assert_eq!(send(head(&narrow)).await.status, 503);
    let full = narrow.request(Method::GET, "/queue/events", None).header("Accept", "text/event-stream");
    assert_eq!(send(full).await.status, 503);

    let id = service.accepted("good-browser").await;
    let (cancel, nobodys) = (format!("/jobs/{id}/cancel"), "/jobs/0123456789abcdef0123456789abcdef/cancel");
    let mut browser = Browser::open(service).await;
    assert_eq!(browser.sign_in("bad-id").await.status, 401);
    assert_eq!(browser.sign_in("ill-id").await.status, 503);
    assert_eq!(browser.submit(&cancel, "").await.status, 401);
    for path in [cancel.as_str(), "/sign-in", "/sign-out"] {
        assert_eq!(browser.send(Method::POST, path, Some("token=x&cli_id=x"), None).await.status, 403);
    }
    assert_eq!(browser.sign_in("good-browser").await.status, 303);
    assert_eq!(browser.submit(nobodys, "").await.status, 404);
    assert_eq!(browser.submit(&cancel, "").await.status, 303);
    let copied = browser.cookies.clone();
    assert_eq!(browser.submit("/sign-out", "").await.status, 303);
    browser.cookies.clone_from(&copied);
    assert_eq!(browser.submit("/sign-out", "").await.status, 401);

    let wire = Wire::to("127.0.0.1:1".to_owned()).await;
    let nowhere = format!("postgres://nobody@{}/nothing", wire.address);
    let settings = [("NCU_SERVICE_DATABASE_URL", nowhere.as_str()), ("NCU_SERVICE_DATABASE_PATIENCE_SECS", "1")];
    let away = Service::start_with(&settings).await;
    let mut browser = Browser { service: &away, cookies: copied, page: browser.page };
    assert_eq!(browser.submit(&cancel, "").await.status, 503);
    assert_eq!(browser.submit("/sign-out", "").await.status, 503);
    browser.load().await;
    assert!(browser.page.contains("cannot be read at this moment"), "{}", browser.page);
}
