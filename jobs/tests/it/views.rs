//! The views for operators, against a small history that is made up.

use std::time::Duration;

use jobs::ids::JobId;
use jobs::queue::{Adoption, Claim, ErrorKind, NewJob, Queue, RunEnd, State, WorkerState};
use sqlx::PgPool;

use crate::support::{database, failure, job, success};

const LEASE: Duration = Duration::from_secs(30);
const VIEWS: [&str; 7] = [
    "queue_overview",
    "running_now",
    "job_history",
    "worker_status",
    "user_usage",
    "failure_reasons",
    "gpu_utilisation",
];

/// Text of the first column of what a query finds.
async fn texts(pool: &PgPool, query: &'static str) -> Vec<String> {
    sqlx::query_scalar(query).fetch_all(pool).await.unwrap()
}

async fn execute(pool: &PgPool, statement: &'static str) {
    sqlx::query(statement).execute(pool).await.unwrap();
}

async fn submit(queue: &Queue, owner: &str, shapes: u32) -> NewJob {
    let job = job(owner, shapes);
    queue.submit(&job).await.unwrap();
    job
}

async fn claim(queue: &Queue, worker: &str) -> Claim {
    queue.claim(worker, LEASE).await.unwrap().unwrap()
}

async fn end_shape(queue: &Queue, claim: &Claim, index: u32, end: RunEnd) {
    queue.start_run(claim.lease_of(index)).await.unwrap();
    queue.finish_run(claim.lease_of(index), &end).await.unwrap();
}

async fn adopt(queue: &Queue, claim: &Claim, worker: &str) -> Claim {
    let held = *queue.live().await.unwrap().claim(claim.claim_token).unwrap();
    match queue.adopt(held, true, worker, LEASE).await.unwrap() {
        Adoption::Adopted(claim) => *claim,
        other => panic!("{other:?}"),
    }
}

async fn alive(queue: &Queue, worker: &str, state: WorkerState, job: Option<JobId>, note: Option<&str>) {
    queue.heartbeat(worker, "a host", state, job, note).await.unwrap();
}

#[tokio::test]
async fn of_an_empty_service_every_view_is_empty() {
    let (_, pool) = database().await;
    for view in VIEWS {
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {view}")))
            .fetch_one(&pool)
            .await
            .unwrap();
        assert_eq!(rows, 0, "{view}");
    }
}

#[tokio::test]
async fn every_view_and_each_of_its_columns_has_a_comment_and_no_raw_bytes() {
    let (_, pool) = database().await;
    let columns: Vec<(String, String, String, bool, bool)> = sqlx::query_as(
        "SELECT c.relname::text, a.attname::text, a.atttypid::regtype::text,
                obj_description(c.oid) IS NOT NULL, col_description(c.oid, a.attnum) IS NOT NULL
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
         WHERE c.relkind = 'v' AND c.relnamespace = 'public'::regnamespace",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    for view in VIEWS {
        assert!(columns.iter().any(|(of, ..)| of == view), "{view}");
    }
    for (view, column, kind, view_is_told, is_told) in columns {
        assert!(view_is_told && is_told, "{view}.{column} lacks a comment");
        assert_ne!(kind, "bytea", "{view}.{column}");
        assert_ne!(kind, "timestamp without time zone", "{view}.{column}");
    }
}

#[tokio::test]
async fn a_place_in_the_queue_is_the_one_that_the_service_tells() {
    let (queue, pool) = database().await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(submit(&queue, "somebody", 1).await.id);
    }
    sqlx::query("UPDATE jobs SET priority = 3 WHERE id = $1").bind(ids[4].0).execute(&pool).await.unwrap();
    sqlx::query("UPDATE jobs SET priority = -1 WHERE id = $1").bind(ids[1].0).execute(&pool).await.unwrap();
    sqlx::query("UPDATE jobs SET not_before = now() + interval '1 hour' WHERE id = $1")
        .bind(ids[2].0)
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(claim(&queue, "a worker").await.id, ids[4]);
    let told: Vec<(sqlx::types::Uuid, i64)> =
        sqlx::query_as("SELECT job_id, queue_position FROM queue_overview ORDER BY queue_position")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(told.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 2, 3, 5, 1].map(|n: usize| ids[n].0));
    for (id, position) in told {
        assert_eq!(queue.view(JobId(id), None).await.unwrap().unwrap().queue_position, Some(position));
    }
}

