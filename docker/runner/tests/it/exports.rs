//! Turning a report into text and tables.

use std::fs;

use crate::bench::{Bench, STARTER};

const MAX_BYTES: u64 = 1 << 20;

#[test]
fn every_export_starts_at_its_first_real_line() {
    let bench = Bench::new(STARTER);
    bench.run();
    let ran = bench.export(MAX_BYTES);

    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!(ran.exits(), [("text", Some(0)), ("csv", Some(0)), ("raw", Some(0))]);
    let (text, csv) = (bench.out("ncu-details.txt"), bench.out("ncu-details.csv"));
    assert!(text.starts_with('[') && text.contains("] python3"), "{text}");
    assert!(text.contains(
        "  void vector_add_kernel<float>(const float *, const float *, float *, int) (4, 1, 1)x(128, 1, 1), "
    ));
    assert!(text.contains("This report is simulated"), "{text}");
    assert!(csv.starts_with("\"ID\",\"Process ID\","), "{csv}");
    assert_eq!(ran.stream("ncu-details.csv").bytes_kept, csv.len() as u64);
    let raw = bench.out("ncu-raw.csv");
    assert!(raw.starts_with("\"ID\",") && raw.contains("smsp__average_warp_latency_per_inst_issued.ratio"), "{raw}");
}

#[test]
fn an_export_over_its_limit_is_ended_and_leaves_an_empty_file() {
    let bench = Bench::new(STARTER);
    bench.run();
    let ran = bench.export(1000);

    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!(ran.outcome.steps.len(), 3);
    for name in ["ncu-details.txt", "ncu-details.csv", "ncu-raw.csv"] {
        assert!(ran.stream(name).bytes_seen > 1000 && ran.stream(name).bytes_kept == 0, "{ran:?}");
        assert_eq!(bench.out(name), "");
    }
}

#[test]
fn a_malformed_report_is_told_by_the_exit_codes() {
    let bench = Bench::new(STARTER);
    fs::create_dir(bench.path("out/profile")).unwrap();
    fs::write(bench.path("out/profile/profile.ncu-rep"), "NVR\0{\"kernels\":").unwrap();
    let ran = bench.export(MAX_BYTES);
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!(ran.exits(), [("text", Some(1)), ("csv", Some(1)), ("raw", Some(1))]);
}
