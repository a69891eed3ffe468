//! The database goes away and comes back.

use std::time::{Duration, Instant};

use reqwest::StatusCode;

use crate::support::outage::Wire;
use crate::support::{Form, Service};

/// A service whose database is reached over a wire that can be cut.
async fn wired(patience_secs: &str) -> (Service, Wire) {
    // The wire's own database: a service makes one of its own, so this one is found by asking the running service.
    let service = Service::start().await;
    let options = service.pool.connect_options();
    let wire = Wire::to(format!("{}:{}", options.get_host(), options.get_port())).await;
    let url = format!(
        "postgres://{}@{}/{}?sslmode=disable",
        options.get_username(),
        wire.address,
        options.get_database().unwrap()
    );
    let settings = [("NCU_SERVICE_DATABASE_URL", url.as_str()), ("NCU_SERVICE_DATABASE_PATIENCE_SECS", patience_secs)];
    (Service::start_with(&settings).await, wire)
}

#[tokio::test]
async fn a_poll_that_meets_an_outage_waits_for_its_end() {
    let (service, wire) = wired("20").await;
    let id = service.accepted("good-alice").await;
    wire.cut();
    let path = format!("/jobs/{id}");
    let poll = service.get(&path, "good-alice");
    let mend = async {
        // Long enough for a first try to have failed: a refused connection fails at once.
        tokio::time::sleep(Duration::from_secs(1)).await;
        wire.mend();
    };
    let (answer, ()) = tokio::join!(poll, mend);
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
}

#[tokio::test]
async fn an_outage_without_end_is_a_503_before_the_client_gives_up() {
    let (service, wire) = wired("2").await;
    let id = service.accepted("good-alice").await;
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
    wire.mend();
    service.accepted("good-alice").await;
}

#[tokio::test]
async fn migrations_are_tried_until_the_database_is_there() {
    let (service, wire) = wired("20").await;
    wire.cut();
    let migration = tokio::spawn(ncu_api::serve::migrate(service.app.queue.clone()));
    wire.mend();
    assert!(migration.await.unwrap().is_none());
}
