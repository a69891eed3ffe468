//! Lets the staged submission call itself before the call that is captured; `warm_calls.py` does it and says how.

use std::fs;
use std::path::Path;

use crate::trouble::{Result, Trouble};

/// The module that does it, beside the submission.
const MODULE_FILE: &str = "ncu_service_warm_calls.py";
const MODULE: &str = include_str!("warm_calls.py");

/// Makes a submission in the evaluator's folder a warm one. Its own lines stay what and where they are.
pub fn add(submission: &Path, calls: u32) -> Result<()> {
    let mut source = fs::read(submission).map_err(|error| Trouble::at("reading", submission, error))?;
    source.extend_from_slice(tail(calls).as_bytes());
    let module = submission.with_file_name(MODULE_FILE);
    for (path, content) in [(submission, source.as_slice()), (&module, MODULE.as_bytes())] {
        fs::write(path, content).map_err(|error| Trouble::at("writing", path, error))?;
    }
    Ok(())
}

/// What comes after the submission's last line, whatever that is. It begins with a line's end, since a last line may have
/// none, and is plain ASCII for any encoding. Its first word of code can belong to no expression and take no decorator, so
/// a source that ends in the middle of something gets the error that it gets without.
fn tail(calls: u32) -> String {
    format!(
        "\n\
         # ---- Appended by ncu-service: warm calls were asked for. All above is the submission as it was sent. ----\n\
         # The first call of custom_kernel first makes {calls} more of it, outside of the range that is captured.\n\
         import ncu_service_warm_calls as _ncu_service_warm_calls\n\
         if \"custom_kernel\" in globals():\n\
         \x20   custom_kernel = _ncu_service_warm_calls.warmed(custom_kernel, calls={calls})\n"
    )
}
