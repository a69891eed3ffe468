//! How much one user, and all together, may submit.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jobs::queue::SUBMISSION_LOCK;
use reqwest::StatusCode;

use crate::support::{Answer, Form, Service, database};

fn wait_secs(answer: &Answer) -> u64 {
    answer.headers["retry-after"].to_str().unwrap().parse().unwrap()
}

/// A refusal by a quota: its status, its sentence, and nothing more than these in the database.
fn refusal(answer: &Answer) -> (u16, String) {
    assert!((1..=3600).contains(&wait_secs(answer)), "{answer:?}");
    (answer.status.as_u16(), answer.detail())
}

async fn rows(service: &Service, table: &str) -> i64 {
    let count = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
    sqlx::query_scalar(count).fetch_one(&service.pool).await.unwrap()
}

/// Makes every job so much older.
async fn age(service: &Service, minutes: i32) {
    let age = "UPDATE jobs SET created_at = created_at - make_interval(mins => $1)";
    sqlx::query(age).bind(minutes).execute(&service.pool).await.unwrap();
}

#[tokio::test]
async fn a_user_with_as_many_unfinished_jobs_as_allowed_waits_for_one_to_end_and_others_do_not() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_JOBS_PER_USER", "2")]).await;
    let first = service.accepted("good-alice").await;
    service.accepted("good-alice").await;
    // One that runs counts like one that waits.
    service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    let answer = service.submit("good-alice", Form::usual()).await;
    let sentence = "You have 2 jobs that wait or run, and may have no more: submit again when one of them has ended.";
    assert_eq!(refusal(&answer), (429, sentence.to_owned()));
    assert_eq!((service.jobs().await, rows(&service, "submissions").await, rows(&service, "runs").await), (2, 2, 6));
    // Polls and other users go on.
    assert_eq!(service.get(&format!("/jobs/{first}"), "good-alice").await.status, StatusCode::OK);
    service.accepted("good-bob").await;

    service.end_all_jobs().await;
    service.accepted("good-alice").await;
}

