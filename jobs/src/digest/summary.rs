//! A digest in a few hundred bytes, for the body of a job: what a poll shows.

use serde::Serialize;

use super::verdict::Bound;
use super::{Digest, FindingCounts, FindingKind, Kernel, Size, printable};

/// Kernels in a summary.
const MAX_KERNELS: usize = 5;
/// Longest name, rule and sentence, in characters.
const MAX_CHARS: usize = 160;

/// A digest in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Launches in the report.
    pub launches: u32,
    /// Findings in the report.
    pub finding_counts: FindingCounts,
    /// The launches that hold most of the time.
    pub kernels: Vec<KernelSummary>,
    /// Launches that are not among them.
    pub kernels_left_out: u32,
}

/// A launch in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelSummary {
    /// The function's name.
    pub name: String,
    /// Blocks.
    pub grid: Option<Size>,
    /// Threads of a block.
    pub block: Option<Size>,
    /// Its time under the profiler.
    pub duration_ns: Option<f64>,
    /// The part of the time that its launches of this size hold, from 0 to 1.
    pub share: Option<f64>,
    /// Throughput of the multiprocessors, in percent of their peak.
    pub compute_percent: Option<f64>,
    /// Throughput of caches and memory, in percent of their peak.
    pub memory_percent: Option<f64>,
    /// Achieved occupancy.
    pub occupancy_percent: Option<f64>,
    /// What bounds it.
    pub bound: Bound,
    /// Why.
    pub why: String,
    /// The finding that promises most.
    pub best_finding: Option<BestFinding>,
}

/// A finding in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BestFinding {
    /// The rule's name.
    pub rule: String,
    /// By how much the kernel could be faster, in percent of its time, as `ncu` estimates.
    pub speedup_percent: f64,
}

impl From<&Digest> for Summary {
    fn from(digest: &Digest) -> Self {
        let kernels: Vec<KernelSummary> =
            digest.by_weight().into_iter().take(MAX_KERNELS).map(KernelSummary::from).collect();
        let shown = u32::try_from(kernels.len()).unwrap_or(u32::MAX);
        Self {
            launches: digest.launches,
            finding_counts: digest.finding_counts,
            kernels_left_out: digest.launches.saturating_sub(shown),
            kernels,
        }
    }
}

impl From<&Kernel> for KernelSummary {
    fn from(kernel: &Kernel) -> Self {
        let best = kernel.findings.first().filter(|finding| finding.kind == FindingKind::Opt);
        Self {
            name: printable(&kernel.short_name, MAX_CHARS),
            grid: kernel.launch.grid,
            block: kernel.launch.block,
            duration_ns: kernel.duration_ns,
            share: kernel.overview.map(|overview| overview.share),
            compute_percent: kernel.throughput.compute_percent,
            memory_percent: kernel.throughput.memory_percent,
            occupancy_percent: kernel.occupancy.achieved_percent,
            bound: kernel.verdict.bound,
            why: printable(&kernel.verdict.why, MAX_CHARS),
            best_finding: best.and_then(|finding| {
                Some(BestFinding {
                    rule: printable(&finding.rule, MAX_CHARS),
                    speedup_percent: finding.speedup_percent?,
                })
            }),
        }
    }
}
