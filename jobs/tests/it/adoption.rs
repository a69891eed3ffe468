//! Who holds an attempt, against a real Postgres: adoption, hand-over, and what is refused afterwards.

use std::time::Duration;

use jobs::Error;
use jobs::queue::{Adoption, Claim, Held, Queue, State};
use sqlx::PgPool;

use crate::support::{database, failure, job};

const LEASE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_mins(10);

/// A job whose first shape is under way.
async fn begun(queue: &Queue, shapes: u32) -> Claim {
    queue.submit(&job("a", shapes)).await.unwrap();
    let claim = queue.claim("first", LEASE).await.unwrap().unwrap();
    queue.start_run(claim.lease_of(0)).await.unwrap();
    claim
}

async fn held(queue: &Queue, claim: &Claim) -> Held {
    *queue.live().await.unwrap().claim(claim.claim_token).unwrap()
}

async fn adopt(queue: &Queue, claim: &Claim, is_dead: bool) -> Adoption {
    queue.adopt(held(queue, claim).await, is_dead, "next", LEASE).await.unwrap()
}

async fn adopted(queue: &Queue, claim: &Claim) -> Claim {
    match adopt(queue, claim, true).await {
        Adoption::Adopted(claim) => *claim,
        other => panic!("{other:?}"),
    }
}

async fn expire_leases(pool: &PgPool) {
    let update = "UPDATE jobs SET lease_until = now() - interval '1 minute' WHERE state = 'running'";
    sqlx::query(update).execute(pool).await.unwrap();
}

async fn number(pool: &PgPool, column: &'static str) -> i32 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT {column} FROM jobs"))).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn an_adopter_goes_on_with_the_same_attempt_under_a_token_of_its_own() {
    let (queue, pool) = database().await;
    let first = begun(&queue, 2).await;
    let next = adopted(&queue, &first).await;
    assert_eq!((next.id, next.claim_token, next.attempt, next.adoption), (first.id, first.claim_token, 1, 1));
    assert_ne!(next.token, first.token);
    assert_eq!(next.pending.iter().map(|run| run.started_by).collect::<Vec<_>>(), [Some(0), None]);
    assert_eq!((next.holder(), number(&pool, "faults").await), ("1.1".to_owned(), 0));
    queue.finish_run(next.lease_of(0), &failure()).await.unwrap();
    assert_eq!(queue.view(first.id, None).await.unwrap().unwrap().runs[0].state, State::Failed);
}

#[tokio::test]
async fn an_attempt_whose_holder_may_live_is_adopted_after_its_lease_only() {
    let (queue, pool) = database().await;
    let first = begun(&queue, 1).await;
    assert!(matches!(adopt(&queue, &first, false).await, Adoption::Refused));
    queue.renew(first.id, first.token, LEASE).await.unwrap();
    expire_leases(&pool).await;
    assert!(matches!(adopt(&queue, &first, false).await, Adoption::Adopted(_)));
}

#[tokio::test]
async fn a_holder_that_renews_in_time_keeps_its_attempt() {
    let (queue, pool) = database().await;
    let first = begun(&queue, 1).await;
    expire_leases(&pool).await;
    let seen = held(&queue, &first).await;
    assert!(seen.is_expired);
    queue.renew(first.id, first.token, LEASE).await.unwrap();
    assert!(matches!(queue.adopt(seen, false, "next", LEASE).await.unwrap(), Adoption::Refused));
}

#[tokio::test]
async fn of_many_adopters_exactly_one_gets_the_attempt() {
    let (queue, _) = database().await;
    let first = begun(&queue, 1).await;
    let seen = held(&queue, &first).await;
    let tries = futures_util::future::join_all((0..8).map(|_| queue.adopt(seen, true, "next", LEASE))).await;
    let adopted = tries.into_iter().filter(|adoption| matches!(adoption.as_ref().unwrap(), Adoption::Adopted(_)));
    assert_eq!(adopted.count(), 1);
}

#[tokio::test]
async fn every_write_of_a_holder_that_was_adopted_from_is_refused() {
    let (queue, _) = database().await;
    let stale = begun(&queue, 1).await;
    let next = adopted(&queue, &stale).await;
    let lost = |result: jobs::Result<()>| assert!(matches!(result, Err(Error::LeaseLost)), "{result:?}");
    lost(queue.renew(stale.id, stale.token, LEASE).await.map(drop));
    lost(queue.start_run(stale.lease_of(0)).await);
    lost(queue.finish_run(stale.lease_of(0), &failure()).await);
    lost(queue.finish(stale.id, stale.token).await.map(drop));
    lost(queue.release(stale.id, stale.token).await);
    lost(queue.hand_over(stale.id, stale.token).await);
    lost(queue.fault(stale.id, stale.token, "detail", "message", LEASE).await.map(drop));
    lost(queue.finish_cancelled(stale.id, stale.token).await);
    queue.renew(next.id, next.token, LEASE).await.unwrap();
}

