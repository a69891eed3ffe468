//! What holds for whatever comes out of a container: see [`crate::fuzzing`].

#![allow(
    clippy::expect_used,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "what stops here is a finding"
)]

use ncu_runner::protocol::{CAPTURE_STEP, Outcome, Overview};

use super::judge::{Evidence, Judgement, judge};
use super::shape::{MAX_KERNEL_CHARS, seen};
use super::tail;
use crate::sandbox::{ContainerLimits, How};

const LIMITS: ContainerLimits = ContainerLimits {
    memory_bytes: 1 << 30,
    cpus: 1,
    pids: 1,
    tmp_bytes: 1,
    shm_bytes: 1,
    output_bytes: 1 << 30,
    free_bytes: 1,
};
/// Longest sentence, in characters: a quotation and what is said around it.
const MAX_SENTENCE_CHARS: usize = 1_200;

/// A runner's account, what was printed, what was printed before that, and the evaluator's log, with a NUL after each.
///
/// # Panics
///
/// Where the input is a finding.
pub fn outcome(input: &[u8]) {
    let mut parts = input.splitn(4, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (json, output, earlier, log) = (part(), part(), part(), part());
    let outcome: Option<Outcome> = serde_json::from_slice(json).ok();
    is_bounded(outcome.as_ref());

    let tail = tail::output_tail(output, earlier).unwrap_or_default();
    assert!(tail.len() <= tail::MAX_BYTES, "{} bytes", tail.len());
    assert!(!tail.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{tail:?}");

    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let hows = [
        How::Exited { code: 0, oom_killed: false },
        How::Exited { code: 137, oom_killed: true },
        How::Exited { code: 1, oom_killed: false },
        How::TimedOut,
        How::OutputLimit,
    ];
    for how in hows {
        let evidence = Evidence {
            how,
            limits: LIMITS,
            overview_limit_secs: 1,
            capture_limit_secs: 1,
            outcome: outcome.clone(),
            output: text(output),
            earlier_output: text(earlier),
            popcorn_log: text(log),
            kernel_name: None,
        };
        let (kind, sentence) = match judge(&evidence) {
            Judgement::Captured { exit_code, error } => {
                let capture = outcome.iter().flat_map(|outcome| &outcome.steps).find(|step| step.name == CAPTURE_STEP);
                assert!(
                    capture.is_some_and(|step| !step.timed_out && step.exit_code.is_some()),
                    "a profile of nothing"
                );
                assert_eq!(exit_code == 0, error.is_none());
                match error {
                    Some(error) => error,
                    None => continue,
                }
            }
            Judgement::Ended { error, .. } => error,
            // For the operator's log alone.
            Judgement::Fault(_) => continue,
        };
        assert!(!sentence.is_empty() && sentence.chars().count() <= MAX_SENTENCE_CHARS, "{kind:?} {sentence:?}");
        assert!(!sentence.contains(char::is_control), "{kind:?} {sentence:?}");
    }
}

/// What a poll and a manifest make of an account.
fn is_bounded(outcome: Option<&Outcome>) {
    let (launches, coverage) = seen(outcome);
    assert!(launches.len() <= Overview::MAX_TOP);
    for launch in &launches {
        assert!((0.0..=1.0).contains(&launch.share), "{launch:?}");
        assert!(launch.kernel.chars().count() <= MAX_KERNEL_CHARS && !launch.kernel.contains(char::is_control));
    }
    assert!(coverage.is_none_or(|coverage| (0.0..=1.0).contains(&coverage)), "{coverage:?}");
    if let Some(outcome) = outcome {
        serde_json::to_vec(outcome).expect("the manifest holds it");
    }
}
