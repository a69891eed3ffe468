//! Reads the raw page (`ncu --page raw --csv --print-units base`): one row a launch, one column a metric, and a row of units
//! below the header. The details page shows neither stall reasons nor pipes nor bytes as numbers; they stand here.

use std::collections::BTreeMap;
use std::io::Read;

use super::number::{self, Kind, Quantity};
use crate::report::ReportError;

/// Launches that are read.
const MAX_LAUNCHES: usize = 128;
/// Columns of metrics that are taken; some forty are wanted.
const MAX_COLUMNS: usize = 128;
/// Longest name of a metric that is wanted, in bytes.
const MAX_NAME_BYTES: usize = 120;

/// What every stall's metric begins and ends with: warps that wait for this reason, on average, in a cycle in which one issues.
pub const STALL: (&str, &str) = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio");
/// The same of a tensor pipe: how busy it is.
pub const TENSOR: (&str, &str) = ("pipe_tensor", ".avg.pct_of_peak_sustained_active");

/// What else is wanted.
const WANTED: [&str; 18] = [
    "dram__bytes.sum.peak_sustained",
    "dram__bytes.sum.per_second",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
    "smsp__cycles_elapsed.avg.per_second",
    "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
    "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum.per_cycle_elapsed",
    "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum.per_cycle_elapsed",
    "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum.per_cycle_elapsed",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed",
    "derived__smsp__sass_thread_inst_executed_op_dfma_pred_on_x2",
    "derived__smsp__sass_thread_inst_executed_op_ffma_pred_on_x2",
    "smsp__average_warp_latency_per_inst_issued.ratio",
];

/// The wanted metrics of one launch.
#[derive(Debug, Default)]
pub struct RawLaunch(BTreeMap<String, Quantity>);

impl RawLaunch {
    /// A metric of that kind.
    #[must_use]
    pub fn get(&self, name: &str, kind: Kind) -> Option<f64> {
        self.0.get(name).filter(|quantity| quantity.kind == kind).map(|quantity| quantity.value)
    }

    /// A metric, whatever its unit is called: that of a ratio has changed between versions.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name).map(|quantity| quantity.value)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, &quantity)| (name.as_str(), quantity))
    }
}

/// Reads a raw page: its launches by their ids.
pub fn read(export: impl Read) -> Result<BTreeMap<u32, RawLaunch>, ReportError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(export);
    let headers = reader.byte_headers()?.clone();
    let mut launches = BTreeMap::new();
    if headers.is_empty() {
        return Ok(launches);
    }
    let id_column = headers.iter().position(|header| header == b"ID").ok_or(ReportError::NoColumn("ID"))?;
    let wanted = headers.iter().enumerate().filter_map(|(at, name)| Some((at, std::str::from_utf8(name).ok()?)));
    let wanted = wanted.filter(|(_, name)| name.len() <= MAX_NAME_BYTES && is_wanted(name)).take(MAX_COLUMNS);
    let mut columns: Vec<(usize, String, String)> =
        wanted.map(|(at, name)| (at, name.to_owned(), String::new())).collect();

    let mut row = csv::ByteRecord::new();
    while launches.len() < MAX_LAUNCHES && reader.read_byte_record(&mut row)? {
        let cell = |at: usize| String::from_utf8_lossy(row.get(at).unwrap_or_default());
        let id = cell(id_column);
        if id.is_empty() {
            for (at, _, unit) in &mut columns {
                *unit = cell(*at).into_owned();
            }
        } else if let Ok(id) = id.parse::<u32>() {
            let metrics = columns.iter().filter_map(|(at, name, unit)| {
                number::quantity(&cell(*at), unit).map(|quantity| (name.clone(), quantity))
            });
            launches.entry(id).or_insert_with(|| RawLaunch(metrics.collect()));
        }
    }
    Ok(launches)
}

fn is_wanted(name: &str) -> bool {
    let is_tensor = name.starts_with("sm__") && name.contains(TENSOR.0) && name.ends_with(TENSOR.1);
    WANTED.contains(&name) || stall_reason(name).is_some() || is_tensor
}

/// The reason in the name of a stall's metric. `selected` is no stall: that warp goes on.
#[must_use]
pub fn stall_reason(name: &str) -> Option<&str> {
    let reason = name.strip_prefix(STALL.0)?.strip_suffix(STALL.1)?;
    let is_plain = reason.len() <= 40 && reason.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_plain && !reason.is_empty() && reason != "selected" && !reason.ends_with("not_issued")).then_some(reason)
}
