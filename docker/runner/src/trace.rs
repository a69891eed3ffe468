//! What the launch tracer saw. Its files are written by the submission's process and so hostile: parsed with caps, and
//! nothing in them is more than a name, a size or a count.

use std::fs;
use std::path::Path;

use ncu_runner::protocol::Stuck;

use crate::files;
use crate::trouble::Result;

/// Files that are read: one a process that used CUDA.
const MAX_FILES: usize = 16;
/// Largest file, in bytes. The tracer keeps 2 MiB of names, which escaping can make three times as long.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Lines of a file; the tracer writes 4,097 kernels and 65,536 runs at most.
const MAX_LINES: usize = 100_000;

/// Launches in the range, of all processes together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// One entry for each kernel and launch size.
    pub groups: Vec<Group>,
    /// Launches in order, as far as the tracer kept the order.
    pub runs: Vec<Run>,
    /// Whether launches were lost or had no room of their own.
    pub is_partial: bool,
    /// The processes that have entered the range.
    pub entered: Vec<Entered>,
}

/// A process that has entered the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered {
    /// Its id.
    pub process: u32,
    /// How often.
    pub times: u32,
    /// Whether it has not left the range again.
    pub is_inside: bool,
}

/// Launches of one kernel with one launch size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The name as the compiler wrote it; empty for what had no room of its own.
    pub name: Vec<u8>,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Launches in the range.
    pub count: u64,
    /// Their time on the GPU, in nanoseconds.
    pub total_ns: u64,
}

/// Launches in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of their group.
    pub group: usize,
    /// How many.
    pub count: u64,
}

impl Trace {
    /// What the files of a folder come to; a file that is not as the tracer writes it counts for nothing.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut trace = Self::default();
        for content in files::read_all(folder, MAX_FILES, MAX_FILE_BYTES)? {
            if let Some(one) = parse(&content) {
                trace.append(one);
            }
        }
        Ok(trace)
    }

    /// Where the program hangs, asked while it runs; `None` when that is outside of the range, as far as the tracer knows.
    ///
    /// Warm calls leave the range and enter it again, so with them the submission's own calls also lie between the two.
    pub fn stuck(&self, has_warm_calls: bool) -> Option<Stuck> {
        let (alive, gone): (Vec<&Entered>, Vec<&Entered>) =
            self.entered.iter().partition(|entered| is_alive(entered.process));
        if alive.iter().any(|entered| entered.is_inside || (has_warm_calls && entered.times == 1)) {
            return Some(Stuck::InRange);
        }
        // An exception that ends the process leaves the range first.
        (alive.is_empty() && !gone.is_empty()).then_some(Stuck::Died)
    }

    /// Launches in the range.
    pub fn launches(&self) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.count))
    }

    /// Their time on the GPU, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.total_ns))
    }

    fn append(&mut self, other: Self) {
        let offset = self.groups.len();
        self.groups.extend(other.groups);
        self.runs.extend(other.runs.into_iter().map(|run| Run { group: run.group + offset, ..run }));
        self.is_partial |= other.is_partial;
        self.entered.extend(other.entered);
    }
}

/// Whether there is a process of that id that has not ended.
fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state stands behind the name, which can hold anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Reads one file; `None` where it is not as the tracer writes it.
pub fn parse(content: &[u8]) -> Option<Trace> {
    let text = std::str::from_utf8(content).ok()?;
    let mut lines = text.lines().take(MAX_LINES);
    if lines.next()? != "launches 2" {
        return None;
    }
    let process: u32 = lines.next()?.strip_prefix("process ")?.parse().ok()?;
    let lost: u64 = lines.next()?.strip_prefix("lost ")?.parse().ok()?;
    let (entered, left) = lines.next()?.strip_prefix("range ")?.split_once(' ')?;
    let (times, left): (u32, u32) = (entered.parse().ok()?, left.parse().ok()?);
    let is_inside = times.checked_sub(left)? > 0;
    let entered = (times > 0).then_some(Entered { process, times, is_inside });
    let mut trace = Trace { is_partial: lost > 0, entered: entered.into_iter().collect(), ..Trace::default() };
    for line in lines {
        let mut words = line.split(' ');
        match words.next()? {
            "kernel" => {
                let (count, total_ns) = totals(&mut words)?;
                let (grid, block) = (three(&mut words)?, three(&mut words)?);
                trace.groups.push(Group { name: unescaped(words.next()?)?, grid, block, count, total_ns });
            }
            "other" => {
                let (count, total_ns) = totals(&mut words)?;
                trace.is_partial |= count > 0;
                trace.groups.push(Group { name: Vec::new(), grid: [0; 3], block: [0; 3], count, total_ns });
            }
            "run" => {
                let run = Run { group: words.next()?.parse().ok()?, count: words.next()?.parse().ok()? };
                trace.groups.get(run.group)?;
                trace.runs.push(run);
            }
            "end" => return Some(trace),
            _ => return None,
        }
        if words.next().is_some() {
            return None;
        }
    }
    None
}

