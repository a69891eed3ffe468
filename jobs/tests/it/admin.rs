//! What operators order, against a real Postgres.

use std::time::Duration;

use jobs::Error;
use jobs::admin::{self, Answer, Command};
use jobs::ids::JobId;
use jobs::queue::{Actor, AdminJob, Claim, Orders, Queue, State, WorkerState};
use sqlx::PgPool;

use crate::support::{database, failure, job, success};

const LEASE: Duration = Duration::from_secs(30);

async fn order(queue: &Queue, command: Command) -> jobs::Result<Answer> {
    admin::run(queue, &Actor::new("ann").unwrap(), &command).await
}

/// Orders it, and returns the sentence.
async fn done(queue: &Queue, command: Command) -> String {
    match order(queue, command).await.unwrap() {
        Answer::Done { detail } => detail,
        other => panic!("{other:?}"),
    }
}

/// Orders it in vain, and returns why.
async fn refused(queue: &Queue, command: Command) -> String {
    match order(queue, command).await.unwrap_err() {
        Error::Refused(why) | Error::NoSuch(why) => why,
        other => panic!("{other:?}"),
    }
}

async fn listed(queue: &Queue, ended: bool) -> Vec<AdminJob> {
    match order(queue, Command::List { ended, limit: 50 }).await.unwrap() {
        Answer::Jobs { jobs } => jobs,
        other => panic!("{other:?}"),
    }
}

async fn submit(queue: &Queue, shapes: u32) -> JobId {
    let job = job("somebody", shapes);
    queue.submit(&job).await.unwrap();
    job.id
}

async fn claim(queue: &Queue) -> Option<Claim> {
    queue.claim("w", LEASE).await.unwrap()
}

async fn tickets(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM apalis.jobs WHERE status = 'Pending'").fetch_one(pool).await.unwrap()
}

