//! From create to remove: whatever happens in between, nothing is left.

use std::time::Duration;

use super::{Bench, LONG, config};
use jobs::collect::OutputDir;
use jobs::sandbox::{ContainerSpec, Ended, How, Inputs, Role, Sandbox};
use rustix::fs::{CWD, Mode, mkfifoat};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

/// Says that it runs, and then does not end by itself and ignores whoever asks it to.
const STUBBORN: [&str; 3] = ["sh", "-c", "trap '' TERM INT HUP; echo > /in/started; while :; do sleep 1000; done"];

impl Bench {
    /// Something to await the start of [`STUBBORN`] by.
    fn start_signal(&self) -> pipe::Receiver {
        let path = self.path("in/started");
        mkfifoat(CWD, &path, Mode::empty()).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        // Open for both, or it would be at its end before the container opens it.
        pipe::OpenOptions::new().read_write(true).open_receiver(&path).unwrap()
    }

    /// Leaves a running container behind, as a worker that dies does.
    async fn abandon(&self) {
        self.abandon_program(&STUBBORN, LONG).await;
    }

    /// The same with a program that writes a line to `/in/started`.
    async fn abandon_program(&self, command: &[&str], limit: Duration) {
        let mut started = self.start_signal();
        let (input, problems) = (self.path("in"), self.path("problems"));
        let spec = ContainerSpec {
            labels: self.labels,
            inputs: Inputs::Capture { input: &input, problems: &problems },
            output: &self.output,
            command: command.iter().map(|&word| word.to_owned()).collect(),
            limit,
        };
        let cancel = CancellationToken::new();
        tokio::select! {
            biased;
            read = started.read_u8() => drop(read.unwrap()),
            ended = self.sandbox.run_and_keep(&spec, &cancel) => panic!("{ended:?}"),
        }
    }

    /// Takes up the one container that is left, as an adopter does.
    async fn rejoin(&self, limit: Duration) -> Ended {
        let mut leftover = self.sandbox.leftovers().await.unwrap().remove(0);
        // The engine notes a start a moment after the program has begun.
        while !leftover.has_started {
            tokio::time::sleep(Duration::from_millis(20)).await;
            leftover = self.sandbox.leftovers().await.unwrap().remove(0);
        }
        let output = OutputDir::open(self.output.path()).unwrap();
        let cancel = CancellationToken::new();
        let ended = self.sandbox.rejoin(&leftover.container_id, &output, limit, &cancel).await.unwrap();
        assert_eq!(
            self.sandbox.leftovers().await.unwrap(),
            [leftover.clone()],
            "it stays until its result is recorded"
        );
        self.sandbox.remove(&leftover.container_id).await.unwrap();
        ended
    }
}

#[tokio::test]
async fn an_exit_code_is_reported_with_the_end_of_its_log() {
    let it = Bench::new().await;
    let ended = it.run(&["sh", "-c", "echo out; echo err >&2; exit 7"]).await;
    assert_eq!(ended.how, How::Exited { code: 7, oom_killed: false });
    assert!(ended.log_tail.contains("out\n") && ended.log_tail.contains("err\n"), "{}", ended.log_tail);
    assert_eq!(it.run(&["true"]).await.how, How::Exited { code: 0, oom_killed: false });
}

#[tokio::test]
async fn what_a_container_wrote_is_collected() {
    let it = Bench::new().await;
    it.run(&["sh", "-c", "umask 077; mkdir /out/profile; cat /in/file /problems/file > /out/profile/profile.ncu-rep"])
        .await;
    assert_eq!(it.output.read_small("profile/profile.ncu-rep", 100).unwrap(), b"originaloriginal");
    it.output.clone().remove_all().unwrap();
    assert!(!it.output.path().exists());
}

#[tokio::test]
async fn a_container_that_outlives_its_limit_is_killed_and_gone() {
    let it = Bench::new().await;
    let _started = it.start_signal();
    let limit = Duration::from_secs(2);
    let ended = it.try_run(&STUBBORN, limit, &CancellationToken::new()).await.unwrap();
    assert_eq!(ended.how, How::TimedOut);
    assert!((ended.ended_at - ended.started_at).to_std().unwrap() > limit / 2);
}

#[tokio::test]
async fn a_cancelled_container_is_killed_and_gone() {
    let it = Bench::new().await;
    let mut started = it.start_signal();
    let cancel = CancellationToken::new();
    let mut run = std::pin::pin!(it.try_run(&STUBBORN, LONG, &cancel));
    tokio::select! {
        ended = &mut run => panic!("{ended:?}"),
        read = started.read_u8() => drop(read.unwrap()),
    }
    cancel.cancel();
    let ended = run.await;
    assert_eq!(ended.unwrap().how, How::Cancelled);
}

