//! What the tests share: a running service, the forms that clients send, what came back.

pub mod description;
pub mod form;
pub mod kernelbot;
pub mod logs;
pub mod otlp;
pub mod outage;
pub mod problems;
pub mod trace_tree;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jobs::config::Reader;
use jobs::queue::{Queue, RunEnd, State};
use ncu_api::app::{self, App};
use ncu_api::config::Config;
use ncu_api::serve::{self, Limits};
use reqwest::{Method, StatusCode, header::HeaderMap, redirect::Policy};
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use form::Form;
pub use kernelbot::FakeKernelBot;

/// A service of a test's own, with its own database, problems, store and `KernelBot`.
pub struct Service {
    pub address: SocketAddr,
    /// URL of its database, without the wire that a test may have put in between.
    pub database: String,
    pub queue: Queue,
    pub pool: PgPool,
    pub app: Arc<App>,
    pub kernelbot: FakeKernelBot,
    pub folder: TempDir,
    pub stop: Option<oneshot::Sender<()>>,
    pub served: tokio::task::JoinHandle<()>,
    http: reqwest::Client,
}

/// How a shape ends, with nothing to say of it.
pub fn run_end(state: State) -> RunEnd {
    RunEnd {
        state,
        exit_code: Some(i32::from(state != State::Succeeded)),
        error: None,
        output_tail: None,
        simulated: false,
        clock_control: None,
        launches: Vec::new(),
        coverage: None,
        digest: None,
        artifact: None,
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The sentence of a refusal, which is all there is in it.
    pub fn detail(&self) -> String {
        let body = self.json();
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        body["detail"].as_str().unwrap().to_owned()
    }
}

impl Service {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A service with some settings changed.
    pub async fn start_with(changes: &[(&str, &str)]) -> Self {
        Self::start_on(&database().await, changes).await
    }

    /// A service on a given database, which it may reach by another URL: a changed setting.
    pub async fn start_on(database: &str, changes: &[(&str, &str)]) -> Self {
        logs::capture();
        // Every test of the binary shares the process, and the first one there installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kernelbot = FakeKernelBot::start().await;
        let folder = tempfile::tempdir().unwrap();
        problems::write(&folder.path().join("problems"));

        let mut settings: Vec<(&str, String)> = vec![
            ("NCU_SERVICE_DATABASE_URL", database.to_owned()),
            ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", folder.path().join("problems").display().to_string()),
            ("NCU_SERVICE_ARTIFACTS_URL", format!("file://{}", folder.path().join("artifacts").display())),
            ("KERNELBOT_API_URL", kernelbot.url.clone()),
        ];
        settings.extend(changes.iter().map(|&(name, value)| (name, value.to_owned())));
        let config = Config::read(&mut Reader::from_pairs(settings)).unwrap();

        let pool = PgPool::connect(database).await.unwrap();
        let queue = Queue::new(pool.clone());
        queue.migrate().await.unwrap();
        let app = Arc::new(App::new(&config).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let router = app::router(Arc::clone(&app));
        let waiting = Arc::clone(&app);
        let served = tokio::spawn(async move {
            let stop = async {
                // The sender going away with the test is a stop as well.
                drop(stopped.await);
                waiting.changes.close();
            };
            serve::serve(listener, router, stop, &Limits::from(&config)).await;
        });
        // What is answered is looked at, not where it leads.
        let http = reqwest::Client::builder().timeout(Duration::from_mins(1)).redirect(Policy::none()).build().unwrap();
        let database = database.to_owned();
        Self { address, database, queue, pool, app, kernelbot, folder, stop: Some(stop), served, http }
    }

    pub fn request(&self, method: Method, path: &str, cli_id: Option<&str>) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("http://{}{path}", self.address));
        match cli_id {
            Some(cli_id) => request.header("X-Popcorn-Cli-Id", cli_id),
            None => request,
        }
    }

    pub async fn get(&self, path: &str, cli_id: &str) -> Answer {
        send(self.request(Method::GET, path, Some(cli_id))).await
    }

    pub async fn submit(&self, cli_id: &str, form: Form) -> Answer {
        send(form.onto(self.request(Method::POST, "/profile", Some(cli_id)))).await
    }

    /// Submits the usual form and returns the job's id.
    pub async fn accepted(&self, cli_id: &str) -> String {
        let answer = self.submit(cli_id, Form::usual()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        answer.json()["job_id"].as_str().unwrap().to_owned()
    }

    /// Cancels every job that waits; returns how many there were.
    pub async fn end_all_jobs(&self) -> usize {
        let mut count = 0;
        while let Some(claim) = self.queue.claim("a worker", Duration::from_mins(1)).await.unwrap() {
            self.queue.cancel(claim.id).await.unwrap();
            self.queue.finish_cancelled(claim.id, claim.token).await.unwrap();
            count += 1;
        }
        count
    }

    pub async fn jobs(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM jobs").fetch_one(&self.pool).await.unwrap()
    }
}

/// Sends a request, reads the answer to its end, and holds it against the description of the API.
pub async fn send(request: reqwest::RequestBuilder) -> Answer {
    let (client, request) = request.build_split();
    let request = request.unwrap();
    let (method, path) = (request.method().clone(), request.url().path().to_owned());
    let response = client.execute(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let answer = Answer { status, headers, bytes: response.bytes().await.unwrap().to_vec() };
    description::check(&method, &path, &answer);
    answer
}

/// Creates a database and returns its URL. It is left behind for a look after a failure; the server is thrown away.
pub async fn database() -> String {
    let maintenance = std::env::var("NCU_SERVICE_TEST_DATABASE_URL")
        .expect("NCU_SERVICE_TEST_DATABASE_URL is not set; run the tests with scripts/test");
    let options: PgConnectOptions = maintenance.parse().unwrap();
    let name = format!("api_{}", jobs::ids::JobId::random());
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let mut url = reqwest::Url::parse(&maintenance).unwrap();
    url.set_path(&name);
    url.to_string()
}
