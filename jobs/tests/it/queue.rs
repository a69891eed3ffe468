//! The queue against a real Postgres.

use std::collections::HashSet;
use std::time::Duration;

use jobs::Error;
use jobs::ids::Owner;
use jobs::queue::{Claim, Queue, Renewal, State};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::support::{database, failure, job, success};

const LEASE: Duration = Duration::from_secs(30);

async fn claim(queue: &Queue) -> Claim {
    queue.claim("worker", LEASE).await.unwrap().expect("a job waits")
}

/// As if the worker of every running job had died a minute ago.
async fn expire_leases(pool: &PgPool) {
    sqlx::query("UPDATE jobs SET lease_until = now() - interval '1 minute' WHERE state = 'running'")
        .execute(pool)
        .await
        .unwrap();
}

async fn tickets(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM apalis.jobs WHERE status = 'Pending'").fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn positions_count_from_one_in_the_order_of_arrival() {
    let (queue, _) = database().await;
    let (first, second, third) = (job("a", 1), job("b", 1), job("a", 1));
    for (expected, job) in [(1, &first), (2, &second), (3, &third)] {
        assert_eq!(queue.submit(job).await.unwrap(), expected);
    }
    assert_eq!(claim(&queue).await.id, first.id);
    let position = async |id| queue.view(id, None).await.unwrap().unwrap().queue_position;
    assert_eq!(
        (position(first.id).await, position(second.id).await, position(third.id).await),
        (None, Some(1), Some(2))
    );
}

#[tokio::test]
async fn a_server_that_takes_no_writes_counts_as_away_for_what_writes_and_answers_the_rest() {
    let (queue, pool) = database().await;
    let known = job("a", 1);
    queue.submit(&known).await.unwrap();
    let reads_only = (*pool.connect_options()).clone().options([("default_transaction_read_only", "on")]);
    let standby = Queue::new(PgPoolOptions::new().max_connections(1).connect_with(reads_only).await.unwrap());
    let refused = standby.submit(&job("a", 1)).await.unwrap_err();
    assert!(refused.is_database_away() && refused.may_pass(), "{refused:?}");
    assert!(standby.claim("worker", LEASE).await.unwrap_err().is_database_away());
    assert_eq!(standby.view(known.id, None).await.unwrap().unwrap().queue_position, Some(1));
}

#[tokio::test]
async fn a_higher_priority_goes_first() {
    let (queue, pool) = database().await;
    let (early, urgent) = (job("a", 1), job("a", 1));
    queue.submit(&early).await.unwrap();
    queue.submit(&urgent).await.unwrap();
    sqlx::query("UPDATE jobs SET priority = 5 WHERE id = $1").bind(urgent.id.0).execute(&pool).await.unwrap();
    assert_eq!(queue.view(urgent.id, None).await.unwrap().unwrap().queue_position, Some(1));
    assert_eq!(queue.view(early.id, None).await.unwrap().unwrap().queue_position, Some(2));
    assert_eq!(claim(&queue).await.id, urgent.id);
}

#[tokio::test]
async fn a_job_and_its_ticket_are_there_together_or_not_at_all() {
    let (queue, pool) = database().await;
    let once = job("a", 1);
    queue.submit(&once).await.unwrap();
    assert_eq!(tickets(&pool).await, 1);
    assert!(queue.submit(&once).await.is_err(), "the same id twice");
    assert_eq!(tickets(&pool).await, 1);
}

#[tokio::test]
async fn many_workers_never_claim_the_same_job() {
    let (queue, _) = database().await;
    for _ in 0..20 {
        queue.submit(&job("a", 1)).await.unwrap();
    }
    let claims = futures_util::future::join_all((0..40).map(|_| queue.claim("worker", LEASE))).await;
    let ids: Vec<_> = claims.into_iter().filter_map(|claim| claim.unwrap()).map(|claim| claim.id).collect();
    assert_eq!((ids.len(), ids.iter().collect::<HashSet<_>>().len()), (20, 20));
}