#[tokio::test]
async fn a_job_cancelled_before_the_start_runs_nothing() {
    let it = Bench::new().await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let ended = it.try_run(&["sh", "-c", "echo > /out/ran"], LONG, &cancel).await.unwrap();
    assert_eq!(ended.how, How::Cancelled);
    assert!(!it.path("out/ran").exists());
}

#[tokio::test]
async fn a_container_whose_processes_kill_each_other_is_gone() {
    let it = Bench::new().await;
    let ended = it.run(&["sh", "-c", "kill -9 -1; kill -9 1; kill -SEGV $$; exit 3"]).await;
    assert!(matches!(ended.how, How::Exited { code, .. } if code != 0), "{ended:?}");
}

#[tokio::test]
async fn a_long_log_is_cut_to_its_end() {
    let it = Bench::new().await;
    let ended = it.run(&["python3", "-c", "print('x' * 3_000_000); print('the end')"]).await;
    assert!(ended.log_tail.len() <= 16 << 10, "{} bytes", ended.log_tail.len());
    assert!(ended.log_tail.ends_with("the end\n"));
}

#[tokio::test]
async fn a_missing_image_is_our_error() {
    let it = Bench::with(&[("NCU_SERVICE_WORKER_IMAGE", "ncu-service-no-such-image:latest")]).await;
    let error = it.try_run(&["true"], LONG, &CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, jobs::Error::Engine { action: "create container", .. }), "{error}");
    assert!(matches!(it.sandbox.image().await, Err(jobs::Error::Engine { action: "inspect image", .. })));
}

#[tokio::test]
async fn a_missing_folder_of_the_host_is_our_error_and_is_not_made() {
    let missing = format!("/opt/ncu-service-test-{}", uuid::Uuid::new_v4());
    let it = Bench::with(&[("NCU_SERVICE_WORKER_MOUNTS", &missing)]).await;
    let error = it.try_run(&["true"], LONG, &CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains(&missing), "{error}");
    assert!(!std::path::Path::new(&missing).exists());
}

#[tokio::test]
async fn a_program_that_is_not_in_the_image_is_our_error() {
    let it = Bench::new().await;
    let error = it.try_run(&["no-such-program"], LONG, &CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, jobs::Error::Engine { action: "start container", .. }), "{error}");
}

#[tokio::test]
async fn a_gpu_that_the_engine_does_not_have_is_our_error() {
    let it = Bench::with(&[("NCU_SERVICE_GPUS", "nodes:/dev/no-such-gpu")]).await;
    assert!(it.try_run(&["true"], LONG, &CancellationToken::new()).await.is_err());
}

#[tokio::test]
async fn an_engine_out_of_reach_is_our_error() {
    let config = config(&[("NCU_SERVICE_DOCKER_HOST", "unix:///nowhere/docker.sock")]);
    assert!(matches!(Sandbox::connect(config).await, Err(jobs::Error::Engine { .. })));
}

#[tokio::test]
async fn the_image_says_whether_its_profiler_is_the_stand_in() {
    let image = Bench::new().await.sandbox.image().await.unwrap();
    assert!(image.simulated && image.id.starts_with("sha256:"), "{image:?}");
}

#[tokio::test]
async fn a_container_whose_worker_went_away_is_found_by_its_labels_and_removed() {
    let it = Bench::new().await;
    it.abandon().await;
    let leftovers = it.sandbox.leftovers().await.unwrap();
    assert_eq!(leftovers.iter().map(|leftover| leftover.labels).collect::<Vec<_>>(), [Some(it.labels)]);

    let stranger = Sandbox::connect(config(&[])).await.unwrap();
    assert_eq!(stranger.leftovers().await.unwrap(), [], "another service sees it");

    it.sandbox.remove(&leftovers[0].container_id).await.unwrap();
    assert_eq!(it.sandbox.leftovers().await.unwrap(), []);
    it.sandbox.remove(&leftovers[0].container_id).await.expect("a second removal finds nothing to do");
}