/// Launches in the range and their time; those outside of it are for people who read the file.
fn totals<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(u64, u64)> {
    let mut number = || words.next()?.parse::<u64>().ok();
    let (inside, _outside, total_ns) = (number()?, number()?, number()?);
    Some((inside, total_ns))
}

fn three<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<[u32; 3]> {
    let mut number = || words.next()?.parse().ok();
    Some([number()?, number()?, number()?])
}

/// Undoes the tracer's `%XX`.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut name = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let value = digit()? * 16 + digit()?;
            name.push(u8::try_from(value).ok()?);
        } else {
            name.push(byte);
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "launches 2\nprocess 7\nlost 0\nrange 2 2\nkernel 2 7 300 4 1 1 128 1 1 _Z3addv\nkernel 1 0 50 1 1 1 32 1 1 a%0Ab%25\n\
                        other 0 0 0\nrun 0 2\nrun 1 1\nend\n";

    #[test]
    fn a_file_of_the_tracer_is_read_whole() {
        let trace = parse(GOOD.as_bytes()).unwrap();
        assert_eq!((trace.launches(), trace.total_ns(), trace.is_partial), (3, 350, false));
        let add = Group { name: b"_Z3addv".to_vec(), grid: [4, 1, 1], block: [128, 1, 1], count: 2, total_ns: 300 };
        assert_eq!(trace.groups[0], add);
        assert_eq!(trace.groups[1].name, b"a\nb%");
        assert_eq!(trace.runs, [Run { group: 0, count: 2 }, Run { group: 1, count: 1 }]);
    }

    #[test]
    fn a_file_that_is_cut_or_forged_counts_for_nothing() {
        for (from, to) in [
            ("launches 2", "launches 1"),
            ("launches 2", "launches 3"),
            ("process 7", "process -7"),
            ("process 7\n", ""),
            ("range 2 2", "range 2 3"),
            ("range 2 2", "range 2"),
            ("range 2 2", "range 2 2 0"),
            ("end\n", ""),
            ("run 0 2", "run 3 2"),
            ("run 0 2", "run -1 2"),
            ("run 0 2", "--kernel-name x"),
            ("kernel 2 7 300 4", "kernel 2 7 300"),
            ("128 1 1 _Z3addv", "128 1 1 _Z3addv --help"),
            ("a%0Ab%25", "a%"),
            ("a%0Ab%25", "a%zz"),
            ("lost 0", "lost 99999999999999999999"),
        ] {
            assert_eq!(parse(GOOD.replace(from, to).as_bytes()), None, "{to}");
        }
        assert_eq!(parse(b"\xff"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_range_that_is_not_left_is_told_with_whether_its_process_lives() {
        let with = |process: u32, range: &str| {
            let file = GOOD.replace("process 7", &format!("process {process}")).replace("range 2 2", range);
            parse(file.as_bytes()).unwrap()
        };
        let (mine, nobodys) = (std::process::id(), u32::MAX);
        assert_eq!(with(mine, "range 2 2").stuck(false), None);
        assert_eq!(with(mine, "range 0 0").stuck(false), None);
        assert_eq!(with(mine, "range 1 1").stuck(true), Some(Stuck::InRange), "a warm call");
        assert_eq!(with(mine, "range 2 2").stuck(true), None);
        assert_eq!(with(mine, "range 2 1").stuck(false), Some(Stuck::InRange));
        assert_eq!(with(nobodys, "range 2 1").stuck(false), Some(Stuck::Died));
        assert_eq!(with(nobodys, "range 1 1").stuck(false), Some(Stuck::Died), "an exception leaves the range first");
        assert_eq!(with(nobodys, "range 0 0").stuck(false), None);
        let mut both = with(nobodys, "range 1 0");
        both.append(with(mine, "range 1 0"));
        assert_eq!(both.stuck(false), Some(Stuck::InRange), "one that lives is what is waited for");
        let mut both = with(nobodys, "range 1 1");
        both.append(with(mine, "range 1 1"));
        assert_eq!(both.stuck(false), None, "whoever lives is waited for outside of the range");
    }

    #[test]
    fn sums_of_forged_numbers_do_not_overflow() {
        let forged = GOOD.replace("2 7 300", &format!("{0} 7 {0}", u64::MAX));
        let trace = parse(forged.as_bytes()).unwrap();
        assert_eq!((trace.launches(), trace.total_ns()), (u64::MAX, u64::MAX));
    }
}
