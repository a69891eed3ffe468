//! Turns on a GPU across processes.

use std::process::Stdio;
use std::time::Duration;

use jobs::gpu::{GpuConfig, Gpus};
use jobs::sandbox::GpuAccess;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_turn_waits_for_another_process_and_comes_when_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        GpuConfig { lock_dir: folder.path().to_owned(), nvidia_smi: "nvidia-smi".to_owned(), max_used_bytes: 1 };
    let gpus = Gpus::new(config, GpuAccess::None);
    let go_on = CancellationToken::new();
    gpus.turn(&go_on).await.unwrap().unwrap().finish().unwrap();

    // Without a child of its own, which would hold the lock beyond its parent's death.
    let mut other = Command::new("flock")
        .arg("--no-fork")
        .arg(folder.path().join("none.lock"))
        .args(["sh", "-c", "echo; exec sleep 600"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    other.stdout.take().unwrap().read_u8().await.unwrap();
    let mut turn = std::pin::pin!(gpus.turn(&go_on));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut turn).await;
    assert!(early.is_err(), "two hold one GPU");
    other.kill().await.unwrap();
    assert!(turn.await.unwrap().is_some());
}
