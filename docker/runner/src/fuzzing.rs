//! What holds for every file that looks like the tracer's. The fuzz target in `jobs/fuzz/` includes this file, and the test below
//! plays inputs against it; it is in no program.

use ncu_runner::protocol::{CaptureMode, Overview, Selection};

use crate::launches;
use crate::selection::choose;
use crate::trace::parse;

/// Longest file name of a table that a test writes.
const TABLE: &str = "launches.csv";

/// A file of the tracer.
pub fn trace(input: &[u8]) {
    let Some(trace) = parse(input) else { return };
    assert!(trace.runs.iter().all(|run| run.group < trace.groups.len()));
    for mode in [CaptureMode::Window, CaptureMode::Distinct, CaptureMode::Hot] {
        let (options, choice) = choose(Selection { mode, max_launches: 10 }, false, &trace);
        assert!(options.iter().all(|option| !option.contains(['\0', '\n']) && option.len() < 100_000), "{options:?}");
        assert!(choice.coverage.is_none_or(|coverage| (0.0..=1.0).contains(&coverage)), "{choice:?}");
    }
    if let Some(overview) = launches::summary(&trace) {
        assert!(overview.top.len() <= Overview::MAX_TOP);
        for kernel in &overview.top {
            assert!((0.0..=1.0).contains(&kernel.share), "{kernel:?}");
            assert!(!kernel.kernel.contains(char::is_control), "{kernel:?}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join(TABLE);
    launches::write_table(&trace, &table).unwrap();
    // As a reader of CSV gets it: whole rows, and nothing that a terminal obeys.
    let mut reader = csv::Reader::from_path(&table).unwrap();
    for row in reader.records() {
        assert!(row.unwrap().iter().all(|cell| !cell.contains(char::is_control)));
    }
}

#[cfg(test)]
#[path = "../../../jobs/fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn no_file_that_looks_like_the_tracers_upsets_its_reader() {
        super::replay::replay("trace", super::trace);
    }
}
