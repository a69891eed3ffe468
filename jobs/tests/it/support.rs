//! A database of its own for each test, and the image that containers of tests are made from.

use jobs::capture::options::RequestOptions;
use jobs::ids::{JobId, Owner};
use jobs::problems::Shape;
use jobs::queue::{ClockControl, ErrorKind, KernelTime, NewJob, Queue, RunEnd, State, StoredArtifact};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

/// URL of a database in which test databases may be created.
pub fn maintenance_url() -> String {
    std::env::var("NCU_SERVICE_TEST_DATABASE_URL")
        .expect("NCU_SERVICE_TEST_DATABASE_URL is not set; run the tests with scripts/test")
}

/// The image with the stand-in profiler.
pub fn image() -> String {
    std::env::var("NCU_SERVICE_TEST_IMAGE").unwrap_or_else(|_| "ncu-service-dev:latest".to_owned())
}

/// A fresh, migrated database. It is left behind for a look after a failure; the server is thrown away as a whole.
pub async fn database() -> (Queue, PgPool) {
    let options: PgConnectOptions = maintenance_url().parse().unwrap();
    let name = format!("test_{}", uuid::Uuid::new_v4().as_simple());
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options.database(&name)).await.unwrap();
    let queue = Queue::new(pool.clone());
    queue.migrate().await.unwrap();
    (queue, pool)
}

/// A job with the given number of shapes.
pub fn job(owner: &str, shapes: u32) -> NewJob {
    let shape = |n: u32| -> Shape { serde_json::from_str(&format!(r#"{{"zeta": {n}, "alpha": 1}}"#)).unwrap() };
    NewJob {
        id: JobId::random(),
        owner: Owner::from_credential(owner),
        leaderboard: "vectoradd_sample".to_owned(),
        problem_dir: "sample/vectoradd_py".to_owned(),
        file_name: "submission.py".to_owned(),
        source: "def custom_kernel(data): return data\n".to_owned(),
        benchmarks: (0..shapes).map(|n| (n, shape(n))).collect(),
        options: RequestOptions::default(),
        trace_parent: None,
    }
}

/// The end of a shape with an archive of that name.
pub fn success(name: &str) -> RunEnd {
    let artifact = StoredArtifact { path: format!("jobs/{name}"), bytes: 7, sha256: [1; 32] };
    RunEnd {
        state: State::Succeeded,
        exit_code: Some(0),
        error: None,
        output_tail: None,
        simulated: true,
        clock_control: Some(ClockControl::Base),
        launches: vec![KernelTime { kernel: "geqr2(float*)".to_owned(), count: 3, total_ns: 900, share: 0.9 }],
        coverage: Some(0.9),
        digest: None,
        artifact: Some((name.to_owned(), artifact)),
    }
}

/// The end of a shape whose submission failed.
pub fn failure() -> RunEnd {
    let error = Some((ErrorKind::Submission, "The submission failed: ValueError".to_owned()));
    RunEnd {
        state: State::Failed,
        exit_code: Some(1),
        error,
        output_tail: None,
        simulated: true,
        clock_control: None,
        launches: Vec::new(),
        coverage: None,
        digest: None,
        artifact: None,
    }
}
