//! Two reports of one problem against each other: what got better or worse, shape by shape and kernel by kernel.

use std::collections::BTreeMap;

use serde::Serialize;

use super::verdict::Bound;
use super::{Digest, Kernel, Provenance};

/// A change of less is none: what two captures of the same program differ by, in percent of the first one's value.
pub const NOISE_PERCENT: f64 = 2.0;

/// Why two jobs cannot be compared, as a sentence for who asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotComparable {
    /// A job has no report to compare, or none that this version reads.
    #[error(
        "One of the jobs has no report to compare: choose two jobs of which a shape has succeeded, or submit again."
    )]
    NoReport,
    /// They solve different problems.
    #[error("The jobs are of different leaderboards, {0:?} and {1:?}: compare two jobs of one leaderboard.")]
    Leaderboard(String, String),
    /// No shape is in both.
    #[error("The jobs have no shape in common: submit the same benchmark_index for both.")]
    Shapes,
    /// They were measured on different devices.
    #[error("The jobs were measured on different GPUs, {0:?} and {1:?}: submit both to the same kind.")]
    Gpu(String, String),
    /// They were measured with different clocks.
    #[error("The jobs were measured with different clocks, {0} and {1}: submit both with the same ncu_clock_control.")]
    Clocks(&'static str, &'static str),
    /// One is a measurement, the other is not.
    #[error("One of the jobs is simulated and the other is not: only measurements compare.")]
    Simulated,
    /// They were captured after different numbers of warm calls.
    #[error("The jobs were captured after {0} and {1} warm calls: submit both with the same ncu_warm_calls.")]
    WarmCalls(u32, u32),
}

/// What changed from one job to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The leaderboard.
    pub leaderboard: String,
    /// Whether all numbers are the stand-in profiler's.
    pub simulated: bool,
    /// The jobs, the older way of doing it first.
    pub jobs: [Side; 2],
    /// A smaller change is called none, in percent.
    pub noise_percent: f64,
    /// The shapes that both jobs have.
    pub shapes: Vec<ShapeChange>,
    /// Shapes that only one of them has, by index.
    pub shapes_left_out: Vec<u32>,
}

/// One of the jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Its id.
    pub job_id: String,
    /// The submitted file's base name.
    pub file_name: String,
    /// SHA-256 of the submission.
    pub submission_sha256: String,
}

/// What changed in one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShapeChange {
    /// Index of the shape in task.yml.
    pub benchmark_index: u32,
    /// The shape.
    pub benchmark: crate::problems::Shape,
    /// Time of the launches that both reports have.
    pub duration_ns: Change,
    /// Those launches.
    pub kernels: Vec<KernelChange>,
    /// Function names of launches that only the first report has.
    pub only_in_first: Vec<String>,
    /// Function names of launches that only the second report has.
    pub only_in_second: Vec<String>,
}

/// What changed in one launch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelChange {
    /// The function's name.
    pub name: String,
    /// The launch's number in each report.
    pub ids: [u32; 2],
    /// Whether grid or block are others.
    pub other_launch_size: bool,
    /// What bounded it before, and what bounds it now.
    pub bounds: [Bound; 2],
    /// Every value that both reports have, by the name that it has in a digest.
    pub changes: BTreeMap<&'static str, Change>,
}

/// A value before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// In the first report.
    pub first: f64,
    /// In the second report.
    pub second: f64,
    /// By how much it changed, in percent of the first; null where that is nothing.
    pub percent: Option<f64>,
    /// What that means.
    pub trend: Trend,
}

/// What a change means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// Less time or traffic.
    Better,
    /// More time or traffic.
    Worse,
    /// Within the noise.
    Same,
    /// Another value, of which more is neither good nor bad.
    Changed,
}

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Good {
    Less,
    Neither,
}

type Value = fn(&Kernel) -> Option<f64>;

