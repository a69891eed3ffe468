//! `ncu-worker doctor` with a real engine, image, database and store.

use std::path::Path;

use jobs::config::Reader;
use jobs::doctor::{self, Finding, Report, Status};
use jobs::worker::WorkerConfig;
use tempfile::TempDir;

use crate::support::{database, image, maintenance_url};

/// What a worker's settings come to on a host where all is well, but for `changes`.
async fn examined(folder: &TempDir, changes: &[(&str, &str)]) -> Report {
    let settings = settings(folder).await;
    // A later pair wins.
    let changes = changes.iter().map(|&(name, value)| (name, value.to_owned()));
    let config = WorkerConfig::read(&mut Reader::from_pairs(settings.into_iter().chain(changes))).unwrap();
    Box::pin(doctor::examine(&config)).await
}

async fn settings(folder: &TempDir) -> Vec<(&'static str, String)> {
    let (_, pool) = database().await;
    let options = pool.connect_options();
    let url = maintenance_url();
    let (server, _) = url.rsplit_once('/').unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    vec![
        ("NCU_SERVICE_DATABASE_URL", format!("{server}/{}", options.get_database().unwrap())),
        ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", sample_problems()),
        ("NCU_SERVICE_ARTIFACTS_URL", format!("file://{}", path("artifacts"))),
        ("NCU_SERVICE_JOBS_DIR", path("jobs")),
        ("NCU_SERVICE_GPU_LOCK_DIR", path("locks")),
        ("NCU_SERVICE_WORKER_IMAGE", image()),
        ("NCU_SERVICE_GPUS", "none".to_owned()),
        ("NCU_SERVICE_MIN_FREE", "1m".to_owned()),
    ]
}

fn sample_problems() -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    repository.join("docker/dev/problems").to_str().unwrap().to_owned()
}

fn finding<'a>(report: &'a Report, what: &str) -> &'a Finding {
    report.findings.iter().find(|finding| finding.what == what).unwrap_or_else(|| panic!("{what} in:\n{report}"))
}

fn failed(report: &Report) -> Vec<&str> {
    report.findings.iter().filter(|finding| finding.status == Status::Failed).map(|finding| finding.what).collect()
}

/// No engine: the checks that need one are then skipped, and the rest is quick.
const NO_ENGINE: (&str, &str) = ("NCU_SERVICE_DOCKER_HOST", "unix:///nowhere/docker.sock");

#[tokio::test]
async fn where_all_is_well_a_tiny_kernel_is_captured_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let report = examined(&folder, &[]).await;
    assert!(report.fit, "{report}");
    for what in ["engine", "worker image", "tiny capture", "Landlock", "problems folder", "database", "artifact store"]
    {
        assert_eq!(finding(&report, what).status, Status::Ok, "{report}");
    }
    assert!(finding(&report, "worker image").found.contains("simulated"), "{report}");
    assert!(finding(&report, "problems folder").found.starts_with("2 of 2 "), "{report}");
    assert_eq!(std::fs::read_dir(folder.path().join("jobs/doctor")).unwrap().count(), 0);
    assert_eq!(std::fs::read_to_string(folder.path().join("locks/none.lock")).unwrap(), "", "the turn is over");
}

#[tokio::test]
async fn what_a_doctor_left_that_was_killed_goes_with_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = std::process::Command::new(env!("CARGO_BIN_EXE_ncu-worker"))
        .arg("doctor")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs(settings(&folder).await)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Its own are told from another test's by where their files lie.
    let jobs = folder.path().join("jobs/doctor");
    let containers = || {
        let ids = std::process::Command::new("docker")
            .args(["ps", "-aq", "--no-trunc", "--filter", "label=ncu-service.worker-scope=doctor"])
            .output()
            .unwrap();
        let ids = String::from_utf8(ids.stdout).unwrap();
        let is_its_own = |id: &&str| {
            let binds = std::process::Command::new("docker").args(["inspect", id]).output().unwrap().stdout;
            String::from_utf8(binds).unwrap().contains(jobs.to_str().unwrap())
        };
        ids.lines().filter(is_its_own).count()
    };
    for _ in 0..600 {
        if containers() > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!((containers(), std::fs::read_dir(&jobs).unwrap().count()), (1, 1));

    let report = examined(&folder, &[]).await;
    assert!(report.fit, "{report}");
    assert_eq!((containers(), std::fs::read_dir(&jobs).unwrap().count()), (0, 0));
}