#[tokio::test]
async fn an_attempt_that_was_handed_over_can_be_adopted_at_once_and_counts_no_loss() {
    let (queue, pool) = database().await;
    let mut holder = begun(&queue, 1).await;
    // More redeploys than a job may lose workers.
    for _ in 0..7 {
        queue.hand_over(holder.id, holder.token).await.unwrap();
        holder = match adopt(&queue, &holder, false).await {
            Adoption::Adopted(claim) => *claim,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!((holder.holder(), number(&pool, "losses").await), ("1.7".to_owned(), 0));
}

#[tokio::test]
async fn a_job_that_keeps_killing_its_worker_fails_and_says_so() {
    let (queue, pool) = database().await;
    let mut holder = begun(&queue, 2).await;
    for _ in 0..4 {
        holder = adopted(&queue, &holder).await;
    }
    assert!(matches!(adopt(&queue, &holder, true).await, Adoption::Ended(State::Failed)));
    let view = queue.view(holder.id, None).await.unwrap().unwrap();
    assert_eq!((view.state, view.error_kind.as_deref()), (State::Failed, Some("service_fault")));
    assert!(view.error.unwrap().contains("The worker was lost each time it ran this job"));
    let detail: String = sqlx::query_scalar("SELECT last_fault FROM jobs").fetch_one(&pool).await.unwrap();
    assert_eq!(detail, "attempt 1 lost 5 workers without ending a shape");
}

#[tokio::test]
async fn a_job_that_gets_on_may_lose_more_workers() {
    let (queue, pool) = database().await;
    let mut holder = begun(&queue, 2).await;
    for _ in 0..4 {
        holder = adopted(&queue, &holder).await;
    }
    queue.finish_run(holder.lease_of(0), &failure()).await.unwrap();
    assert_eq!(number(&pool, "losses").await, 0);
    adopted(&queue, &holder).await;
}

#[tokio::test]
async fn a_job_that_was_cancelled_is_not_adopted_but_ended() {
    let (queue, _) = database().await;
    let first = begun(&queue, 1).await;
    queue.cancel(first.id).await.unwrap();
    assert!(matches!(adopt(&queue, &first, true).await, Adoption::Ended(State::Failed)));
    let view = queue.view(first.id, None).await.unwrap().unwrap();
    assert_eq!(view.error_kind.as_deref(), Some("cancelled"));
    assert!(queue.live().await.unwrap().claim(first.claim_token).is_none());
}

#[tokio::test]
async fn the_reaper_leaves_an_attempt_to_adopters_for_a_while() {
    let (queue, pool) = database().await;
    let first = begun(&queue, 1).await;
    expire_leases(&pool).await;
    assert_eq!(queue.reap(Some(PATIENCE)).await.unwrap().requeued, 0);
    assert_eq!(queue.reap(Some(Duration::from_secs(30))).await.unwrap().requeued, 1);
    assert_eq!(number(&pool, "faults").await, 1);
    assert!(queue.live().await.unwrap().claim(first.claim_token).is_none());
}

#[tokio::test]
async fn an_attempt_that_was_handed_over_and_not_adopted_is_nobodys_fault() {
    let (queue, pool) = database().await;
    let first = begun(&queue, 1).await;
    queue.hand_over(first.id, first.token).await.unwrap();
    expire_leases(&pool).await;
    assert_eq!(queue.reap(Some(Duration::ZERO)).await.unwrap().requeued, 1);
    assert_eq!(number(&pool, "faults").await, 0);
    assert_eq!(queue.claim("next", LEASE).await.unwrap().unwrap().attempt, 2);
}

#[tokio::test]
async fn a_container_is_of_use_while_its_shape_is_under_way_and_its_holder_or_its_capture_counts() {
    let (queue, _) = database().await;
    let first = begun(&queue, 2).await;
    let has = async |index, adoption| queue.live().await.unwrap().has_container(first.claim_token, index, adoption);
    assert!(has(0, 0).await);
    assert!(!has(1, 0).await, "that shape has not begun");

    let next = adopted(&queue, &first).await;
    assert!(has(0, 0).await, "the adopter waits for this capture");
    assert!(has(0, 1).await, "and makes the export of it");
    queue.start_run(next.lease_of(0)).await.unwrap();
    assert!(!has(0, 0).await, "the adopter has begun anew");

    queue.finish_run(next.lease_of(0), &failure()).await.unwrap();
    assert!(!has(0, 1).await, "the shape is over");
}
