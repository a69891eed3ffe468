//! One captured launch with every value that a reader asks for, each in the unit that its name says.

use serde::{Deserialize, Serialize};

use super::details::{Finding, FindingCounts, FindingKind, Launch, Scope};
use super::number::Kind;
use super::overview::TimeShare;
use super::raw::{self, RawLaunch};
use super::roofline::Roofline;
use super::verdict::Verdict;
use super::{MAX_NAME_CHARS, Size, printable, short_name};

/// Stall reasons that are kept.
const MAX_STALLS: usize = 6;
/// Section of the speed of light.
pub(super) const LIGHT: &str = "GPU Speed Of Light Throughput";
const MEMORY: &str = "Memory Workload Analysis";
const LAUNCH: &str = "Launch Statistics";
const OCCUPANCY: &str = "Occupancy";
const SCHEDULER: &str = "Scheduler Statistics";
const WARPS: &str = "Warp State Statistics";

/// A launch in a report. What the report does not have as a number is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// The launch's number in the report.
    pub id: u32,
    /// The function's name, without its template arguments and parameters.
    pub short_name: String,
    /// The name as the report has it; long ones are cut.
    pub name: String,
    /// What it is bound by.
    pub verdict: Verdict,
    /// How it was launched.
    pub launch: LaunchShape,
    /// Its time under the profiler.
    pub duration_ns: Option<f64>,
    /// Clock of the multiprocessors while it was measured.
    pub sm_clock_mhz: Option<f64>,
    /// Clock of the memory while it was measured.
    pub memory_clock_mhz: Option<f64>,
    /// All launches of this kernel with this launch size, as the overview saw them.
    pub overview: Option<TimeShare>,
    /// How far units were from their peak.
    pub throughput: Throughput,
    /// Warps on the multiprocessors.
    pub occupancy: Occupancy,
    /// Caches and memory.
    pub memory: Memory,
    /// What the schedulers did.
    pub issue: Issue,
    /// Why warps waited, the longest first; `None` where the report does not say.
    pub stalls: Option<Vec<Stall>>,
    /// How busy the tensor pipe was, in percent of its peak while the multiprocessor was active.
    pub tensor_pipe_percent: Option<f64>,
    /// The metric that says so.
    pub tensor_pipe_metric: Option<String>,
    /// Floating-point work against memory traffic, for each precision that the report has.
    pub roofline: Vec<Roofline>,
    /// How many findings there are.
    pub finding_counts: FindingCounts,
    /// What the rules say, by what they promise.
    pub findings: Vec<Finding>,
}

/// How a kernel was launched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchShape {
    /// Blocks.
    pub grid: Option<Size>,
    /// Threads of a block.
    pub block: Option<Size>,
    /// Threads in all.
    pub threads: Option<u64>,
    /// How often the grid fills the GPU.
    pub waves: Option<f64>,
    /// Multiprocessors of the GPU.
    pub multiprocessors: Option<u64>,
    /// Registers of a thread.
    pub registers_per_thread: Option<u64>,
    /// Shared memory of a block that the source declares.
    pub static_shared_bytes: Option<u64>,
    /// Shared memory of a block that the launch asks for.
    pub dynamic_shared_bytes: Option<u64>,
    /// Shared memory of a block that the driver takes.
    pub driver_shared_bytes: Option<u64>,
}

/// Throughputs in percent of their peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Of the multiprocessors.
    pub compute_percent: Option<f64>,
    /// Of caches and memory: the busiest of their units.
    pub memory_percent: Option<f64>,
    /// Of the memory.
    pub dram_percent: Option<f64>,
    /// Of the first cache, while the multiprocessor was active; it can be beyond 100.
    pub l1_percent: Option<f64>,
    /// Of the second cache.
    pub l2_percent: Option<f64>,
}

/// Warps on a multiprocessor, in percent of the most that it takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    /// On average.
    pub achieved_percent: Option<f64>,
    /// As many as fit.
    pub theoretical_percent: Option<f64>,
    /// What keeps more from fitting: `registers`, `shared_memory`, `warps`, `blocks`, `barriers`. Empty where all fit.
    pub limited_by: Vec<String>,
}

/// Caches and memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Hit rate of the first cache.
    pub l1_hit_percent: Option<f64>,
    /// Hit rate of the second cache.
    pub l2_hit_percent: Option<f64>,
    /// Traffic of the memory.
    pub dram_bytes_per_second: Option<f64>,
    /// Bytes read and written: counted where the report has counts, else the rate times the duration.
    pub dram_bytes: Option<f64>,
    /// Bytes read, counted.
    pub dram_read_bytes: Option<f64>,
    /// Bytes written, counted.
    pub dram_write_bytes: Option<f64>,
}

