//! From what the overview saw to the options of `ncu` that choose launches. Pure: no file is read and nothing is run.

mod kernels;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ncu_runner::protocol::{CaptureMode, Choice, Selection};

use self::kernels::Set;
pub use self::kernels::{Kernels, share};
use crate::trace::{Group, Run, Trace};

/// The part of the time after which further kernels are left out of a `hot` capture.
const ENOUGH: f64 = 0.9;
/// Launches that match a filter and are watched only, because they are not the ones that a number asks for. Each costs a tenth
/// of a second: `ncu` decides about it outside of the process, which is slow for a child of the program that it started, and
/// evaluators launch kernels in such a child. Launches that match no filter cost nothing to speak of.
const MAX_WATCHED: u64 = 300;
/// Kernels that are tried, the longest first, before the rest are left out: a bound on the work, since a trace is hostile.
const MAX_TRIED: usize = 256;
/// Characters of one name in a filter; a longer name is told by its beginning.
const MAX_PATTERN_CHARS: usize = 1000;
/// Characters of all names in a filter together: an argument has its limits, and so has an engine of regular expressions.
const MAX_FILTER_CHARS: usize = 16_000;

/// The options that choose launches, and what became of the wish. `filtered` says that the command line already holds a
/// filter of somebody's own, which leaves only a window over what it matches.
pub fn choose(selection: Selection, filtered: bool, trace: &Trace) -> (Vec<String>, Choice) {
    let kernels = Kernels::new(trace);
    let max = u64::from(selection.max_launches);
    let fall_back = |why: &str| {
        let is_known = !kernels.all.is_empty() && !filtered;
        let coverage = is_known.then(|| kernels.coverage(&kernels.among_the_first(max)));
        let fallback = (selection.mode != CaptureMode::Window).then(|| why.to_owned());
        (count_option(max), Choice { mode: CaptureMode::Window, fallback, coverage })
    };
    if filtered {
        return fall_back("A kernel filter was given, so the first launches that it matches were captured.");
    }
    if kernels.all.is_empty() {
        return fall_back("The overview saw no launch, so the first launches were captured.");
    }
    let (options, held) = match selection.mode {
        CaptureMode::Window => return fall_back(""),
        CaptureMode::Distinct => distinct(&kernels, max),
        CaptureMode::Hot => match hot(&kernels, max) {
            Some(chosen) => chosen,
            None => return fall_back("No kernel of the overview has a name, so the first launches were captured."),
        },
    };
    (options, Choice { mode: selection.mode, fallback: None, coverage: Some(kernels.coverage(&held)) })
}

/// Each kernel's first launch. A count that is never reached would make `ncu` watch every launch, however many there are: the
/// overview knows how many kernels there will be. Where too many launches lie between them, those of the kernels that hold
/// most of the time and can be met.
fn distinct(kernels: &Kernels, max: u64) -> (Vec<String>, Set) {
    let mut met = Set::new();
    for (kernel, _) in watched(kernels, &kernels.everything()) {
        if met.len() as u64 == max {
            break;
        }
        met.insert(kernel);
    }
    if (met.len() as u64) < max && met.len() < kernels.all.len() {
        let (far, names) = longest(kernels, max, f64::INFINITY);
        if kernels.coverage(&far) > kernels.coverage(&met) {
            return (by_invocation(&names, "1", far.len() as u64), far);
        }
    }
    (by_invocation("", "1", met.len() as u64), met)
}

/// The longest kernels by name, until they hold [`ENOUGH`] of the time.
///
/// Each of their launch sizes once, where there are few enough of them: a kernel's first launch need not be like the one
/// that takes its time. Else those of their launches that [`invocations`] names.
fn hot(kernels: &Kernels, max: u64) -> Option<(Vec<String>, Set)> {
    let (chosen, names) = longest(kernels, max, ENOUGH);
    if chosen.is_empty() {
        return None;
    }
    let sizes = kernels.sizes(&chosen).count() as u64;
    let options = if sizes <= max && kernels.launches(&chosen) <= MAX_WATCHED {
        let each_size =
            ["--kernel-name-base", "mangled", "--kernel-name", &names, "--filter-mode", "per-launch-config"];
        [each_size.map(str::to_owned).to_vec(), count_option(1)].concat()
    } else {
        let (numbers, count) = invocations(kernels, &chosen, max);
        let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
        by_invocation(&names, &numbers.join("|"), count)
    };
    Some((options, chosen))
}

