//! The digest of a real export against values recomputed by a reader that shares nothing with it, and of forged ones.

use std::collections::BTreeMap;

use super::fuzzing::{holds, provenance};
use super::*;

const CSV: &str = include_str!("../../tests/fixtures/h200-qr_v2-0/ncu-details.csv");
const TEXT: &str = include_str!("../../tests/fixtures/h200-qr_v2-0/ncu-details.txt");
const LAUNCHES: &str = r#""Kernel Name","Grid Size","Block Size","Launches","Total Duration (ns)","Share of Duration","Mean Duration (ns)","Clock Control","Mangled Name"
"void geqr2_batch_kernel_shmem<float, float, 32, 8>(int, int, int, float* const*, int, float* const*, int)","(3, 1, 1)","(32, 8, 1)",1,180000,0.989000,180000,"none","_Z5geqr2"
"void (anonymous namespace)::elementwise_kernel_with_index<int, at::arange_cuda_out(c10::Scalar const&)::{lambda()#1}>(int)","(1, 1, 1)","(64, 1, 1)",2,1200,0.006600,600,"none","_Z4fill"
"void at::elementwise_kernel<128, 2, one>(int)","(80, 1, 1)","(128, 1, 1)",1,400,0.002200,400,"none","_Z3one"
"void at::elementwise_kernel<128, 2, two>(int)","(80, 1, 1)","(128, 1, 1)",1,400,0.002200,400,"none","_Z3two"
"#;

fn digest_of(csv: &str, raw: &str, launches: &str) -> Digest {
    let mut pages = Pages::read(csv.as_bytes()).unwrap();
    pages.read_raw(raw.as_bytes()).unwrap();
    let summary = crate::report::summarise(csv.as_bytes()).unwrap();
    let made = Digest::new(pages, &Overview::read(launches.as_bytes()), summary.launches, false, provenance());
    holds(&made);
    made
}

/// Metrics of the fixture by launch, section and name, with their units, as text: every cell in it is quoted, so the rows can
/// be taken apart by hand.
fn by_hand() -> BTreeMap<(u32, String, String), (String, String)> {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim_end_matches(',').trim_start_matches('"').trim_end_matches('"');
        inner.split("\",\"").map(str::to_owned).collect()
    };
    let header = cells(CSV.lines().next().unwrap());
    let at = |name: &str| header.iter().position(|cell| cell == name).unwrap();
    let (id, section, metric) = (at("ID"), at("Section Name"), at("Metric Name"));
    let (unit, value) = (at("Metric Unit"), at("Metric Value"));
    let rows = CSV.lines().skip(1).map(cells).filter(|row| !row[metric].is_empty());
    rows.map(|row| {
        let key = (row[id].parse().unwrap(), row[section].clone(), row[metric].clone());
        (key, (row[value].replace(',', ""), row[unit].clone()))
    })
    .collect()
}

/// A value by hand: the scale of each unit that the fixture has is in this list.
fn scaled(value: &str, unit: &str) -> f64 {
    let scale = match unit {
        // Clocks are told in MHz.
        "us" | "Kbyte/block" | "Ghz" => 1e3,
        "Gbyte/s" => 1e9,
        "Mbyte/s" => 1e6,
        _ => 1.0,
    };
    value.parse::<f64>().unwrap() * scale
}

