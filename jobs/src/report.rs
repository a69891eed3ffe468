//! Reads the CSV export of a report as far as a verdict needs it: how many launches it holds, and whether any counter is
//! a number. The export comes from a parser that read a hostile report, so nothing in it is trusted to be well-formed.

use std::collections::BTreeSet;
use std::io::Read;

use crate::digest::number::{Kind, Quantity, quantity};

/// The section whose metrics are all measured. Others also hold facts of the launch or the device, which are there
/// however blind the profiler was.
const COUNTER_SECTION: &[u8] = b"GPU Speed Of Light Throughput";

/// The clocks that the profiler measured, by the names of their metrics.
const CLOCKS: [&[u8]; 2] = [b"SM Frequency", b"DRAM Frequency"];

/// What a report holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportSummary {
    /// Kernel launches in it.
    pub launches: u32,
    /// Launches with at least one counter that is a finite number.
    pub measured_launches: u32,
    /// Clock of the multiprocessors over all launches.
    pub sm_clock: Option<ClockRange>,
    /// Clock of the memory over all launches.
    pub memory_clock: Option<ClockRange>,
}

/// The clocks of several launches, in MHz.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct ClockRange {
    /// The lowest.
    pub min_mhz: f64,
    /// The highest.
    pub max_mhz: f64,
}

impl ClockRange {
    fn with(range: Option<Self>, mhz: f64) -> Self {
        let Self { min_mhz, max_mhz } = range.unwrap_or(Self { min_mhz: mhz, max_mhz: mhz });
        Self { min_mhz: min_mhz.min(mhz), max_mhz: max_mhz.max(mhz) }
    }
}

