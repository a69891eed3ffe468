//! The whole stack as processes: API, workers, Postgres, a container engine, and a client that reads what popcorn-cli reads.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;
use sqlx::PgPool;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};
use zip::ZipArchive;

use super::engine::{containers, image};
use crate::support::{FakeKernelBot, Form, database};

/// Longest that any job of a test may take, with a crowded machine in mind.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// How often a client of a test polls.
pub const POLL: Duration = Duration::from_millis(200);

pub const CLI_ID: &str = "good-stack";
pub const LEADERBOARD: &str = "vectoradd_sample";

pub struct Stack {
    folder: TempDir,
    database: String,
    kernelbot: FakeKernelBot,
    port: u16,
    http: reqwest::Client,
    /// Settings of both programs, beside the usual ones.
    settings: Vec<(&'static str, String)>,
    api: Option<Child>,
}

impl Stack {
    /// API without a worker.
    pub async fn start() -> Self {
        Self::start_on(database().await).await
    }

    pub async fn start_on(database: String) -> Self {
        Self::start_with(database, |_| Vec::new()).await
    }

    /// Both programs get the settings that are made for the URL of this stack's `KernelBot`.
    pub async fn start_with(database: String, settings: impl Fn(&str) -> Vec<(&'static str, String)>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A port that is free now; it must be the same after a restart.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let kernelbot = FakeKernelBot::start().await;
        let mut stack = Self {
            folder: tempfile::tempdir().unwrap(),
            database,
            settings: settings(&kernelbot.url),
            kernelbot,
            port,
            http: reqwest::Client::builder().timeout(Duration::from_secs(30)).build().unwrap(),
            api: None,
        };
        copy(&repository().join("docker/dev/problems"), &stack.problems());
        stack.start_api().await;
        stack
    }

    pub fn problems(&self) -> PathBuf {
        self.folder.path().join("problems")
    }

    /// Changes how long the sample's captures may take, in a checkout that is the test's own.
    pub fn limit_captures(&self, secs: u32) {
        let path = self.problems().join("sample/vectoradd_py/task.yml");
        let task = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, task.replace("benchmark_timeout: 60", &format!("benchmark_timeout: {secs}"))).unwrap();
    }

    /// Makes the problems a checkout, and returns its commit.
    pub async fn commit_problems(&self) -> String {
        let git = async |args: &[&str]| {
            let identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
            let mut command = Command::new("git");
            let output = command.arg("-C").arg(self.problems()).args(identity).args(args).output().await.unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "--quiet"]).await;
        git(&["add", "."]).await;
        git(&["commit", "--quiet", "--message", "problems"]).await;
        git(&["rev-parse", "HEAD"]).await
    }

    pub async fn health(&self) -> Value {
        self.http.get(self.url("/health")).send().await.unwrap().json().await.unwrap()
    }

