//! One launch's facts in groups, and beside each group the findings that speak of it.

use maud::{Markup, html};

use super::charts::{bar, roofline};
use crate::digest::format::{byte_rate, bytes, figures, flop_rate, or_none, percent, size};
use crate::digest::{Finding, FindingKind, Kernel, Scope};

/// Groups of facts, with what `ncu` calls the sections that belong to them. The last takes whatever is left.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Speed of light", &["SpeedOfLight"]),
    ("Memory", &["MemoryWorkload"]),
    ("Warps", &["SchedulerStats", "WarpState"]),
    ("Occupancy", &["Occupancy"]),
    ("Launch", &["LaunchStats", "WorkloadDistribution"]),
    ("Compute", &["ComputeWorkload", "Instruction", "SourceCounters"]),
    ("Measurement", &[]),
];

/// All groups of a launch.
pub fn sections(kernel: &Kernel) -> Markup {
    html! {
        @for (at, (title, _)) in GROUPS.iter().enumerate() {
            @let facts = facts(kernel, title);
            @let found: Vec<&Finding> = kernel.findings.iter().filter(|finding| group_of(&finding.section) == at).collect();
            @if facts.is_some() || !found.is_empty() {
                h3 { (title) }
                @if let Some(facts) = facts { (facts) }
                @if !found.is_empty() { (findings(&found)) }
            }
        }
        @let left_out = kernel.finding_counts.total().saturating_sub(kernel.findings.len() as u64);
        @if left_out > 0 { p.faint { (left_out) " more findings are only in ncu-details.txt." } }
    }
}

fn group_of(section: &str) -> usize {
    let belongs = |(_, prefixes): &(&str, &[&str])| prefixes.iter().any(|prefix| section.starts_with(prefix));
    GROUPS.iter().position(belongs).unwrap_or(GROUPS.len() - 1)
}

fn facts(kernel: &Kernel, title: &str) -> Option<Markup> {
    match title {
        "Speed of light" => Some(speed_of_light(kernel)),
        "Memory" => Some(memory(kernel)),
        "Warps" => Some(warps(kernel)),
        "Occupancy" => Some(occupancy(kernel)),
        "Launch" => Some(launch(kernel)),
        "Compute" => Some(bar("Tensor pipe", kernel.tensor_pipe_percent)),
        _ => None,
    }
}

fn speed_of_light(kernel: &Kernel) -> Markup {
    let throughput = &kernel.throughput;
    html! {
        (bar("Compute", throughput.compute_percent))
        (bar("Memory", throughput.memory_percent))
        @for point in &kernel.roofline {
            p {
                (point.precision.to_uppercase()) ": " (flop_rate(point.flops_per_second)) " of " (flop_rate(point.peak_flops_per_second))
                ", " (figures(point.flops_per_byte)) " operations for each byte. Work of the tensor pipe is not in it."
            }
            (roofline(point))
        }
        @if kernel.roofline.is_empty() {
            p.faint { "No roofline: the kernel has no FP32 or FP64 work outside of the tensor pipe, or the report has no counts of it." }
        }
    }
}

fn memory(kernel: &Kernel) -> Markup {
    let (throughput, memory) = (&kernel.throughput, &kernel.memory);
    html! {
        (bar("DRAM", throughput.dram_percent))
        (bar("L2 cache", throughput.l2_percent))
        (bar("L1 cache", throughput.l1_percent))
        (bar("L2 hits", memory.l2_hit_percent))
        (bar("L1 hits", memory.l1_hit_percent))
        p {
            "DRAM: " (or_none(memory.dram_bytes, bytes)) " at " (or_none(memory.dram_bytes_per_second, byte_rate))
            @if let (Some(read), Some(written)) = (memory.dram_read_bytes, memory.dram_write_bytes) {
                " (" (bytes(read)) " read, " (bytes(written)) " written)"
            }
            "."
        }
    }
}

fn warps(kernel: &Kernel) -> Markup {
    html! {
        p {
            "No warp ready in " (or_none(kernel.issue.no_eligible_percent, percent)) " of the cycles; "
            (or_none(kernel.issue.cycles_per_instruction, figures)) " cycles from one instruction of a warp to the next."
        }
        @match kernel.stalls.as_deref() {
            None => p.faint { "The report has no stall reasons." },
            Some(stalls) => {
                @for stall in stalls { (bar(&format!("waits: {}", stall.reason.replace('_', " ")), stall.share_percent)) }
            }
        }
    }
}

fn occupancy(kernel: &Kernel) -> Markup {
    let occupancy = &kernel.occupancy;
    html! {
        (bar("Achieved", occupancy.achieved_percent))
        (bar("Theoretical", occupancy.theoretical_percent))
        @if !occupancy.limited_by.is_empty() {
            p { "Limited by " (occupancy.limited_by.join(", ").replace('_', " ")) "." }
        }
    }
}

fn launch(kernel: &Kernel) -> Markup {
    let launch = &kernel.launch;
    let count = |count: Option<u64>| count.map_or_else(|| "n/a".to_owned(), |count| count.to_string());
    let three = |three: Option<[u32; 3]>| three.map_or_else(|| "n/a".to_owned(), size);
    let facts = [
        ("Grid", three(launch.grid)),
        ("Block", three(launch.block)),
        ("Threads", count(launch.threads)),
        ("Waves", or_none(launch.waves, figures)),
        ("Registers of a thread", count(launch.registers_per_thread)),
        ("Static shared memory of a block, bytes", count(launch.static_shared_bytes)),
        ("Dynamic shared memory of a block, bytes", count(launch.dynamic_shared_bytes)),
        (
            "Clocks, MHz",
            format!(
                "multiprocessors {}, memory {}",
                or_none(kernel.sm_clock_mhz, figures),
                or_none(kernel.memory_clock_mhz, figures),
            ),
        ),
    ];
    html! { dl { @for (name, value) in facts { dt { (name) } dd { (value) } } } }
}

fn findings(findings: &[&Finding]) -> Markup {
    html! {
        ul.findings {
            @for finding in findings {
                @let (class, kind) = match finding.kind {
                    FindingKind::Opt => ("opt", "OPT"),
                    FindingKind::Wrn => ("wrn", "WRN"),
                    FindingKind::Inf => ("inf", "INF"),
                };
                li class=(class) {
                    span.kind { (kind) } " "
                    @if let Some(speedup) = finding.speedup_percent {
                        strong {
                            "estimated " (percent(speedup))
                            @if finding.speedup_scope == Some(Scope::Local) { " of this unit" }
                        } " "
                    }
                    (finding.text)
                }
            }
        }
    }
}
