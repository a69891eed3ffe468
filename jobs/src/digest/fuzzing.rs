//! What holds for the digest of every export, whatever is in it: see [`crate::fuzzing`].

#![allow(clippy::missing_panics_doc, clippy::unwrap_used, clippy::panic, reason = "what stops here is a finding")]

use super::*;
use crate::fuzzing::is_safe_text;

/// Exports in one input, parted by lines of `----`: the details page, the raw page, the table of launches.
pub fn digest(input: &[u8]) {
    let mut parts = Vec::new();
    let mut rest = input;
    while let Some(at) = rest.windows(6).position(|window| window == b"\n----\n") {
        parts.push(&rest[..=at]);
        rest = &rest[at + 6..];
    }
    parts.push(rest);
    let part = |at: usize| parts.get(at).copied().unwrap_or_default();
    let Ok(mut pages) = Pages::read(part(0)) else { return };
    let Ok(summary) = crate::report::summarise(part(0)) else { panic!("one reader takes what the other refuses") };
    let _ = pages.read_raw(part(1));
    let made = Digest::new(pages, &Overview::read(part(2)), summary.launches, false, provenance());
    holds(&made);
    crate::page::is_sound(&crate::page::report(&[made]));
}

/// What a digest keeps to.
pub(super) fn holds(made: &Digest) {
    assert_eq!(made.kernels.len() + made.kernels_left_out as usize, made.launches as usize);
    let json = serde_json::to_string(made).unwrap();
    assert!(json.len() <= 2 << 20, "{} bytes of JSON", json.len());
    is_safe_text(&json);
    // A number that JSON does not know would come back as nothing.
    let back: Digest = serde_json::from_str(&json).unwrap();
    assert_eq!(back.kernels.len(), made.kernels.len());
    for kernel in &made.kernels {
        assert!(kernel.findings.len() as u64 <= kernel.finding_counts.total());
        assert!(kernel.overview.is_none_or(|overview| (0.0..=1.0).contains(&overview.share)));
        assert!(kernel.name.chars().count() <= MAX_NAME_CHARS + 1);
    }
    let text = markdown(made);
    assert!(text.len() <= MAX_MARKDOWN_BYTES, "{} bytes of Markdown", text.len());
    is_safe_text(&text.replace('\n', " "));
    let summary = serde_json::to_string(&Summary::from(made)).unwrap();
    assert!(summary.len() <= 12 << 10, "{} bytes of summary", summary.len());
}

/// Where the exports of tests come from.
pub(crate) fn provenance() -> Provenance {
    Provenance {
        job_id: "0123456789abcdef0123456789abcdef".to_owned(),
        leaderboard: "qr_v2".to_owned(),
        benchmark_index: 0,
        benchmark: serde_json::from_str(r#"{"batch": 20, "n": 32, "cond": 1, "seed": 43214}"#).unwrap(),
        file_name: "submission.py".to_owned(),
        submission_sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned(),
        reference_kernels: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
        gpus: vec!["NVIDIA H200".to_owned()],
        driver_version: Some("580.159.04".to_owned()),
        clock_control: ClockControl::Base,
        capture_mode: Some(CaptureMode::Window),
        coverage: Some(1.0),
        warm_calls: 0,
        ncu_version: Some("Version 2025.3.1.0 (build 36398880)".to_owned()),
        service: "ncu-service 0.1.0".to_owned(),
        captured_at: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
    }
}
