//! Builds the evaluator's folder from the request.

use std::fs;
use std::path::{Component, Path, PathBuf};

use ncu_runner::protocol::{CaptureRequest, TaskFile};

use crate::files;
use crate::layout::Layout;
use crate::trouble::{Result, Trouble};
use crate::warm_calls;

/// The file that holds the shape.
pub const CASES_FILE: &str = "cases.txt";

/// Makes the folder anew: what a step before left in it is moved away.
pub fn work_dir(request: &CaptureRequest, layout: &Layout) -> Result<()> {
    if !request.files.iter().any(|file| file.name == request.main) {
        return Err(Trouble::new(format!("the evaluator {:?} is not among the task's files", request.main)));
    }
    if request.spec.contains('\n') {
        return Err(Trouble::new("the shape is not one line"));
    }
    files::fresh_dir(&layout.work)?;
    for file in &request.files {
        let source = source(file, layout)?;
        let target = layout.work.join(plain_name(&file.name)?);
        fs::copy(&source, &target).map_err(|error| Trouble::at("copying", &source, error))?;
        if file.source.is_none() && request.warm_calls > 0 {
            warm_calls::add(&target, request.warm_calls)?;
        }
    }
    let cases = layout.work.join(CASES_FILE);
    fs::write(&cases, format!("{}\n", request.spec)).map_err(|error| Trouble::at("writing", &cases, error))
}

/// A name that stays in its folder.
fn plain_name(name: &str) -> Result<&str> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        // The comparison refuses "a/", which has one component too.
        (Some(Component::Normal(part)), None) if part == name && !name.starts_with('-') => Ok(name),
        _ => Err(Trouble::new(format!("{name:?} is not a plain file name"))),
    }
}

fn source(file: &TaskFile, layout: &Layout) -> Result<PathBuf> {
    let Some(source) = &file.source else { return Ok(layout.submission.clone()) };
    let relative = Path::new(source);
    let stays = !source.is_empty() && relative.components().all(|part| matches!(part, Component::Normal(_)));
    if stays {
        Ok(layout.problems.join(relative))
    } else {
        Err(Trouble::new(format!("{source:?} is not a path inside the problems directory")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_enter_the_evaluators_folder() {
        for name in ["eval.py", "..py", ".hidden", "a b"] {
            assert_eq!(plain_name(name).unwrap(), name);
        }
        for name in ["", ".", "..", "/eval.py", "a/b", "a/", "./a", "../a", "-c"] {
            assert!(plain_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_source_stays_inside_the_problems_directory() {
        let layout = Layout::beneath(Path::new("/"));
        let resolve = |path: &str| source(&TaskFile { name: "x".into(), source: Some(path.into()) }, &layout);
        assert_eq!(resolve("pmpp/utils.py").unwrap(), Path::new("/problems/pmpp/utils.py"));
        for path in ["", "/etc/passwd", "..", "../x", "pmpp/../../x", "./../x"] {
            assert!(resolve(path).is_err(), "{path:?}");
        }
        let submission = TaskFile { name: "submission.py".into(), source: None };
        assert_eq!(source(&submission, &layout).unwrap(), Path::new("/in/submission.py"));
    }
}
