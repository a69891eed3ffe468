//! The history of a job's attempts, against a real Postgres.

use std::time::Duration;

use jobs::ids::JobId;
use jobs::queue::{Adoption, Claim, Queue, State};
use sqlx::PgPool;

use crate::support::{database, job};

const LEASE: Duration = Duration::from_secs(30);

async fn claimed(queue: &Queue, pool: &PgPool) -> Claim {
    // Whatever pause a fault has left.
    sqlx::query("UPDATE jobs SET not_before = now()").execute(pool).await.unwrap();
    queue.claim("a worker", LEASE).await.unwrap().unwrap()
}

/// Attempt, adoption and outcome of each row.
async fn history(queue: &Queue, id: JobId) -> Vec<(i32, i32, String)> {
    let attempts = queue.view(id, None).await.unwrap().unwrap().attempts;
    assert!(attempts.iter().all(|one| (one.outcome == "running") == one.ended_at.is_none()), "{attempts:?}");
    attempts.into_iter().map(|one| (one.attempt, one.adoption, one.outcome)).collect()
}

fn rows(expected: &[(i32, i32, &str)]) -> Vec<(i32, i32, String)> {
    expected.iter().map(|&(attempt, adoption, outcome)| (attempt, adoption, outcome.to_owned())).collect()
}

#[tokio::test]
async fn every_way_in_which_a_worker_lets_go_is_told_apart() {
    let (queue, pool) = database().await;
    queue.submit(&job("somebody", 1)).await.unwrap();
    let first = claimed(&queue, &pool).await;
    let id = first.id;
    assert_eq!(history(&queue, id).await, rows(&[(1, 0, "running")]));
    queue.release(id, first.token).await.unwrap();

    let second = claimed(&queue, &pool).await;
    queue.fault(id, second.token, "the engine is away", "Ours.", Duration::ZERO).await.unwrap();

    let third = claimed(&queue, &pool).await;
    queue.hand_over(id, third.token).await.unwrap();
    let adopt = async |claim: &Claim| {
        let held = *queue.live().await.unwrap().claim(claim.claim_token).unwrap();
        match queue.adopt(held, true, "another", LEASE).await.unwrap() {
            Adoption::Adopted(claim) => *claim,
            other => panic!("{other:?}"),
        }
    };
    let adopted = adopt(&third).await;
    let again = adopt(&adopted).await;
    queue.cancel(id).await.unwrap();
    queue.finish_cancelled(id, again.token).await.unwrap();

    let expected = [(1, 0, "released"), (2, 0, "fault"), (3, 0, "handed_over"), (3, 1, "lost"), (3, 2, "cancelled")];
    assert_eq!(history(&queue, id).await, rows(&expected));
    let faults: Vec<(Option<String>, Option<String>)> =
        sqlx::query_as("SELECT worker, fault FROM attempts ORDER BY attempt, adoption").fetch_all(&pool).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(faults[1], (text("a worker"), text("the engine is away")));
    assert_eq!(faults[3], (text("another"), None));
}

#[tokio::test]
async fn a_job_that_ends_and_one_whose_attempts_all_fail_say_so() {
    let (queue, pool) = database().await;
    queue.submit(&job("somebody", 0)).await.unwrap();
    let claim = claimed(&queue, &pool).await;
    queue.finish(claim.id, claim.token).await.unwrap();
    assert_eq!(history(&queue, claim.id).await, rows(&[(1, 0, "ended")]));

    queue.submit(&job("somebody", 1)).await.unwrap();
    let mut last = State::Queued;
    let mut id = claim.id;
    while last == State::Queued {
        let claim = claimed(&queue, &pool).await;
        id = claim.id;
        last = queue.fault(id, claim.token, "the same each time", "Ours.", Duration::ZERO).await.unwrap();
    }
    assert_eq!(history(&queue, id).await, rows(&[(1, 0, "fault"), (2, 0, "fault"), (3, 0, "fault")]));
}

#[tokio::test]
async fn an_attempt_that_nobody_takes_over_is_taken_from_its_worker() {
    let (queue, pool) = database().await;
    queue.submit(&job("somebody", 1)).await.unwrap();
    let claim = claimed(&queue, &pool).await;
    sqlx::query("UPDATE jobs SET lease_until = now() - interval '1 hour'").execute(&pool).await.unwrap();
    queue.reap(Some(Duration::ZERO)).await.unwrap();
    assert_eq!(history(&queue, claim.id).await, rows(&[(1, 0, "fault")]));
}

#[tokio::test]
async fn a_job_that_was_cancelled_while_it_ran_is_not_run_again_when_its_worker_lets_go() {
    let (queue, pool) = database().await;
    queue.submit(&job("somebody", 1)).await.unwrap();
    let claim = claimed(&queue, &pool).await;
    queue.cancel(claim.id).await.unwrap();
    queue.release(claim.id, claim.token).await.unwrap();
    assert!(queue.claim("another", LEASE).await.unwrap().is_none());
    queue.reap(None).await.unwrap();
    let view = queue.view(claim.id, None).await.unwrap().unwrap();
    assert_eq!((view.state, view.error_kind.as_deref()), (State::Failed, Some("cancelled")));
}

#[tokio::test]
async fn a_fault_whose_text_no_database_takes_is_recorded_all_the_same() {
    let (queue, pool) = database().await;
    queue.submit(&job("somebody", 1)).await.unwrap();
    let claim = claimed(&queue, &pool).await;
    let detail = format!("a\0b{}", "x".repeat(1 << 20));
    queue.fault(claim.id, claim.token, &detail, "Ours.", Duration::ZERO).await.unwrap();
    let kept: String = sqlx::query_scalar("SELECT last_fault FROM jobs").fetch_one(&pool).await.unwrap();
    assert!(kept.starts_with("abx") && kept.len() == 4000, "{}", kept.len());
}

#[tokio::test]
async fn right_after_an_outage_no_attempt_is_taken_from_anybody() {
    let (queue, pool) = database().await;
    queue.submit(&job("somebody", 1)).await.unwrap();
    let claim = claimed(&queue, &pool).await;
    sqlx::query("UPDATE jobs SET lease_until = now() - interval '1 hour'").execute(&pool).await.unwrap();
    queue.reap(None).await.unwrap();
    assert_eq!(history(&queue, claim.id).await, rows(&[(1, 0, "running")]));
}
