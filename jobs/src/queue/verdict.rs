//! What a job's runs come to.

use super::State;
use super::model::ErrorKind;

/// A run that is over, as far as the verdict needs it.
pub(super) struct EndedRun {
    pub benchmark_index: i32,
    pub state: String,
    pub error: Option<String>,
    pub error_kind: Option<String>,
}

/// A job's final state and the sentence for its user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub state: State,
    pub error: Option<String>,
    pub error_kind: Option<String>,
}

/// Succeeded when every run did; timed out when nothing but the time limit is to blame; failed otherwise. The error names
/// each shape that has no profile. A run that is not over counts as failed: a job must not succeed without it.
pub(super) fn of(runs: &[EndedRun]) -> Result<Verdict, sqlx::Error> {
    let mut state = State::Succeeded;
    let mut sentences = Vec::new();
    let mut kinds = Vec::new();
    for run in runs {
        let run_state = State::decode(run.state.clone())?;
        if run_state == State::Succeeded {
            continue;
        }
        state = match (state, run_state) {
            (State::Succeeded | State::TimedOut, State::TimedOut) => State::TimedOut,
            _ => State::Failed,
        };
        let error = run.error.as_deref().unwrap_or("It did not end.");
        let place = if runs.len() == 1 { String::new() } else { format!("Shape {}: ", run.benchmark_index) };
        sentences.push(sentence(place + error));
        kinds.push(run.error_kind.as_deref().unwrap_or(ErrorKind::ServiceFault.as_str()));
    }
    // Our own fault is the one an operator must see; otherwise the first speaks for the job.
    let ours = ErrorKind::ServiceFault.as_str();
    let kind = kinds.iter().copied().find(|&kind| kind == ours).or(kinds.first().copied());
    let error = if sentences.is_empty() {
        None
    } else if sentences.len() < runs.len() {
        let done = runs.len() - sentences.len();
        Some(format!("{} Profiles of {done} of {} shapes are there.", sentences.join(" "), runs.len()))
    } else {
        Some(sentences.join(" "))
    };
    Ok(Verdict { state, error, error_kind: kind.map(str::to_owned) })
}

/// With its full stop, which an error that quotes a program lacks.
fn sentence(mut text: String) -> String {
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(states: &[(&str, &str)]) -> Vec<EndedRun> {
        (0..)
            .zip(states)
            .map(|(benchmark_index, (state, kind))| EndedRun {
                benchmark_index,
                state: (*state).to_owned(),
                error: (!kind.is_empty()).then(|| format!("{kind} happened.")),
                error_kind: (!kind.is_empty()).then(|| (*kind).to_owned()),
            })
            .collect()
    }

    fn verdict(states: &[(&str, &str)]) -> (State, Option<String>, Option<String>) {
        let Verdict { state, error, error_kind } = of(&runs(states)).unwrap();
        (state, error, error_kind)
    }

    #[test]
    fn a_job_succeeds_only_when_every_shape_did() {
        assert_eq!(verdict(&[("succeeded", ""), ("succeeded", "wrong_answer")]), (State::Succeeded, None, None));
        assert_eq!(verdict(&[("succeeded", ""), ("queued", "")]).0, State::Failed);
    }

    #[test]
    fn a_failed_shape_is_named_and_the_good_ones_are_counted() {
        let (state, error, kind) = verdict(&[("succeeded", ""), ("failed", "submission"), ("succeeded", "")]);
        assert_eq!(state, State::Failed);
        assert_eq!(error.as_deref(), Some("Shape 1: submission happened. Profiles of 2 of 3 shapes are there."));
        assert_eq!(kind.as_deref(), Some("submission"));
    }

    #[test]
    fn one_shape_alone_is_not_numbered() {
        assert_eq!(verdict(&[("failed", "submission")]).1.as_deref(), Some("submission happened."));
    }

    #[test]
    fn only_time_limits_make_a_job_timed_out() {
        assert_eq!(verdict(&[("timed_out", "timeout"), ("succeeded", "")]).0, State::TimedOut);
        assert_eq!(verdict(&[("timed_out", "timeout"), ("failed", "submission")]).0, State::Failed);
        assert_eq!(verdict(&[("failed", "submission"), ("timed_out", "timeout")]).0, State::Failed);
    }

    #[test]
    fn our_own_fault_is_the_kind_an_operator_sees() {
        let (_, _, kind) = verdict(&[("failed", "submission"), ("failed", "service_fault")]);
        assert_eq!(kind.as_deref(), Some("service_fault"));
    }
}
