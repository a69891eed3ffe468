//! What holds for every task and competition file: see [`crate::fuzzing`].

#![allow(
    clippy::expect_used,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "what stops here is a finding"
)]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use tempfile::TempDir;

use super::index::Index;
use super::task::{Reading, Refusal};
use crate::fuzzing::is_portable;

/// A problems directory with an evaluator.
static PROBLEMS: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("p/task")).expect("a folder");
    let evaluator = "from torch.cuda import nvtx\nif mode == 'profile':\n    nvtx.range_push('custom_kernel')\n";
    fs::write(folder.path().join("p/eval.py"), evaluator).expect("a file");
    folder
});

/// A `task.yml`, a NUL, and a competition file.
///
/// # Panics
///
/// Where the input is a finding.
pub fn problem(input: &[u8]) {
    let root = PROBLEMS.path();
    let (task, competition) = match input.iter().position(|&byte| byte == 0) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &[][..]),
    };
    fs::write(root.join("p/task/task.yml"), task).expect("a file");
    fs::write(root.join("c.yaml"), competition).expect("a file");
    match Reading::of(root, "p/task").verdict {
        Ok(problem) => {
            assert!(!problem.benchmarks.is_empty() && !problem.benchmark_timeout.is_zero());
            assert!(problem.files.iter().any(|file| file.name == problem.main && file.source.is_some()));
            for file in &problem.files {
                assert!(!file.name.contains('/') && !file.name.is_empty(), "{file:?}");
                assert!(file.source.as_ref().is_none_or(|source| stays_inside(source)), "{file:?}");
            }
            for shape in &problem.benchmarks {
                assert!(!shape.spec().contains(char::is_control), "{shape:?}");
                is_portable(&shape.artifact_name(0));
            }
        }
        Err(Refusal::Broken(detail)) => assert!(!detail.contains('\n'), "{detail:?}"),
        Err(Refusal::NotProfilable(_)) => {}
    }
    let index = Index::read(root).expect("the folder is there");
    for (name, directory) in &index.directories {
        assert!(!name.contains(|c: char| c == '/' || c.is_control()) && !name.is_empty(), "{name:?}");
        assert!(stays_inside(directory), "{directory:?}");
        assert_eq!(index.directory(name), Some(directory.as_str()));
    }
    assert!(index.nearest(&String::from_utf8_lossy(task)).len() <= 5);
}

fn stays_inside(path: &str) -> bool {
    use std::path::Component::Normal;
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Normal(_)))
}