#[tokio::test]
async fn shapes_keep_the_order_of_their_keys_and_the_job_its_source() {
    let (queue, _) = database().await;
    let submitted = job("a", 2);
    queue.submit(&submitted).await.unwrap();
    let claimed = claim(&queue).await;
    assert_eq!(claimed.source, submitted.source);
    assert_eq!(claimed.pending[1].shape.spec(), "zeta: 1; alpha: 1");
    assert_eq!(queue.view(submitted.id, None).await.unwrap().unwrap().runs[1].benchmark.spec(), "zeta: 1; alpha: 1");
}

#[tokio::test]
async fn a_job_belongs_to_the_id_that_submitted_it() {
    let (queue, _) = database().await;
    let mine = job("me", 1);
    queue.submit(&mine).await.unwrap();
    let claimed = claim(&queue).await;
    queue.start_run(claimed.lease_of(0)).await.unwrap();
    queue.finish_run(claimed.lease_of(0), &success("a.zip")).await.unwrap();
    let (me, other) = (Owner::from_credential("me"), Owner::from_credential("other"));
    assert!(queue.view(mine.id, Some(me)).await.unwrap().is_some());
    assert!(queue.view(mine.id, Some(other)).await.unwrap().is_none());
    assert_eq!(queue.artifact(mine.id, &me, "a.zip").await.unwrap().unwrap().stored.path, "jobs/a.zip");
    assert_eq!(queue.artifact(mine.id, &other, "a.zip").await.unwrap(), None);
    assert_eq!(queue.artifact(mine.id, &me, "../a.zip").await.unwrap(), None);
}

#[tokio::test]
async fn a_job_succeeds_when_every_shape_has_its_archive() {
    let (queue, _) = database().await;
    queue.submit(&job("a", 2)).await.unwrap();
    let claimed = claim(&queue).await;
    for (index, name) in [(0, "a.zip"), (1, "b.zip")] {
        queue.start_run(claimed.lease_of(index)).await.unwrap();
        queue.finish_run(claimed.lease_of(index), &success(name)).await.unwrap();
    }
    assert_eq!(queue.finish(claimed.id, claimed.token).await.unwrap(), State::Succeeded);
    let view = queue.view(claimed.id, None).await.unwrap().unwrap();
    assert_eq!((view.state, view.error, view.ended_at.is_some()), (State::Succeeded, None, true));
}

#[tokio::test]
async fn a_failed_shape_fails_the_job_and_the_good_ones_stay() {
    let (queue, _) = database().await;
    queue.submit(&job("a", 2)).await.unwrap();
    let claimed = claim(&queue).await;
    for (index, end) in [(0, failure()), (1, success("b.zip"))] {
        queue.start_run(claimed.lease_of(index)).await.unwrap();
        queue.finish_run(claimed.lease_of(index), &end).await.unwrap();
    }
    assert_eq!(queue.finish(claimed.id, claimed.token).await.unwrap(), State::Failed);
    let view = queue.view(claimed.id, None).await.unwrap().unwrap();
    assert_eq!(
        view.error.as_deref(),
        Some("Shape 0: The submission failed: ValueError. Profiles of 1 of 2 shapes are there.")
    );
    assert_eq!(view.runs[1].artifact.as_ref().unwrap().name, "b.zip");
}

#[tokio::test]
async fn a_released_job_keeps_its_place_and_the_shapes_that_are_done() {
    let (queue, pool) = database().await;
    let (first, second) = (job("a", 2), job("b", 1));
    queue.submit(&first).await.unwrap();
    queue.submit(&second).await.unwrap();
    let claimed = claim(&queue).await;
    queue.start_run(claimed.lease_of(0)).await.unwrap();
    queue.finish_run(claimed.lease_of(0), &success("a.zip")).await.unwrap();
    queue.release(claimed.id, claimed.token).await.unwrap();

    assert_eq!(tickets(&pool).await, 3, "a released job has a ticket of its own again");
    let again = claim(&queue).await;
    assert_eq!((again.id, again.attempt), (first.id, 2));
    assert_eq!(again.pending.iter().map(|run| run.benchmark_index).collect::<Vec<_>>(), [1]);
    let faults: i32 =
        sqlx::query_scalar("SELECT faults FROM jobs WHERE id = $1").bind(first.id.0).fetch_one(&pool).await.unwrap();
    assert_eq!(faults, 0, "a redeploy is nobody's fault");
}

