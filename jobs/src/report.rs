//! Reads the CSV export of a report as far as a verdict needs it: how many launches it holds, and whether any counter is
//! a number. The export comes from a parser that read a hostile report, so nothing in it is trusted to be well-formed.

use std::collections::BTreeSet;
use std::io::Read;

/// The section whose metrics are all measured. Others also hold facts of the launch or the device, which are there
/// however blind the profiler was.
const COUNTER_SECTION: &[u8] = b"GPU Speed Of Light Throughput";

/// What a report holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportSummary {
    /// Kernel launches in it.
    pub launches: u32,
    /// Launches with at least one counter that is a finite number.
    pub measured_launches: u32,
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
    let (id, section, value) = (column("ID")?, column("Section Name")?, column("Metric Value")?);

    let (mut launches, mut measured) = (BTreeSet::new(), BTreeSet::new());
    let mut row = csv::ByteRecord::new();
    while reader.read_byte_record(&mut row)? {
        let Some(launch) = row.get(id).and_then(|id| std::str::from_utf8(id).ok()?.parse::<u32>().ok()) else {
            continue;
        };
        launches.insert(launch);
        if row.get(section) == Some(COUNTER_SECTION) && row.get(value).is_some_and(is_finite) {
            measured.insert(launch);
        }
    }
    let count = |set: BTreeSet<u32>| u32::try_from(set.len()).unwrap_or(u32::MAX);
    Ok(ReportSummary { launches: count(launches), measured_launches: count(measured) })
}

/// Whether a metric's text is a finite number. `ncu` groups digits with commas and writes `n/a` or `nan` where it has none.
fn is_finite(text: &[u8]) -> bool {
    let digits: String = text.iter().filter(|&&byte| byte != b',').map(|&byte| char::from(byte)).collect();
    digits.trim().parse::<f64>().is_ok_and(f64::is_finite)
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

    #[test]
    fn launches_and_measured_launches_are_counted_once_each() {
        let rows = [row("0", LIGHT, "4,792.5"), row("0", LIGHT, "12"), row("1", LIGHT, "n/a")].concat();
        assert_eq!(summary(&rows), ReportSummary { launches: 2, measured_launches: 1 });
    }

    #[test]
    fn a_fact_of_the_launch_is_no_counter() {
        let rows =
            [row("0", LIGHT, "nan"), row("0", "Launch Statistics", "128"), row("0", "Occupancy", "100")].concat();
        assert_eq!(summary(&rows), ReportSummary { launches: 1, measured_launches: 0 });
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
        assert_eq!(summarise(&export[..]).unwrap(), ReportSummary { launches: 2, measured_launches: 1 });
    }
}
