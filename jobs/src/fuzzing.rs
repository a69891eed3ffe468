//! What holds for every input of the readers of hostile or broken files. The fuzz targets in `jobs/fuzz/` and the tests below play
//! inputs against it; it is in no program. See `docs/fuzzing-parsers.md`.

#![allow(
    clippy::missing_panics_doc,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "what stops here is a finding"
)]

use crate::problems::Shape;

pub use crate::digest::fuzzing::digest;
pub use crate::problems::fuzzing::problem;
pub use crate::worker::fuzzing::outcome;

/// A CSV export of a report.
pub fn report(input: &[u8]) {
    let Ok(summary) = crate::report::summarise(input) else { return };
    assert!(summary.measured_launches <= summary.launches, "{summary:?}");
    for clock in [summary.sm_clock, summary.memory_clock].into_iter().flatten() {
        assert!(
            clock.min_mhz <= clock.max_mhz && clock.max_mhz.is_finite() && clock.min_mhz.is_finite(),
            "{summary:?}"
        );
    }
}

/// A shape, as JSON: the names of its archives.
pub fn names(input: &[u8]) {
    let Ok(shape) = serde_json::from_slice::<Shape>(input) else { return };
    let names = [0, 1, 10, 11, u32::MAX].map(|index| shape.artifact_name(index));
    for (at, name) in names.iter().enumerate() {
        is_portable(name);
        // Some systems do not tell names apart by case.
        assert!(!names[..at].iter().any(|other| other.eq_ignore_ascii_case(name)), "{names:?}");
    }
}

/// Text of which every character shows as itself.
pub(crate) fn is_safe_text(text: &str) {
    let hidden = text.chars().find(|&c| !crate::text::is_shown(c));
    assert!(hidden.is_none(), "{hidden:?}");
}

/// A file name that every file system takes as it is.
pub(crate) fn is_portable(name: &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    assert!(name.chars().all(plain) && name.len() <= 200, "{name:?}");
    assert!(name.starts_with("profile.") && name.ends_with(".zip"), "{name:?}");
}

#[cfg(test)]
#[path = "../fuzz/replay.rs"]
pub(crate) mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;
    use super::*;

    #[test]
    fn no_export_of_a_report_upsets_its_reader() {
        replay("report", report);
    }

    #[test]
    fn no_export_upsets_the_digest() {
        replay("digest", digest);
    }

    #[test]
    fn no_account_of_a_container_upsets_the_judge() {
        replay("outcome", outcome);
    }

    #[test]
    fn no_task_upsets_its_reader() {
        replay("problem", problem);
    }

    #[test]
    fn no_shape_gives_an_archive_a_bad_name() {
        replay("names", names);
    }
}
