//! The same job again: when a stored result answers for it, and how long its archives stay.

use std::time::Duration;

use jobs::artifacts::ArtifactStore;
use jobs::ids::{JobId, Owner};
use jobs::queue::{Admission, NewJob, Queue, Quotas, Reuse, RunEnd, WorkerState};
use jobs::retention::{RetentionConfig, prune};
use sqlx::PgPool;
use url::Url;

use crate::support::{database, job, success};

const QUOTAS: Quotas =
    Quotas { max_unfinished: 100, max_jobs_per_hour: 100, max_bytes_per_hour: 1 << 30, max_queue: 100 };
const DAY: Duration = Duration::from_hours(24);

fn reuse(problem_version: &str) -> Reuse {
    Reuse { problem_version: problem_version.to_owned(), is_taken: true, is_shared: false }
}

/// A worker of that setup that takes jobs.
async fn worker(queue: &Queue, name: &str, setup: &str) {
    queue.heartbeat(name, "host", WorkerState::Idle, None, None).await.unwrap();
    queue.note_setup(name, setup).await.unwrap();
}

/// Runs a job of two shapes to its end, made with that setup and version; archives by the job's id.
async fn measured(queue: &Queue, store: Option<&ArtifactStore>, job: &NewJob) {
    queue.submit(job).await.unwrap();
    let claim = queue.claim("w", Duration::from_mins(1)).await.unwrap().unwrap();
    for (index, name) in [(0, "a.zip"), (1, "b.zip")] {
        let run = claim.lease_of(index);
        queue.start_run(run).await.unwrap();
        queue.note_made_with(run, "setup", "version").await.unwrap();
        let mut end: RunEnd = success(name);
        let (_, stored) = end.artifact.as_mut().unwrap();
        stored.path = format!("jobs/{}/1.0/{name}", job.id);
        if let Some(store) = store {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), "archive").unwrap();
            store.put_file(&stored.path, file.path()).await.unwrap();
        }
        queue.finish_run(run, &end).await.unwrap();
    }
    queue.finish(claim.id, claim.token).await.unwrap();
}

/// Submits a job that takes a stored result; whether there was one.
async fn is_cached(queue: &Queue, job: &NewJob, reuse: &Reuse) -> bool {
    let job = NewJob { id: JobId::random(), ..job.clone() };
    match queue.submit_within(&job, &QUOTAS, Some(reuse)).await.unwrap() {
        Admission::Cached => true,
        Admission::Queued { stored, .. } => {
            assert_eq!(stored, None);
            queue.cancel(job.id).await.unwrap();
            false
        }
        Admission::Refused(over) => panic!("{over:?}"),
    }
}

#[tokio::test]
async fn only_an_identical_job_is_answered_by_a_stored_result() {
    let (queue, pool) = database().await;
    let first = job("alice", 2);
    measured(&queue, None, &first).await;
    assert!(!is_cached(&queue, &first, &reuse("version")).await, "nobody says what a job would be made with now");
    worker(&queue, "w", "setup").await;
    assert!(is_cached(&queue, &first, &reuse("version")).await);

    let mut options = first.options.clone();
    options.set("ncu_launch_count", "3").unwrap();
    for other in [
        NewJob { source: first.source.clone() + "\n", ..first.clone() },
        NewJob { options, ..first.clone() },
        NewJob { benchmarks: first.benchmarks[..1].to_vec(), ..first.clone() },
        NewJob { benchmarks: job("alice", 3).benchmarks, ..first.clone() },
        NewJob { problem_dir: "sample/other".to_owned(), ..first.clone() },
        NewJob { owner: Owner::from_credential("bob"), ..first.clone() },
    ] {
        assert!(!is_cached(&queue, &other, &reuse("version")).await, "{other:?}");
    }
    assert!(!is_cached(&queue, &first, &reuse("another revision")).await);
    // Where the operator allows it, one user's result is another's.
    let bobs = NewJob { owner: Owner::from_credential("bob"), ..first.clone() };
    assert!(is_cached(&queue, &bobs, &Reuse { is_shared: true, ..reuse("version") }).await);

    // Another image or another kind of GPU; and beside it, one of the old kind.
    worker(&queue, "w", "another").await;
    assert!(!is_cached(&queue, &first, &reuse("version")).await);
    worker(&queue, "v", "setup").await;
    assert!(is_cached(&queue, &first, &reuse("version")).await);
    sqlx::query("UPDATE runs SET artifact_expired_at = now() WHERE benchmark_index = 1").execute(&pool).await.unwrap();
    assert!(!is_cached(&queue, &first, &reuse("version")).await, "its archives are not all there");
}

