//! Which revision of reference-kernels is checked out, as `git` says it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Revision;

/// How long an answer counts. `/health` is asked often, and a checkout changes a few times a day.
const FRESH_FOR: Duration = Duration::from_secs(5);

/// Asks `git`, and remembers the answer for a few seconds.
#[derive(Debug)]
pub(super) struct RevisionCache {
    root: PathBuf,
    last: Mutex<Option<(Instant, Revision)>>,
}

impl RevisionCache {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, last: Mutex::new(None) }
    }

    /// The revision of at most [`FRESH_FOR`] ago. Callers wait for one another, so `git` runs once for all of them.
    pub(super) fn get(&self) -> Revision {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((asked, revision)) if asked.elapsed() < FRESH_FOR => revision.clone(),
            _ => {
                let revision = ask(&self.root);
                *last = Some((Instant::now(), revision.clone()));
                revision
            }
        }
    }
}

fn ask(root: &Path) -> Revision {
    let commit = output(root, &["rev-parse", "HEAD"]).map(|text| text.trim().to_owned());
    let commit = commit.filter(|text| text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let dirty = commit
        .as_ref()
        .and_then(|_| output(root, &["status", "--porcelain", "--untracked-files=no", "--", "."]))
        .map(|changes| !changes.is_empty());
    Revision { commit, dirty }
}

/// What `git` prints; `None` where it is not installed, or this is no checkout.
fn output(root: &Path, args: &[&str]) -> Option<String> {
    let mut child = Command::new("git")
        .arg("-C")
        .arg(root)
        // The checkout may belong to another user than this process. It is the operator's, yet nothing that its
        // configuration names is to be run for a mere question.
        .args(["-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
        .args(args)
        // Never write to the checkout, not even a refreshed index.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut text = String::new();
    // Drained to its end, or `git` would wait for a reader; a status is a line a changed file.
    let read = child.stdout.take()?.read_to_string(&mut text);
    let status = child.wait().ok()?;
    (read.is_ok() && status.success()).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn git(root: &Path, args: &[&str]) -> String {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").arg("-C").arg(root).args(identity).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn commit_and_dirtiness_of_a_checkout_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let problems = dir.path().join("problems");
        fs::create_dir(&problems).unwrap();
        fs::write(problems.join("a.yaml"), "one\n").unwrap();
        fs::write(dir.path().join("README"), "one\n").unwrap();
        git(dir.path(), &["init", "--quiet"]);
        git(dir.path(), &["add", "."]);
        git(dir.path(), &["commit", "--quiet", "-m", "first"]);
        let commit = Some(git(dir.path(), &["rev-parse", "HEAD"]));
        let clean = Revision { commit: commit.clone(), dirty: Some(false) };
        assert_eq!(ask(&problems), clean);

        fs::write(problems.join("untracked"), "").unwrap();
        fs::write(dir.path().join("README"), "two\n").unwrap();
        assert_eq!(ask(&problems), clean, "neither is a tracked file of the folder");

        fs::write(problems.join("a.yaml"), "two\n").unwrap();
        assert_eq!(ask(&problems), Revision { commit, dirty: Some(true) });
    }

    #[test]
    fn a_folder_that_is_no_checkout_has_no_revision() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ask(dir.path()), Revision::default());
        assert_eq!(ask(&dir.path().join("missing")), Revision::default());
        git(dir.path(), &["init", "--quiet"]);
        assert_eq!(ask(dir.path()), Revision::default(), "a checkout without a commit");
    }

    #[test]
    fn an_answer_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let cache = RevisionCache::new(dir.path().to_owned());
        let known = Revision { commit: Some("c".repeat(40)), dirty: Some(false) };
        *cache.last.lock().unwrap() = Some((Instant::now(), known.clone()));
        assert_eq!(cache.get(), known);
        *cache.last.lock().unwrap() = Instant::now().checked_sub(FRESH_FOR).map(|then| (then, known));
        assert_eq!(cache.get(), Revision::default());
    }
}