#[tokio::test]
async fn every_write_of_an_attempt_that_lost_its_lease_is_refused() {
    let (queue, pool) = database().await;
    queue.submit(&job("a", 1)).await.unwrap();
    let stale = claim(&queue).await;
    queue.start_run(stale.lease_of(0)).await.unwrap();
    expire_leases(&pool).await;
    assert_eq!(queue.reap(Some(Duration::ZERO)).await.unwrap().requeued, 1);
    let fresh = claim(&queue).await;
    assert_eq!((fresh.id, fresh.attempt), (stale.id, 2));

    let lost = |result: jobs::Result<()>| assert!(matches!(result, Err(Error::LeaseLost)), "{result:?}");
    lost(queue.renew(stale.id, stale.token, LEASE).await.map(drop));
    lost(queue.start_run(stale.lease_of(0)).await);
    lost(queue.finish_run(stale.lease_of(0), &success("stale.zip")).await);
    lost(queue.finish(stale.id, stale.token).await.map(drop));
    lost(queue.release(stale.id, stale.token).await);
    lost(queue.fault(stale.id, stale.token, "detail", "message", LEASE).await.map(drop));
    lost(queue.finish_cancelled(stale.id, stale.token).await);

    queue.start_run(fresh.lease_of(0)).await.unwrap();
    queue.finish_run(fresh.lease_of(0), &success("fresh.zip")).await.unwrap();
    queue.finish(fresh.id, fresh.token).await.unwrap();
    let runs = queue.view(fresh.id, None).await.unwrap().unwrap().runs;
    assert_eq!(runs[0].artifact.as_ref().unwrap().name, "fresh.zip");
}

#[tokio::test]
async fn a_lease_that_is_renewed_is_not_reaped() {
    let (queue, pool) = database().await;
    queue.submit(&job("a", 1)).await.unwrap();
    let claimed = claim(&queue).await;
    expire_leases(&pool).await;
    assert_eq!(queue.renew(claimed.id, claimed.token, LEASE).await.unwrap(), Renewal::Renewed);
    assert_eq!(queue.reap(Some(Duration::ZERO)).await.unwrap().requeued, 0);
}

#[tokio::test]
async fn a_job_that_loses_every_attempt_ends_as_failed_and_says_so() {
    let (queue, pool) = database().await;
    queue.submit(&job("a", 1)).await.unwrap();
    for _ in 0..3 {
        claim(&queue).await;
        expire_leases(&pool).await;
        queue.reap(Some(Duration::ZERO)).await.unwrap();
    }
    assert!(queue.claim("worker", LEASE).await.unwrap().is_none());
    let (state, kind): (String, String) =
        sqlx::query_as("SELECT state, error_kind FROM jobs").fetch_one(&pool).await.unwrap();
    assert_eq!((state.as_str(), kind.as_str()), ("failed", "service_fault"));
}

#[tokio::test]
async fn a_fault_waits_before_the_next_attempt_and_the_last_one_fails_the_job() {
    let (queue, pool) = database().await;
    queue.submit(&job("a", 1)).await.unwrap();
    let first = claim(&queue).await;
    assert_eq!(queue.fault(first.id, first.token, "engine away", "message", LEASE).await.unwrap(), State::Queued);
    assert!(queue.claim("worker", LEASE).await.unwrap().is_none(), "it waits");
    for expected in [State::Queued, State::Failed] {
        sqlx::query("UPDATE jobs SET not_before = now()").execute(&pool).await.unwrap();
        let next = claim(&queue).await;
        assert_eq!(queue.fault(next.id, next.token, "engine away", "message", Duration::ZERO).await.unwrap(), expected);
    }
    let view = queue.view(first.id, None).await.unwrap().unwrap();
    assert_eq!((view.error.as_deref(), view.error_kind.as_deref()), (Some("message."), Some("service_fault")));
}