/// What the schedulers did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Issue {
    /// Cycles in which no warp was ready.
    pub no_eligible_percent: Option<f64>,
    /// Cycles from one instruction of a warp to the next.
    pub cycles_per_instruction: Option<f64>,
}

/// Why warps waited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// The reason in `ncu`'s word.
    pub reason: String,
    /// Cycles that a warp waits for it, from one instruction to the next.
    pub cycles_per_instruction: f64,
    /// Its part of the cycles from one instruction to the next.
    pub share_percent: Option<f64>,
}

impl Kernel {
    /// What the two pages say of a launch. What keeps a launch's blocks few is in the details page alone.
    #[must_use]
    pub fn new(id: u32, details: Launch, raw: Option<&RawLaunch>, overview: Option<TimeShare>) -> Self {
        let launch = launch_shape(&details);
        let throughput = throughput(&details);
        let occupancy = occupancy(&details);
        let issue = Issue {
            no_eligible_percent: details.get(SCHEDULER, "No Eligible", Kind::Percent),
            cycles_per_instruction: details.get(WARPS, "Warp Cycles Per Issued Instruction", Kind::Other),
        };
        let stalls = raw.and_then(|raw| stalls(raw, issue.cycles_per_instruction));
        let verdict = Verdict::new(&throughput, &launch, stalls.as_deref());
        let duration_ns = details.get(LIGHT, "Duration", Kind::Time);
        let tensor_pipe = raw.and_then(tensor_pipe);
        let mhz = |metric| details.get(LIGHT, metric, Kind::Frequency).map(|hz| hz / 1e6);
        Self {
            id,
            short_name: short_name(&details.name),
            name: printable(&details.name, MAX_NAME_CHARS),
            verdict,
            duration_ns,
            sm_clock_mhz: mhz("SM Frequency"),
            memory_clock_mhz: mhz("DRAM Frequency"),
            overview,
            memory: memory(&details, raw, duration_ns),
            stalls,
            tensor_pipe_percent: tensor_pipe.as_ref().map(|(percent, _)| *percent),
            tensor_pipe_metric: tensor_pipe.map(|(_, metric)| metric),
            roofline: raw.map(Roofline::all).unwrap_or_default(),
            finding_counts: details.counts,
            findings: sorted(details.findings),
            launch,
            throughput,
            occupancy,
            issue,
        }
    }

    /// Its share of the time where that is known, else its time under the profiler: what decides which kernel comes first.
    #[must_use]
    pub fn weight(&self) -> (f64, f64) {
        (self.overview.map_or(0.0, |overview| overview.share), self.duration_ns.unwrap_or(0.0))
    }
}

fn launch_shape(details: &Launch) -> LaunchShape {
    let whole = |metric, kind| details.get(LAUNCH, metric, kind).and_then(whole);
    LaunchShape {
        grid: details.grid,
        block: details.block,
        threads: whole("Threads", Kind::Other),
        waves: details.get(LAUNCH, "Waves Per SM", Kind::Other),
        multiprocessors: whole("# SMs", Kind::Other),
        registers_per_thread: whole("Registers Per Thread", Kind::Other),
        static_shared_bytes: whole("Static Shared Memory Per Block", Kind::Bytes),
        dynamic_shared_bytes: whole("Dynamic Shared Memory Per Block", Kind::Bytes),
        driver_shared_bytes: whole("Driver Shared Memory Per Block", Kind::Bytes),
    }
}

fn throughput(details: &Launch) -> Throughput {
    let percent = |metric| details.get(LIGHT, metric, Kind::Percent);
    Throughput {
        compute_percent: percent("Compute (SM) Throughput"),
        memory_percent: percent("Memory Throughput"),
        dram_percent: percent("DRAM Throughput"),
        l1_percent: percent("L1/TEX Cache Throughput"),
        l2_percent: percent("L2 Cache Throughput"),
    }
}

fn occupancy(details: &Launch) -> Occupancy {
    let theoretical_percent = details.get(OCCUPANCY, "Theoretical Occupancy", Kind::Percent);
    let limits: Vec<(&str, f64)> = [
        ("registers", "Block Limit Registers"),
        ("shared_memory", "Block Limit Shared Mem"),
        ("warps", "Block Limit Warps"),
        ("blocks", "Block Limit SM"),
        ("barriers", "Block Limit Barriers"),
    ]
    .into_iter()
    .filter_map(|(name, metric)| Some((name, details.get(OCCUPANCY, metric, Kind::Other)?)))
    .collect();
    let lowest = limits.iter().map(|&(_, blocks)| blocks).fold(f64::INFINITY, f64::min);
    let is_limited = theoretical_percent.is_some_and(|percent| percent < 100.0);
    let limited_by = limits.iter().filter(|&&(_, blocks)| is_limited && blocks <= lowest);
    Occupancy {
        achieved_percent: details.get(OCCUPANCY, "Achieved Occupancy", Kind::Percent),
        theoretical_percent,
        limited_by: limited_by.map(|&(name, _)| name.to_owned()).collect(),
    }
}

