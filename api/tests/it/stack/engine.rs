//! The container engine, as the tests ask it.

use std::process::Stdio;

use tokio::process::Command;

/// What docker prints.
pub async fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a container that only sleeps, as a dead worker could have left it.
pub async fn abandon_container(name: &str) {
    let image = image();
    let args = ["run", "--detach", "--rm", "--name", name, "--network", "none", &image, "sleep", "600"];
    assert!(Command::new("docker").args(args).stdout(Stdio::null()).status().await.unwrap().success());
}

/// Whether there is a container of that name, running or not.
pub async fn has_container(name: &str) -> bool {
    let command = ["container", "inspect", name];
    let status = Command::new("docker").args(command).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.await.unwrap().success()
}

/// The engine's ids of a job's containers.
pub async fn containers(job: &str) -> String {
    docker(&["ps", "-aq", "--filter", &format!("label=ncu-service.job={job}")]).await
}

/// The image that captures of the tests run in.
pub fn image() -> String {
    std::env::var("NCU_SERVICE_TEST_IMAGE").unwrap_or_else(|_| "ncu-service-dev:latest".to_owned())
}
