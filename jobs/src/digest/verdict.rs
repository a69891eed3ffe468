//! What a kernel is bound by, in one line. The thresholds are those of Nsight Compute's own rule (`SOLBottleneck`, in
//! `sections/SpeedOfLight.py` of its installation), so a verdict never contradicts the report.

use serde::{Deserialize, Serialize};

use super::format::percent;
use super::kernel::{LaunchShape, Stall, Throughput};

/// Below this share of both peaks nothing is used well: the kernel waits. `latency_bound_threshold` of the rule.
pub const LATENCY_BOUND_PERCENT: f64 = 60.0;
/// Two throughputs this close to one another are balanced. `balanced_threshold` of the rule.
pub const BALANCED_PERCENT: f64 = 10.0;
/// From here on a unit is used fully, and only less work or other work helps. `no_bound_threshold` of the rule.
pub const SATURATED_PERCENT: f64 = 80.0;
/// A grid of less does not fill the GPU once. `waves_threshold` of the rule.
pub const FULL_WAVES: f64 = 1.0;

/// What bounds a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Caches or memory.
    Memory,
    /// The multiprocessors.
    Compute,
    /// Waiting: enough work is there, and no unit is busy.
    Latency,
    /// The launch: too few blocks for the GPU.
    Launch,
    /// The report does not say.
    Unknown,
}

impl Bound {
    /// In a word or two.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Memory => "memory bound",
            Self::Compute => "compute bound",
            Self::Latency => "latency bound",
            Self::Launch => "launch bound",
            Self::Unknown => "not measured",
        }
    }
}

/// What bounds a kernel, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What.
    pub bound: Bound,
    /// Why, in one sentence.
    pub why: String,
}

impl Verdict {
    pub(super) fn new(throughput: &Throughput, launch: &LaunchShape, stalls: Option<&[Stall]>) -> Self {
        let (Some(compute), Some(memory)) = (throughput.compute_percent, throughput.memory_percent) else {
            let why = "the report has no throughput of compute and memory".to_owned();
            return Self { bound: Bound::Unknown, why };
        };
        let both = format!("compute {}, memory {} of peak", percent(compute), percent(memory));
        if compute < LATENCY_BOUND_PERCENT && memory < LATENCY_BOUND_PERCENT {
            return match launch.waves {
                Some(waves) if waves < FULL_WAVES => {
                    Self { bound: Bound::Launch, why: small_grid(launch, waves, &both) }
                }
                _ => Self { bound: Bound::Latency, why: waiting(stalls, &both) },
            };
        }
        let is_saturated = compute.max(memory) >= SATURATED_PERCENT;
        let is_balanced = (compute - memory).abs() < BALANCED_PERCENT;
        let bound = if memory > compute { Bound::Memory } else { Bound::Compute };
        let unit = if bound == Bound::Memory { busiest_memory(throughput, memory) } else { "" };
        let advice = match (bound, is_balanced) {
            _ if is_saturated => "little is left but to do less of it",
            (_, true) => "both are nearly in balance",
            (Bound::Memory, _) => "memory is used more than compute",
            _ => "compute is used more than memory",
        };
        Self { bound, why: format!("{both}{unit}; {advice}") }
    }
}

fn small_grid(launch: &LaunchShape, waves: f64, both: &str) -> String {
    let blocks = launch.grid.map(|[x, y, z]| u64::from(x).saturating_mul(u64::from(y)).saturating_mul(u64::from(z)));
    let grid = match (blocks, launch.multiprocessors) {
        (Some(1), Some(multiprocessors)) => format!("1 block on {multiprocessors} multiprocessors"),
        (Some(blocks), Some(multiprocessors)) => format!("{blocks} blocks on {multiprocessors} multiprocessors"),
        _ => "too few blocks".to_owned(),
    };
    // Less than one, and a forged number is no less than none.
    format!("{grid} ({:.2} waves); {both}", waves.max(0.0))
}

fn waiting(stalls: Option<&[Stall]>, both: &str) -> String {
    match stalls.and_then(<[Stall]>::first) {
        Some(Stall { reason, share_percent: Some(share), .. }) => {
            format!("{both}; warps wait most for {reason} ({} of their time)", percent(*share))
        }
        _ => format!("{both}; warps wait more than they work"),
    }
}

/// The unit that makes memory the busier side, where it is one of those with a number of their own.
fn busiest_memory(throughput: &Throughput, memory: f64) -> &'static str {
    let is_it = |percent: Option<f64>| percent.is_some_and(|percent| (percent - memory).abs() < 0.5);
    match throughput {
        _ if is_it(throughput.dram_percent) => " (DRAM)",
        _ if is_it(throughput.l2_percent) => " (L2)",
        _ if is_it(throughput.l1_percent) => " (L1)",
        _ => "",
    }
}