/// What is compared, by its name in a digest.
const VALUES: [(&str, Good, Value); 11] = [
    ("duration_ns", Good::Less, |kernel| kernel.duration_ns),
    ("compute_percent", Good::Neither, |kernel| kernel.throughput.compute_percent),
    ("memory_percent", Good::Neither, |kernel| kernel.throughput.memory_percent),
    ("dram_percent", Good::Neither, |kernel| kernel.throughput.dram_percent),
    ("dram_bytes", Good::Less, |kernel| kernel.memory.dram_bytes),
    ("l1_hit_percent", Good::Neither, |kernel| kernel.memory.l1_hit_percent),
    ("l2_hit_percent", Good::Neither, |kernel| kernel.memory.l2_hit_percent),
    ("achieved_percent", Good::Neither, |kernel| kernel.occupancy.achieved_percent),
    ("cycles_per_instruction", Good::Neither, |kernel| kernel.issue.cycles_per_instruction),
    ("tensor_pipe_percent", Good::Neither, |kernel| kernel.tensor_pipe_percent),
    ("registers_per_thread", Good::Neither, |kernel| {
        kernel.launch.registers_per_thread.and_then(|count| u32::try_from(count).ok()).map(f64::from)
    }),
];

impl Comparison {
    /// Compares the digests of two jobs.
    pub fn new(first: &[Digest], second: &[Digest]) -> Result<Self, NotComparable> {
        let (Some(one), Some(other)) = (first.first(), second.first()) else { return Err(NotComparable::NoReport) };
        let (from, to) = (&one.provenance, &other.provenance);
        if from.leaderboard != to.leaderboard {
            return Err(NotComparable::Leaderboard(from.leaderboard.clone(), to.leaderboard.clone()));
        }
        let mut shapes = Vec::new();
        for before in first {
            let same = |after: &&Digest| after.provenance.benchmark == before.provenance.benchmark;
            if let Some(after) = second.iter().find(same) {
                must_compare(before, after)?;
                shapes.push(ShapeChange::new(before, after));
            }
        }
        if shapes.is_empty() {
            return Err(NotComparable::Shapes);
        }
        let indexes = first.iter().chain(second).map(|digest| digest.provenance.benchmark_index);
        let mut shapes_left_out: Vec<u32> =
            indexes.filter(|index| !shapes.iter().any(|shape| shape.benchmark_index == *index)).collect();
        shapes_left_out.sort_unstable();
        shapes_left_out.dedup();
        let side = |from: &Provenance| Side {
            job_id: from.job_id.clone(),
            file_name: from.file_name.clone(),
            submission_sha256: from.submission_sha256.clone(),
        };
        Ok(Self {
            leaderboard: from.leaderboard.clone(),
            simulated: one.simulated,
            jobs: [side(from), side(to)],
            noise_percent: NOISE_PERCENT,
            shapes,
            shapes_left_out,
        })
    }
}

/// Numbers of different devices, clocks or kinds of call say nothing about a program.
fn must_compare(before: &Digest, after: &Digest) -> Result<(), NotComparable> {
    let (from, to) = (&before.provenance, &after.provenance);
    if before.simulated != after.simulated {
        return Err(NotComparable::Simulated);
    }
    if from.gpus != to.gpus {
        let names = |gpus: &[String]| if gpus.is_empty() { "unknown".to_owned() } else { gpus.join(", ") };
        return Err(NotComparable::Gpu(names(&from.gpus), names(&to.gpus)));
    }
    if from.clock_control != to.clock_control {
        return Err(NotComparable::Clocks(from.clock_control.as_str(), to.clock_control.as_str()));
    }
    if from.warm_calls != to.warm_calls {
        return Err(NotComparable::WarmCalls(from.warm_calls, to.warm_calls));
    }
    Ok(())
}

