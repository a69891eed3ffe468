//! `digest.md`: what a person or an agent reads first. It is small whatever the report holds, and says what it leaves out.

use std::fmt::Write as _;

use super::format::{byte_rate, bytes, or_none, percent, size, time};
use super::{Digest, Finding, FindingKind, Kernel, Scope, printable};

/// Longest digest, in bytes.
pub const MAX_MARKDOWN_BYTES: usize = 5_900;
/// Kernels at most.
const MAX_KERNELS: usize = 10;
/// Longest text from outside in one place, in characters.
const MAX_CHARS: usize = 100;
/// Findings of a kernel and characters of each: the first of these that fits.
const DETAILS: [(usize, usize); 5] = [(6, 160), (4, 110), (3, 80), (2, 60), (1, 40)];

/// The digest as Markdown.
#[must_use]
pub fn markdown(digest: &Digest) -> String {
    let kernels = digest.by_weight();
    let most = kernels.len().min(MAX_KERNELS);
    let fits = |text: &String| text.len() <= MAX_MARKDOWN_BYTES;
    let fullest = DETAILS.iter().map(|&detail| page(digest, &kernels[..most], detail)).find(fits);
    fullest.unwrap_or_else(|| {
        // Only names made for it come here. Fewer kernels fit, and none of them always does.
        let fewer = (0..most).rev().map(|count| page(digest, &kernels[..count], (0, 0))).find(fits);
        fewer.unwrap_or_else(|| "# Digest\n\nIt did not fit; see digest.json.\n".to_owned())
    })
}

fn page(digest: &Digest, kernels: &[&Kernel], (findings, chars): (usize, usize)) -> String {
    let mut page = head(digest);
    for (at, kernel) in kernels.iter().enumerate() {
        let _ = write!(page, "\n## {}. {}\n\n{}", at + 1, title(kernel), numbers(kernel));
        for finding in kernel.findings.iter().take(findings) {
            let _ = writeln!(page, "- {}", line(finding, chars));
        }
        let left_out = kernel.finding_counts.total().saturating_sub(findings.min(kernel.findings.len()) as u64);
        if left_out > 0 {
            let _ = writeln!(page, "- {left_out} more in digest.json");
        }
    }
    let left_out = (digest.launches as usize).saturating_sub(kernels.len());
    if left_out > 0 {
        let _ = writeln!(page, "\n{left_out} more of the captured launches are left out here; see digest.json.");
    }
    page
}

fn head(digest: &Digest) -> String {
    let from = &digest.provenance;
    let mut head = format!(
        "# {}, shape {}: {}\n\n",
        plain(&from.leaderboard, 60),
        from.benchmark_index,
        plain(&from.benchmark.spec(), MAX_CHARS)
    );
    if digest.simulated {
        head.push_str("**Simulated: made without a GPU, so no number here is a measurement.**\n\n");
    }
    let gpu = from.gpus.first().map_or_else(|| "unknown GPU".to_owned(), |gpu| plain(gpu, 60));
    let counts = digest.finding_counts;
    let _ =
        write!(head, "{gpu}, clock control {}; launches captured: {}", from.clock_control.as_str(), digest.launches);
    if let Some(coverage) = from.coverage {
        let _ = write!(head, ", whose kernels hold {} of the time", percent(coverage * 100.0));
    }
    let _ = writeln!(head, "; findings: {} OPT, {} WRN, {} INF.", counts.opt, counts.wrn, counts.inf);
    let _ = writeln!(
        head,
        "Submission {}, SHA-256 {:.12}; {}. Durations are the profiler's; the share of time is that of all launches of a kernel \
         and size, without it.",
        code(&from.file_name, 60),
        plain(&from.submission_sha256, 64),
        plain(from.ncu_version.as_deref().unwrap_or("ncu of unknown version"), 60),
    );
    head
}

fn title(kernel: &Kernel) -> String {
    let size_of = |three: Option<super::Size>| three.map_or_else(|| "n/a".to_owned(), size);
    let launch = format!("{}x{}", size_of(kernel.launch.grid), size_of(kernel.launch.block));
    let name = code(&kernel.short_name, 60);
    format!("{name} {launch}: {}", kernel.verdict.bound.label())
}

/// What is measured, in lines of a few facts each.
fn numbers(kernel: &Kernel) -> String {
    let share = |number: Option<f64>| or_none(number, percent);
    let mut text = format!("{}.\n", plain(&kernel.verdict.why, 200));
    let _ = write!(text, "{}", or_none(kernel.duration_ns, time));
    if let Some(overview) = kernel.overview {
        let _ = write!(text, "; {} of the time (launches: {})", percent(overview.share * 100.0), overview.launches);
    }
    let (occupancy, memory, launch) = (&kernel.occupancy, &kernel.memory, &kernel.launch);
    let _ =
        write!(text, "; occupancy {} of {}", share(occupancy.achieved_percent), share(occupancy.theoretical_percent));
    if !occupancy.limited_by.is_empty() {
        let _ = write!(text, " (limited by {})", occupancy.limited_by.join(", "));
    }
    let registers = launch.registers_per_thread.map_or_else(|| "n/a".to_owned(), |count| count.to_string());
    let shared = launch.static_shared_bytes.zip(launch.dynamic_shared_bytes);
    #[expect(clippy::cast_precision_loss, reason = "three figures are shown")]
    let shared = shared.map(|(fixed, dynamic)| fixed.saturating_add(dynamic) as f64);
    let _ = writeln!(text, "; registers {registers}, shared {} a block", or_none(shared, bytes));
    let _ = write!(
        text,
        "DRAM {} at {} ({}); hits L1 {}, L2 {}",
        or_none(memory.dram_bytes, bytes),
        or_none(memory.dram_bytes_per_second, byte_rate),
        share(kernel.throughput.dram_percent),
        share(memory.l1_hit_percent),
        share(memory.l2_hit_percent),
    );
    let _ = write!(text, "; tensor pipe {}", share(kernel.tensor_pipe_percent));
    if let Some(stalls) = kernel.stalls.as_deref().filter(|stalls| !stalls.is_empty()) {
        let stalls: Vec<String> = stalls
            .iter()
            .take(3)
            .map(|stall| format!("{} {}", stall.reason, or_none(stall.share_percent, percent)))
            .collect();
        let _ = write!(text, "; stalls: {}", plain(&stalls.join(", "), 200));
    }
    text.push_str("\n\n");
    text
}

fn line(finding: &Finding, chars: usize) -> String {
    let kind = match finding.kind {
        FindingKind::Opt => "OPT",
        FindingKind::Wrn => "WRN",
        FindingKind::Inf => "INF",
    };
    let promise = finding.speedup_percent.map_or_else(String::new, |speedup| {
        let scope = if finding.speedup_scope == Some(Scope::Local) { " (local)" } else { "" };
        format!(" {}{scope}", percent(speedup))
    });
    format!("{kind}{promise} {}: {}", plain(&finding.rule, 40), plain(&finding.text, chars))
}

/// A stranger's text: nothing in it is markup.
fn plain(text: &str, max_chars: usize) -> String {
    let shown = printable(text, max_chars);
    let mut plain = String::with_capacity(shown.len());
    for c in shown.chars() {
        if matches!(c, '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '#' | '!' | '~' | '&') {
            plain.push('\\');
        }
        plain.push(c);
    }
    plain
}

/// A stranger's name as code.
fn code(text: &str, max_chars: usize) -> String {
    format!("`{}`", printable(text, max_chars).replace('`', "'"))
}