/// The export is no table of metrics.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The rows do not parse.
    #[error("csv: {0}")]
    Csv(#[from] csv::Error),
    /// The header has no such column.
    #[error("no column {0:?}")]
    NoColumn(&'static str),
}

/// Summarises an export made with `ncu --page details --csv`. An export without rows is a report without launches.
pub fn summarise(export: impl Read) -> Result<ReportSummary, ReportError> {
    // Only a prefix of the columns is filled in some rows.
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(export);
    let headers = reader.byte_headers()?.clone();
    if headers.is_empty() {
        return Ok(ReportSummary::default());
    }
    let column = |name: &'static str| {
        headers.iter().position(|header| header == name.as_bytes()).ok_or(ReportError::NoColumn(name))
    };
    let (id, section) = (column("ID")?, column("Section Name")?);
    let (metric, unit, value) = (column("Metric Name")?, column("Metric Unit")?, column("Metric Value")?);

    let (mut launches, mut measured) = (BTreeSet::new(), BTreeSet::new());
    let mut clocks = [None; CLOCKS.len()];
    let mut row = csv::ByteRecord::new();
    while reader.read_byte_record(&mut row)? {
        let Some(launch) = row.get(id).and_then(|id| std::str::from_utf8(id).ok()?.parse::<u32>().ok()) else {
            continue;
        };
        launches.insert(launch);
        if row.get(section) != Some(COUNTER_SECTION) {
            continue;
        }
        let cell = |at| row.get(at).and_then(|cell| std::str::from_utf8(cell).ok());
        let Some(number) = cell(value).and_then(|value| quantity(value, cell(unit).unwrap_or_default())) else {
            continue;
        };
        measured.insert(launch);
        let clock = CLOCKS.iter().position(|&name| row.get(metric) == Some(name));
        if let (Some(clock), Quantity { value: hertz, kind: Kind::Frequency }) = (clock, number) {
            clocks[clock] = Some(ClockRange::with(clocks[clock], hertz / 1e6));
        }
    }
    let count = |set: BTreeSet<u32>| u32::try_from(set.len()).unwrap_or(u32::MAX);
    let [sm_clock, memory_clock] = clocks;
    Ok(ReportSummary { launches: count(launches), measured_launches: count(measured), sm_clock, memory_clock })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#""ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name""#;
    const LIGHT: &str = "GPU Speed Of Light Throughput";

    fn row(id: &str, section: &str, value: &str) -> String {
        format!("\"{id}\",\"a, b\",\"{section}\",\"Duration\",\"us\",\"{value}\",\n")
    }

    fn summary(rows: &str) -> ReportSummary {
        summarise(format!("{HEADER}\n{rows}").as_bytes()).unwrap()
    }

    fn counted(launches: u32, measured_launches: u32) -> ReportSummary {
        ReportSummary { launches, measured_launches, ..ReportSummary::default() }
    }

    #[test]
    fn clocks_are_a_range_over_all_launches_in_one_unit() {
        let clock = |id: u32, name: &str, unit: &str, value: &str| {
            format!("\"{id}\",\"k\",\"{LIGHT}\",\"{name}\",\"{unit}\",\"{value}\",\n")
        };
        let rows = [
            clock(0, "SM Frequency", "Ghz", "1.31"),
            clock(1, "SM Frequency", "Mhz", "345.5"),
            clock(1, "SM Frequency", "parsecs", "9"),
            clock(1, "DRAM Frequency", "Ghz", "3.20"),
            clock(2, "DRAM Frequency", "Ghz", "nan"),
            clock(2, "DRAM Frequency", "Ghz", "1e308"),
        ];
        let found = summary(&rows.concat());
        assert_eq!(found.sm_clock, Some(ClockRange { min_mhz: 345.5, max_mhz: 1310.0 }));
        assert_eq!(found.memory_clock, Some(ClockRange { min_mhz: 3200.0, max_mhz: 3200.0 }));
        assert_eq!(summary(&row("0", LIGHT, "1")).sm_clock, None);
    }

    #[test]
    fn launches_and_measured_launches_are_counted_once_each() {
        let rows = [row("0", LIGHT, "4,792.5"), row("0", LIGHT, "12"), row("1", LIGHT, "n/a")].concat();
        assert_eq!(summary(&rows), counted(2, 1));
    }

    #[test]
    fn a_fact_of_the_launch_is_no_counter() {
        let rows =
            [row("0", LIGHT, "nan"), row("0", "Launch Statistics", "128"), row("0", "Occupancy", "100")].concat();
        assert_eq!(summary(&rows), counted(1, 0));
    }

    #[test]
    fn a_counter_that_is_no_finite_number_measures_nothing() {
        for value in ["nan", "-nan", "inf", "n/a", "", "NaN", "1e999", "abc", "(80, 1, 1)"] {
            assert_eq!(summary(&row("0", LIGHT, value)).measured_launches, 0, "{value}");
        }
        for value in ["0", "0.00", "-3", "1,234,567", "4e3"] {
            assert_eq!(summary(&row("0", LIGHT, value)).measured_launches, 1, "{value}");
        }
    }

    #[test]
    fn an_export_without_launches_is_empty_and_a_foreign_table_is_an_error() {
        assert_eq!(summarise(&b""[..]).unwrap(), ReportSummary::default());
        assert_eq!(summary(""), ReportSummary::default());
        assert!(matches!(summarise(&b"a,b\n1,2\n"[..]), Err(ReportError::NoColumn("ID"))));
    }

    #[test]
    fn odd_bytes_do_not_stop_the_count() {
        let mut export = format!("{HEADER}\n{}", row("9999999999999", LIGHT, "1")).into_bytes();
        export.extend(format!("\"0\",\"{}\",\"{LIGHT}\",\"m\",\"u\",\"1\",\n\"0\"\n", '\u{fffd}').bytes());
        // Not UTF-8 from here on.
        export.extend(b"\"1\",\"\xff\xfe\",\"x\",\"m\",\"u\",\"1\",\n");
        assert_eq!(summarise(&export[..]).unwrap(), counted(2, 1));
    }
}