#[test]
fn every_value_of_a_real_export_is_the_one_in_its_table() {
    let (made, table) = (digest_of(CSV, "", ""), by_hand());
    assert_eq!((made.launches, made.kernels.len(), made.kernels_left_out), (4, 4, 0));
    for kernel in &made.kernels {
        let by_hand = |section: &str, metric: &str| {
            let (value, unit) = &table[&(kernel.id, section.to_owned(), metric.to_owned())];
            scaled(value, unit)
        };
        #[expect(clippy::cast_precision_loss, reason = "counts of the fixture are small")]
        let count = |number: Option<u64>| number.map(|number| number as f64);
        let light = "GPU Speed Of Light Throughput";
        let (launch, occupancy) = ("Launch Statistics", "Occupancy");
        for (value, section, metric) in [
            (kernel.duration_ns, light, "Duration"),
            (kernel.sm_clock_mhz, light, "SM Frequency"),
            (kernel.memory_clock_mhz, light, "DRAM Frequency"),
            (kernel.throughput.compute_percent, light, "Compute (SM) Throughput"),
            (kernel.throughput.memory_percent, light, "Memory Throughput"),
            (kernel.throughput.dram_percent, light, "DRAM Throughput"),
            (kernel.throughput.l1_percent, light, "L1/TEX Cache Throughput"),
            (kernel.throughput.l2_percent, light, "L2 Cache Throughput"),
            (kernel.occupancy.achieved_percent, occupancy, "Achieved Occupancy"),
            (kernel.occupancy.theoretical_percent, occupancy, "Theoretical Occupancy"),
            (kernel.memory.l1_hit_percent, "Memory Workload Analysis", "L1/TEX Hit Rate"),
            (kernel.memory.l2_hit_percent, "Memory Workload Analysis", "L2 Hit Rate"),
            (kernel.memory.dram_bytes_per_second, "Memory Workload Analysis", "Memory Throughput"),
            (kernel.issue.no_eligible_percent, "Scheduler Statistics", "No Eligible"),
            (kernel.issue.cycles_per_instruction, "Warp State Statistics", "Warp Cycles Per Issued Instruction"),
            (kernel.launch.waves, launch, "Waves Per SM"),
            (count(kernel.launch.threads), launch, "Threads"),
            (count(kernel.launch.multiprocessors), launch, "# SMs"),
            (count(kernel.launch.registers_per_thread), launch, "Registers Per Thread"),
            (count(kernel.launch.static_shared_bytes), launch, "Static Shared Memory Per Block"),
            (count(kernel.launch.dynamic_shared_bytes), launch, "Dynamic Shared Memory Per Block"),
            (count(kernel.launch.driver_shared_bytes), launch, "Driver Shared Memory Per Block"),
        ] {
            let (value, expected) = (value.unwrap(), by_hand(section, metric));
            assert!(
                (value - expected).abs() <= expected.abs() * 1e-12,
                "{metric} of {}: {value}, {expected}",
                kernel.id
            );
        }
        let moved = by_hand("Memory Workload Analysis", "Memory Throughput") * by_hand(light, "Duration") / 1e9;
        assert!((kernel.memory.dram_bytes.unwrap() - moved).abs() <= 1.0);
        // The details page has none of these.
        assert_eq!((&kernel.stalls, kernel.tensor_pipe_percent, kernel.memory.dram_read_bytes), (&None, None, None));
        assert!(kernel.occupancy.limited_by.is_empty(), "all of its warps fit");
    }
    let qr = &made.kernels[3];
    assert_eq!(
        (&*qr.short_name, qr.launch.grid, qr.launch.block),
        ("geqr2_batch_kernel_shmem", Some([3, 1, 1]), Some([32, 8, 1]))
    );
    assert_eq!(qr.verdict.bound, Bound::Launch);
    assert_eq!(qr.verdict.why, "3 blocks on 132 multiprocessors (0.00 waves); compute 0.48 %, memory 0.45 % of peak");
}

