//! From what the overview saw to the options of `ncu` that choose launches. Pure: no file is read and nothing is run.

use std::collections::{BTreeSet, HashMap, HashSet};

use ncu_runner::protocol::{CaptureMode, Choice, Selection};

use crate::trace::{Group, Run, Trace};

/// The part of the time after which further kernels are left out of a `hot` capture.
const ENOUGH: f64 = 0.9;
/// Launches that a capture may watch without profiling them. Watching stops at `--launch-count`; in a container 2,000 launches
/// have taken more than half a minute.
const MAX_WATCHED: u64 = 2_000;
/// Characters of one name in a filter; a longer name is told by its beginning.
const MAX_PATTERN_CHARS: usize = 1000;
/// Characters of all names in a filter together: an argument has its limits, and so has an engine of regular expressions.
const MAX_FILTER_CHARS: usize = 16_000;

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

/// The kernels of a trace with launches in the range, the longest first.
pub fn kernels(trace: &Trace) -> Vec<Kernel<'_>> {
    let mut index = HashMap::new();
    let mut kernels: Vec<Kernel> = Vec::new();
    for group in trace.groups.iter().filter(|group| group.count > 0) {
        let at = *index.entry(group.name.as_slice()).or_insert_with(|| {
            kernels.push(Kernel { name: &group.name, count: 0, total_ns: 0 });
            kernels.len() - 1
        });
        kernels[at].count = kernels[at].count.saturating_add(group.count);
        kernels[at].total_ns = kernels[at].total_ns.saturating_add(group.total_ns);
    }
    // Stable: kernels of equal time stay in the order of their first launch.
    kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.total_ns));
    kernels
}

/// `part` of `total` from 0 to 1; nothing is a part of nothing.
#[expect(clippy::cast_precision_loss, reason = "a share is shown with a few digits")]
pub fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { (part as f64 / total as f64).min(1.0) }
}

/// The options that choose launches, and what became of the wish. `filtered` says that the command line already holds a
/// filter of somebody's own, which leaves only a window over what it matches.
pub fn choose(selection: Selection, filtered: bool, trace: &Trace) -> (Vec<String>, Choice) {
    let kernels = kernels(trace);
    let max = u64::from(selection.max_launches);
    let fall_back = |why: &str| {
        let coverage = (!kernels.is_empty() && !filtered).then(|| coverage(trace, &kernels, &first(trace, max)));
        let fallback = (selection.mode != CaptureMode::Window).then(|| why.to_owned());
        (count_option(max), Choice { mode: CaptureMode::Window, fallback, coverage })
    };
    if filtered {
        return fall_back("A kernel filter was given, so the first launches that it matches were captured.");
    }
    if kernels.is_empty() {
        return fall_back("The overview saw no launch, so the first launches were captured.");
    }
    match selection.mode {
        CaptureMode::Window => fall_back(""),
        CaptureMode::Distinct => distinct(trace, &kernels, max),
        CaptureMode::Hot => hot(trace, &kernels, max).unwrap_or_else(fall_back),
    }
}

/// Each kernel's first launch, as far as they are met among the launches that may be watched. A count that is never reached
/// would make `ncu` watch every launch, however many there are: the overview knows how many kernels there will be. By
/// default `ncu` counts invocations by the function's name alone, in which all instances of a template are one kernel.
fn distinct(trace: &Trace, kernels: &[Kernel], max: u64) -> (Vec<String>, Choice) {
    let mut met = HashSet::new();
    for run in watched(trace) {
        if met.len() as u64 == max {
            break;
        }
        met.insert(trace.groups[run.group].name.as_slice());
    }
    let by_kernel = ["--kernel-name-base", "mangled", "--kernel-id", ":::1"].map(str::to_owned);
    let options = [by_kernel.to_vec(), count_option(met.len() as u64)].concat();
    let coverage = Some(coverage(trace, kernels, &met));
    (options, Choice { mode: CaptureMode::Distinct, fallback: None, coverage })
}

