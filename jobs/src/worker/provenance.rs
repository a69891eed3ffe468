//! What a manifest says of how a profile came about, beyond what the runner reports.

use ncu_runner::protocol::{self, Outcome};

use super::WorkerConfig;
use super::shape::ShapeRun;
use crate::artifacts::manifest::{Limits, Phase};
use crate::problems::Problem;
use crate::sandbox::Ended;

/// What a run took outside of the steps in its container.
pub(super) fn phases(run: &ShapeRun<'_>, ended: &Ended) -> Vec<Phase> {
    let seconds = |from: chrono::DateTime<chrono::Utc>, to: chrono::DateTime<chrono::Utc>| {
        // Two clocks may differ by a little, and an interval of the past is none.
        (to - from).to_std().unwrap_or_default().as_secs_f64()
    };
    let exported_at = chrono::Utc::now();
    vec![
        Phase { name: "gpu_wait", seconds: seconds(run.origin.began_at, ended.started_at) },
        Phase { name: "container", seconds: seconds(ended.started_at, ended.ended_at) },
        Phase { name: "export", seconds: seconds(ended.ended_at, exported_at) },
    ]
}

/// What a capture's container is allowed.
pub(super) fn limits(config: &WorkerConfig, problem: &Problem) -> Limits {
    let (worker, container) = (config.limits, config.sandbox.limits);
    Limits {
        memory_bytes: container.memory_bytes,
        cpus: container.cpus,
        pids: container.pids,
        tmp_bytes: container.tmp_bytes,
        shm_bytes: container.shm_bytes,
        output_bytes: container.output_bytes,
        stream_bytes: worker.max_stream_bytes,
        overview_seconds: worker.warmup.as_secs(),
        capture_seconds: worker.capture_of(problem).as_secs(),
    }
}

/// The limits that a capture met and survived, by the names that they have in the manifest.
pub(super) fn limits_hit(outcome: &Outcome) -> Vec<&'static str> {
    let is_cut = |stream: &str| outcome.streams.get(stream).is_some_and(|stats| stats.bytes_kept < stats.bytes_seen);
    let overview = outcome.overview.as_ref();
    let overview_timed_out = outcome.steps.iter().any(|step| step.name == protocol::OVERVIEW_STEP && step.timed_out);
    [
        (outcome.oom_kills > 0, "memory_bytes"),
        (overview_timed_out, "overview_seconds"),
        (overview.is_some_and(|overview| overview.is_partial), "overview_launches"),
        (is_cut(protocol::STDOUT_FILE), "stdout_bytes"),
        (is_cut(protocol::STDERR_FILE), "stderr_bytes"),
        (is_cut(protocol::POPCORN_LOG_FILE), "popcorn_log_bytes"),
    ]
    .into_iter()
    .filter_map(|(hit, name)| hit.then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use ncu_runner::protocol::{ClockControl, Overview, Step, StreamStats};

    use super::*;

    #[test]
    fn every_limit_that_was_met_is_named_and_no_other() {
        let stats = |bytes_seen, bytes_kept| StreamStats { bytes_seen, bytes_kept, capture_offset: None };
        let overview = |is_partial| Overview {
            launches: 1,
            kernels: 1,
            total_ns: 1,
            top: Vec::new(),
            is_partial,
            clock_control: ClockControl::None,
        };
        let step = |timed_out| Step {
            name: protocol::OVERVIEW_STEP.to_owned(),
            argv: Vec::new(),
            exit_code: None,
            signal: None,
            timed_out,
            seconds: 1.0,
        };
        let streams = |kept| {
            let names = [protocol::STDOUT_FILE, protocol::STDERR_FILE, protocol::POPCORN_LOG_FILE];
            names.map(|name| (name.to_owned(), stats(10, kept))).into()
        };
        let met = Outcome {
            oom_kills: 1,
            steps: vec![step(true)],
            overview: Some(overview(true)),
            streams: streams(9),
            ..Outcome::default()
        };
        assert_eq!(
            limits_hit(&met),
            [
                "memory_bytes",
                "overview_seconds",
                "overview_launches",
                "stdout_bytes",
                "stderr_bytes",
                "popcorn_log_bytes"
            ]
        );
        let kept = Outcome {
            steps: vec![step(false)],
            overview: Some(overview(false)),
            streams: streams(10),
            ..Outcome::default()
        };
        assert!(limits_hit(&kept).is_empty());
        assert!(limits_hit(&Outcome::default()).is_empty());
    }
}
