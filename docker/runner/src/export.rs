//! Turns a report into text and tables. The report is hostile input to `ncu`, hence the container around it.

use std::time::Duration;

use ncu_runner::protocol::{self, ExportRequest, Outcome};

use crate::environment::Environment;
use crate::files;
use crate::layout::Layout;
use crate::probe;
use crate::step::{self, Sinks, Spec};
use crate::streams::{CappedStream, ExportFile};
use crate::trouble::{Result, Trouble};

/// Kept of what the exports write to standard error.
const MAX_STDERR_BYTES: u64 = 64 * 1024;

/// Runs the exports; each also when one before it fails, so that the outcome tells of all.
pub fn run(request: &ExportRequest, layout: &Layout, outcome: &mut Outcome) -> Result<()> {
    let environment = Environment::new(layout)?;
    let ncu = request.text.first().ok_or_else(|| Trouble::new("the request names no ncu"))?;
    outcome.ncu_version = probe::ncu_version(ncu, layout, &environment)?;

    let mut stderr = CappedStream::new(MAX_STDERR_BYTES);
    let exports = [
        ("text", &request.text, protocol::DETAILS_TEXT_FILE),
        ("csv", &request.csv, protocol::DETAILS_CSV_FILE),
        (protocol::RAW_STEP, &request.raw, protocol::RAW_CSV_FILE),
    ];
    for (name, argv, file_name) in exports {
        let path = layout.out.join(file_name);
        let mut export = ExportFile::new(files::create_new(&path)?, request.max_bytes);
        let limit = Duration::from_secs(request.timeout_secs);
        let spec = Spec { name, argv, dir: &layout.tmp, env: environment.for_next_step()?, limit, at_limit: None };
        stderr.mark(name);
        let sinks = Sinks { stdout: &mut export, stderr: &mut stderr, popcorn: None };
        outcome.steps.push(step::run(&spec, sinks)?);
        let stats = export.finish().map_err(|error| Trouble::at("writing", &path, error))?;
        outcome.streams.insert(file_name.to_owned(), stats);
    }

    outcome.streams.insert(protocol::STDERR_FILE.to_owned(), stderr.stats());
    let path = layout.out.join(protocol::STDERR_FILE);
    let mut file = files::create_new(&path)?;
    stderr.write_to(&mut file).map_err(|error| Trouble::at("writing", &path, error))
}