fn memory(details: &Launch, raw: Option<&RawLaunch>, duration_ns: Option<f64>) -> Memory {
    let dram_bytes_per_second = details.get(MEMORY, "Memory Throughput", Kind::ByteRate);
    let counted = |name| raw.and_then(|raw| raw.get(name, Kind::Bytes)).filter(|bytes| *bytes >= 0.0);
    let (read, written) = (counted("dram__bytes_read.sum"), counted("dram__bytes_write.sum"));
    let estimated = || Some((dram_bytes_per_second? * (duration_ns? / 1e9)).round());
    let dram_bytes = read.zip(written).map(|(read, written)| read + written).or_else(estimated);
    Memory {
        l1_hit_percent: details.get(MEMORY, "L1/TEX Hit Rate", Kind::Percent),
        l2_hit_percent: details.get(MEMORY, "L2 Hit Rate", Kind::Percent),
        dram_bytes_per_second,
        dram_bytes: dram_bytes.filter(|bytes| bytes.is_finite()),
        dram_read_bytes: read,
        dram_write_bytes: written,
    }
}

/// The reasons for which warps wait longest; `None` where there is none among the metrics.
fn stalls(raw: &RawLaunch, cycles_per_instruction: Option<f64>) -> Option<Vec<Stall>> {
    let all = raw
        .number("smsp__average_warp_latency_per_inst_issued.ratio")
        .or(cycles_per_instruction)
        .filter(|&cycles| cycles > 0.0);
    let stall = |name: &str, cycles: f64| {
        let share_percent = all.map(|all| 100.0 * cycles / all).filter(|share| share.is_finite());
        Some(Stall { reason: raw::stall_reason(name)?.to_owned(), cycles_per_instruction: cycles, share_percent })
    };
    let mut stalls: Vec<Stall> = raw.iter().filter_map(|(name, quantity)| stall(name, quantity.value)).collect();
    let has_any = !stalls.is_empty();
    stalls.retain(|stall| stall.cycles_per_instruction > 0.0);
    stalls.sort_by(|a, b| b.cycles_per_instruction.total_cmp(&a.cycles_per_instruction));
    stalls.truncate(MAX_STALLS);
    has_any.then_some(stalls)
}

/// How busy the tensor pipe was. Its cycles say more than its instructions, of which one may keep it busy for long; and the pipe
/// as a whole more than one of its parts.
fn tensor_pipe(raw: &RawLaunch) -> Option<(f64, String)> {
    let rank = |name: &str| match name {
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active" => 2,
        name if name.contains("_cycles_active.") => 1,
        _ => 0,
    };
    let pipes = raw.iter().filter(|(name, quantity)| {
        name.contains(raw::TENSOR.0) && name.ends_with(raw::TENSOR.1) && quantity.kind == Kind::Percent
    });
    let busiest = pipes
        .max_by(|(name, pipe), (other, rival)| rank(name).cmp(&rank(other)).then(pipe.value.total_cmp(&rival.value)));
    busiest.map(|(name, pipe)| (pipe.value, name.to_owned()))
}

/// By what they promise: speed-ups of the kernel, then of one of its units, then what has no number; doubts before facts.
fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    let rank = |finding: &Finding| match (finding.kind, finding.speedup_scope, finding.speedup_percent) {
        (FindingKind::Opt, Some(Scope::Local), Some(_)) => 1,
        (FindingKind::Opt, _, Some(_)) => 0,
        (FindingKind::Opt, ..) => 2,
        (FindingKind::Wrn, ..) => 3,
        (FindingKind::Inf, ..) => 4,
    };
    findings.sort_by(|a, b| {
        let promise = |finding: &Finding| finding.speedup_percent.unwrap_or(0.0);
        rank(a).cmp(&rank(b)).then(promise(b).total_cmp(&promise(a)))
    });
    findings
}

/// A count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the bounds")]
fn whole(number: f64) -> Option<u64> {
    // Up to here every whole number has a float of its own.
    (0.0..=9_007_199_254_740_992.0).contains(&number).then(|| number.round() as u64)
}