/// The log, a line each.
async fn log(pool: &PgPool) -> Vec<String> {
    let log = "SELECT concat_ws('|', actor, action, target, outcome, details) FROM admin_log ORDER BY id";
    sqlx::query_scalar(log).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn a_paused_queue_is_claimed_from_by_nobody_until_it_is_resumed() {
    let (queue, pool) = database().await;
    submit(&queue, 1).await;
    let running = claim(&queue).await.unwrap();
    submit(&queue, 1).await;
    done(&queue, Command::Pause { reason: Some("a new driver".to_owned()) }).await;
    submit(&queue, 1).await;
    assert!(claim(&queue).await.is_none());
    let waits: Vec<String> = sqlx::query_scalar("SELECT waits_for FROM queue_overview").fetch_all(&pool).await.unwrap();
    assert_eq!(waits, ["the queue to be resumed: it is paused"; 2]);
    let Answer::Status(status) = order(&queue, Command::Status).await.unwrap() else { panic!() };
    assert_eq!((status.paused_by.as_deref(), status.pause_reason.as_deref()), (Some("ann"), Some("a new driver")));
    assert_eq!((status.queued, status.running), (2, 1));

    // What runs goes on to its end.
    queue.start_run(running.lease_of(0)).await.unwrap();
    queue.finish_run(running.lease_of(0), &success("a.zip")).await.unwrap();
    assert_eq!(queue.finish(running.id, running.token).await.unwrap(), State::Succeeded);

    assert!(refused(&queue, Command::Pause { reason: None }).await.contains("paused already"));
    done(&queue, Command::Resume).await;
    assert!(claim(&queue).await.is_some());
    assert_eq!(refused(&queue, Command::Resume).await, "The queue is not paused.");
    let Answer::Status(status) = order(&queue, Command::Status).await.unwrap() else { panic!() };
    assert_eq!((status.paused_at, status.paused_by, status.pause_reason), (None, None, None));
}

#[tokio::test]
async fn a_paused_queue_makes_no_tickets_and_a_resumed_one_has_one_for_each_job_at_once() {
    let (queue, pool) = database().await;
    for _ in 0..3 {
        submit(&queue, 1).await;
    }
    done(&queue, Command::Pause { reason: None }).await;
    // As when idle workers have taken the tickets in vain.
    sqlx::query("DELETE FROM apalis.jobs").execute(&pool).await.unwrap();
    assert_eq!(queue.reap(None).await.unwrap().tickets, 0);
    assert_eq!(tickets(&pool).await, 0);
    done(&queue, Command::Resume).await;
    assert_eq!(tickets(&pool).await, 3);
}

#[tokio::test]
async fn what_runs_and_waits_is_listed_in_its_order_and_what_has_ended_apart() {
    let (queue, _) = database().await;
    let (first, second, third) = (submit(&queue, 1).await, submit(&queue, 1).await, submit(&queue, 1).await);
    claim(&queue).await.unwrap();
    done(&queue, Command::Reorder { job: third, priority: 4 }).await;
    let open = listed(&queue, false).await;
    let rows: Vec<_> = open.iter().map(|job| (JobId(job.id), job.state.as_str(), job.queue_position)).collect();
    assert_eq!(rows, [(first, "running", None), (third, "queued", Some(1)), (second, "queued", Some(2))]);
    assert_eq!(open[1].note.as_deref(), Some("a worker: none is alive"));
    assert_eq!(listed(&queue, true).await, []);
    done(&queue, Command::Cancel { job: second }).await;
    let ended = listed(&queue, true).await;
    assert_eq!((JobId(ended[0].id), ended[0].note.as_deref(), ended.len()), (second, Some("cancelled"), 1));
    assert_eq!(listed(&queue, false).await.len(), 2);
}

#[tokio::test]
async fn a_job_is_shown_with_the_texts_that_only_operators_read_and_without_its_source() {
    let (queue, _) = database().await;
    let id = submit(&queue, 2).await;
    let first = claim(&queue).await.unwrap();
    queue.start_run(first.lease_of(0)).await.unwrap();
    queue.finish_run(first.lease_of(0), &success("a.zip")).await.unwrap();
    queue.fault(id, first.token, "the engine is away", "Ours.", Duration::from_hours(1)).await.unwrap();
    let Answer::Job(shown) = order(&queue, Command::Show { job: id }).await.unwrap() else { panic!() };
    assert_eq!(
        (shown.job.faults, shown.last_fault.as_deref(), shown.has_source),
        (1, Some("the engine is away"), true)
    );
    assert_eq!(shown.history[0].fault.as_deref(), Some("the engine is away"));
    assert_eq!((shown.shapes[0].artifact_bytes, shown.shapes[1].state.as_str()), (Some(7), "queued"));
    let text = Answer::Job(shown).to_string();
    assert!(
        text.contains("a.zip, 7 bytes") && text.contains("attempt 1.0 by w") && !text.contains("custom_kernel"),
        "{text}"
    );
    let unknown = Command::Show { job: JobId::random() };
    assert_eq!(refused(&queue, unknown).await, "There is no job of this id.");
}

#[tokio::test]
async fn a_waiting_job_is_cancelled_at_once_and_a_running_one_by_its_worker() {
    let (queue, _) = database().await;
    let (running, waiting) = (submit(&queue, 1).await, submit(&queue, 1).await);
    let claim = claim(&queue).await.unwrap();
    assert_eq!(done(&queue, Command::Cancel { job: waiting }).await, "The job is cancelled.");
    assert!(done(&queue, Command::Cancel { job: running }).await.starts_with("The job is being cancelled"));
    let renewed = queue.renew(running, claim.token, LEASE).await.unwrap();
    assert_eq!(renewed, jobs::queue::Renewal::CancelRequested);
    let why = refused(&queue, Command::Cancel { job: waiting }).await;
    assert_eq!(why, "The job has ended already: it is failed.");
}

#[tokio::test]
async fn a_job_that_is_queued_again_does_its_shapes_without_a_profile_and_keeps_its_history() {
    let (queue, pool) = database().await;
    let id = submit(&queue, 3).await;
    let later = submit(&queue, 1).await;
    let first = claim(&queue).await.unwrap();
    for (index, end) in [(0, success("a.zip")), (1, failure()), (2, success("c.zip"))] {
        queue.start_run(first.lease_of(index)).await.unwrap();
        queue.finish_run(first.lease_of(index), &end).await.unwrap();
    }
    assert!(refused(&queue, Command::Requeue { job: id }).await.contains("it is running"));
    queue.finish(id, first.token).await.unwrap();
    sqlx::query("UPDATE runs SET artifact_expired_at = now() WHERE artifact_name = 'c.zip'")
        .execute(&pool)
        .await
        .unwrap();

    done(&queue, Command::Requeue { job: id }).await;
    let view = queue.view(id, None).await.unwrap().unwrap();
    assert_eq!((view.state, view.queue_position, view.error, view.ended_at), (State::Queued, Some(1), None, None));
    assert_eq!(queue.view(later, None).await.unwrap().unwrap().queue_position, Some(2));
    assert_eq!(view.attempts.len(), 1);
    assert!(view.runs[0].artifact.is_some() && view.runs[2].artifact.is_none());

    let second = claim(&queue).await.unwrap();
    assert_eq!((second.id, second.attempt), (id, 2));
    let pending: Vec<u32> = second.pending.iter().map(|run| run.benchmark_index).collect();
    assert_eq!(pending, [1, 2]);
    for (index, name) in [(1, "b.zip"), (2, "c.zip")] {
        queue.start_run(second.lease_of(index)).await.unwrap();
        queue.finish_run(second.lease_of(index), &success(name)).await.unwrap();
    }
    assert_eq!(queue.finish(id, second.token).await.unwrap(), State::Succeeded);
    let why = refused(&queue, Command::Requeue { job: id }).await;
    assert!(why.starts_with("Every shape of this job has its profile"), "{why}");
    let outcomes: Vec<String> = sqlx::query_scalar("SELECT outcome FROM attempts WHERE job_id = $1 ORDER BY attempt")
        .bind(id.0)
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(outcomes, ["ended", "ended"]);
}

#[tokio::test]
async fn a_job_that_failed_by_our_faults_or_was_cancelled_gets_all_its_attempts_anew() {
    let (queue, pool) = database().await;
    let id = submit(&queue, 1).await;
    let mut state = State::Queued;
    while state == State::Queued {
        sqlx::query("UPDATE jobs SET not_before = now()").execute(&pool).await.unwrap();
        let claim = claim(&queue).await.unwrap();
        state = queue.fault(id, claim.token, "the engine is away", "Ours.", Duration::ZERO).await.unwrap();
    }
    done(&queue, Command::Requeue { job: id }).await;
    let fourth = claim(&queue).await.unwrap();
    assert_eq!(fourth.attempt, 4);
    let state = queue.fault(id, fourth.token, "away again", "Ours.", Duration::ZERO).await.unwrap();
    assert_eq!(state, State::Queued, "its faults are forgotten");

    done(&queue, Command::Cancel { job: id }).await;
    done(&queue, Command::Requeue { job: id }).await;
    assert!(claim(&queue).await.is_some(), "it is not cancelled any more");
}

#[tokio::test]
async fn a_job_whose_source_is_gone_is_not_queued_again() {
    let (queue, pool) = database().await;
    let id = submit(&queue, 1).await;
    done(&queue, Command::Cancel { job: id }).await;
    sqlx::query("DELETE FROM submissions").execute(&pool).await.unwrap();
    let why = refused(&queue, Command::Requeue { job: id }).await;
    assert!(why.starts_with("The source of this job is not stored any more"), "{why}");
    assert_eq!(queue.view(id, None).await.unwrap().unwrap().state, State::Failed);
}

#[tokio::test]
async fn a_priority_moves_a_job_that_waits_and_no_other() {
    let (queue, _) = database().await;
    let (first, second) = (submit(&queue, 1).await, submit(&queue, 1).await);
    let told = done(&queue, Command::Reorder { job: second, priority: 1 }).await;
    assert_eq!(told, "The job has priority 1 and is number 1 in the queue.");
    assert_eq!(claim(&queue).await.unwrap().id, second);
    let why = refused(&queue, Command::Reorder { job: second, priority: 0 }).await;
    assert_eq!(why, "The job waits no more: it is running.");
    assert_eq!(
        done(&queue, Command::Reorder { job: first, priority: -3 }).await,
        "The job has priority -3 and is number 1 in the queue."
    );
}

#[tokio::test]
async fn an_order_reaches_the_one_worker_that_is_named_and_alive() {
    let (queue, pool) = database().await;
    for (name, state) in
        [("gpu-1-aa", WorkerState::Busy), ("gpu-1-ab", WorkerState::Quarantined), ("gone", WorkerState::Stopped)]
    {
        queue.heartbeat(name, "gpu-1", state, None, None).await.unwrap();
    }
    let drain = |worker: &str| Command::Drain { worker: worker.to_owned() };
    let lift = |worker: &str| Command::Unquarantine { worker: worker.to_owned() };
    assert_eq!(refused(&queue, drain("gpu-1")).await, "Several workers are called so: gpu-1-aa, gpu-1-ab.");
    assert!(refused(&queue, drain("gone")).await.starts_with("There is no worker alive"));
    assert_eq!(queue.orders("gpu-1-aa").await.unwrap(), Orders::default());

    done(&queue, drain("gpu-1-aa")).await;
    assert_eq!(queue.orders("gpu-1-aa").await.unwrap(), Orders { drain: true, lift_quarantine: false });
    // A heartbeat does not take it away.
    queue.heartbeat("gpu-1-aa", "gpu-1", WorkerState::Busy, None, None).await.unwrap();
    assert!(queue.orders("gpu-1-aa").await.unwrap().drain);

    assert_eq!(refused(&queue, lift("gpu-1-aa")).await, "Worker gpu-1-aa tells of no quarantine.");
    done(&queue, lift("gpu-1-ab")).await;
    assert_eq!(queue.orders("gpu-1-ab").await.unwrap(), Orders { drain: false, lift_quarantine: true });
    queue.quarantine_lifted("gpu-1-ab").await.unwrap();
    assert_eq!(queue.orders("gpu-1-ab").await.unwrap(), Orders::default());
    assert_eq!(queue.orders("unknown").await.unwrap(), Orders::default());
    let drained: i64 = sqlx::query_scalar("SELECT count(*) FROM worker_status WHERE drain_requested_at IS NOT NULL")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(drained, 1);
}

#[tokio::test]
async fn one_worker_prunes_when_somebody_asks_for_it() {
    let (queue, _) = database().await;
    assert!(!queue.take_prune_order().await.unwrap());
    done(&queue, Command::Prune).await;
    let taken = futures_util::future::join_all((0..4).map(|_| queue.take_prune_order())).await;
    assert_eq!(taken.into_iter().filter(|taken| *taken.as_ref().unwrap()).count(), 1);
    assert!(!queue.take_prune_order().await.unwrap());
}

#[tokio::test]
async fn every_use_is_recorded_with_who_and_when_and_a_refused_one_changes_nothing_else() {
    let (queue, pool) = database().await;
    let id = submit(&queue, 1).await;
    done(&queue, Command::Reorder { job: id, priority: 2 }).await;
    order(&queue, Command::Status).await.unwrap();
    refused(&queue, Command::Requeue { job: id }).await;
    let loud = "ann\nof\u{1b}[31m";
    admin::run(&queue, &Actor::new(loud).unwrap(), &Command::Pause { reason: Some("x".repeat(9000)) }).await.unwrap();
    let lines = log(&pool).await;
    assert_eq!(lines[0], format!("ann|reorder|{id}|done|priority 2"));
    assert_eq!(lines[1], "ann|status|done");
    assert_eq!(lines[2], format!("ann|requeue|{id}|refused|The job has not ended: it is queued."));
    assert_eq!(lines[3], format!("ann of [31m|pause|done|{}", "x".repeat(500)));
    assert_eq!(lines.len(), 4);
    let recent: bool = sqlx::query_scalar("SELECT bool_and(at > now() - interval '5 minutes') FROM admin_log")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert!(recent);
    assert_eq!(Actor::new(" \n "), None);
}