impl ShapeChange {
    fn new(before: &Digest, after: &Digest) -> Self {
        let pairs = pairs(&before.kernels, &after.kernels);
        let time = |side: fn(&(usize, usize)) -> usize, kernels: &[Kernel]| {
            // Only of launches whose time both have.
            let known = pairs
                .iter()
                .filter(|&&(a, b)| before.kernels[a].duration_ns.is_some() && after.kernels[b].duration_ns.is_some());
            known.filter_map(|pair| kernels[side(pair)].duration_ns).sum::<f64>()
        };
        let left = |kernels: &[Kernel], side: fn(&(usize, usize)) -> usize| {
            let unpaired = kernels.iter().enumerate().filter(|(at, _)| !pairs.iter().any(|pair| side(pair) == *at));
            unpaired.map(|(_, kernel)| kernel.short_name.clone()).collect()
        };
        Self {
            benchmark_index: before.provenance.benchmark_index,
            benchmark: before.provenance.benchmark.clone(),
            duration_ns: Change::new(
                time(|pair| pair.0, &before.kernels),
                time(|pair| pair.1, &after.kernels),
                Good::Less,
            ),
            only_in_first: left(&before.kernels, |pair| pair.0),
            only_in_second: left(&after.kernels, |pair| pair.1),
            kernels: pairs.iter().map(|&(a, b)| KernelChange::new(&before.kernels[a], &after.kernels[b])).collect(),
        }
    }
}

/// Which launch of the one report is which of the other: those of one name in their order, then those of one function in theirs.
fn pairs(before: &[Kernel], after: &[Kernel]) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let names: [fn(&Kernel) -> &str; 2] = [|kernel| &kernel.name, |kernel| &kernel.short_name];
    for name in names {
        for (a, kernel) in before.iter().enumerate() {
            if pairs.iter().any(|pair| pair.0 == a) {
                continue;
            }
            let free =
                |(b, other): &(usize, &Kernel)| name(other) == name(kernel) && !pairs.iter().any(|pair| pair.1 == *b);
            if let Some((b, _)) = after.iter().enumerate().find(free) {
                pairs.push((a, b));
            }
        }
    }
    pairs.sort_unstable();
    pairs
}

impl KernelChange {
    fn new(before: &Kernel, after: &Kernel) -> Self {
        let changes = VALUES
            .iter()
            .filter_map(|&(name, good, value)| Some((name, Change::new(value(before)?, value(after)?, good))));
        Self {
            name: after.short_name.clone(),
            ids: [before.id, after.id],
            other_launch_size: (before.launch.grid, before.launch.block) != (after.launch.grid, after.launch.block),
            bounds: [before.verdict.bound, after.verdict.bound],
            changes: changes.collect(),
        }
    }
}

impl Change {
    fn new(first: f64, second: f64, good: Good) -> Self {
        let percent = Some(100.0 * (second - first) / first.abs()).filter(|percent| percent.is_finite());
        let is_same = percent.map_or(first.total_cmp(&second).is_eq(), |percent| percent.abs() < NOISE_PERCENT);
        let trend = match good {
            _ if is_same => Trend::Same,
            Good::Less if second < first => Trend::Better,
            Good::Less => Trend::Worse,
            Good::Neither => Trend::Changed,
        };
        Self { first, second, percent, trend }
    }
}

#[cfg(test)]
mod tests {
    use ncu_runner::protocol::ClockControl;

    use super::super::fuzzing::provenance;
    use super::super::{Overview, Pages};
    use super::*;

    const CSV: &str = include_str!("../../tests/fixtures/h200-qr_v2-0/ncu-details.csv");

    fn digest() -> Digest {
        Digest::new(Pages::read(CSV.as_bytes()).unwrap(), &Overview::default(), 4, false, provenance())
    }

    fn compared(first: &Digest, second: &Digest) -> Result<Comparison, NotComparable> {
        Comparison::new(std::slice::from_ref(first), std::slice::from_ref(second))
    }

