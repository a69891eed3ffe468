//! What is pruned, and what is not.

use std::path::Path;
use std::time::{Duration, SystemTime};

use jobs::admin::{self, Command};
use jobs::artifacts::ArtifactStore;
use jobs::ids::JobId;
use jobs::queue::{Actor, Queue, RunEnd};
use jobs::retention::{Pruned, RetentionConfig, prune};
use sqlx::PgPool;

use crate::support::{database, job, success};

const DAY: Duration = Duration::from_hours(24);
const CONFIG: RetentionConfig = RetentionConfig {
    artifacts: Duration::from_hours(14 * 24),
    artifacts_bytes: 1 << 30,
    jobs: Duration::from_hours(90 * 24),
    promise: DAY,
};

struct Bench {
    folder: tempfile::TempDir,
    pool: PgPool,
    queue: Queue,
    store: ArtifactStore,
}

impl Bench {
    async fn new() -> Self {
        let (folder, (queue, pool)) = (tempfile::tempdir().unwrap(), database().await);
        let store = ArtifactStore::open(&url::Url::from_file_path(folder.path().join("store")).unwrap()).unwrap();
        Self { folder, pool, queue, store }
    }

    /// A job that ended `days` ago, with an archive of seven bytes; returns its id and the archive's place.
    async fn ended(&self, days: u32) -> (JobId, String) {
        self.queue.submit(&job("somebody", 1)).await.unwrap();
        let claim = self.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
        let path = self.put(&format!("jobs/{}/1/a.zip", claim.id)).await;
        let stored = self.store.put_file(&path, &self.folder.path().join("zip")).await.unwrap();
        let run = claim.lease_of(0);
        self.queue.start_run(run).await.unwrap();
        let end = RunEnd { artifact: Some(("a.zip".to_owned(), stored)), ..success("a.zip") };
        self.queue.finish_run(run, &end).await.unwrap();
        self.queue.finish(claim.id, claim.token).await.unwrap();
        sqlx::query("UPDATE jobs SET ended_at = now() - $2 * interval '1 day' WHERE id = $1")
            .bind(claim.id.0)
            .bind(f64::from(days))
            .execute(&self.pool)
            .await
            .unwrap();
        (claim.id, path)
    }

    async fn put(&self, path: &str) -> String {
        let file = self.folder.path().join("zip");
        std::fs::write(&file, "content").unwrap();
        self.store.put_file(path, &file).await.unwrap();
        path.to_owned()
    }

    fn file(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("store").join(path)
    }

    async fn prune(&self, config: &RetentionConfig) -> Pruned {
        prune(&self.queue, &self.store, config).await.unwrap().unwrap()
    }

    async fn is_known(&self, id: JobId) -> bool {
        self.queue.view(id, None).await.unwrap().is_some()
    }

    async fn has_expired(&self, id: JobId) -> bool {
        let view = self.queue.view(id, None).await.unwrap().unwrap();
        view.runs[0].artifact.as_ref().unwrap().expired_at.is_some()
    }
}

fn make_old(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - 2 * DAY).unwrap();
}

#[tokio::test]
async fn archives_go_by_age_and_their_jobs_later() {
    let it = Bench::new().await;
    let (young, young_path) = it.ended(13).await;
    let (old, old_path) = it.ended(15).await;
    let (ancient, ancient_path) = it.ended(91).await;

    let pruned = it.prune(&CONFIG).await;
    assert_eq!(pruned, Pruned { expired: 2, deleted: 2, jobs: 1, ..Pruned::default() });
    assert!(it.file(&young_path).exists() && !it.has_expired(young).await);
    assert!(!it.file(&old_path).exists() && it.has_expired(old).await);
    assert!(!it.file(&ancient_path).exists() && !it.is_known(ancient).await);
    assert_eq!(it.prune(&CONFIG).await, Pruned::default());
}

#[tokio::test]
async fn the_oldest_archives_make_room_but_never_one_within_the_promise() {
    let it = Bench::new().await;
    let (fresh, _) = it.ended(0).await;
    let (newer, _) = it.ended(2).await;
    let (older, _) = it.ended(3).await;
    let two = RetentionConfig { artifacts_bytes: 14, ..CONFIG };
    assert_eq!(it.prune(&two).await.expired, 1);
    assert!(it.has_expired(older).await && !it.has_expired(newer).await);

    let none = RetentionConfig { artifacts_bytes: 1, ..CONFIG };
    assert_eq!(it.prune(&none).await.expired, 1);
    assert!(it.has_expired(newer).await && !it.has_expired(fresh).await);
}

