//! Reads `launches.csv`: what share of the time each kernel has. A submission's own process wrote what it was made of.

use std::collections::HashMap;
use std::io::Read;

use serde::{Deserialize, Serialize};

use super::{Size, short_name, size};

/// Rows that are read; the longest come first.
const MAX_ROWS: usize = 65_536;
/// Bytes of names that are remembered.
const MAX_BYTES: usize = 16 << 20;

/// All launches of one kernel with one launch size, in an undisturbed run with clocks that are not locked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimeShare {
    /// How many.
    pub launches: u64,
    /// Their time together on the GPU.
    pub total_ns: u64,
    /// Their part of the time of all launches in the range, from 0 to 1.
    pub share: f64,
}

/// The table, by what a launch in a report can be found with.
#[derive(Debug, Default)]
pub struct Overview(HashMap<(String, Size, Size), Vec<(String, TimeShare)>>);

impl Overview {
    /// Reads the table. What cannot be read is not there: the digest does without.
    #[must_use]
    pub fn read(table: impl Read) -> Self {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(table);
        let Ok(headers) = reader.byte_headers().cloned() else { return Self::default() };
        let column = |name: &str| headers.iter().position(|header| header == name.as_bytes());
        let columns = (|| {
            Some((
                column("Kernel Name")?,
                column("Grid Size")?,
                column("Block Size")?,
                column("Launches")?,
                column("Total Duration (ns)")?,
                column("Share of Duration")?,
            ))
        })();
        let Some((name, grid, block, launches, total, share)) = columns else { return Self::default() };
        let (mut found, mut bytes_left) = (Self::default(), MAX_BYTES);
        let mut row = csv::ByteRecord::new();
        for _ in 0..MAX_ROWS {
            if !reader.read_byte_record(&mut row).unwrap_or(false) {
                break;
            }
            let cell = |at: usize| String::from_utf8_lossy(row.get(at).unwrap_or_default());
            let name = cell(name);
            // The table guards names that a spreadsheet would take for a formula.
            let name = name.strip_prefix('\'').unwrap_or(&name);
            let share = cell(share).parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
            let (Some(grid), Some(block), Ok(launches), Ok(total_ns), Some(share)) =
                (size(&cell(grid)), size(&cell(block)), cell(launches).parse(), cell(total).parse(), share)
            else {
                continue;
            };
            let Some(left) = bytes_left.checked_sub(name.len()) else { break };
            bytes_left = left;
            let entry = found.0.entry((short_name(name), grid, block)).or_default();
            entry.push((compact(name), TimeShare { launches, total_ns, share }));
        }
        found
    }

    /// What is known of a launch's kernel and size. The two programs spell a long name differently, so the function's own name
    /// counts where only one kernel of that name has the launch size; `None` where nobody can tell.
    #[must_use]
    pub fn of(&self, name: &str, grid: Size, block: Size) -> Option<TimeShare> {
        let same = self.0.get(&(short_name(name), grid, block))?;
        if let [(_, only)] = &same[..] {
            return Some(*only);
        }
        let name = compact(name);
        same.iter().find(|(other, _)| *other == name).map(|&(_, time)| time)
    }
}

/// A name without the spaces that programs set differently.
fn compact(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace()).collect()
}
