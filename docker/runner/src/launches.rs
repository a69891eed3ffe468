//! The overview as people read it: a table of every kernel, and a short version for the outcome.

use std::fs::File;
use std::io::BufWriter;
use std::panic;
use std::path::Path;

use cpp_demangle::{DemangleOptions, Symbol};
use ncu_runner::protocol::{KernelTime, Overview};

use crate::files;
use crate::selection::{Kernels, share};
use crate::trace::{Group, Trace};
use crate::trouble::{Result, Trouble};

/// Characters of a name that is shown.
const MAX_SHOWN_CHARS: usize = 300;
/// Bytes of a name that is demangled. Substitutions can make a short name endless, hence the next limit too.
const MAX_MANGLED_BYTES: usize = 4096;
/// Bytes of a demangled name in the table.
const MAX_DEMANGLED_BYTES: usize = 4 << 10;
/// Bytes of names in the table, after which it ends.
const MAX_TABLE_BYTES: usize = 16 << 20;
/// What stands for launches that had no room of their own.
const OTHERS: &str = "(other kernels)";

const HEADER: [&str; 9] = [
    "Kernel Name",
    "Grid Size",
    "Block Size",
    "Launches",
    "Total Duration (ns)",
    "Share of Duration",
    "Mean Duration (ns)",
    "Clock Control",
    "Mangled Name",
];

/// What the trace comes to, in short; `None` when it holds no launch.
pub fn summary(trace: &Trace) -> Option<Overview> {
    let (all, total_ns) = (Kernels::new(trace).all, trace.total_ns());
    let named = |name: &[u8]| shortened(&shown(name));
    (!all.is_empty()).then(|| Overview {
        launches: trace.launches(),
        kernels: all.len() as u64,
        total_ns,
        clock_control: Overview::CLOCK_CONTROL,
        top: all
            .iter()
            .take(Overview::MAX_TOP)
            .map(|kernel| KernelTime {
                kernel: named(kernel.name),
                count: kernel.count,
                total_ns: kernel.total_ns,
                share: share(kernel.total_ns, total_ns),
            })
            .collect(),
        is_partial: trace.is_partial,
    })
}

/// Writes the table: one row for each kernel and launch size, the longest first.
pub fn write_table(trace: &Trace, path: &Path) -> Result<()> {
    let about = |error: csv::Error| Trouble::at("writing", path, error);
    let mut groups: Vec<&Group> = trace.groups.iter().filter(|group| group.count > 0).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.total_ns));
    let total_ns = trace.total_ns();
    let file: BufWriter<File> = BufWriter::new(files::create_new(path)?);
    let mut table = csv::WriterBuilder::new().quote_style(csv::QuoteStyle::NonNumeric).from_writer(file);
    table.write_record(HEADER).map_err(about)?;
    let mut bytes = 0;
    for group in groups {
        let row = [
            cell(shown(&group.name)),
            size(group.grid),
            size(group.block),
            group.count.to_string(),
            group.total_ns.to_string(),
            format!("{:.6}", share(group.total_ns, total_ns)),
            (group.total_ns / group.count.max(1)).to_string(),
            Overview::CLOCK_CONTROL.as_str().to_owned(),
            cell(printable(&group.name)),
        ];
        bytes += row.iter().map(String::len).sum::<usize>();
        if bytes > MAX_TABLE_BYTES {
            break;
        }
        table.write_record(&row).map_err(about)?;
    }
    table.flush().map_err(|error| Trouble::at("writing", path, error))
}

fn size(three: [u32; 3]) -> String {
    format!("({}, {}, {})", three[0], three[1], three[2])
}

/// A name for a reader: demangled where that is possible.
fn shown(name: &[u8]) -> String {
    match name {
        [] => OTHERS.to_owned(),
        [b'_', b'Z', ..] if name.len() <= MAX_MANGLED_BYTES => demangled(name).unwrap_or_else(|| printable(name)),
        _ => printable(name),
    }
}

