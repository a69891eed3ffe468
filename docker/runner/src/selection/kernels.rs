//! A trace by kernel: which of them hold the time, and in which order they are launched.

use std::collections::{BTreeSet, HashMap};

use crate::trace::{Group, Run, Trace};

/// Kernels by their index among [`Kernels::all`].
pub type Set = BTreeSet<usize>;

/// All launches of one kernel, whatever their size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel<'a> {
    /// The name as the compiler wrote it; empty for what had no room of its own.
    pub name: &'a [u8],
    /// Launches.
    pub count: u64,
    /// Their time, in nanoseconds.
    pub total_ns: u64,
}

/// The kernels of a trace with launches in the range.
#[derive(Debug)]
pub struct Kernels<'a> {
    /// The longest first.
    pub all: Vec<Kernel<'a>>,
    trace: &'a Trace,
    /// The kernel of each group of the trace; `None` where the group was launched outside of the range alone.
    of_group: Vec<Option<usize>>,
}

impl<'a> Kernels<'a> {
    /// The kernels of `trace`.
    pub fn new(trace: &'a Trace) -> Self {
        let mut all: Vec<Kernel> = Vec::new();
        let mut index = HashMap::new();
        for group in trace.groups.iter().filter(|group| group.count > 0) {
            let at = *index.entry(group.name.as_slice()).or_insert_with(|| {
                all.push(Kernel { name: &group.name, count: 0, total_ns: 0 });
                all.len() - 1
            });
            all[at].count = all[at].count.saturating_add(group.count);
            all[at].total_ns = all[at].total_ns.saturating_add(group.total_ns);
        }
        // Stable: kernels of equal time stay in the order of their first launch.
        all.sort_by_key(|kernel| std::cmp::Reverse(kernel.total_ns));
        let index: HashMap<_, _> = all.iter().enumerate().map(|(at, kernel)| (kernel.name, at)).collect();
        let kernel = |group: &Group| index.get(group.name.as_slice()).copied().filter(|_| group.count > 0);
        let of_group = trace.groups.iter().map(kernel).collect();
        Self { all, trace, of_group }
    }

    /// The launch sizes of these kernels, as indices of the trace's groups.
    pub fn sizes(&self, set: &Set) -> impl Iterator<Item = (usize, &'a Group)> {
        let is_wanted = |group: usize| self.of_group[group].is_some_and(|kernel| set.contains(&kernel));
        self.trace.groups.iter().enumerate().filter(move |&(group, _)| is_wanted(group))
    }

    /// The launches of these kernels in order, each run with its kernel.
    pub fn runs(&self, set: &Set) -> impl Iterator<Item = (usize, &'a Run)> {
        let wanted = |run: &'a Run| self.of_group[run.group].filter(|kernel| set.contains(kernel)).map(|at| (at, run));
        self.trace.runs.iter().filter_map(wanted)
    }

    /// Every kernel.
    pub fn everything(&self) -> Set {
        (0..self.all.len()).collect()
    }

    /// The kernels among the first `count` launches.
    pub fn among_the_first(&self, count: u64) -> Set {
        let mut met = Set::new();
        let mut left = count;
        for (kernel, run) in self.runs(&self.everything()) {
            if left == 0 {
                break;
            }
            met.insert(kernel);
            left = left.saturating_sub(run.count);
        }
        met
    }

    /// Launches of these kernels.
    pub fn launches(&self, set: &Set) -> u64 {
        set.iter().fold(0, |sum, &kernel| sum.saturating_add(self.all[kernel].count))
    }

    /// The part of the range's time that these kernels hold.
    pub fn coverage(&self, set: &Set) -> f64 {
        let held = set.iter().fold(0_u64, |sum, &kernel| sum.saturating_add(self.all[kernel].total_ns));
        share(held, self.trace.total_ns())
    }
}

/// `part` of `total` from 0 to 1; nothing is a part of nothing.
#[expect(clippy::cast_precision_loss, reason = "a share is shown with a few digits")]
pub fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { (part as f64 / total as f64).min(1.0) }
}