/// The longest kernels that one filter can hold, `max` at most, until they have `enough` of the time; and that filter.
///
/// A kernel is passed over if with it too many launches would have to be watched before each kernel was met once.
fn longest(kernels: &Kernels, max: u64, enough: f64) -> (Set, String) {
    let mut chosen = Set::new();
    let mut patterns: Vec<String> = Vec::new();
    let mut chars = 0;
    for (index, kernel) in kernels.all.iter().enumerate().filter(|(_, kernel)| !kernel.name.is_empty()).take(MAX_TRIED)
    {
        let pattern = pattern(kernel.name);
        if chosen.len() as u64 == max || chars + pattern.len() > MAX_FILTER_CHARS || kernels.coverage(&chosen) >= enough
        {
            break;
        }
        chosen.insert(index);
        if can_be_met(kernels, &chosen) {
            chars += pattern.len();
            patterns.push(pattern);
        } else {
            chosen.remove(&index);
        }
    }
    (chosen, format!("regex:^({})$", patterns.join("|")))
}

/// Whether a filter for these kernels meets each of them without watching too long. The first match of a filter is never
/// watched for, so one kernel alone is always met.
fn can_be_met(kernels: &Kernels, set: &Set) -> bool {
    let met = || watched(kernels, set).map(|(kernel, _)| kernel).collect::<Set>();
    set.len() == 1 || kernels.launches(set) <= MAX_WATCHED || met().len() == set.len()
}

/// Those launches of these kernels that a filter for them may watch, each run with its kernel.
fn watched<'a>(kernels: &Kernels<'a>, set: &Set) -> impl Iterator<Item = (usize, &'a Run)> {
    let mut before = 0_u64;
    kernels.runs(set).take_while(move |(_, run)| {
        let is_near = before < MAX_WATCHED;
        before = before.saturating_add(run.count);
        is_near
    })
}

/// Which invocations of the chosen kernels are captured, by their numbers from 1, and how many launches that are. A number
/// counts for every kernel.
///
/// `max` launches at most, of those that may be watched: the first of those sizes that hold most of the time, and each
/// kernel at least once.
fn invocations(kernels: &Kernels, chosen: &Set, max: u64) -> (BTreeSet<u64>, u64) {
    let groups: HashMap<usize, &Group> = kernels.sizes(chosen).collect();
    // Launches of each kernel, and the number of each size's first.
    let (mut launches, mut firsts) = (BTreeMap::new(), HashMap::new());
    for (kernel, run) in watched(kernels, chosen) {
        let so_far: &mut u64 = launches.entry(kernel).or_default();
        firsts.entry(run.group).or_insert((kernel, *so_far + 1));
        *so_far = so_far.saturating_add(run.count);
    }
    for &kernel in chosen {
        // Its place in the order was not kept, but there is one.
        launches.entry(kernel).or_insert_with(|| {
            let alone = Set::from([kernel]);
            firsts.extend(kernels.sizes(&alone).next().map(|(group, _)| (group, (kernel, 1))));
            1
        });
    }
    let mut sizes: Vec<(u64, usize, u64)> =
        firsts.into_iter().map(|(group, (kernel, number))| (groups[&group].total_ns, kernel, number)).collect();
    sizes.sort_by_key(|&(total_ns, kernel, number)| (std::cmp::Reverse(total_ns), number, kernel));

    let captured =
        |numbers: &BTreeSet<u64>| launches.values().map(|&count| numbers.range(..=count).count() as u64).sum::<u64>();
    let mut seen = Set::new();
    let heaviest = sizes.iter().filter(|(_, kernel, _)| seen.insert(*kernel)).map(|&(_, _, number)| number);
    let mut numbers: BTreeSet<u64> = heaviest.collect();
    if captured(&numbers) > max {
        numbers = BTreeSet::from([1]);
    }
    for (_, _, number) in sizes {
        if numbers.insert(number) && captured(&numbers) > max {
            numbers.remove(&number);
        }
    }
    let count = captured(&numbers);
    (numbers, count)
}

/// The launches with these numbers, of the kernels of these names or of each; `count` of them. By default `ncu` counts
/// invocations by the function's name alone, in which all instances of a template are one kernel.
fn by_invocation(names: &str, numbers: &str, count: u64) -> Vec<String> {
    let id = format!("::{names}:{numbers}");
    [["--kernel-name-base", "mangled", "--kernel-id", &id].map(str::to_owned).to_vec(), count_option(count)].concat()
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

fn count_option(count: u64) -> Vec<String> {
    vec!["--launch-count".to_owned(), count.to_string()]
}

#[cfg(test)]
mod tests;