    #[test]
    fn a_report_is_the_same_as_itself() {
        let found = compared(&digest(), &digest()).unwrap();
        let [shape] = &found.shapes[..] else { panic!("{found:?}") };
        assert_eq!((shape.kernels.len(), shape.only_in_first.len(), shape.only_in_second.len()), (4, 0, 0));
        assert!(
            shape.kernels.iter().flat_map(|kernel| kernel.changes.values()).all(|change| change.trend == Trend::Same)
        );
    }

    #[test]
    fn launches_pair_by_name_then_by_function_and_in_their_order() {
        let (before, mut after) = (digest(), digest());
        // The second arange is gone, the QR kernel is another instance and twice as fast, and something is new.
        after.kernels.remove(2);
        let qr = after.kernels.last_mut().unwrap();
        qr.name = "void geqr2_batch_kernel_shmem<float, float, 64, 8>(int)".to_owned();
        qr.launch.block = Some([64, 8, 1]);
        qr.duration_ns = Some(182_240.0);
        let mut new = qr.clone();
        "trsm".clone_into(&mut new.name);
        "trsm".clone_into(&mut new.short_name);
        after.kernels.insert(0, new);

        let found = compared(&before, &after).unwrap();
        let shape = &found.shapes[0];
        let ids: Vec<_> = shape.kernels.iter().map(|kernel| kernel.ids).collect();
        assert_eq!(ids, [[0, 0], [1, 1], [3, 3]]);
        assert_eq!(
            (&shape.only_in_first[..], &shape.only_in_second[..]),
            (&["elementwise_kernel_with_index".to_owned()][..], &["trsm".to_owned()][..])
        );
        let qr = &shape.kernels[2];
        assert!(qr.other_launch_size && !shape.kernels[0].other_launch_size);
        let expected = Change { first: 364_480.0, second: 182_240.0, percent: Some(-50.0), trend: Trend::Better };
        assert_eq!(qr.changes["duration_ns"], expected);
        // The launch that only one has counts for neither.
        assert_eq!(Some(shape.duration_ns.first), Some(3230.0 + 1920.0 + 364_480.0));
        assert_eq!((shape.duration_ns.second, shape.duration_ns.trend), (3230.0 + 1920.0 + 182_240.0, Trend::Better));
    }

    #[test]
    fn what_says_nothing_about_the_program_is_refused() {
        let refused = |change: &dyn Fn(&mut Digest)| {
            let mut other = digest();
            change(&mut other);
            compared(&digest(), &other).unwrap_err()
        };
        assert!(matches!(refused(&|other| other.simulated = true), NotComparable::Simulated));
        assert!(matches!(refused(&|other| other.provenance.warm_calls = 2), NotComparable::WarmCalls(0, 2)));
        assert!(matches!(refused(&|other| other.provenance.leaderboard.push('x')), NotComparable::Leaderboard(..)));
        assert!(matches!(refused(&|other| other.provenance.benchmark.0.clear()), NotComparable::Shapes));
        let clocks = refused(&|other| other.provenance.clock_control = ClockControl::None);
        assert_eq!(clocks, NotComparable::Clocks("base", "none"));
        let gpu = refused(&|other| other.provenance.gpus = vec!["NVIDIA B200".to_owned()]);
        assert_eq!(
            gpu.to_string(),
            "The jobs were measured on different GPUs, \"NVIDIA H200\" and \"NVIDIA B200\": submit both to the same kind."
        );
        assert_eq!(Comparison::new(&[], &[digest()]).unwrap_err(), NotComparable::NoReport);
    }

    #[test]
    fn a_change_from_nothing_has_no_percentage() {
        assert_eq!(Change::new(0.0, 0.0, Good::Less).trend, Trend::Same);
        let grown = Change::new(0.0, 5.0, Good::Less);
        assert_eq!((grown.percent, grown.trend), (None, Trend::Worse));
        assert_eq!(Change::new(100.0, 101.9, Good::Less).trend, Trend::Same);
        assert_eq!(Change::new(100.0, 102.1, Good::Neither).trend, Trend::Changed);
    }
}