/// `None` for a name that is not well formed, or too long in plain words.
fn demangled(name: &[u8]) -> Option<String> {
    // A fault in the parser must not cost the capture: the name was the submission's to choose.
    let parsed = panic::catch_unwind(|| {
        let symbol = Symbol::new(name).ok()?;
        let mut text = Bounded(String::new());
        symbol.structured_demangle(&mut text, &DemangleOptions::default()).ok()?;
        Some(text.0)
    });
    parsed.ok().flatten().map(|text| printable(text.as_bytes()))
}

/// Text that refuses to grow beyond its limit.
struct Bounded(String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > MAX_DEMANGLED_BYTES {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Control characters out: terminals and spreadsheets obey them.
fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A name that a spreadsheet does not take for a formula; no compiler makes one.
fn cell(name: String) -> String {
    if name.starts_with(['=', '+', '-', '@']) { format!("'{name}") } else { name }
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &[u8], count: u64, total_ns: u64) -> Group {
        Group { name: name.to_vec(), grid: [2, 3, 1], block: [128, 1, 1], count, total_ns }
    }

    #[test]
    fn the_table_survives_every_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("launches.csv");
        let groups = vec![
            group(b"a\"b,c\nd", 1, 10),
            group(b"_Z3addPfi", 2, 80),
            group(b"\xff;=1+1", 1, 10),
            group(b"=1+1", 1, 0),
            group(b"idle", 0, 0),
        ];
        write_table(&Trace { groups, ..Trace::default() }, &path).unwrap();

        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "\"Kernel Name\",\"Grid Size\",\"Block Size\",\"Launches\",\"Total Duration (ns)\",\"Share of Duration\",\"Mean Duration (ns)\",\"Clock Control\",\"Mangled Name\"\n\
             \"add(float*, int)\",\"(2, 3, 1)\",\"(128, 1, 1)\",2,80,0.800000,40,\"none\",\"_Z3addPfi\"\n\
             \"a\"\"b,c d\",\"(2, 3, 1)\",\"(128, 1, 1)\",1,10,0.100000,10,\"none\",\"a\"\"b,c d\"\n\
             \"\u{fffd};=1+1\",\"(2, 3, 1)\",\"(128, 1, 1)\",1,10,0.100000,10,\"none\",\"\u{fffd};=1+1\"\n\
             \"'=1+1\",\"(2, 3, 1)\",\"(128, 1, 1)\",1,0,0.000000,0,\"none\",\"'=1+1\"\n"
        );
    }

    #[test]
    fn the_summary_holds_the_longest_kernels_whatever_their_launch_size() {
        let mut groups: Vec<Group> = (0..8_u8).map(|index| group(&[b'a' + index], 1, index.into())).collect();
        groups.push(Group { grid: [9, 9, 9], ..group(b"a", 3, 972) });
        let overview = summary(&Trace { groups, ..Trace::default() }).unwrap();
        assert_eq!((overview.launches, overview.kernels, overview.total_ns), (11, 8, 1000));
        assert_eq!(overview.top.len(), Overview::MAX_TOP);
        let first = KernelTime { kernel: "a".to_owned(), count: 4, total_ns: 972, share: 0.972 };
        assert_eq!(overview.top[0], first);
        assert_eq!(summary(&Trace::default()), None);
    }

    #[test]
    fn a_name_that_would_be_endless_in_plain_words_stays_mangled() {
        // Each substitution doubles what stands before it.
        let bomb = format!("_Z1fI{}E", "St4pairI".to_owned() + &"S_S_".repeat(200));
        assert_eq!(shown(bomb.as_bytes()), bomb);
        assert_eq!(shown(b"_Zgarbage"), "_Zgarbage");
        assert_eq!(shown(&[b'k'; 9000]).len(), 9000);
        assert_eq!(shortened(&"é".repeat(301)), format!("{}…", "é".repeat(300)));
        assert_eq!(shown(b""), OTHERS);
    }
}