#[test]
fn there_are_as_many_findings_as_the_text_has_lines_of_them_and_the_best_come_first() {
    let made = digest_of(CSV, "", "");
    let lines = |kind: &str| {
        let begin = format!("    {kind}   ");
        u32::try_from(TEXT.lines().filter(|line| line.starts_with(&begin)).count()).unwrap()
    };
    let expected = FindingCounts { opt: lines("OPT"), wrn: lines("WRN"), inf: lines("INF") };
    assert_eq!((made.finding_counts, expected.total()), (expected, 52));
    assert_eq!(made.kernels.iter().map(|kernel| kernel.findings.len()).sum::<usize>(), 52, "none is left out");

    let first = &made.kernels[0].findings;
    let order: Vec<_> = first.iter().map(|finding| (&*finding.rule, finding.speedup_percent)).collect();
    assert_eq!(
        order[..3],
        [("AchievedOccupancy", Some(93.6)), ("CPIStall", Some(49.11)), ("LaunchConfiguration", Some(39.39))]
    );
    assert_eq!(first[0].speedup_scope, Some(Scope::Global));
    assert_eq!(first.last().unwrap().kind, FindingKind::Inf);
    // A unit's gain is less than the kernel's, however large it is.
    let at = |rule: &str| first.iter().position(|finding| finding.rule == rule).unwrap();
    assert!(at("HighPipeUtilization") > at("MemoryL2Compression"));
}

#[test]
fn the_share_of_time_is_that_of_the_kernel_and_size_and_of_nothing_that_only_looks_like_it() {
    let made = digest_of(CSV, "", LAUNCHES);
    let shares: Vec<_> = made.kernels.iter().map(|kernel| kernel.overview.map(|overview| overview.share)).collect();
    // Two kernels of the first one's name have its size, and which of them it is nobody can tell.
    assert_eq!(shares, [None, Some(0.0066), Some(0.0066), Some(0.989)]);
    assert_eq!(made.by_weight()[0].id, 3);
}

const HEADER: &str = r#""ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup""#;

fn metric(id: u32, section: &str, name: &str, unit: &str, value: &str) -> String {
    format!("\"{id}\",\"f(int)\",\"(64, 1, 1)\",\"(4, 2, 1)\",\"{section}\",\"{name}\",\"{unit}\",\"{value}\",\n")
}

#[test]
fn the_raw_page_gives_stalls_pipes_counted_bytes_and_rooflines() {
    let details = [
        HEADER.to_owned() + "\n",
        metric(0, "GPU Speed Of Light Throughput", "Duration", "us", "10"),
        metric(0, "Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "1"),
        metric(1, "GPU Speed Of Light Throughput", "Duration", "us", "20"),
    ]
    .concat();
    let stall = |reason: &str| format!("smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio");
    let fp32 =
        |operation: &str| format!("smsp__sass_thread_inst_executed_op_{operation}_pred_on.sum.per_cycle_elapsed");
    let columns = [
        (stall("long_scoreboard"), "inst", "6"),
        (stall("barrier"), "inst", "1.5"),
        (stall("selected"), "inst", "1"),
        (stall("sleeping"), "inst", "0"),
        (stall("wait"), "inst", "n/a"),
        ("smsp__average_warp_latency_per_inst_issued.ratio".to_owned(), "cycle", "10"),
        ("sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active".to_owned(), "%", "80"),
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active".to_owned(), "%", "33.25"),
        ("dram__bytes_read.sum".to_owned(), "byte", "1,024"),
        ("dram__bytes_write.sum".to_owned(), "Kbyte", "2"),
        ("dram__bytes.sum.per_second".to_owned(), "byte/second", "302,400,000"),
        ("dram__bytes.sum.peak_sustained".to_owned(), "byte/cycle", "1,536"),
        ("dram__cycles_elapsed.avg.per_second".to_owned(), "hz", "3,200,000,000"),
        ("sm__cycles_elapsed.avg.per_second".to_owned(), "hz", "1,500,000,000"),
        ("smsp__cycles_elapsed.avg.per_second".to_owned(), "hz", "1,500,000,000"),
        ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained".to_owned(), "inst/cycle", "16,896"),
        (fp32("fadd"), "inst/cycle", "10"),
        (fp32("fmul"), "inst/cycle", "20"),
        (fp32("ffma"), "inst/cycle", "35"),
    ];
    let line = |first: &str, cell: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = (0..columns.len()).map(|at| format!("\"{}\"", cell(at))).collect();
        format!("\"{first}\",{}\n", cells.join(","))
    };
    let raw = [
        line("ID", &|at| columns[at].0.clone()),
        line("", &|at| columns[at].1.to_owned()),
        line("0", &|at| columns[at].2.to_owned()),
    ]
    .concat();
    let made = digest_of(&details, &raw, "");
    let kernel = &made.kernels[0];
    let stalls: Vec<_> =
        kernel.stalls.as_ref().unwrap().iter().map(|stall| (&*stall.reason, stall.share_percent)).collect();
    assert_eq!(stalls, [("long_scoreboard", Some(60.0)), ("barrier", Some(15.0))]);
    // The pipe's cycles, though its instructions come to more.
    assert_eq!(kernel.tensor_pipe_percent, Some(33.25));
    let memory = &kernel.memory;
    assert_eq!(
        (memory.dram_read_bytes, memory.dram_write_bytes, memory.dram_bytes),
        (Some(1024.0), Some(2000.0), Some(3024.0))
    );
    let [roofline] = &kernel.roofline[..] else { panic!("{:?}", kernel.roofline) };
    assert_eq!(roofline.precision, "fp32");
    // 10 + 20 + 2 * 35 operations a cycle at 1.5 GHz.
    assert_eq!((roofline.flops_per_second, roofline.peak_flops_per_second), (150e9, 2.0 * 16_896.0 * 1.5e9));
    assert_eq!((roofline.flops_per_byte, roofline.peak_bytes_per_second), (150e9 / 302.4e6, 1536.0 * 3.2e9));
    // The raw page has no second launch.
    let other = &made.kernels[1];
    assert_eq!((&other.stalls, other.tensor_pipe_percent, other.roofline.len()), (&None, None, 0));
}