#[tokio::test]
async fn a_waiting_job_says_what_it_waits_for() {
    let (queue, pool) = database().await;
    submit(&queue, "somebody", 1).await;
    submit(&queue, "somebody", 1).await;
    let waits = async || texts(&pool, "SELECT waits_for FROM queue_overview ORDER BY queue_position").await;
    assert_eq!(waits().await, ["a worker: none is alive"; 2]);

    alive(&queue, "w", WorkerState::Quarantined, None, Some("GPU 0: ill")).await;
    assert_eq!(waits().await[0], "a worker that takes jobs: worker_status says what stops those that are alive");
    alive(&queue, "w", WorkerState::Idle, None, None).await;
    assert_eq!(waits().await, ["an idle worker, for a few seconds", "its turn"]);

    let first = claim(&queue, "w").await;
    queue.fault(first.id, first.token, "the engine is away", "Ours.", Duration::from_hours(1)).await.unwrap();
    assert_eq!(waits().await[0], "the end of its pause after a fault of the service");
    assert_eq!(texts(&pool, "SELECT last_fault FROM queue_overview WHERE faults = 1").await, ["the engine is away"]);

    execute(&pool, "UPDATE jobs SET cancel_requested = true WHERE faults = 1").await;
    assert_eq!(waits().await[0], "its end: it was cancelled");

    execute(&pool, "UPDATE jobs SET created_at = now() - interval '90 seconds'").await;
    let waited: f64 =
        sqlx::query_scalar("SELECT min(wait_seconds)::float8 FROM queue_overview").fetch_one(&pool).await.unwrap();
    assert!((90.0..300.0).contains(&waited), "{waited}");
}

#[tokio::test]
async fn what_runs_is_shown_with_its_shape_its_host_and_who_holds_it() {
    let (queue, pool) = database().await;
    submit(&queue, "somebody", 3).await;
    let first = claim(&queue, "w1").await;
    alive(&queue, "w1", WorkerState::Busy, Some(first.id), None).await;
    alive(&queue, "w2", WorkerState::Idle, None, None).await;
    end_shape(&queue, &first, 0, success("a.zip")).await;
    queue.start_run(first.lease_of(1)).await.unwrap();
    let row = async || {
        texts(
            &pool,
            "SELECT concat_ws('|', host, worker, hold, benchmark_index, shapes_ended, shapes, attempt, adoptions) FROM running_now",
        )
        .await
        .concat()
    };
    assert_eq!(row().await, "a host|w1|held by its worker|1|1|3|1|0");

    queue.hand_over(first.id, first.token).await.unwrap();
    assert_eq!(row().await, "a host|w1|handed over; waits for a worker of its host|1|1|3|1|0");
    let second = adopt(&queue, &first, "w2").await;
    assert_eq!(row().await, "a host|w2|held by its worker|1|1|3|1|1");
    execute(&pool, "UPDATE jobs SET lease_until = now() - interval '5 seconds'").await;
    assert_eq!(row().await, "a host|w2|lost its worker; waits for another of its host|1|1|3|1|1");
    let left: f64 =
        sqlx::query_scalar("SELECT lease_seconds_left::float8 FROM running_now").fetch_one(&pool).await.unwrap();
    assert!(left < -4.0, "{left}");

    execute(&pool, "UPDATE jobs SET lease_until = now() + interval '1 hour'").await;
    queue.cancel(second.id).await.unwrap();
    assert_eq!(row().await, "a host|w2|being cancelled|1|1|3|1|1");
    queue.finish_cancelled(second.id, second.token).await.unwrap();
    assert_eq!(row().await, "");
}

