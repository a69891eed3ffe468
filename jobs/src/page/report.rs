//! `report.html`: the digests of a job's shapes for a reader without the Nsight program.

use maud::{Markup, html};

use super::charts::{colours, swatch, timeline};
use super::page;
use super::sections::sections;
use crate::digest::format::{or_none, percent, size, time};
use crate::digest::{Digest, FindingKind, Kernel};

/// Shapes that get a tab of their own; with more they stand below one another.
const MAX_TABS: usize = 16;
/// Launches whose facts are shown in full; the table above them has all.
const MAX_KERNELS: usize = 32;

/// The report of some shapes of one job, in their order.
#[must_use]
pub fn report(digests: &[Digest]) -> String {
    let leaderboard = digests.first().map_or("report", |digest| digest.provenance.leaderboard.as_str());
    let is_tabbed = (2..=MAX_TABS).contains(&digests.len());
    let body = html! {
        header {
            h1 { (leaderboard) }
            @if digests.iter().any(|digest| digest.simulated) {
                p.notice { strong { "Simulated." } " This report was made without a GPU. No number in it is a measurement." }
            }
        }
        main.tabbed[is_tabbed] {
            @if digests.is_empty() { p { "No shape of this job has a report." } }
            @if is_tabbed {
                @for at in 0..digests.len() {
                    input.tab type="radio" name="shape" id=(format!("tab-{at}")) checked[at == 0]
                        aria-label=(format!("Shape {}", digests[at].provenance.benchmark_index));
                }
                div.tabs aria-hidden="true" {
                    @for (at, digest) in digests.iter().enumerate() {
                        label for=(format!("tab-{at}")) { "Shape " (digest.provenance.benchmark_index) }
                    }
                }
            }
            @for (at, digest) in digests.iter().enumerate() { (shape(at, digest)) }
        }
    };
    page(&format!("{leaderboard}: Nsight Compute report"), &body)
}

fn shape(at: usize, digest: &Digest) -> Markup {
    let (colours, from) = (colours(digest), &digest.provenance);
    let kernels = digest.by_weight();
    let in_full = kernels.len().min(MAX_KERNELS);
    let colour_of = |kernel: &Kernel| {
        let place = digest.kernels.iter().position(|other| other.id == kernel.id);
        place.and_then(|place| colours.get(place)).copied().unwrap_or_default()
    };
    let counts = digest.finding_counts;
    html! {
        section.shape id=(format!("shape-{at}")) {
            h2 { "Shape " (from.benchmark_index) ": " (from.benchmark.spec()) }
            p {
                (from.gpus.first().map_or("unknown GPU", String::as_str)) ", clock control " (from.clock_control.as_str()) "; "
                (digest.launches) " launches captured"
                @if let Some(coverage) = from.coverage { ", whose kernels hold " (percent(coverage * 100.0)) " of the time" }
                "; findings: " (counts.opt) " OPT, " (counts.wrn) " WRN, " (counts.inf) " INF."
            }
            h3 { "Captured launches in their order, by their time under the profiler" }
            (timeline(digest, &colours))
            div.scroll tabindex="0" role="region" aria-label="Captured launches" {
                table {
                    thead { tr {
                        th scope="col" { "Kernel" } th scope="col" { "Launch" } th.number scope="col" { "Time" }
                        th.number scope="col" { "Share" } th.number scope="col" { "Compute" } th.number scope="col" { "Memory" }
                        th.number scope="col" { "Occupancy" } th scope="col" { "Bound by" } th scope="col" { "Best finding" }
                    } }
                    tbody { @for (rank, kernel) in kernels.iter().enumerate() {
                        (row(at, kernel, colour_of(kernel), rank < in_full))
                    } }
                }
            }
            @if digest.kernels_left_out > 0 { p.faint { (digest.kernels_left_out) " more launches are only in ncu-details.csv." } }
            @for (rank, kernel) in kernels.iter().take(in_full).enumerate() {
                details.kernel id=(anchor(at, kernel)) open[rank == 0] {
                    summary { (kernel.short_name) " " span.verdict { (kernel.verdict.bound.label()) } }
                    p { (kernel.verdict.why) "." }
                    p.faint { code { (kernel.name) } }
                    (sections(kernel))
                }
            }
            (provenance(digest))
        }
    }
}

fn anchor(shape: usize, kernel: &Kernel) -> String {
    format!("shape-{shape}-launch-{}", kernel.id)
}

fn row(shape: usize, kernel: &Kernel, colour: usize, has_details: bool) -> Markup {
    let three = |three: Option<[u32; 3]>| three.map_or_else(|| "n/a".to_owned(), size);
    let best = kernel.findings.first().filter(|finding| finding.kind == FindingKind::Opt);
    html! {
        tr {
            td.swatched {
                (swatch(colour))
                @if has_details { a href=(format!("#{}", anchor(shape, kernel))) { (kernel.short_name) } } @else { (kernel.short_name) }
            }
            td.whole { (three(kernel.launch.grid)) br; "× " (three(kernel.launch.block)) }
            td.number { (or_none(kernel.duration_ns, time)) }
            td.number { (or_none(kernel.overview.map(|overview| overview.share * 100.0), percent)) }
            td.number { (or_none(kernel.throughput.compute_percent, percent)) }
            td.number { (or_none(kernel.throughput.memory_percent, percent)) }
            td.number { (or_none(kernel.occupancy.achieved_percent, percent)) }
            td.whole { (kernel.verdict.bound.label()) }
            td { @if let Some(best) = best { (best.rule) @if let Some(speedup) = best.speedup_percent { ", " (percent(speedup)) } } }
        }
    }
}

fn provenance(digest: &Digest) -> Markup {
    let from = &digest.provenance;
    let unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let facts = [
        ("Job", from.job_id.clone()),
        ("Submission", from.file_name.clone()),
        ("Its SHA-256", from.submission_sha256.clone()),
        ("Problems at", unknown(&from.reference_kernels)),
        ("GPUs", from.gpus.join(", ")),
        ("Driver", unknown(&from.driver_version)),
        ("Nsight Compute", unknown(&from.ncu_version)),
        ("Clock control", from.clock_control.as_str().to_owned()),
        ("Warm calls", from.warm_calls.to_string()),
        ("Captured at", from.captured_at.to_rfc3339()),
        ("Made by", from.service.clone()),
    ];
    html! {
        h3 { "Where this comes from" }
        dl { @for (name, value) in facts { dt { (name) } dd { (value) } } }
        p.faint {
            "Times are the profiler's, at the clocks that its clock control gives. The share of the time is that of all launches of a \
             kernel and size, in a run without the profiler. The submission ran in the container that was measured, so its report \
             proves nothing."
        }
    }
}
