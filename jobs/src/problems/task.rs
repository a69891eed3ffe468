//! One `task.yml`: the evaluator's files, its shapes and limits, checked so far as that goes without running it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ncu_runner::protocol::TaskFile;
use serde::Deserialize;
use serde_json::Value;

use super::files::{Stamps, is_plain_name, normalise, read_text, resolve};
use super::profilable::{Obstacle, obstacle};
use super::{Problem, Shape, yaml};

/// The source that stands for the submitted file.
const SUBMISSION: &str = "@SUBMISSION@";
/// Longest limit of an evaluator run that is believed, in seconds; the longest real one is 1200.
const MAX_TIMEOUT_SECS: u64 = 24 * 60 * 60;

/// Why a folder gives no problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The rest of a sentence that starts with the leaderboard's name.
    NotProfilable(&'static str),
    /// The operator's fault, for the log.
    Broken(String),
}

impl From<String> for Refusal {
    fn from(detail: String) -> Self {
        Self::Broken(detail)
    }
}

/// What a folder gave, and the files that this depends on.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) verdict: Result<Arc<Problem>, Refusal>,
    pub(super) stamps: Stamps,
}

impl Reading {
    /// Reads the task in `directory`, a normalised path below `root`.
    pub(super) fn of(root: &Path, directory: &str) -> Self {
        let mut stamps = Stamps::default();
        let verdict = read(root, directory, &mut stamps).map(Arc::new);
        Self { verdict, stamps }
    }
}

/// Only what a capture needs; `KernelBot` knows more keys.
#[derive(Deserialize)]
struct Task {
    #[serde(default)]
    files: Vec<File>,
    lang: String,
    #[serde(default)]
    config: Config,
    #[serde(default = "default_timeout_secs")]
    benchmark_timeout: u64,
    #[serde(default)]
    multi_gpu: bool,
}

#[derive(Deserialize)]
struct File {
    name: String,
    source: String,
}

#[derive(Default, Deserialize)]
struct Config {
    main: Option<String>,
}

#[derive(Deserialize)]
struct Benchmarks {
    #[serde(default)]
    benchmarks: Vec<Value>,
}

/// `KernelBot`'s own default.
fn default_timeout_secs() -> u64 {
    180
}

fn read(root: &Path, directory: &str, stamps: &mut Stamps) -> Result<Problem, Refusal> {
    let real_root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let task_file = format!("{directory}/task.yml");
    stamps.add(root.join(&task_file));
    let text = read_text(&real_root.join(resolve(&real_root, &task_file)?))?;
    let broken = |reason: String| format!("{task_file}: {reason}");

    let task: Task = yaml::parse(&text).map_err(broken)?;
    if task.lang != "py" {
        return Err(Refusal::NotProfilable("it is no Python problem, choose one that is"));
    }
    if task.multi_gpu {
        return Err(Refusal::NotProfilable("it needs several GPUs, choose a problem for one GPU"));
    }
    if !(1..=MAX_TIMEOUT_SECS).contains(&task.benchmark_timeout) {
        return Err(broken(format!("benchmark_timeout is not within 1 to {MAX_TIMEOUT_SECS} s")).into());
    }
    let benchmarks = yaml::parse_values(&text, |task: Benchmarks| task.benchmarks).and_then(shapes).map_err(broken)?;
    let files = evaluator_files(&real_root, directory, task.files, stamps).map_err(broken)?;
    let main = task.config.main.unwrap_or_default();
    if !files.iter().any(|file| file.name == main && file.source.is_some()) {
        return Err(broken(format!("config.main {main:?} is none of the task's own files")).into());
    }
    check_evaluator(&real_root, &files)?;
    Ok(Problem {
        directory: directory.to_owned(),
        files,
        main,
        benchmarks,
        benchmark_timeout: Duration::from_secs(task.benchmark_timeout),
    })
}

fn shapes(benchmarks: Vec<Value>) -> Result<Vec<Shape>, String> {
    if benchmarks.is_empty() {
        return Err("there is no benchmark".to_owned());
    }
    let shape = |(index, value)| match value {
        Value::Object(map) if !map.is_empty() => {
            let shape = Shape(map);
            // The evaluator reads one shape a line.
            if shape.spec().contains(char::is_control) {
                return Err(format!("benchmark {index} holds a line break or another control character"));
            }
            Ok(shape)
        }
        _ => Err(format!("benchmark {index} is not a mapping with at least one key")),
    };
    benchmarks.into_iter().enumerate().map(shape).collect()
}