#[tokio::test]
async fn the_history_counts_shapes_faults_adoptions_and_archives() {
    let (queue, pool) = database().await;
    let adopted = submit(&queue, "somebody", 2).await;
    let first = claim(&queue, "w1").await;
    queue.fault(first.id, first.token, "the engine is away", "Ours.", Duration::ZERO).await.unwrap();
    let second = claim(&queue, "w1").await;
    end_shape(&queue, &second, 0, success("a.zip")).await;
    queue.start_run(second.lease_of(1)).await.unwrap();
    let third = adopt(&queue, &second, "w2").await;
    queue.finish_run(third.lease_of(1), &success("b.zip")).await.unwrap();
    queue.finish(third.id, third.token).await.unwrap();

    let failed = submit(&queue, "another", 1).await;
    let only = claim(&queue, "w1").await;
    end_shape(&queue, &only, 0, failure()).await;
    queue.finish(only.id, only.token).await.unwrap();
    let unstarted = submit(&queue, "another", 1).await;
    queue.cancel(unstarted.id).await.unwrap();
    submit(&queue, "somebody", 1).await;

    execute(&pool, "UPDATE runs SET artifact_expired_at = now() WHERE artifact_name = 'a.zip'").await;
    execute(
        &pool,
        "UPDATE jobs SET created_at = ended_at - interval '90 seconds', started_at = started_at - interval '60 seconds' + (ended_at - started_at)
         WHERE ended_at IS NOT NULL",
    )
    .await;
    let row = async |id: JobId| -> String {
        sqlx::query_scalar(
            "SELECT concat_ws('|', state, error_kind, shapes_succeeded, shapes, attempts, faults, adoptions, archives,
                              archive_bytes, archives_expired, simulated, wait_seconds, run_seconds) FROM job_history WHERE job_id = $1",
        )
        .bind(id.0)
        .fetch_one(&pool)
        .await
        .unwrap()
    };
    assert_eq!(row(adopted.id).await, "succeeded|2|2|2|1|1|1|7|1|t|30.0|60.0");
    assert_eq!(row(failed.id).await, "failed|submission|0|1|1|0|0|0|0|0|t|30.0|60.0");
    assert_eq!(row(unstarted.id).await, "failed|cancelled|0|1|0|0|0|0|0|0|f|90.0", "it never ran");
    assert_eq!(texts(&pool, "SELECT count(*)::text FROM job_history").await, ["3"], "what waits is no history");
}

#[tokio::test]
async fn a_worker_that_was_killed_is_silent_and_one_that_takes_nothing_says_why() {
    let (queue, pool) = database().await;
    alive(&queue, "busy", WorkerState::Busy, Some(JobId::random()), None).await;
    alive(&queue, "ill", WorkerState::Quarantined, None, Some("GPU 0000:19:00.0: Xid 79")).await;
    alive(&queue, "killed", WorkerState::Idle, None, None).await;
    alive(&queue, "ended", WorkerState::Stopped, None, None).await;
    alive(&queue, "long gone", WorkerState::Stopped, None, None).await;
    execute(&pool, "UPDATE workers SET last_seen_at = now() - interval '1 hour' WHERE name = 'killed'").await;
    execute(&pool, "UPDATE workers SET last_seen_at = now() - interval '8 days' WHERE name = 'long gone'").await;
    let rows = texts(
        &pool,
        "SELECT concat_ws('|', worker, state, is_alive, takes_jobs, note) FROM worker_status ORDER BY worker COLLATE \"C\"",
    );
    assert_eq!(
        rows.await,
        ["busy|busy|t|t", "ended|stopped|f|f", "ill|quarantined|t|f|GPU 0000:19:00.0: Xid 79", "killed|silent|f|f"]
    );
    let counts = queue.worker_counts().await.unwrap();
    let told = texts(
        &pool,
        "SELECT concat_ws('|', count(*) FILTER (WHERE is_alive), count(*) FILTER (WHERE takes_jobs)) FROM worker_status",
    );
    assert_eq!(told.await, [format!("{}|{}", counts.alive, counts.ready)], "as the health counts");
}