#[tokio::test]
async fn a_container_is_listed_by_its_attempt_and_found_by_its_name() {
    let it = Bench::new().await;
    it.abandon().await;
    let leftover = it.sandbox.leftovers_of(it.labels.token).await.unwrap().remove(0);
    assert_eq!((leftover.labels, leftover.role), (Some(it.labels), Some(Role::Capture)));
    assert_eq!(it.sandbox.leftovers_of(uuid::Uuid::new_v4()).await.unwrap(), []);

    let name = format!("ncu-{}-3-1.0-capture", it.labels.job);
    let found = it.sandbox.find(&name).await.unwrap().unwrap();
    assert_eq!((found.labels, found.is_ours, found.has_ended, found.is_overdue), (Some(it.labels), true, false, false));
    let stranger = Sandbox::connect(config(&[])).await.unwrap();
    assert!(!stranger.find(&name).await.unwrap().unwrap().is_ours);

    it.sandbox.remove(&name).await.unwrap();
    assert_eq!(it.sandbox.find(&name).await.unwrap(), None);
}

#[tokio::test]
async fn a_container_that_is_taken_up_again_is_waited_for_and_tells_the_same() {
    let it = Bench::new().await;
    it.abandon_program(&["sh", "-c", "echo > /in/started; sleep 2; echo the end; exit 7"], LONG).await;
    let ended = it.rejoin(LONG).await;
    assert_eq!((ended.how, &*ended.log_tail), (How::Exited { code: 7, oom_killed: false }, "the end\n"));
}

#[tokio::test]
async fn a_container_that_ended_while_nobody_watched_tells_its_exit_whenever_it_is_asked() {
    let it = Bench::new().await;
    it.abandon_program(&["sh", "-c", "echo > /in/started; exit 7"], LONG).await;
    while !it.sandbox.find(&format!("ncu-{}-3-1.0-capture", it.labels.job)).await.unwrap().unwrap().has_ended {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Longer ago than it was given: it took less.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(it.rejoin(Duration::from_secs(3)).await.how, How::Exited { code: 7, oom_killed: false });
}

#[tokio::test]
async fn the_limit_of_a_container_counts_from_its_start_whoever_watches() {
    let it = Bench::new().await;
    it.abandon().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let limit = Duration::from_secs(4);
    let ended = it.rejoin(limit).await;
    assert_eq!(ended.how, How::TimedOut);
    assert!((ended.ended_at - ended.started_at).to_std().unwrap() >= limit);
}

#[tokio::test]
async fn a_container_that_was_killed_at_its_limit_is_not_taken_for_one_that_ended_by_itself() {
    let it = Bench::new().await;
    it.abandon().await;
    let limit = Duration::from_secs(1);
    tokio::time::sleep(limit).await;
    // An earlier watcher's last act.
    let leftover = it.sandbox.leftovers().await.unwrap().remove(0);
    let engine = bollard::Docker::connect_with_defaults().unwrap();
    engine.kill_container(&leftover.container_id, None).await.unwrap();
    assert_eq!(it.rejoin(limit).await.how, How::TimedOut);
}

#[tokio::test]
async fn several_who_remove_the_same_container_all_find_it_gone() {
    let it = Bench::new().await;
    it.abandon().await;
    let id = it.sandbox.leftovers().await.unwrap().remove(0).container_id;
    for removed in futures_util::future::join_all((0..8).map(|_| it.sandbox.remove(&id))).await {
        removed.unwrap();
        assert_eq!(it.sandbox.find(&id).await.unwrap(), None);
    }
}

#[tokio::test]
async fn an_earlier_try_of_the_same_attempt_makes_room() {
    let it = Bench::new().await;
    it.abandon().await;
    assert_eq!(it.run(&["true"]).await.how, How::Exited { code: 0, oom_killed: false });
}

#[tokio::test]
async fn the_engine_keeps_little_of_a_log_and_restarts_nothing() {
    let it = Bench::new().await;
    it.abandon().await;
    let leftover = it.sandbox.leftovers().await.unwrap().remove(0);
    let engine = bollard::Docker::connect_with_defaults().unwrap().negotiate_version().await.unwrap();
    let host_config = engine.inspect_container(&leftover.container_id, None).await.unwrap().host_config.unwrap();
    it.sandbox.remove(&leftover.container_id).await.unwrap();

    let log = host_config.log_config.unwrap();
    let options = log.config.unwrap();
    assert_eq!((log.typ.as_deref(), &*options["max-size"], &*options["max-file"]), (Some("json-file"), "1m", "1"));
    assert_eq!(host_config.restart_policy.unwrap().name, Some(bollard::models::RestartPolicyNameEnum::NO));
    assert_eq!(host_config.auto_remove, Some(false));
    assert_eq!(host_config.memory_swap, host_config.memory);
}
