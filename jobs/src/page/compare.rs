//! The comparison of two jobs as a page.

use maud::{Markup, html};

use super::page;
use crate::digest::compare::{Change, Comparison, KernelChange, ShapeChange, Trend};
use crate::digest::format::{bytes, figures, percent, time};

/// What a page calls each value, in the order in which it shows them; those that did not change it leaves out, but for the first.
const VALUES: [(&str, &str); 11] = [
    ("duration_ns", "Time"),
    ("compute_percent", "Compute throughput"),
    ("memory_percent", "Memory throughput"),
    ("dram_percent", "DRAM throughput"),
    ("dram_bytes", "DRAM traffic"),
    ("l1_hit_percent", "L1 hits"),
    ("l2_hit_percent", "L2 hits"),
    ("achieved_percent", "Achieved occupancy"),
    ("cycles_per_instruction", "Cycles for each instruction of a warp"),
    ("tensor_pipe_percent", "Tensor pipe"),
    ("registers_per_thread", "Registers of a thread"),
];

/// The page of a comparison.
#[must_use]
pub fn comparison(found: &Comparison) -> String {
    let body = html! {
        header {
            h1 { (found.leaderboard) ": two submissions compared" }
            @if found.simulated {
                p.notice { strong { "Simulated." } " Both reports were made without a GPU. No number in them is a measurement." }
            }
            dl {
                @for (name, side) in ["First", "Second"].iter().zip(&found.jobs) {
                    dt { (name) } dd { (side.file_name) ", job " code { (side.job_id) } }
                }
            }
            p.faint {
                "Times are the profiler's. A change of less than " (percent(found.noise_percent)) " counts as none, and values without one are \
                 left out, but for the time. Launches are matched by name, and those of one name by their order."
            }
        }
        main {
            @for change in &found.shapes { (shape(change)) }
            @if !found.shapes_left_out.is_empty() {
                p.faint {
                    "Only one of the jobs has a report of shape "
                    (found.shapes_left_out.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")) "."
                }
            }
        }
    };
    page(&format!("{}: comparison", found.leaderboard), &body)
}

fn shape(change: &ShapeChange) -> Markup {
    html! {
        section.shape {
            h2 { "Shape " (change.benchmark_index) ": " (change.benchmark.spec()) }
            p { "Matched launches together: " (change_text("duration_ns", &change.duration_ns)) }
            div.scroll tabindex="0" role="region" aria-label="Launches of both reports" {
                table {
                    thead { tr {
                        th scope="col" { "Kernel" } th scope="col" { "Bound by" } th scope="col" { "Value" } th.number scope="col" { "First" }
                        th.number scope="col" { "Second" } th.number scope="col" { "Change" }
                    } }
                    @for kernel in &change.kernels { (rows(kernel)) }
                }
            }
            @for (which, names) in [("first", &change.only_in_first), ("second", &change.only_in_second)] {
                @if !names.is_empty() { p { "Only in the " (which) ": " (names.join(", ")) "." } }
            }
        }
    }
}

fn rows(kernel: &KernelChange) -> Markup {
    let [before, after] = kernel.bounds.map(crate::digest::Bound::label);
    let shown = VALUES.iter().filter_map(|&(name, label)| Some((name, label, kernel.changes.get(name)?)));
    let shown = shown.enumerate().filter(|(at, (.., change))| *at == 0 || change.trend != Trend::Same);
    html! {
        tbody {
            @for (row, (_, (name, label, change))) in shown.enumerate() {
                tr {
                    td.name {
                        @if row == 0 { (kernel.name) @if kernel.other_launch_size { " (another launch size)" } }
                    }
                    td { @if row == 0 { @if before == after { (before) } @else { (before) " → " (after) } } }
                    td { (label) }
                    td.number { (value(name, change.first)) }
                    td.number { (value(name, change.second)) }
                    td.number { (trend(change)) }
                }
            }
        }
    }
}

fn change_text(name: &str, change: &Change) -> Markup {
    html! { (value(name, change.first)) " → " (value(name, change.second)) ", " (trend(change)) }
}

fn trend(change: &Change) -> Markup {
    let sign = if change.second > change.first { "+" } else { "" };
    let by = change.percent.map_or_else(|| "from nothing".to_owned(), |by| format!("{sign}{}", percent(by)));
    match change.trend {
        Trend::Better => html! { span.better { (by) " better" } },
        Trend::Worse => html! { span.worse { (by) " worse" } },
        Trend::Same => html! { span.faint { "same" } },
        Trend::Changed => html! { (by) },
    }
}

/// A value in the unit that its name ends in.
fn value(name: &str, value: f64) -> String {
    match name {
        _ if name.ends_with("_ns") => time(value),
        _ if name.ends_with("_bytes") => bytes(value),
        _ if name.ends_with("_percent") => percent(value),
        _ => figures(value),
    }
}