#[tokio::test]
async fn usage_is_told_by_user_for_the_last_week_and_for_what_waits_or_runs() {
    let (queue, pool) = database().await;
    // One that ended long ago, with an archive.
    submit(&queue, "heavy", 1).await;
    let old = claim(&queue, "w").await;
    end_shape(&queue, &old, 0, success("old.zip")).await;
    queue.finish(old.id, old.token).await.unwrap();
    execute(&pool, "UPDATE jobs SET ended_at = now() - interval '8 days'").await;

    submit(&queue, "heavy", 2).await;
    let good = claim(&queue, "w").await;
    end_shape(&queue, &good, 0, success("a.zip")).await;
    end_shape(&queue, &good, 1, success("b.zip")).await;
    queue.finish(good.id, good.token).await.unwrap();
    submit(&queue, "heavy", 1).await;
    let bad = claim(&queue, "w").await;
    end_shape(&queue, &bad, 0, failure()).await;
    queue.finish(bad.id, bad.token).await.unwrap();
    submit(&queue, "heavy", 1).await;
    claim(&queue, "w").await;
    submit(&queue, "heavy", 1).await;

    submit(&queue, "light", 1).await;
    execute(&pool, "UPDATE jobs SET priority = 1 WHERE seq = (SELECT max(seq) FROM jobs)").await;
    let mut state = State::Queued;
    while state == State::Queued {
        execute(&pool, "UPDATE jobs SET not_before = now()").await;
        let ours = claim(&queue, "w").await;
        state = queue.fault(ours.id, ours.token, "the engine is away", "Ours.", Duration::ZERO).await.unwrap();
    }
    execute(&pool, "UPDATE runs SET started_at = ended_at - interval '20 seconds' WHERE state IN ('succeeded', 'failed') AND started_at IS NOT NULL").await;

    let rows = texts(
        &pool,
        "SELECT concat_ws('|', jobs, jobs_queued, jobs_running, jobs_succeeded, jobs_failed, jobs_failed_by_us,
                          shapes_succeeded, shape_seconds, archive_bytes) FROM user_usage ORDER BY jobs DESC",
    );
    assert_eq!(rows.await, ["4|1|1|1|1|0|2|60.0|14", "1|0|0|0|0|1|0|0.0|0"]);
    let owner = hex::encode(&jobs::ids::Owner::from_credential("heavy").as_bytes()[..6]);
    assert_eq!(texts(&pool, "SELECT owner FROM user_usage ORDER BY jobs DESC").await[0], owner);
}

