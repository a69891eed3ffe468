//! Reads the CSV export (`ncu --page details --csv`): metrics and findings of each launch. It was made of a hostile report, so
//! everything is bounded and nothing is trusted to be well-formed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read;

use serde::{Deserialize, Serialize};

use super::number::{self, Kind, Quantity};
use super::{Size, printable};
use crate::report::ReportError;

/// Launches of which metrics are kept: the first ones.
const MAX_LAUNCHES: usize = 128;
/// Metrics kept of one launch; `ncu` prints some hundred.
const MAX_METRICS: usize = 512;
/// Longest name of a metric, of a section and of a rule that is kept, in characters.
const MAX_NAME_CHARS: usize = 80;
/// Longest text of a finding, in characters; `ncu`'s are at most some 900.
const MAX_TEXT_CHARS: usize = 1200;
/// Findings kept of one launch; `ncu` has some twenty.
const MAX_FINDINGS: usize = 64;
/// What all findings together may take, in bytes.
const MAX_FINDINGS_BYTES: usize = 512 << 10;
/// What a finding takes beside its texts, in bytes.
const FINDING_BYTES: usize = 128;

/// What kind of finding a rule of `ncu` has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum FindingKind {
    /// Something that could be faster.
    Opt,
    /// A doubt about the measurement.
    Wrn,
    /// Something to know.
    Inf,
}

/// What an estimated speed-up is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The kernel's time.
    Global,
    /// The unit that the rule looks at; the kernel gains less.
    Local,
}

/// What a rule of `ncu` says about a launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The rule's name.
    pub rule: String,
    /// Identifier of the section that the rule looks at.
    pub section: String,
    /// By how much the kernel, or a unit of it, could be faster, in percent of its time, as `ncu` estimates.
    pub speedup_percent: Option<f64>,
    /// What the estimate is one of.
    pub speedup_scope: Option<Scope>,
    /// The rule's sentences.
    pub text: String,
}

/// How many findings of each kind there are, those that were left out included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingCounts {
    /// Of kind `OPT`.
    pub opt: u32,
    /// Of kind `WRN`.
    pub wrn: u32,
    /// Of kind `INF`.
    pub inf: u32,
}

impl FindingCounts {
    /// One more of a kind.
    fn add(&mut self, kind: FindingKind) {
        let count = match kind {
            FindingKind::Opt => &mut self.opt,
            FindingKind::Wrn => &mut self.wrn,
            FindingKind::Inf => &mut self.inf,
        };
        *count = count.saturating_add(1);
    }

    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        u64::from(self.opt) + u64::from(self.wrn) + u64::from(self.inf)
    }
}

/// A launch as the export has it.
#[derive(Debug, Default)]
pub struct Launch {
    /// The kernel's name, whole.
    pub name: String,
    /// Blocks.
    pub grid: Option<Size>,
    /// Threads of a block.
    pub block: Option<Size>,
    /// Its device's compute capability.
    pub compute_capability: String,
    metrics: BTreeMap<(String, String), Quantity>,
    /// What the rules say, in the export's order.
    pub findings: Vec<Finding>,
    /// How many there were.
    pub counts: FindingCounts,
}

impl Launch {
    /// A metric, where there is one of that kind.
    #[must_use]
    pub fn get(&self, section: &str, metric: &str, kind: Kind) -> Option<f64> {
        let key = (section.to_owned(), metric.to_owned());
        self.metrics.get(&key).filter(|quantity| quantity.kind == kind).map(|quantity| quantity.value)
    }
}

/// What an export holds.
#[derive(Debug, Default)]
pub struct Details {
    /// Its launches by their ids, as many as are kept.
    pub launches: BTreeMap<u32, Launch>,
    /// Findings of all launches, those that were left out included.
    pub counts: FindingCounts,
}