/// The longest kernels by name, until they hold [`ENOUGH`] of the time.
///
/// Each of their launch sizes once, where there are few enough of them: a kernel's first launch need not be like the one
/// that takes its time. Else those of their launches that [`invocations`] names.
///
/// The error says why there is no such capture.
fn hot(trace: &Trace, kernels: &[Kernel], max: u64) -> Result<(Vec<String>, Choice), &'static str> {
    let total = trace.total_ns();
    let mut chosen = HashSet::new();
    let mut patterns: Vec<String> = Vec::new();
    let (mut covered, mut chars) = (0_u64, 0);
    for kernel in kernels.iter().filter(|kernel| !kernel.name.is_empty()) {
        let pattern = pattern(kernel.name);
        chars += pattern.len();
        if chosen.len() as u64 == max || chars > MAX_FILTER_CHARS || share(covered, total) >= ENOUGH {
            break;
        }
        covered = covered.saturating_add(kernel.total_ns);
        chosen.insert(kernel.name);
        patterns.push(pattern);
    }
    if patterns.is_empty() {
        return Err("No kernel of the overview has a name, so the first launches were captured.");
    }
    let names = format!("regex:^({})$", patterns.join("|"));
    let sizes = trace.groups.iter().filter(|group| group.count > 0 && chosen.contains(group.name.as_slice())).count();
    let mut options = ["--kernel-name-base", "mangled"].map(str::to_owned).to_vec();
    let met = if sizes as u64 <= max && trace.launches() <= MAX_WATCHED && !trace.is_partial {
        options.extend(["--kernel-name", &names, "--filter-mode", "per-launch-config"].map(str::to_owned));
        options.extend(count_option(1));
        chosen
    } else {
        let Invocations { numbers, count, met } = invocations(trace, &chosen, max);
        if met.is_empty() {
            return Err("The kernels that hold most of the time are launched behind more launches than a capture can \
                        watch, so the first launches were captured.");
        }
        let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
        options.extend(["--kernel-id".to_owned(), format!("::{names}:{}", numbers.join("|"))]);
        options.extend(count_option(count));
        met
    };
    Ok((options, Choice { mode: CaptureMode::Hot, fallback: None, coverage: Some(coverage(trace, kernels, &met)) }))
}

/// Which invocations of the chosen kernels are captured.
struct Invocations<'a> {
    /// Their numbers, from 1. Each counts for every kernel.
    numbers: BTreeSet<u64>,
    /// How many launches that are.
    count: u64,
    /// The kernels that they belong to.
    met: HashSet<&'a [u8]>,
}

/// `max` launches at most, of those that may be watched: the first of those sizes that hold most of the time, and each
/// kernel at least once.
fn invocations<'a>(trace: &'a Trace, chosen: &HashSet<&[u8]>, max: u64) -> Invocations<'a> {
    let (mut launches, mut firsts) = (HashMap::new(), HashMap::new());
    for run in watched(trace) {
        let name = trace.groups[run.group].name.as_slice();
        if chosen.contains(name) {
            let so_far: &mut u64 = launches.entry(name).or_default();
            firsts.entry(run.group).or_insert(*so_far + 1);
            *so_far = so_far.saturating_add(run.count);
        }
    }
    let mut sizes: Vec<(&Group, u64)> = firsts.iter().map(|(&group, &number)| (&trace.groups[group], number)).collect();
    sizes.sort_by_key(|&(group, number)| (std::cmp::Reverse(group.total_ns), number));

    let captured =
        |numbers: &BTreeSet<u64>| launches.values().map(|&count| numbers.range(..=count).count() as u64).sum::<u64>();
    let mut seen = HashSet::new();
    let heaviest = sizes.iter().filter(|(group, _)| seen.insert(&group.name)).map(|&(_, number)| number);
    let mut numbers: BTreeSet<u64> = heaviest.collect();
    if numbers.is_empty() || captured(&numbers) > max {
        numbers = BTreeSet::from([1]);
    }
    for (_, number) in sizes {
        if numbers.insert(number) && captured(&numbers) > max {
            numbers.remove(&number);
        }
    }
    Invocations { count: captured(&numbers), met: launches.into_keys().collect(), numbers }
}

/// The launches that may be watched.
fn watched(trace: &Trace) -> impl Iterator<Item = &Run> {
    let mut before = 0_u64;
    trace.runs.iter().take_while(move |run| {
        let is_near = before < MAX_WATCHED;
        before = before.saturating_add(run.count);
        is_near
    })
}

/// A regular expression for one name in which nothing has a meaning but `.`: every character that is not a letter, a digit
/// or `_` becomes one, so that a name can neither end the expression nor the argument.
fn pattern(name: &[u8]) -> String {
    let plain = |byte: &u8| if byte.is_ascii_alphanumeric() || *byte == b'_' { char::from(*byte) } else { '.' };
    let mut pattern: String = name.iter().take(MAX_PATTERN_CHARS).map(plain).collect();
    if name.len() > MAX_PATTERN_CHARS {
        pattern.push_str(".*");
    }
    pattern
}

/// The kernels among the first `count` launches.
fn first(trace: &Trace, count: u64) -> HashSet<&[u8]> {
    let mut met = HashSet::new();
    let mut left = count;
    for run in &trace.runs {
        if left == 0 {
            break;
        }
        met.insert(trace.groups[run.group].name.as_slice());
        left = left.saturating_sub(run.count);
    }
    met
}

/// The part of the time that the kernels of these names hold.
fn coverage(trace: &Trace, kernels: &[Kernel], met: &HashSet<&[u8]>) -> f64 {
    let held = kernels.iter().filter(|kernel| met.contains(kernel.name));
    share(held.fold(0, |sum: u64, kernel| sum.saturating_add(kernel.total_ns)), trace.total_ns())
}

fn count_option(count: u64) -> Vec<String> {
    vec!["--launch-count".to_owned(), count.to_string()]
}

#[cfg(test)]
mod tests;