#[tokio::test]
async fn reasons_that_differ_in_numbers_only_are_one_and_our_retried_faults_are_among_them() {
    let (queue, pool) = database().await;
    for n in 0..3 {
        submit(&queue, &format!("user {n}"), 1).await;
        let claim = claim(&queue, "w").await;
        let error = Some((ErrorKind::Submission, format!("ValueError: expected 3 rows, got {n}\nand more {n}")));
        end_shape(&queue, &claim, 0, RunEnd { error, ..failure() }).await;
        queue.finish(claim.id, claim.token).await.unwrap();
    }
    submit(&queue, "user 0", 1).await;
    let ours = claim(&queue, "w").await;
    queue.fault(ours.id, ours.token, "engine, create: 500", "Ours.", Duration::ZERO).await.unwrap();
    let again = claim(&queue, "w").await;
    let wrong = RunEnd { error: Some((ErrorKind::WrongAnswer, "The answer is wrong.".to_owned())), ..success("a.zip") };
    end_shape(&queue, &again, 0, wrong).await;
    queue.finish(again.id, again.token).await.unwrap();

    let rows = async || {
        texts(
            &pool,
            "SELECT concat_ws('|', what_failed, error_kind, reason, failures, jobs, users, leaderboards)
             FROM failure_reasons ORDER BY failures DESC",
        )
        .await
    };
    let expected = [
        "shape|submission|ValueError: expected # rows, got #|3|3|3|1",
        "attempt|service_fault|engine, create: #|1|1|1|1",
    ];
    assert_eq!(rows().await, expected, "a wrong answer is no failure: its profile is delivered");
    let last: Vec<sqlx::types::Uuid> =
        sqlx::query_scalar("SELECT last_job_id FROM failure_reasons WHERE what_failed = 'attempt'")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(last, [ours.id.0]);

    execute(&pool, "UPDATE jobs SET ended_at = now() - interval '8 days'").await;
    assert_eq!(rows().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_host_is_busy_while_any_of_its_workers_holds_a_job() {
    let (queue, pool) = database().await;
    for worker in ["w1", "w2"] {
        alive(&queue, worker, WorkerState::Busy, None, None).await;
        submit(&queue, "somebody", 0).await;
        let claim = claim(&queue, worker).await;
        queue.finish(claim.id, claim.token).await.unwrap();
    }
    queue.heartbeat("idle", "another host", WorkerState::Idle, None, None).await.unwrap();
    // Of the hour from 3 to 2 hours ago the first worker holds a job from minute 30 on and ten minutes beyond its end, the other
    // one from minute 50 to 55.
    execute(&pool, "UPDATE workers SET started_at = date_trunc('hour', now()) - interval '3 hours'").await;
    execute(
        &pool,
        "UPDATE attempts SET started_at = date_trunc('hour', now()) - interval '150 minutes',
                    ended_at = date_trunc('hour', now()) - interval '110 minutes' WHERE worker = 'w1'",
    )
    .await;
    execute(
        &pool,
        "UPDATE attempts SET started_at = date_trunc('hour', now()) - interval '130 minutes',
                    ended_at = date_trunc('hour', now()) - interval '125 minutes' WHERE worker = 'w2'",
    )
    .await;
    let rows = texts(
        &pool,
        "SELECT concat_ws('|', host, workers, attempts, busy_seconds, busy_share) FROM gpu_utilisation
         WHERE hour < date_trunc('hour', now()) ORDER BY host, hour",
    );
    assert_eq!(
        rows.await,
        [
            "a host|2|2|1800.0|0.500",
            "a host|2|1|600.0|0.167",
            "a host|2|0|0.0|0.000",
            "another host|1|0|0.0|0.000",
            "another host|1|0|0.0|0.000",
            "another host|1|0|0.0|0.000",
        ]
    );
}

#[tokio::test]
async fn a_job_that_runs_right_now_makes_its_host_busy_also_in_a_transaction_that_began_before_it() {
    let (queue, pool) = database().await;
    let mut tx = pool.begin().await.unwrap();
    // The time of a transaction stands still.
    sqlx::query("SELECT now()").execute(&mut *tx).await.unwrap();
    alive(&queue, "w1", WorkerState::Busy, None, None).await;
    submit(&queue, "somebody", 1).await;
    claim(&queue, "w1").await;
    for view in VIEWS {
        let query = sqlx::AssertSqlSafe(format!("SELECT * FROM {view}"));
        sqlx::query(query).fetch_all(&mut *tx).await.unwrap_or_else(|error| panic!("{view}: {error}"));
    }
    execute(&pool, "UPDATE attempts SET started_at = now() - interval '10 seconds'").await;
    let busy: f64 =
        sqlx::query_scalar("SELECT sum(busy_seconds)::float8 FROM gpu_utilisation").fetch_one(&pool).await.unwrap();
    assert!((9.0..300.0).contains(&busy), "{busy}");
}
