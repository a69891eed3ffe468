//! The catalog over a small checkout written for the test.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

const PROFILES: &str = "from torch.cuda.nvtx import range as nvtx_range\n\
                        if mode == \"profile\":\n    with nvtx_range(\"custom_kernel\"):\n        run()\n";
const OWN_PROFILER: &str = "from torch.profiler import profile\nif mode == \"profile\":\n    run()\n";

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn task(evaluator: &str, benchmark: &str) -> String {
    format!(
        "# a comment\nfiles:\n  - {{\"name\": \"submission.py\", \"source\": \"@SUBMISSION@\"}}\n  - {{\"name\": \"utils.py\", \
         \"source\": \"../../shared/utils.py\"}}\n  - {{\"name\": \"eval.py\", \"source\": \"{evaluator}\"}}\n\nlang: \
         \"py\"\n\ndescription: |\n  Text with: colons, `ticks` and {{braces}}.\n\nconfig:\n  main: \"eval.py\"\n\n\
         benchmarks:\n  - {benchmark}\n"
    )
}

fn checkout() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(
        root,
        "algebra.yaml",
        "name: Algebra\nproblems:\n  - {directory: algebra/qr_py, name: qr}\n  - {directory: algebra/qr_v2, name: qr_v2}\n  \
         - {directory: algebra/gone, name: gone}\n  - just a word\n",
    );
    write(root, "basics.yaml", "problems:\n  - {directory: basics/sort_py, name: sort-dev}\n");
    write(root, "zzz.yaml", "problems: {\n");
    write(root, "shared/utils.py", "");
    write(root, "algebra/eval.py", PROFILES);
    write(root, "algebra/qr_py/task.yml", &task("../eval.py", r#"{"n": 32, "batch": 20}"#));
    write(root, "algebra/qr_v2/task.yml", &task("../eval.py", r#"{"batch": 20, "n": 32, "full": True}"#));
    write(root, "basics/eval.py", OWN_PROFILER);
    write(root, "basics/sort_py/task.yml", &task("../eval.py", r#"{"size": 10}"#));
    dir
}

fn catalog(dir: &TempDir) -> Catalog {
    Catalog::new(dir.path().to_owned())
}

#[test]
fn a_problem_is_found_by_leaderboard_and_by_folder() {
    let dir = checkout();
    let catalog = catalog(&dir);
    let problem = catalog.problem("qr_v2").unwrap();
    assert_eq!(problem.directory, "algebra/qr_v2");
    assert_eq!(problem.benchmarks[0].spec(), "batch: 20; n: 32; full: True");
    let sources: Vec<Option<&str>> = problem.files.iter().map(|file| file.source.as_deref()).collect();
    assert_eq!(sources, [None, Some("shared/utils.py"), Some("algebra/eval.py")]);
    assert_eq!(catalog.problem("algebra/qr_v2").unwrap(), problem);
    assert_eq!(catalog.leaderboards().keys().collect::<Vec<_>>(), ["gone", "qr", "qr_v2", "sort-dev"]);
}

#[test]
fn each_refusal_is_one_sentence_for_its_reader() {
    let dir = checkout();
    let catalog = catalog(&dir);
    let sentence = |name: &str| catalog.problem(name).unwrap_err().to_string();
    assert_eq!(sentence("qr_v3"), r#"There is no leaderboard "qr_v3"; did you mean qr_v2 or qr?"#);
    assert_eq!(sentence("sort"), r#"There is no leaderboard "sort"; did you mean sort-dev?"#);
    assert_eq!(sentence("attention"), r#"There is no leaderboard "attention"; check its name."#);
    assert_eq!(
        sentence("sort-dev"),
        "Leaderboard \"sort-dev\" cannot be profiled: its evaluator marks no NVTX range custom_kernel, choose a problem \
         whose evaluator profiles with Nsight Compute."
    );
    assert_eq!(
        sentence("gone"),
        r#"The files of leaderboard "gone" are broken on the profiling host: tell its operator."#
    );
    let ProblemError::Broken { detail, .. } = catalog.problem("gone").unwrap_err() else { panic!("not broken") };
    assert!(detail.contains("algebra/gone/task.yml"), "{detail}");
}

#[test]
fn names_that_are_paths_or_huge_find_nothing() {
    let dir = checkout();
    let catalog = catalog(&dir);
    for name in ["", ".", "..", "../..", "/etc", "algebra", "algebra/eval.py", "algebra/qr_v2/../qr_v2", "qr\0"] {
        assert!(matches!(catalog.problem(name), Err(ProblemError::Unknown { .. })), "{name:?}");
    }
    let sentence = catalog.problem(&"é".repeat(1_000_000)).unwrap_err().to_string();
    assert!(sentence.len() < 400, "{} bytes", sentence.len());
}

#[test]
fn a_changed_checkout_is_seen_without_a_restart() {
    let dir = checkout();
    let catalog = catalog(&dir);
    let before = catalog.problem("qr").unwrap();
    assert!(std::sync::Arc::ptr_eq(&before, &catalog.problem("qr").unwrap()), "nothing changed, nothing is read");

    write(dir.path(), "algebra/qr_py/task.yml", &task("../eval.py", r#"{"n": 64, "batch": 20}"#));
    assert_eq!(catalog.problem("qr").unwrap().benchmarks[0].spec(), "n: 64; batch: 20");

    write(dir.path(), "algebra/eval.py", OWN_PROFILER);
    assert!(matches!(catalog.problem("qr"), Err(ProblemError::NotProfilable(_))));
    write(dir.path(), "algebra/eval.py", PROFILES);
    assert!(catalog.problem("qr").is_ok());

    write(dir.path(), "algebra/gone/task.yml", &task("../eval.py", r#"{"n": 1}"#));
    assert!(matches!(catalog.problem("gone"), Ok(problem) if problem.directory == "algebra/gone"));
    fs::remove_file(dir.path().join("algebra/gone/task.yml")).unwrap();
    assert!(matches!(catalog.problem("gone"), Err(ProblemError::Broken { .. })));

    write(dir.path(), "new.yaml", "problems:\n  - {directory: algebra/qr_v2, name: another}\n");
    assert_eq!(catalog.problem("another").unwrap().directory, "algebra/qr_v2");
    fs::remove_file(dir.path().join("algebra.yaml")).unwrap();
    assert!(matches!(catalog.problem("qr"), Err(ProblemError::Unknown { .. })));
}

#[test]
fn a_pinned_catalog_stays_with_its_folder_when_the_link_to_it_is_turned() {
    let (old, new, links) = (checkout(), checkout(), tempfile::tempdir().unwrap());
    write(new.path(), "algebra/qr_py/task.yml", &task("../eval.py", r#"{"n": 64, "batch": 20}"#));
    let (link, turned) = (links.path().join("problems"), links.path().join("turned"));
    std::os::unix::fs::symlink(old.path(), &link).unwrap();
    let catalog = std::sync::Arc::new(Catalog::new(link.clone()));
    let pinned = catalog.pinned().unwrap();
    std::os::unix::fs::symlink(new.path(), &turned).unwrap();
    fs::rename(&turned, &link).unwrap();
    let spec = |catalog: &Catalog| catalog.problem("qr").unwrap().benchmarks[0].spec();
    assert_eq!((spec(&pinned).as_str(), spec(&catalog).as_str()), ("n: 32; batch: 20", "n: 64; batch: 20"));
    // Where no link leads there, what was read stays known.
    assert!(std::sync::Arc::ptr_eq(&pinned, &pinned.pinned().unwrap()));
}

#[test]
fn a_problems_directory_that_is_not_there_is_the_operators_fault() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::new(dir.path().join("missing"));
    assert!(matches!(catalog.problem("qr"), Err(ProblemError::Broken { .. })));
    assert!(catalog.leaderboards().is_empty());
    assert_eq!(catalog.revision(), Revision::default());
}

#[test]
fn a_catalog_is_shared_between_threads() {
    let dir = checkout();
    let catalog = catalog(&dir);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(|| (0..50).all(|_| catalog.problem("qr").is_ok()))).collect();
        assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
    });
}