#[test]
fn what_is_not_available_is_null() {
    let light = "GPU Speed Of Light Throughput";
    let rows = [
        HEADER.to_owned() + "\n",
        metric(0, light, "Duration", "us", "n/a"),
        metric(0, light, "Compute (SM) Throughput", "%", "nan"),
        metric(0, light, "Memory Throughput", "%", &"9".repeat(400)),
        metric(0, "Launch Statistics", "Registers Per Thread", "register/thread", "-3"),
        // A time in percent is no time.
        metric(1, light, "Duration", "%", "7"),
    ];
    let made = digest_of(&rows.concat(), "", "");
    let kernel = &made.kernels[0];
    assert_eq!((kernel.duration_ns, kernel.throughput.compute_percent), (None, None));
    assert_eq!((kernel.throughput.memory_percent, kernel.launch.registers_per_thread), (None, None));
    assert_eq!((kernel.verdict.bound, made.kernels[1].duration_ns), (Bound::Unknown, None));
    assert!(serde_json::to_string(kernel).unwrap().contains("\"duration_ns\":null"));
}

#[test]
fn verdicts_follow_the_profilers_own_thresholds() {
    let bound = |compute: &str, memory: &str, waves: &str| {
        let light = "GPU Speed Of Light Throughput";
        let rows = [
            HEADER.to_owned() + "\n",
            metric(0, light, "Compute (SM) Throughput", "%", compute),
            metric(0, light, "Memory Throughput", "%", memory),
            metric(0, light, "DRAM Throughput", "%", memory),
            metric(0, "Launch Statistics", "Waves Per SM", "", waves),
        ];
        let verdict = digest_of(&rows.concat(), "", "").kernels.remove(0).verdict;
        (verdict.bound, verdict.why)
    };
    assert_eq!(bound("59.9", "59.9", "0.99").0, Bound::Launch);
    assert_eq!(bound("59.9", "59.9", "1").0, Bound::Latency);
    assert_eq!(bound("59.9", "59.9", "n/a").0, Bound::Latency);
    assert_eq!(bound("60", "0", "0.1").0, Bound::Compute);
    let (memory, why) = bound("30", "75", "4");
    assert_eq!(
        (memory, &*why),
        (Bound::Memory, "compute 30.0 %, memory 75.0 % of peak (DRAM); memory is used more than compute")
    );
    assert!(bound("70", "75", "4").1.ends_with("both are nearly in balance"));
    assert!(bound("95", "20", "4").1.ends_with("little is left but to do less of it"));
}