/// The files with their real sources; each source's stamp is remembered.
fn evaluator_files(
    root: &Path,
    directory: &str,
    files: Vec<File>,
    stamps: &mut Stamps,
) -> Result<Vec<TaskFile>, String> {
    let mut names = HashSet::new();
    let mut out = Vec::with_capacity(files.len());
    for File { name, source } in files {
        if !is_plain_name(&name) || !names.insert(name.clone()) {
            return Err(format!("the file name {name:?} is not plain, or stands twice"));
        }
        let source = if source == SUBMISSION {
            None
        } else {
            let path = normalise(directory, &source)
                .ok_or_else(|| format!("the source {source:?} leaves the problems directory"))?;
            stamps.add(root.join(&path));
            Some(resolve(root, &path)?)
        };
        out.push(TaskFile { name, source });
    }
    if out.iter().all(|file| file.source.is_some()) {
        return Err(format!("no file has the source {SUBMISSION}"));
    }
    Ok(out)
}

fn check_evaluator(root: &Path, files: &[TaskFile]) -> Result<(), Refusal> {
    let python = files.iter().filter(|file| Path::new(&file.name).extension().is_some_and(|end| end == "py"));
    let sources: Vec<String> = python
        .filter_map(|file| file.source.as_ref())
        .map(|path| read_text(&root.join(path)))
        .collect::<Result<_, _>>()?;
    match obstacle(sources.iter().map(String::as_str)) {
        None => Ok(()),
        Some(Obstacle::NoProfileMode) => Err(Refusal::NotProfilable(
            "its evaluator has no profile mode, choose a problem whose evaluator profiles with Nsight Compute",
        )),
        Some(Obstacle::NoRange) => Err(Refusal::NotProfilable(
            "its evaluator marks no NVTX range custom_kernel, choose a problem whose evaluator profiles with Nsight \
             Compute",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    const EVALUATOR: &str =
        "from torch.cuda import nvtx\nif mode == 'profile':\n    nvtx.range_push('custom_kernel')\n";
    const FILES: &str =
        "files:\n- {name: submission.py, source: '@SUBMISSION@'}\n- {name: eval.py, source: ../eval.py}\n";
    const REST: &str = "lang: py\nconfig: {main: eval.py}\n";
    const BENCHMARKS: &str =
        "benchmarks:\n- {\"n\": 32, \"batch\": 20, \"flag\": yes, \"m\": [80, [176]]}\n- {n: 64}\n";

    /// A problems directory with an evaluator in `p` and one task in `p/task`.
    fn tree(task: &str) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("problems/p/task")).unwrap();
        fs::write(dir.path().join("problems/p/eval.py"), EVALUATOR).unwrap();
        fs::write(dir.path().join("problems/p/task/task.yml"), task).unwrap();
        fs::write(dir.path().join("outside.py"), EVALUATOR).unwrap();
        dir
    }

    fn verdict(dir: &TempDir) -> Result<Arc<Problem>, Refusal> {
        Reading::of(&dir.path().join("problems"), "p/task").verdict
    }

    fn broken(task: &str) -> String {
        match verdict(&tree(task)) {
            Err(Refusal::Broken(detail)) => detail,
            other => panic!("{task}: {other:?}"),
        }
    }

    #[test]
    fn a_task_is_read_with_its_files_shapes_and_default_limit() {
        let problem = verdict(&tree(&format!("{FILES}{REST}{BENCHMARKS}"))).unwrap();
        assert_eq!((problem.directory.as_str(), problem.main.as_str()), ("p/task", "eval.py"));
        assert_eq!(
            problem.files,
            [
                TaskFile { name: "submission.py".into(), source: None },
                TaskFile { name: "eval.py".into(), source: Some("p/eval.py".into()) }
            ]
        );
        let specs: Vec<String> = problem.benchmarks.iter().map(Shape::spec).collect();
        assert_eq!(specs, ["n: 32; batch: 20; flag: True; m: [80, [176]]", "n: 64"]);
        assert_eq!(problem.benchmark_timeout, Duration::from_mins(3));
    }

    #[test]
    fn a_limit_of_its_own_and_windows_line_ends_are_read() {
        let task = format!("\u{feff}{FILES}{REST}{BENCHMARKS}benchmark_timeout: 600\n").replace('\n', "\r\n");
        assert_eq!(verdict(&tree(&task)).unwrap().benchmark_timeout, Duration::from_mins(10));
        for wrong in ["0", "-1", "soon", "99999999999999999999", "86401"] {
            broken(&format!("{FILES}{REST}{BENCHMARKS}benchmark_timeout: {wrong}\n"));
        }
    }

    #[test]
    fn a_source_may_not_leave_the_problems_directory() {
        for source in ["../../../../etc/passwd", "/etc/passwd", "../../../outside.py", "link.py", "up/outside.py"] {
            let dir = tree(&format!(
                "{REST}{BENCHMARKS}files:\n- {{name: s.py, source: '@SUBMISSION@'}}\n- {{name: eval.py, source: {source}}}\n"
            ));
            symlink("../../../outside.py", dir.path().join("problems/p/task/link.py")).unwrap();
            symlink("../../..", dir.path().join("problems/p/task/up")).unwrap();
            match verdict(&dir) {
                Err(Refusal::Broken(detail)) => assert!(detail.contains("leaves the problems directory"), "{detail}"),
                other => panic!("{source}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_folder_that_is_a_symlink_to_the_outside_gives_no_problem() {
        let dir = tree(&format!("{FILES}{REST}{BENCHMARKS}"));
        fs::rename(dir.path().join("problems/p"), dir.path().join("p")).unwrap();
        symlink("../p", dir.path().join("problems/p")).unwrap();
        assert!(matches!(verdict(&dir), Err(Refusal::Broken(detail)) if detail.contains("leaves")));
    }

    #[test]
    fn broken_files_are_the_operators_fault_and_say_what_is_wrong() {
        for (task, expected) in [
            (String::new(), "task.yml"),
            (format!("{FILES}{BENCHMARKS}config: {{main: eval.py}}\n"), "lang"),
            (format!("{FILES}{REST}"), "no benchmark"),
            (format!("{FILES}{REST}benchmarks: []\n"), "no benchmark"),
            (format!("{FILES}{REST}benchmarks: [{{}}]\n"), "benchmark 0"),
            (format!("{FILES}{REST}benchmarks: [{{n: 1}}, [n, 2]]\n"), "benchmark 1"),
            (format!("{FILES}{REST}benchmarks: [{{n: \"1\\n2\"}}]\n"), "line break"),
            (format!("{FILES}{REST}benchmarks: [{{n: 1, n: 2}}]\n"), "n"),
            (format!("{FILES}{BENCHMARKS}lang: py\n"), "config.main \"\""),
            (format!("{FILES}{BENCHMARKS}lang: py\nconfig: {{main: submission.py}}\n"), "config.main"),
            (format!("{REST}{BENCHMARKS}files: [{{name: eval.py, source: ../eval.py}}]\n"), "@SUBMISSION@"),
            (format!("{REST}{BENCHMARKS}files: [{{name: a/b.py, source: '@SUBMISSION@'}}]\n"), "not plain"),
            (format!("{FILES}- {{name: eval.py, source: ../eval.py}}\n{REST}{BENCHMARKS}"), "stands twice"),
            (format!("{FILES}- {{name: a.py, source: missing.py}}\n{REST}{BENCHMARKS}"), "No such file"),
            (format!("{FILES}- {{name: a.py, source: .}}\n{REST}{BENCHMARKS}"), "not a regular file"),
            (format!("{FILES}{REST}{BENCHMARKS}config:\n\tmain: eval.py\n"), "task.yml"),
        ] {
            let detail = broken(&task);
            assert!(detail.contains(expected), "{task}: {detail}");
        }
    }

    #[test]
    fn other_languages_several_gpus_and_evaluators_without_a_range_cannot_be_profiled() {
        for (task, expected) in [
            (format!("{FILES}lang: cu\nconfig: {{include_dirs: []}}\n{BENCHMARKS}"), "Python"),
            (format!("{FILES}{REST}{BENCHMARKS}multi_gpu: yes\n"), "several GPUs"),
        ] {
            let refusal = verdict(&tree(&task)).unwrap_err();
            assert!(matches!(refusal, Refusal::NotProfilable(text) if text.contains(expected)), "{refusal:?}");
        }
        let dir = tree(&format!("{FILES}{REST}{BENCHMARKS}"));
        for (evaluator, expected) in [("", "no profile mode"), ("mode == 'profile'", "no NVTX range")] {
            fs::write(dir.path().join("problems/p/eval.py"), evaluator).unwrap();
            let refusal = verdict(&dir).unwrap_err();
            assert!(matches!(refusal, Refusal::NotProfilable(text) if text.contains(expected)), "{refusal:?}");
        }
    }
}
