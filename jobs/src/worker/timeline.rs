//! When each part of a shape's work began and how long it took, for its manifest.

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use ncu_runner::protocol::{CAPTURE_STEP, OVERVIEW_STEP, Step};

use crate::artifacts::manifest::Phase;
use crate::sandbox::Ended;
use crate::telemetry;

/// The phases of one shape, counted from its beginning.
#[derive(Debug)]
pub(super) struct Timeline {
    began_at: DateTime<Utc>,
    phases: Mutex<Vec<Phase>>,
}

impl Timeline {
    pub(super) fn new(began_at: DateTime<Utc>) -> Self {
        Self { began_at, phases: Mutex::default() }
    }

    /// Notes a phase. Its times may come from two clocks, which differ by a little: nothing begins before the beginning or ends
    /// before it began.
    pub(super) fn note(&self, name: &'static str, from: DateTime<Utc>, to: DateTime<Utc>) {
        let seconds = |from: DateTime<Utc>, to: DateTime<Utc>| (to - from).to_std().unwrap_or_default().as_secs_f64();
        let phase = Phase { name, start_seconds: seconds(self.began_at, from), seconds: seconds(from, to) };
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).push(phase);
    }

    /// Notes a phase that ends now.
    pub(super) fn note_since(&self, name: &'static str, from: DateTime<Utc>) {
        self.note(name, from, Utc::now());
    }

    /// Does a phase's work, and tells it to telemetry too.
    pub(super) async fn phase<T>(&self, name: &'static str, work: impl Future<Output = T>) -> T {
        let from = Utc::now();
        let done = telemetry::phase(name, work).await;
        self.note_since(name, from);
        done
    }

    /// Notes a capture's container and the runner's steps in it, which run one after the other.
    pub(super) fn note_container(&self, ended: &Ended, steps: &[Step]) {
        self.note("container", ended.started_at, ended.ended_at);
        let mut from = ended.started_at;
        for step in steps {
            let took = std::time::Duration::try_from_secs_f64(step.seconds).unwrap_or_default();
            // The runner's account crossed the container's border: no step outlasts the container.
            let to = (from + took.min((ended.ended_at - from).to_std().unwrap_or_default())).min(ended.ended_at);
            match step.name.as_str() {
                OVERVIEW_STEP => self.note("overview", from, to),
                CAPTURE_STEP => self.note("ncu", from, to),
                _ => {}
            }
            from = to;
        }
    }

    /// What was noted so far, by its beginning.
    pub(super) fn phases(&self) -> Vec<Phase> {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner).clone();
        phases.sort_by(|one, other| one.start_seconds.total_cmp(&other.start_seconds));
        phases
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sandbox::How;

    fn step(name: &str, seconds: f64) -> Step {
        Step { name: name.to_owned(), argv: Vec::new(), exit_code: Some(0), signal: None, timed_out: false, seconds }
    }

    #[test]
    fn steps_follow_each_other_within_their_container_whatever_the_runner_says() {
        let began_at = Utc::now();
        let at = |secs| began_at + Duration::from_secs(secs);
        let timeline = Timeline::new(began_at);
        timeline.note("export", at(13), at(15));
        let how = How::Exited { code: 0, oom_killed: false };
        let ended = Ended { how, started_at: at(2), ended_at: at(12), log_tail: String::new() };
        timeline.note_container(&ended, &[step(OVERVIEW_STEP, 4.0), step(CAPTURE_STEP, 1e300)]);
        timeline.note("gpu_wait", began_at - Duration::from_secs(1), at(1));
        let told: Vec<_> =
            timeline.phases().iter().map(|phase| (phase.name, phase.start_seconds, phase.seconds)).collect();
        assert_eq!(
            told,
            [
                ("gpu_wait", 0.0, 2.0),
                ("container", 2.0, 10.0),
                ("overview", 2.0, 4.0),
                ("ncu", 6.0, 0.0),
                ("export", 13.0, 2.0)
            ]
        );
    }
}