#[test]
fn a_function_has_its_own_name() {
    for (name, short) in [
        ("void geqr2_batch_kernel_shmem<float, 32>(int, T1 *const *)", "geqr2_batch_kernel_shmem"),
        ("void at::elementwise_kernel<128, 2, void at::f(int)::[lambda() (instance 3)]>(int)", "elementwise_kernel"),
        ("void <unnamed>::elementwise_kernel_with_index<int>(T1)", "elementwise_kernel_with_index"),
        ("void (anonymous namespace)::fill<int>(int)", "fill"),
        ("triton_red_fused_add_0d1d2", "triton_red_fused_add_0d1d2"),
        ("<>", "<>"),
        ("", ""),
    ] {
        assert_eq!(short_name(name), short);
    }
}

#[test]
fn markdown_stays_small_and_is_a_text_whatever_the_report_holds() {
    let finding = |id: u32| {
        let text = "Look at `this` [link](http://x) <b>!</b> ".repeat(40);
        format!("\"{id}\",\"f\",\"\",\"\",\"S\",\"\",\"\",\"\",\"Rule\",\"OPT\",\"{text}\",\"global\",\"12.5\"\n")
    };
    let names = ["核".repeat(3000), "a`<b>|".repeat(900), "usual".to_owned()];
    let launch = |id: u32| {
        let name = &names[id as usize % names.len()];
        format!("\"{id}\",\"{name}\",\"(1024, 1024, 64)\",\"(4294967295, 65535, 65535)\",\"x\",\"y\",\"%\",\"1\",\n")
            + &finding(id).repeat(30)
    };
    for count in [1, 10, 200] {
        let csv = HEADER.to_owned() + "\n" + &(0..count).map(launch).collect::<String>();
        let made = digest_of(&csv, "", "");
        let text = markdown(&made);
        assert!(text.len() < 6_000, "{} bytes", text.len());
        assert_eq!(text.matches("\n## ").count(), (count as usize).min(10), "{text}");
        assert!(!text.contains("<b>") && !text.contains("[link]("), "{text}");
        assert_eq!(text.contains("left out here"), count > 10);
        assert_eq!(made.finding_counts.opt, count * 30);
    }
}

#[test]
fn the_markdown_of_a_real_report_reads_well() {
    let text = markdown(&digest_of(CSV, "", LAUNCHES));
    assert!(
        text.starts_with(
            "# qr_v2, shape 0: batch: 20; n: 32; cond: 1; seed: 43214\n\nNVIDIA H200, clock control base; "
        ),
        "{text}"
    );
    let first = "\n## 1. `geqr2_batch_kernel_shmem` (3, 1, 1)x(32, 8, 1): launch bound\n";
    assert!(text.contains(first), "{text}");
    assert!(text.contains("364 us; 98.9 % of the time (launches: 1); occupancy 12.5 % of 100 %"), "{text}");
    assert!(text.contains("- OPT 97.7 % LaunchConfiguration: The grid for this launch"), "{text}");
    assert!(text.len() < 6_000);
}

#[test]
fn a_summary_has_the_kernels_that_matter() {
    let summary = Summary::from(&digest_of(CSV, "", LAUNCHES));
    assert_eq!((summary.launches, summary.kernels.len(), summary.kernels_left_out), (4, 4, 0));
    let first = &summary.kernels[0];
    assert_eq!(
        (&*first.name, first.duration_ns, first.share),
        ("geqr2_batch_kernel_shmem", Some(364_480.0), Some(0.989))
    );
    assert_eq!(first.best_finding.as_ref().map(|best| &*best.rule), Some("LaunchConfiguration"));
}
