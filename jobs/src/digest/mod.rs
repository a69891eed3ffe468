//! What a reader wants of a report at once: each captured kernel with its numbers, what it is bound by, and what the profiler's
//! rules say, by what they promise. `docs/digest.md` has every field.
//!
//! It is made of exports of a hostile report and of a table that a hostile process wrote, outside of any container. Nothing here
//! reads a file by itself, or knows containers, HTTP or SQL.

pub mod compare;
pub mod details;
pub mod format;
pub mod kernel;
mod markdown;
pub(crate) mod number;
pub mod overview;
mod raw;
mod roofline;
mod summary;
pub mod verdict;

use std::collections::BTreeMap;
use std::io::Read;

use chrono::{DateTime, Utc};
use ncu_runner::protocol::{CaptureMode, ClockControl};
use serde::{Deserialize, Serialize};

pub use details::{Finding, FindingCounts, FindingKind, Scope};
pub use kernel::Kernel;
pub use markdown::{MAX_MARKDOWN_BYTES, markdown};
pub use overview::Overview;
pub use roofline::Roofline;
pub use summary::Summary;
pub use verdict::{Bound, Verdict};

use crate::problems::Shape;
use crate::report::ReportError;
use crate::text::is_shown;

/// Blocks of a grid, or threads of a block.
pub type Size = [u32; 3];

/// Longest name of a kernel that a digest shows, in characters.
const MAX_NAME_CHARS: usize = 400;
/// Longest name by which a kernel is looked for in the overview, in characters.
const MAX_FULL_NAME_CHARS: usize = 4096;
/// Longest function name, in characters.
const MAX_SHORT_NAME_CHARS: usize = 80;

/// A report's digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// Version of this layout.
    pub schema: u32,
    /// Made by the stand-in profiler: its numbers are then no measurement.
    pub simulated: bool,
    /// What was profiled, and how.
    pub provenance: Provenance,
    /// Launches in the report.
    pub launches: u32,
    /// Launches that have no entry below, for their number.
    pub kernels_left_out: u32,
    /// Findings in the report.
    pub finding_counts: FindingCounts,
    /// The launches, in the report's order.
    pub kernels: Vec<Kernel>,
}

/// Where a report's numbers come from, as far as they hang on it. `manifest.json` has more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The job.
    pub job_id: String,
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// Index of the shape in task.yml.
    pub benchmark_index: u32,
    /// The shape.
    pub benchmark: Shape,
    /// The submitted file's base name.
    pub file_name: String,
    /// SHA-256 of the submission, in hexadecimal.
    pub submission_sha256: String,
    /// Commit of reference-kernels.
    pub reference_kernels: Option<String>,
    /// Product names of the GPUs; empty where nobody could tell.
    pub gpus: Vec<String>,
    /// Version of the GPU's driver.
    pub driver_version: Option<String>,
    /// With which clocks durations were measured.
    pub clock_control: ClockControl,
    /// How launches were chosen; `None` where that is not known.
    pub capture_mode: Option<CaptureMode>,
    /// The part of the time that the captured kernels hold, from 0 to 1.
    pub coverage: Option<f64>,
    /// Calls of the submission before the one that was captured.
    pub warm_calls: u32,
    /// Version line of `ncu`.
    pub ncu_version: Option<String>,
    /// Name and version of this service.
    pub service: String,
    /// When the capture ended.
    pub captured_at: DateTime<Utc>,
}

/// The exports of a report, read.
#[derive(Debug, Default)]
pub struct Pages {
    details: details::Details,
    raw: BTreeMap<u32, raw::RawLaunch>,
}

impl Pages {
    /// Reads the details page.
    pub fn read(details: impl Read) -> Result<Self, ReportError> {
        Ok(Self { details: details::read(details)?, raw: BTreeMap::new() })
    }

    /// Reads the raw page beside it. Without one there are no stall reasons, pipes, counted bytes and rooflines.
    pub fn read_raw(&mut self, raw: impl Read) -> Result<(), ReportError> {
        self.raw = raw::read(raw)?;
        Ok(())
    }
}

impl Digest {
    /// The current layout's version.
    pub const SCHEMA: u32 = 1;

    /// The digest of a report that holds so many launches.
    #[must_use]
    pub fn new(pages: Pages, overview: &Overview, launches: u32, simulated: bool, provenance: Provenance) -> Self {
        let Pages { details, raw } = pages;
        let kernels: Vec<Kernel> = details
            .launches
            .into_iter()
            .map(|(id, launch)| {
                let size = launch.grid.zip(launch.block);
                let time = size.and_then(|(grid, block)| overview.of(&launch.name, grid, block));
                Kernel::new(id, launch, raw.get(&id), time)
            })
            .collect();
        let kept = u32::try_from(kernels.len()).unwrap_or(u32::MAX);
        Self {
            schema: Self::SCHEMA,
            simulated,
            provenance,
            launches,
            kernels_left_out: launches.saturating_sub(kept),
            finding_counts: details.counts,
            kernels,
        }
    }

    /// The launches, those first that hold most of the time.
    #[must_use]
    pub fn by_weight(&self) -> Vec<&Kernel> {
        let mut kernels: Vec<&Kernel> = self.kernels.iter().collect();
        kernels.sort_by(|a, b| {
            let ((share, duration), (other_share, other_duration)) = (a.weight(), b.weight());
            other_share.total_cmp(&share).then(other_duration.total_cmp(&duration))
        });
        kernels
    }
}

/// Text of a stranger, of at most so many characters, with nothing in it that moves, turns or hides what is shown.
fn printable(text: &str, max_chars: usize) -> String {
    let mut shown = text.chars().filter(|&c| is_shown(c));
    let mut kept: String = shown.by_ref().take(max_chars).collect();
    if shown.next().is_some() {
        kept.push('…');
    }
    kept
}

/// `(80, 1, 1)`.
fn size(text: &str) -> Option<Size> {
    let mut numbers = text.strip_prefix('(')?.strip_suffix(')')?.split(", ").map(|number| number.parse::<u32>().ok());
    let size = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(size)
}

/// The function's own name: `void at::add<float>(float *)` is `add`.
fn short_name(name: &str) -> String {
    // Namespaces without a name, as ncu and as others spell them.
    let named = name.replace("<unnamed>::", "").replace("(anonymous namespace)::", "");
    let head = named.split(['<', '(']).next().unwrap_or_default().trim_end();
    match head.rsplit([' ', ':']).next() {
        Some(function) if !function.is_empty() => printable(function, MAX_SHORT_NAME_CHARS),
        _ => printable(name, MAX_SHORT_NAME_CHARS),
    }
}

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(test)]
mod tests;