#[tokio::test]
async fn a_job_that_a_stored_result_answers_has_ended_with_rows_of_its_own() {
    let (queue, pool) = database().await;
    let first = job("alice", 2);
    measured(&queue, None, &first).await;
    worker(&queue, "w", "setup").await;
    let second = NewJob { id: JobId::random(), ..first.clone() };
    let told =
        queue.submit_within(&second, &QUOTAS, Some(&Reuse { is_taken: false, ..reuse("version") })).await.unwrap();
    let Admission::Queued { stored: Some(stored), .. } = told else { panic!("{told:?}") };
    assert!(stored.job == first.id && stored.is_own);
    queue.cancel(second.id).await.unwrap();

    let third = NewJob { id: JobId::random(), ..first.clone() };
    assert_eq!(queue.submit_within(&third, &QUOTAS, Some(&reuse("version"))).await.unwrap(), Admission::Cached);
    let (old, new) =
        (queue.view(first.id, None).await.unwrap().unwrap(), queue.view(third.id, None).await.unwrap().unwrap());
    assert!(new.is_cached && !old.is_cached);
    assert_eq!((new.measured_at, new.state), (old.ended_at, old.state));
    let archives = |job: &jobs::queue::JobView| job.runs.iter().map(|run| run.artifact.clone()).collect::<Vec<_>>();
    assert_eq!(archives(&new), archives(&old));
    assert!(new.runs.iter().all(|run| run.started_at.is_none()), "no statistics count what nobody ran");
    assert!(queue.claim("w", Duration::from_mins(1)).await.unwrap().is_none(), "there is nothing to do");
    let (events, is_over) = queue.events_after(third.id, &third.owner, 0).await.unwrap().unwrap();
    assert!(is_over && events.len() == 1 && events[0].data["status"] == "succeeded", "{events:?}");
    // A result that came that way answers again, and says when it was measured.
    sqlx::query("DELETE FROM jobs WHERE id = $1").bind(first.id.0).execute(&pool).await.unwrap();
    let fourth = NewJob { id: JobId::random(), ..first.clone() };
    assert_eq!(queue.submit_within(&fourth, &QUOTAS, Some(&reuse("version"))).await.unwrap(), Admission::Cached);
    assert_eq!(queue.view(fourth.id, None).await.unwrap().unwrap().measured_at, old.ended_at);
}

async fn age(pool: &PgPool, job: JobId, days: i32) {
    let older = "UPDATE jobs SET ended_at = ended_at - make_interval(days => $2) WHERE id = $1";
    sqlx::query(older).bind(job.0).bind(days).execute(pool).await.unwrap();
}

#[tokio::test]
async fn an_archive_stays_until_the_time_of_the_last_job_that_has_it_is_over() {
    let (queue, pool) = database().await;
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(&Url::from_directory_path(folder.path()).unwrap()).unwrap();
    let config = RetentionConfig { artifacts: 14 * DAY, artifacts_bytes: 1 << 30, jobs: 90 * DAY, promise: DAY };
    let first = job("alice", 2);
    measured(&queue, Some(&store), &first).await;
    worker(&queue, "w", "setup").await;
    let second = NewJob { id: JobId::random(), ..first.clone() };
    assert_eq!(queue.submit_within(&second, &QUOTAS, Some(&reuse("version"))).await.unwrap(), Admission::Cached);
    let path = format!("jobs/{}/1.0/a.zip", first.id);

    age(&pool, first.id, 91).await;
    prune(&queue, &store, &config).await.unwrap().unwrap();
    assert!(queue.view(first.id, None).await.unwrap().is_none(), "the first job's time is over, its row's too");
    assert!(store.get(&path).await.is_ok(), "the second one still has the archive");
    let artifact = queue.artifact(second.id, &second.owner, "a.zip").await.unwrap().unwrap();
    assert!(artifact.expired_at.is_none() && artifact.stored.path == path);

    age(&pool, second.id, 15).await;
    let pruned = prune(&queue, &store, &config).await.unwrap().unwrap();
    assert_eq!((pruned.expired, pruned.deleted), (2, 2));
    assert!(store.get(&path).await.is_err());
}

#[tokio::test]
async fn an_archive_of_two_jobs_takes_its_room_once() {
    let (queue, _) = database().await;
    let first = job("alice", 2);
    measured(&queue, None, &first).await;
    worker(&queue, "w", "setup").await;
    let second = NewJob { id: JobId::random(), ..first.clone() };
    assert_eq!(queue.submit_within(&second, &QUOTAS, Some(&reuse("version"))).await.unwrap(), Admission::Cached);
    // Two archives of seven bytes.
    assert_eq!(queue.expire_artifacts_beyond(14, Duration::ZERO).await.unwrap(), 0);
    assert!(queue.expire_artifacts_beyond(7, Duration::ZERO).await.unwrap() >= 1);
}
