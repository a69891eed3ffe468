//! The README's table of settings says what the code reads.

use jobs::config::{Reader, Setting};
use jobs::telemetry::TelemetryConfig;
use jobs::worker::WorkerConfig;

#[test]
fn every_setting_of_the_worker_is_in_the_readme_word_for_word() {
    let mut reader = Reader::from_pairs([
        ("NCU_SERVICE_DATABASE_URL", "postgres://localhost/ncu"),
        ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", "/srv/problems"),
    ]);
    TelemetryConfig::read(&mut reader).unwrap();
    WorkerConfig::read(&mut reader).unwrap();
    let readme = include_str!("../../../README.md");
    let missing: Vec<String> =
        reader.settings().iter().map(Setting::markdown_row).filter(|row| !readme.contains(row)).collect();
    assert!(missing.is_empty(), "the README lacks these rows:\n{}", missing.join("\n"));
}