/// Reads an export. One without rows is a report without launches.
pub fn read(export: impl Read) -> Result<Details, ReportError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(export);
    let headers = reader.byte_headers()?.clone();
    let mut details = Details::default();
    if headers.is_empty() {
        return Ok(details);
    }
    let columns = Columns::find(&headers)?;
    let (mut row, mut bytes_left) = (csv::ByteRecord::new(), MAX_FINDINGS_BYTES);
    while reader.read_byte_record(&mut row)? {
        let cell = |at: Option<usize>| String::from_utf8_lossy(at.and_then(|at| row.get(at)).unwrap_or_default());
        let Ok(id) = cell(Some(columns.id)).parse::<u32>() else { continue };
        let kind = match &*cell(columns.rule_type) {
            "OPT" => Some(FindingKind::Opt),
            "WRN" => Some(FindingKind::Wrn),
            "INF" => Some(FindingKind::Inf),
            _ => None,
        };
        if let Some(kind) = kind {
            details.counts.add(kind);
        }
        let is_full = details.launches.len() >= MAX_LAUNCHES;
        let launch = match details.launches.entry(id) {
            Entry::Occupied(launch) => launch.into_mut(),
            Entry::Vacant(_) if is_full => continue,
            Entry::Vacant(place) => place.insert(Launch {
                name: printable(&cell(columns.kernel), super::MAX_FULL_NAME_CHARS),
                grid: columns.grid.and_then(|at| super::size(&cell(Some(at)))),
                block: columns.block.and_then(|at| super::size(&cell(Some(at)))),
                compute_capability: printable(&cell(columns.compute_capability), 8),
                ..Launch::default()
            }),
        };
        let section = printable(&cell(Some(columns.section)), MAX_NAME_CHARS);
        if let Some(kind) = kind {
            launch.counts.add(kind);
            let text = printable(&cell(columns.rule_text), MAX_TEXT_CHARS);
            let rule = printable(&cell(columns.rule), MAX_NAME_CHARS);
            let bytes = text.len() + rule.len() + section.len() + FINDING_BYTES;
            if launch.findings.len() < MAX_FINDINGS && bytes <= bytes_left {
                bytes_left -= bytes;
                let speedup_percent = number::quantity(&cell(columns.speedup), "%").map(|percent| percent.value);
                launch.findings.push(Finding {
                    kind,
                    rule,
                    section,
                    speedup_percent,
                    speedup_scope: speedup_percent.and_then(|_| match &*cell(columns.speedup_type) {
                        "global" => Some(Scope::Global),
                        "local" => Some(Scope::Local),
                        _ => None,
                    }),
                    text,
                });
            }
        } else if launch.metrics.len() < MAX_METRICS {
            let quantity = number::quantity(&cell(Some(columns.value)), &cell(Some(columns.unit)));
            if let Some(quantity) = quantity {
                let metric = printable(&cell(Some(columns.metric)), MAX_NAME_CHARS);
                // Two values for one metric are a forgery, and the first is as good as the second.
                launch.metrics.entry((section, metric)).or_insert(quantity);
            }
        }
    }
    Ok(details)
}

/// Where what is read stands in a row.
struct Columns {
    id: usize,
    section: usize,
    metric: usize,
    unit: usize,
    value: usize,
    kernel: Option<usize>,
    block: Option<usize>,
    grid: Option<usize>,
    compute_capability: Option<usize>,
    rule: Option<usize>,
    rule_type: Option<usize>,
    rule_text: Option<usize>,
    speedup_type: Option<usize>,
    speedup: Option<usize>,
}

impl Columns {
    fn find(headers: &csv::ByteRecord) -> Result<Self, ReportError> {
        let column = |name: &str| headers.iter().position(|header| header == name.as_bytes());
        let needed = |name: &'static str| column(name).ok_or(ReportError::NoColumn(name));
        Ok(Self {
            id: needed("ID")?,
            section: needed("Section Name")?,
            metric: needed("Metric Name")?,
            unit: needed("Metric Unit")?,
            value: needed("Metric Value")?,
            kernel: column("Kernel Name"),
            block: column("Block Size"),
            grid: column("Grid Size"),
            compute_capability: column("CC"),
            rule: column("Rule Name"),
            rule_type: column("Rule Type"),
            rule_text: column("Rule Description"),
            speedup_type: column("Estimated Speedup Type"),
            speedup: column("Estimated Speedup"),
        })
    }
}
