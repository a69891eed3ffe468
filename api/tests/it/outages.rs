//! The database goes away and comes back.

use std::time::{Duration, Instant};

use jobs::config::DatabaseConfig;
use jobs::queue::Queue;
use reqwest::StatusCode;

use crate::artifacts::profiled;
use crate::support::outage::Wire;
use crate::support::{Form, Service, database};

/// A wire to a database, and the URL over it.
async fn wire_to(database: &str) -> (Wire, String) {
    let mut url = reqwest::Url::parse(database).unwrap();
    let wire = Wire::to(format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432))).await;
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(wire.address.port())).unwrap();
    (wire, url.to_string())
}

/// A service whose database is reached over a wire that can be cut.
async fn wired(patience_secs: &str) -> (Service, Wire) {
    let database = database().await;
    let (wire, url) = wire_to(&database).await;
    let settings = [("NCU_SERVICE_DATABASE_URL", url.as_str()), ("NCU_SERVICE_DATABASE_PATIENCE_SECS", patience_secs)];
    (Service::start_on(&database, &settings).await, wire)
}

#[tokio::test]
async fn a_poll_that_meets_an_outage_waits_for_its_end() {
    let (service, wire) = wired("20").await;
    let id = service.accepted("good-alice").await;
    wire.cut();
    let path = format!("/jobs/{id}");
    let poll = service.get(&path, "good-alice");
    let mend = async {
        wire.met().await;
        wire.mend();
    };
    let (answer, ()) = tokio::join!(poll, mend);
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
}

#[tokio::test]
async fn a_poll_that_outlasts_its_patience_gets_the_last_known_state_and_its_age() {
    let (service, wire) = wired("2").await;
    let (polled, unpolled) = (service.accepted("good-alice").await, service.accepted("good-alice").await);
    let path = |id: &str| format!("/jobs/{id}");
    let before = service.get(&path(&polled), "good-alice").await.json();
    wire.cut();
    for _ in 0..2 {
        let answer = service.get(&path(&polled), "good-alice").await;
        assert_eq!((answer.status, answer.json()), (StatusCode::OK, before.clone()));
    }
    let answer = service.get(&path(&unpolled), "good-alice").await;
    assert_eq!((answer.status, &answer.json()["queue_position"]), (StatusCode::OK, &2.into()), "{answer:?}");
    // To others it stays as unknown as it was.
    assert_eq!(service.get(&path(&polled), "good-bob").await.status, StatusCode::SERVICE_UNAVAILABLE);
    wire.mend();
    let after = service.get(&path(&polled), "good-alice").await.json();
    assert!(after["observed_at"].as_str() > before["observed_at"].as_str(), "{after}");
}

#[tokio::test]
async fn a_download_that_meets_an_outage_finds_what_was_polled() {
    let (service, wire) = wired("2").await;
    let (id, content) = profiled(&service).await;
    let body = service.get(&format!("/jobs/{id}"), "good-alice").await.json();
    wire.cut();
    let answer = service.get(body["artifacts"][0]["url"].as_str().unwrap(), "good-alice").await;
    assert!(answer.status == StatusCode::OK && answer.bytes == content, "{:?}", answer.status);
    let answer = service.get(&format!("/jobs/{id}/artifacts/other.zip"), "good-alice").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn an_outage_without_end_is_a_503_where_nothing_is_known() {
    let (service, wire) = wired("2").await;
    // Another process took it in.
    let id = Service::start_on(&service.database, &[]).await.accepted("good-alice").await;
    wire.cut();
    let started = Instant::now();
    let sentence = "The service cannot reach its database at this moment: try again in a minute.";
    for path in [format!("/jobs/{id}"), format!("/jobs/{id}/artifacts/a.zip")] {
        let answer = service.get(&path, "good-alice").await;
        assert_eq!((answer.status, answer.detail().as_str()), (StatusCode::SERVICE_UNAVAILABLE, sentence));
    }
    let waited = started.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn a_submission_during_an_outage_is_told_to_come_back() {
    let (service, wire) = wired("20").await;
    wire.cut();
    let answer = service.submit("good-alice", Form::usual()).await;
    let sentence = "The service cannot reach its database at this moment: try again in a minute.";
    assert_eq!((answer.status, answer.detail().as_str()), (StatusCode::SERVICE_UNAVAILABLE, sentence));
    assert_eq!(service.jobs().await, 0);
    wire.mend();
    service.accepted("good-alice").await;
}

#[tokio::test]
async fn migrations_are_tried_until_the_database_is_there() {
    let database = database().await;
    let (wire, url) = wire_to(&database).await;
    let config = DatabaseConfig { url, max_connections: 5 };
    wire.cut();
    let migration = tokio::spawn(ncu_api::serve::migrate(Queue::connect_lazy(&config, "a test").unwrap()));
    wire.met().await;
    wire.mend();
    migration.await.unwrap();
    let pool = sqlx::PgPool::connect(&database).await.unwrap();
    let jobs: i64 = sqlx::query_scalar("SELECT count(*) FROM jobs").fetch_one(&pool).await.unwrap();
    assert_eq!(jobs, 0);
}