#[tokio::test]
async fn a_job_that_has_not_ended_keeps_everything() {
    let it = Bench::new().await;
    it.queue.submit(&job("somebody", 1)).await.unwrap();
    let claim = it.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    let path = it.put(&format!("jobs/{}/1/a.zip", claim.id)).await;
    make_old(&it.file(&path));
    assert_eq!(it.prune(&CONFIG).await, Pruned::default());
    assert!(it.file(&path).exists() && it.is_known(claim.id).await);
}

#[tokio::test]
async fn what_a_refused_attempt_stored_goes_and_what_is_not_this_services_stays() {
    let it = Bench::new().await;
    let (id, path) = it.ended(1).await;
    let refused = it.put(&format!("jobs/{id}/2/a.zip")).await;
    let foreign = it.put(&format!("jobs/{}/1/a.zip", JobId::random())).await;
    let other = it.put("elsewhere/a.zip").await;
    let recent = it.put(&format!("jobs/{id}/3/a.zip")).await;
    for old in [&path, &refused, &foreign, &other] {
        make_old(&it.file(old));
    }
    assert_eq!(it.prune(&CONFIG).await, Pruned { orphans: 1, ..Pruned::default() });
    assert!(!it.file(&refused).exists());
    for kept in [&path, &foreign, &other, &recent] {
        assert!(it.file(kept).exists(), "{kept}");
    }
}

#[tokio::test]
async fn what_a_killed_worker_left_in_the_store_goes_after_a_day() {
    let it = Bench::new().await;
    let (id, _) = it.ended(1).await;
    let unfinished = it.file(&format!("jobs/{id}/1/b.zip#1"));
    let in_progress = it.file(&format!("jobs/{id}/1/c.zip#1"));
    let foreign = it.file("elsewhere/notes#1.txt");
    for file in [&unfinished, &in_progress, &foreign] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "half").unwrap();
    }
    let (old_probe, new_probe) = (it.put("probe/1").await, it.put("probe/2").await);
    for old in [&unfinished, &foreign, &it.file(&old_probe)] {
        make_old(old);
    }
    assert_eq!(it.prune(&CONFIG).await, Pruned { orphans: 1, unfinished: 1, ..Pruned::default() });
    assert!(!unfinished.exists() && !it.file(&old_probe).exists());
    assert!(in_progress.exists() && foreign.exists() && it.file(&new_probe).exists());
}

#[tokio::test]
async fn one_worker_at_a_time_prunes() {
    let it = Bench::new().await;
    it.ended(15).await;
    let turn = it.queue.prune_turn().await.unwrap().unwrap();
    assert_eq!(prune(&it.queue, &it.store, &CONFIG).await.unwrap(), None);
    turn.release().await.unwrap();
    assert_eq!(it.prune(&CONFIG).await.expired, 1);
}

#[tokio::test]
async fn an_archive_that_is_gone_already_ends_no_round_and_a_store_that_fails_loses_no_job() {
    let it = Bench::new().await;
    let (gone, path) = it.ended(91).await;
    std::fs::remove_file(it.file(&path)).unwrap();
    assert_eq!(it.prune(&CONFIG).await, Pruned { expired: 1, deleted: 1, jobs: 1, ..Pruned::default() });
    assert!(!it.is_known(gone).await);

    let (kept, path) = it.ended(91).await;
    let (_, other) = it.ended(91).await;
    // A folder in the file's place cannot be deleted as one.
    std::fs::remove_file(it.file(&path)).unwrap();
    std::fs::create_dir_all(it.file(&path).join("in the way")).unwrap();
    assert!(prune(&it.queue, &it.store, &CONFIG).await.is_err());
    assert!(it.is_known(kept).await && it.has_expired(kept).await);
    assert!(!it.file(&other).exists(), "the others go all the same");
    std::fs::remove_dir_all(it.file(&path)).unwrap();
    assert_eq!(it.prune(&CONFIG).await.jobs, 1);
}

#[tokio::test]
async fn what_operators_did_is_remembered_as_long_as_jobs_are() {
    let it = Bench::new().await;
    let ann = Actor::new("ann").unwrap();
    for _ in 0..2 {
        admin::run(&it.queue, &ann, &Command::Status).await.unwrap();
    }
    sqlx::query("UPDATE admin_log SET at = now() - interval '91 days' WHERE id = (SELECT min(id) FROM admin_log)")
        .execute(&it.pool)
        .await
        .unwrap();
    assert_eq!(it.prune(&CONFIG).await, Pruned { admin_log: 1, ..Pruned::default() });
    assert_eq!(it.prune(&CONFIG).await, Pruned::default());
}