#[tokio::test]
async fn lost_tickets_are_replaced_and_extra_ones_are_not_added() {
    let (queue, pool) = database().await;
    for _ in 0..3 {
        queue.submit(&job("a", 1)).await.unwrap();
    }
    sqlx::query("DELETE FROM apalis.jobs").execute(&pool).await.unwrap();
    assert_eq!(queue.reap(Some(Duration::ZERO)).await.unwrap().tickets, 3);
    assert_eq!(queue.reap(Some(Duration::ZERO)).await.unwrap().tickets, 0);
}

#[tokio::test]
async fn a_ticket_that_a_dead_worker_has_locked_is_replaced() {
    let (queue, pool) = database().await;
    queue.submit(&job("a", 1)).await.unwrap();
    sqlx::query("UPDATE apalis.jobs SET status = 'Queued', lock_at = now()").execute(&pool).await.unwrap();
    assert_eq!(queue.reap(Some(Duration::ZERO)).await.unwrap().tickets, 1);
    assert_eq!(queue.reap(Some(Duration::ZERO)).await.unwrap().tickets, 0);
}

#[tokio::test]
async fn old_tickets_are_pruned() {
    let (queue, pool) = database().await;
    queue.submit(&job("a", 1)).await.unwrap();
    queue.submit(&job("a", 1)).await.unwrap();
    let old = "UPDATE apalis.jobs SET status = 'Done', done_at = now() - interval '2 hours'
               WHERE id = (SELECT id FROM apalis.jobs LIMIT 1)";
    sqlx::query(old).execute(&pool).await.unwrap();
    claim(&queue).await;
    queue.reap(Some(Duration::ZERO)).await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM apalis.jobs").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 1);
}

#[tokio::test]
async fn a_waiting_job_is_cancelled_at_once_and_a_running_one_by_its_worker() {
    let (queue, _) = database().await;
    let (running, waiting) = (job("a", 1), job("a", 1));
    queue.submit(&running).await.unwrap();
    queue.submit(&waiting).await.unwrap();
    let claimed = claim(&queue).await;
    assert!(queue.cancel(waiting.id).await.unwrap());
    assert!(queue.cancel(running.id).await.unwrap());
    let view = queue.view(waiting.id, None).await.unwrap().unwrap();
    assert_eq!((view.state, view.error.as_deref()), (State::Failed, Some("The job was cancelled.")));
    assert_eq!(queue.renew(claimed.id, claimed.token, LEASE).await.unwrap(), Renewal::CancelRequested);
    queue.finish_cancelled(claimed.id, claimed.token).await.unwrap();
    assert_eq!(queue.view(running.id, None).await.unwrap().unwrap().error_kind.as_deref(), Some("cancelled"));
    assert!(!queue.cancel(running.id).await.unwrap(), "it is over");
}

#[tokio::test]
async fn the_schema_refuses_a_success_without_an_archive() {
    let (queue, pool) = database().await;
    queue.submit(&job("a", 1)).await.unwrap();
    assert!(sqlx::query("UPDATE runs SET state = 'succeeded'").execute(&pool).await.is_err());
    assert!(sqlx::query("UPDATE jobs SET state = 'running'").execute(&pool).await.is_err());
}

#[tokio::test]
async fn a_release_that_is_put_back_works_with_the_schema_of_the_newer_one() {
    let (queue, pool) = database().await;
    for table in ["_sqlx_migrations", "apalis._sqlx_migrations"] {
        let newer = format!(
            "INSERT INTO {table} (version, description, success, checksum, execution_time)
             VALUES (99991231235959, 'of a newer release', true, 'x', 1)"
        );
        sqlx::query(sqlx::AssertSqlSafe(newer)).execute(&pool).await.unwrap();
    }
    queue.migrate().await.unwrap();
    assert_eq!(queue.missing_migrations().await.unwrap(), 0);
    queue.submit(&job("a", 1)).await.unwrap();
}

#[tokio::test]
async fn migrations_of_several_processes_that_start_together_take_turns() {
    let (queue, _) = database().await;
    for result in futures_util::future::join_all((0..4).map(|_| queue.migrate())).await {
        result.unwrap();
    }
}
