//! Paths and files of the problems directory: nothing outside it is opened, nothing large is read, and a change shows.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Largest YAML or Python file that is read, in bytes. The real ones stay under 30 kB.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// `relative`, seen from the folder `base`, as a path from the problems directory; `None` where it leaves that.
///
/// Only the text is looked at; symlinks are [`resolve`]'s part.
pub(super) fn normalise(base: &str, relative: &str) -> Option<String> {
    let mut parts = Vec::new();
    for component in Path::new(base).components().chain(Path::new(relative).components()) {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Whether `name` is one plain component of a path.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']) && name.len() <= 255
}

/// Where a normalised path really lies, relative to `root` and free of symlinks.
///
/// An absolute symlink inside the directory thus works in a container too, where the directory is mounted elsewhere.
/// `root` must be canonical. The error is for the operator's log.
pub(super) fn resolve(root: &Path, relative: &str) -> Result<String, String> {
    let real = root.join(relative).canonicalize().map_err(|error| format!("{relative}: {error}"))?;
    let inside = real.strip_prefix(root).map_err(|_| format!("{relative}: leaves the problems directory"))?;
    if !real.is_file() {
        return Err(format!("{relative}: is not a regular file"));
    }
    inside.to_str().map(str::to_owned).ok_or_else(|| format!("{relative}: its path is not UTF-8"))
}

/// The text of a regular file of at most [`MAX_FILE_BYTES`]. The error is for the operator's log.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    let read = || -> std::io::Result<Vec<u8>> {
        // Opening a FIFO would wait for its writer.
        if !path.metadata()?.is_file() {
            return Err(std::io::Error::other("is not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(std::io::Error::other(format!("is larger than {MAX_FILE_BYTES} bytes")));
        }
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("{}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{}: is not UTF-8", path.display()))
}

/// What changes when a file is written, replaced or touched.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// `None` where there is no such file, so that a file that appears is a change too.
    fn of(path: &Path) -> Option<Self> {
        let meta = path.metadata().ok()?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size_bytes: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// The files that a reading came from, as they were just before they were read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

impl Stamps {
    /// Remembers a file. Call it before reading, or a change during the reading goes unseen.
    pub(super) fn add(&mut self, path: PathBuf) {
        let stamp = Stamp::of(&path);
        self.0.push((path, stamp));
    }

    /// The remembered files, in order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(path, _)| path.as_path())
    }

    /// Whether every file is still as it was: one `stat` a file.
    pub(super) fn are_current(&self) -> bool {
        self.0.iter().all(|(path, stamp)| Stamp::of(path) == *stamp)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_normalised_by_its_text_and_never_leaves() {
        assert_eq!(normalise("linalg/qr_v2", "../../pmpp_v2/utils.py").as_deref(), Some("pmpp_v2/utils.py"));
        assert_eq!(normalise("linalg/qr_v2", "./eval.py").as_deref(), Some("linalg/qr_v2/eval.py"));
        assert_eq!(normalise("", "linalg//qr_v2/").as_deref(), Some("linalg/qr_v2"));
        for wrong in ["../../../../etc/passwd", "/etc/passwd", "../../../qr_v2/eval.py", "../..", ""] {
            let base = if wrong.is_empty() { "" } else { "linalg/qr_v2" };
            assert_eq!(normalise(base, wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_one_component_is_a_plain_name() {
        assert!(is_plain_name("eval.py") && is_plain_name("..hidden"));
        for wrong in ["", ".", "..", "a/b", "/a", "a\0b"] {
            assert!(!is_plain_name(wrong), "{wrong:?}");
        }
        assert!(!is_plain_name(&"x".repeat(256)));
    }

    #[test]
    fn symlinks_are_followed_inside_and_refused_outside() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("problems")).unwrap();
        let root = dir.path().join("problems").canonicalize().unwrap();
        fs::write(root.join("real.py"), "").unwrap();
        fs::write(dir.path().join("secret.py"), "").unwrap();
        symlink(root.join("real.py"), root.join("absolute.py")).unwrap();
        symlink("../secret.py", root.join("out.py")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("loop.py", root.join("loop.py")).unwrap();

        assert_eq!(resolve(&root, "absolute.py").as_deref(), Ok("real.py"));
        for (path, expected) in [
            ("out.py", "leaves the problems directory"),
            ("up/secret.py", "leaves the problems directory"),
            ("loop.py", "symbolic links"),
            ("missing.py", "No such file"),
            (".", "not a regular file"),
        ] {
            let error = resolve(&root, path).unwrap_err();
            assert!(error.contains(expected), "{path}: {error}");
        }
    }

    #[test]
    fn large_files_folders_and_other_encodings_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![b'a'; usize::try_from(MAX_FILE_BYTES).unwrap()]).unwrap();
        assert_eq!(read_text(&path).unwrap().len() as u64, MAX_FILE_BYTES);
        fs::write(&path, vec![b'a'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1]).unwrap();
        assert!(read_text(&path).unwrap_err().contains("larger"));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read_text(&path).unwrap_err().contains("UTF-8"));
        assert!(read_text(dir.path()).unwrap_err().contains("regular file"));
        assert!(read_text(Path::new("/dev/zero")).unwrap_err().contains("regular file"));
    }

    #[test]
    fn stamps_see_a_write_a_replacement_and_a_file_that_appears() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let stamps = || {
            let mut stamps = Stamps::default();
            stamps.add(path.clone());
            stamps
        };

        let absent = stamps();
        assert!(absent.are_current());
        fs::write(&path, "one").unwrap();
        assert!(!absent.are_current());

        let written = stamps();
        assert!(written.are_current());
        fs::write(&path, "three").unwrap();
        assert!(!written.are_current());

        let before = stamps();
        let meta = path.metadata().unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "eight").unwrap();
        File::open(&other).unwrap().set_modified(meta.modified().unwrap()).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!before.are_current(), "same size and time, another file");
    }
}