#[tokio::test]
async fn an_image_that_is_missing_is_named() {
    let report =
        examined(&tempfile::tempdir().unwrap(), &[("NCU_SERVICE_WORKER_IMAGE", "ncu-service-nowhere:1")]).await;
    assert_eq!((report.fit, failed(&report)), (false, vec!["worker image"]), "{report}");
    let image = finding(&report, "worker image");
    assert!(image.found.contains("ncu-service-nowhere:1"), "{report}");
    assert!(image.advice.as_ref().unwrap().contains("scripts/build-images"), "{report}");
    assert_eq!(finding(&report, "tiny capture").status, Status::Skipped);
}

#[tokio::test]
async fn a_capture_that_fails_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let report = examined(&folder, &[("NCU_SERVICE_NCU_HOST_PATH", "/var/lib")]).await;
    assert_eq!(failed(&report), ["tiny capture"], "{report}");
    assert_eq!(finding(&report, "tiny capture").found.lines().count(), 1, "{report}");
}

#[tokio::test]
async fn an_engine_that_cannot_be_reached_is_named_and_the_rest_is_still_looked_at() {
    let report = examined(&tempfile::tempdir().unwrap(), &[NO_ENGINE]).await;
    assert_eq!(failed(&report), ["engine"], "{report}");
    assert_eq!(finding(&report, "artifact store").status, Status::Ok);
}

#[tokio::test]
async fn what_cannot_be_read_or_written_is_named_with_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let beneath_a_file = folder.path().join("file/folder");
    let beneath_a_file = beneath_a_file.to_str().unwrap();
    for (setting, value, what) in [
        ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", "/nowhere", "problems folder"),
        ("NCU_SERVICE_ARTIFACTS_URL", &format!("file://{beneath_a_file}"), "artifact store"),
        ("NCU_SERVICE_JOBS_DIR", beneath_a_file, "jobs folder"),
        ("NCU_SERVICE_GPU_LOCK_DIR", beneath_a_file, "GPU locks"),
        ("NCU_SERVICE_DATABASE_URL", "postgres://postgres@127.0.0.1:1/nowhere", "database"),
    ] {
        let report = examined(&folder, &[NO_ENGINE, (setting, value)]).await;
        assert!(failed(&report).contains(&what), "{report}");
        let advice = finding(&report, what).advice.as_ref().unwrap();
        assert!(advice.contains(setting), "{advice}");
    }
}

#[tokio::test]
async fn a_disk_that_is_nearly_full_stops_captures() {
    let report = examined(&tempfile::tempdir().unwrap(), &[NO_ENGINE, ("NCU_SERVICE_MIN_FREE", "1000000000g")]).await;
    assert_eq!(failed(&report), ["engine", "disk", "disk"], "{report}");
}

#[tokio::test]
async fn without_a_driver_the_gpu_checks_say_so() {
    if Path::new("/proc/driver/nvidia/params").exists() {
        return;
    }
    let report = examined(&tempfile::tempdir().unwrap(), &[NO_ENGINE, ("NCU_SERVICE_GPUS", "all")]).await;
    assert!(failed(&report).contains(&"GPU counters"), "{report}");
}

#[tokio::test]
async fn a_gpu_in_quarantine_is_named_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("locks")).unwrap();
    std::fs::write(folder.path().join("locks/none.quarantine"), "a person looks at it\n").unwrap();
    let report = examined(&folder, &[NO_ENGINE]).await;
    let gpu = finding(&report, "GPU");
    assert_eq!((gpu.status, gpu.found.as_str()), (Status::Failed, "none is in quarantine: a person looks at it"));
    assert!(gpu.advice.as_ref().unwrap().contains("ncu-worker unquarantine"));
}