#[tokio::test]
async fn jobs_an_hour_are_counted_to_the_second_at_which_the_next_one_is_taken() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_JOBS_PER_HOUR", "2")]).await;
    service.accepted("good-alice").await;
    age(&service, 20).await;
    service.accepted("good-alice").await;
    service.end_all_jobs().await;
    let answer = service.submit("good-alice", Form::usual()).await;
    let sentence = "You have submitted 2 jobs within an hour, and may submit no more: submit again in 40 minutes.";
    assert_eq!(refusal(&answer), (429, sentence.to_owned()));
    assert!((39 * 60..=40 * 60).contains(&wait_secs(&answer)), "{answer:?}");
    service.accepted("good-bob").await;

    age(&service, 40).await;
    service.accepted("good-alice").await;
    assert_eq!(service.submit("good-alice", Form::usual()).await.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn bytes_an_hour_are_those_of_the_files_that_were_taken() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_BYTES_PER_HOUR", "1000000")]).await;
    let file = |bytes: usize| Form::new().file("submission.py", &vec![b'#'; bytes]).text("leaderboard", "qr_v2");
    assert_eq!(service.submit("good-alice", file(300_000)).await.status, StatusCode::ACCEPTED);
    age(&service, 30).await;
    assert_eq!(service.submit("good-alice", file(600_000)).await.status, StatusCode::ACCEPTED);
    let answer = service.submit("good-alice", file(100_001)).await;
    let sentence =
        "Your submissions of the last hour would come to more than 1000000 bytes: submit again in 30 minutes.";
    assert_eq!(refusal(&answer), (429, sentence.to_owned()));
    // What was refused did not count, so the rest can be used to the last byte; a larger one waits for the second to leave.
    let answer = service.submit("good-alice", file(900_000)).await;
    assert!((59 * 60..=60 * 60).contains(&wait_secs(&answer)), "{answer:?}");
    assert_eq!(service.submit("good-alice", file(100_000)).await.status, StatusCode::ACCEPTED);
    assert_eq!(service.submit("good-bob", file(1_000_000)).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_full_queue_tells_everybody_to_come_back_and_answers_polls() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_QUEUE", "2")]).await;
    let first = service.accepted("good-alice").await;
    service.accepted("good-bob").await;
    let answer = service.submit("good-carol", Form::usual()).await;
    let sentence = "The queue is full, with 2 jobs ahead of yours: submit again in a few minutes.";
    assert_eq!(refusal(&answer), (503, sentence.to_owned()));
    assert_eq!((service.jobs().await, rows(&service, "submissions").await), (2, 2));
    assert_eq!(service.get(&format!("/jobs/{first}"), "good-alice").await.status, StatusCode::OK);
    // A job that runs waits no more.
    service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    service.accepted("good-carol").await;
}

#[tokio::test]
async fn quotas_hold_exactly_when_two_processes_take_many_submissions_at_once() {
    let database = database().await;
    let quotas = [("NCU_SERVICE_MAX_JOBS_PER_USER", "5"), ("NCU_SERVICE_MAX_QUEUE", "13")];
    let services = [Service::start_on(&database, &quotas).await, Service::start_on(&database, &quotas).await];
    let users = ["good-alice", "good-bob", "good-carol"];
    let answers = join_all((0..72).map(|n| services[n % 2].submit(users[n % 3], Form::usual()))).await;
    let accepted = answers.iter().filter(|answer| answer.status == StatusCode::ACCEPTED).count();
    let owners: Vec<i64> =
        sqlx::query_scalar("SELECT count(*) FROM jobs GROUP BY owner").fetch_all(&services[0].pool).await.unwrap();
    assert_eq!((accepted, services[0].jobs().await), (13, 13), "{owners:?}");
    assert!(owners.iter().all(|&count| count <= 5), "{owners:?}");
    for answer in answers.iter().filter(|answer| answer.status != StatusCode::ACCEPTED) {
        assert!(matches!(refusal(answer).0, 429 | 503), "{answer:?}");
    }
}

#[tokio::test]
async fn a_crowd_that_waits_for_its_turn_leaves_connections_to_the_polls() {
    let service = Arc::new(Service::start_with(&[("NCU_SERVICE_DATABASE_CONNECTIONS", "5")]).await);
    let id = service.accepted("good-alice").await;
    let mut turn = service.pool.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(SUBMISSION_LOCK).execute(&mut *turn).await.unwrap();
    let crowd: Vec<_> = (0..12)
        .map(|n| {
            let service = Arc::clone(&service);
            tokio::spawn(async move { service.submit(&format!("good-{n}"), Form::usual()).await })
        })
        .collect();
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let waiting = || sqlx::query_scalar::<_, i64>(waiting).fetch_one(&service.pool);
    while waiting().await.unwrap() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(service.get(&format!("/jobs/{id}"), "good-alice").await.status, StatusCode::OK);
    assert_eq!(waiting().await.unwrap(), 2);
    turn.rollback().await.unwrap();
    for submission in crowd {
        assert_eq!(submission.await.unwrap().status, StatusCode::ACCEPTED);
    }
}

#[tokio::test]
async fn a_user_who_uploads_as_much_as_allowed_at_once_leaves_the_other_places_to_others() {
    let service =
        Service::start_with(&[("NCU_SERVICE_MAX_UPLOADS", "2"), ("NCU_SERVICE_MAX_UPLOADS_PER_USER", "1")]).await;
    let alice = jobs::ids::Owner::from_credential("good-alice");
    let place = service.app.uploads.take(alice, Duration::ZERO).await.unwrap();
    let answer = service.submit("good-alice", Form::usual()).await;
    let sentence = "You are uploading 1 submissions at this moment already: submit again when one of them is through.";
    assert_eq!(refusal(&answer), (429, sentence.to_owned()));
    service.accepted("good-bob").await;
    drop(place);
    service.accepted("good-alice").await;
}