    /// Waits until a field of the health is as wanted: the API remembers what git said for a few seconds.
    pub async fn health_is(&self, field: &str, wanted: Value) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let health = self.health().await;
            if health[field] == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{health:#}");
            sleep(POLL).await;
        }
    }

    pub async fn start_api(&mut self) {
        let mut command = self.program("ncu-api");
        command.arg("serve").env("NCU_SERVICE_LISTEN", format!("127.0.0.1:{}", self.port));
        self.api = Some(command.spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready().await {
            assert!(Instant::now() < deadline, "the API is not ready");
            sleep(POLL).await;
        }
    }

    async fn is_ready(&self) -> bool {
        let Ok(answer) = self.http.get(self.url("/health")).send().await else { return false };
        answer.json::<Value>().await.unwrap()["status"] == "ok"
    }

    pub async fn kill_api(&mut self) {
        self.api.take().unwrap().kill().await.unwrap();
    }

    /// A worker with settings of its own.
    pub fn worker(&self, settings: &[(&str, &str)]) -> Child {
        self.spawn_worker(&["run"], settings)
    }

    /// A worker that ends its shape before it stops.
    pub fn draining_worker(&self) -> Child {
        self.spawn_worker(&["run", "--drain"], &[])
    }

    fn spawn_worker(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Child {
        self.worker_command(arguments, settings).spawn().unwrap()
    }

    /// The worker's program, with settings of its own beside this stack's.
    pub fn worker_command(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Command {
        let mut command = self.program("ncu-worker");
        command
            .args(arguments)
            .env("NCU_SERVICE_JOBS_DIR", self.folder.path().join("jobs"))
            .env("NCU_SERVICE_WORKER_IMAGE", image())
            .env("NCU_SERVICE_CONTAINER_MEMORY", "512m")
            // Short, so that a test of a dead worker need not wait half a minute.
            .env("NCU_SERVICE_LEASE_SECS", "6")
            .envs(settings.iter().copied());
        command
    }

    /// Where the workers of this stack take turns on the pretended GPU.
    pub fn gpu_locks(&self) -> PathBuf {
        self.folder.path().join("gpu-locks")
    }

    /// Lifts the quarantine of the pretended GPU, as an operator does.
    pub async fn lift_quarantine(&self) {
        assert!(self.program("ncu-worker").arg("unquarantine").status().await.unwrap().success());
    }

    /// What `ncu-worker admin` says, which must not refuse.
    pub async fn admin(&self, arguments: &[&str]) -> String {
        let output = self.run_admin(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The exit status of a command that is refused, and the line that says why.
    pub async fn admin_refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run_admin(arguments).await;
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    async fn run_admin(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = self.program("ncu-worker");
        command.args(["admin", "--as", "ann"]).args(arguments).env("NCU_SERVICE_LOG", "off");
        command.stderr(Stdio::piped()).output().await.unwrap()
    }

    /// Waits for a worker in the given state; what its row notes.
    pub async fn worker_is(&self, state: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let pool = self.pool().await;
        loop {
            let query = "SELECT coalesce(note, '') FROM workers WHERE state = $1";
            if let Some(note) = sqlx::query_scalar(query).bind(state).fetch_optional(&pool).await.unwrap() {
                return note;
            }
            assert!(Instant::now() < deadline, "no worker is {state}");
            sleep(POLL).await;
        }
    }

    fn program(&self, name: &str) -> Command {
        let beside = Path::new(env!("CARGO_BIN_EXE_ncu-api")).with_file_name(name);
        assert!(beside.exists(), "{} is not built; run the tests with scripts/test", beside.display());
        let log = std::fs::File::options().create(true).append(true).open(self.log(name)).unwrap();
        let mut command = Command::new(beside);
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(std::env::var_os("DOCKER_HOST").map(|host| ("DOCKER_HOST", host)))
            .env("NCU_SERVICE_GPUS", "none")
            .env("NCU_SERVICE_GPU_LOCK_DIR", self.gpu_locks())
            .env("NCU_SERVICE_DATABASE_URL", &self.database)
            .env("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", self.problems())
            .env("NCU_SERVICE_ARTIFACTS_URL", format!("file://{}", self.artifacts().display()))
            // The worker has no use for it, but a common environment file gives it that too.
            .env("KERNELBOT_API_URL", &self.kernelbot.url)
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stderr(log)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The folder in which everything of this stack lies.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of the artifact store.
    pub fn artifacts(&self) -> PathBuf {
        self.folder.path().join("artifacts")
    }

    /// What a program of the stack has logged so far.
    pub fn log_of(&self, name: &str) -> String {
        std::fs::read_to_string(self.log(name)).unwrap()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// The address of a path of the API.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub async fn submit(&self, source: &str, fields: &[(&str, &str)]) -> String {
        self.submit_with(source, fields, None).await
    }

    /// The same within a client's trace.
    pub async fn submit_traced(&self, source: &str, fields: &[(&str, &str)], trace_parent: &str) -> String {
        self.submit_with(source, fields, Some(trace_parent)).await
    }

    async fn submit_with(&self, source: &str, fields: &[(&str, &str)], trace_parent: Option<&str>) -> String {
        let form = Form::new().file("submission.py", source.as_bytes()).text("leaderboard", LEADERBOARD);
        let form = fields.iter().fold(form, |form, (name, value)| form.text(name, value));
        let mut request = self.http.post(self.url("/profile")).header("X-Popcorn-Cli-Id", CLI_ID);
        if let Some(trace_parent) = trace_parent {
            request = request.header("traceparent", trace_parent);
        }
        let request = form.onto(request);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        answer.json::<Value>().await.unwrap()["job_id"].as_str().unwrap().to_owned()
    }

    /// One poll as popcorn-cli makes it: a transport error is tried again, any answer but 2xx ends the user's run.
    pub async fn poll(&self, job: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = self.http.get(self.url(&format!("/jobs/{job}"))).header("X-Popcorn-Cli-Id", CLI_ID);
            match request.send().await {
                Ok(answer) => {
                    assert!(answer.status().is_success(), "a poll was answered {}", answer.status());
                    return answer.json().await.unwrap();
                }
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            sleep(POLL).await;
        }
    }

    /// Cancels a job as its owner; the status of the answer.
    pub async fn cancel(&self, job: &str) -> u16 {
        let request = self.http.delete(self.url(&format!("/jobs/{job}"))).header("X-Popcorn-Cli-Id", CLI_ID);
        request.send().await.unwrap().status().as_u16()
    }

    /// The events of a job, from its first to its last.
    pub async fn events(&self, job: &str) -> String {
        let request = self.http.get(self.url(&format!("/jobs/{job}/events"))).header("X-Popcorn-Cli-Id", CLI_ID);
        request.timeout(PATIENCE).send().await.unwrap().text().await.unwrap()
    }

    /// Polls until the job's body is as wanted.
    pub async fn until(&self, job: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let body = self.poll(job).await;
            if wanted(&body) {
                return body;
            }
            let log = || std::fs::read_to_string(self.log("ncu-worker")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{body:#}\n{}", log());
            sleep(POLL).await;
        }
    }

    pub async fn ended(&self, job: &str) -> Value {
        self.until(job, |body| ["succeeded", "failed", "timed_out"].contains(&body["status"].as_str().unwrap())).await
    }

    /// Waits for the shape of that index to be under way.
    pub async fn shape_runs(&self, job: &str, index: usize) {
        self.until(job, |body| body["runs"][index]["status"] == "running").await;
    }

    pub async fn archive(&self, artifact: &Value) -> ZipArchive<Cursor<Vec<u8>>> {
        let request = self.http.get(self.url(artifact["url"].as_str().unwrap())).header("X-Popcorn-Cli-Id", CLI_ID);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let length = answer.content_length();
        let bytes = answer.bytes().await.unwrap().to_vec();
        assert_eq!(length, Some(bytes.len() as u64));
        ZipArchive::new(Cursor::new(bytes)).unwrap()
    }

    pub async fn pool(&self) -> PgPool {
        PgPool::connect(&self.database).await.unwrap()
    }

    /// Which attempt did each shape.
    pub async fn attempts(&self) -> Vec<i32> {
        let query = "SELECT attempt FROM runs ORDER BY job_id, benchmark_index";
        sqlx::query_scalar(query).fetch_all(&self.pool().await).await.unwrap()
    }

    /// Archives in the store, whether a row names them or not.
    pub fn stored_archives(&self) -> usize {
        fn files(folder: &Path) -> usize {
            let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
        }
        files(&self.artifacts())
    }

    /// Waits until no container of a job is left.
    pub async fn no_container_is_left(&self, job: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !containers(job).await.is_empty() {
            assert!(Instant::now() < deadline, "a container is left");
            sleep(POLL).await;
        }
    }

    /// Waits until a query answers true.
    pub async fn holds(&self, query: &'static str) {
        let (deadline, pool) = (Instant::now() + PATIENCE, self.pool().await);
        while !sqlx::query_scalar::<_, bool>(query).fetch_one(&pool).await.unwrap() {
            assert!(Instant::now() < deadline, "{query}");
            sleep(POLL).await;
        }
    }

    /// A number of the only job there is.
    pub async fn number(&self, column: &str) -> i32 {
        let query = sqlx::AssertSqlSafe(format!("SELECT {column} FROM jobs"));
        sqlx::query_scalar(query).fetch_one(&self.pool().await).await.unwrap()
    }
}

pub async fn signal(child: &Child, name: &str) {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().await.unwrap().success());
}

pub fn text(archive: &mut ZipArchive<Cursor<Vec<u8>>>, name: &str) -> String {
    let mut text = String::new();
    archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
    text
}

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
