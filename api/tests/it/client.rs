//! `scripts/ncu-client`, as an agent uses it.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::artifacts::{NAME, profile_next};
use crate::support::Service;
use crate::support::outage::Wire;

fn client(address: &str, command: &str, arguments: &[&str]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/ncu-client");
    let mut program = Command::new("python3");
    program.arg(script).args([command, "--url", &format!("http://{address}")]).args(arguments);
    program.env("POPCORN_CLI_ID", "good-alice").stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    program
}

/// What a command printed, which must have gone well.
async fn run(service: &Service, command: &str, arguments: &[&str]) -> String {
    let output: Output = client(&service.address.to_string(), command, arguments).output().await.unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_client_that_was_killed_after_its_submission_gets_its_result_later() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernel.py");
    std::fs::write(&file, "def custom_kernel(data): return data\n").unwrap();
    let submit = [file.to_str().unwrap(), "--leaderboard", "qr_v2", "--benchmark-index", "0"];
    let mut killed = client(&service.address.to_string(), "submit", &submit).spawn().unwrap();
    let mut said = BufReader::new(killed.stderr.take().unwrap()).lines();
    let line = said.next_line().await.unwrap().unwrap();
    killed.kill().await.unwrap();
    let (id, content) = profile_next(&service).await;
    assert_eq!(line, format!("{id} submitted"));

    // Another one, which knows nothing.
    let listed = run(&service, "list", &["--status", "succeeded"]).await;
    let found: Vec<&str> = listed.trim().split('\t').collect();
    assert_eq!((found[0], found[1], found[3], found[5]), (id.as_str(), "succeeded", "1/1", "kernel.py"));
    assert_eq!(run(&service, "text", &[&id]).await, "what it says in short\n");
    assert_eq!(run(&service, "text", &[&id, "--file", "ncu-details.txt"]).await, "one line\n");
    let into = folder.path().join("profiles");
    let printed = run(&service, "wait", &[&id, "--into", into.to_str().unwrap(), "--unpack"]).await;
    assert_eq!(printed.trim(), into.join(NAME).to_str().unwrap());
    assert!(std::fs::read(into.join(NAME)).unwrap() == content);
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 2, "the archive, and its folder");
    assert_eq!(std::fs::read(into.join(NAME.trim_end_matches(".zip")).join("ncu-details.txt")).unwrap(), b"one line\n");
}

#[tokio::test]
async fn a_client_hears_of_the_end_it_waits_for_and_can_bring_it_about() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    let address = service.address.to_string();
    let too_soon = client(&address, "wait", &[&id, "--timeout", "1"]).output().await.unwrap();
    assert_eq!(too_soon.status.code(), Some(3));
    let waiting = client(&address, "wait", &[&id]).spawn().unwrap();
    run(&service, "cancel", &[&id]).await;
    let output = waiting.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cancelled"), "{said}");
    let shown: Value = serde_json::from_str(&run(&service, "show", &[&id]).await).unwrap();
    assert_eq!(shown["cancelled"], true);
    let refused = client(&address, "show", &["nothing"]).output().await.unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[tokio::test]
async fn a_client_whose_stream_is_cut_ten_times_prints_every_event_once() {
    let service = Service::start().await;
    let wire = Wire::to(service.address.to_string()).await;
    let id = service.accepted("good-alice").await;
    let claim = service.queue.claim("a worker", Duration::from_mins(5)).await.unwrap().unwrap();
    let run = claim.lease_of(0);
    service.queue.start_run(run).await.unwrap();
    let mut following = client(&wire.address.to_string(), "events", &[&id]).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut seen: Vec<i64> = Vec::new();
    for n in 0..=10 {
        service.queue.note_progress(run, &json!({ "n": n })).await.unwrap();
        wire.mend();
        // Until this one is printed.
        loop {
            let event: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
            seen.extend(event["id"].as_str().map(|id| id.parse::<i64>().unwrap()));
            if event["n"] == n {
                break;
            }
        }
        // What happens next, happens while nothing is heard.
        wire.cut();
    }
    service.queue.finish(claim.id, claim.token).await.unwrap();
    wire.mend();
    while let Some(line) = lines.next_line().await.unwrap() {
        let event: Value = serde_json::from_str(&line).unwrap();
        seen.extend(event["id"].as_str().map(|id| id.parse::<i64>().unwrap()));
    }
    assert!(following.wait().await.unwrap().success(), "it ends with the job");
    let all: Vec<i64> =
        sqlx::query_scalar("SELECT id FROM job_events ORDER BY id").fetch_all(&service.pool).await.unwrap();
    assert_eq!(seen, all);
}
