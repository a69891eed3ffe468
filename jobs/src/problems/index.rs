//! The competition files `problems/*.yaml`: which leaderboard stands in which folder.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::files::{Stamps, normalise, read_text};
use super::yaml;

/// Longest name of a leaderboard, in bytes; the longest real one has 28.
pub(super) const MAX_NAME_BYTES: usize = 128;

/// Leaderboards and their folders, as far as the files could be read.
#[derive(Debug)]
pub(super) struct Index {
    /// Leaderboard to folder, relative to the problems directory.
    pub(super) directories: BTreeMap<String, String>,
    /// The files that this came from.
    stamps: Stamps,
}

#[derive(Deserialize)]
struct Competition {
    /// Untyped, so that one bad entry does not take its neighbours down.
    problems: Vec<Value>,
}

impl Index {
    /// Reads every competition file. A file or an entry that cannot be used is logged and left out.
    ///
    /// The error, for the operator's log, is that the folder cannot be listed at all.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let stamps = competition_files(root)?;
        let mut directories = BTreeMap::new();
        for path in stamps.paths() {
            let entries = read_text(path).and_then(|text| {
                yaml::parse::<Competition>(&text).map_err(|error| format!("{}: {error}", path.display()))
            });
            match entries {
                Ok(competition) => add_entries(&mut directories, path, &competition.problems),
                Err(error) => tracing::warn!(error, "a competition file is left out"),
            }
        }
        Ok(Self { directories, stamps })
    }

    /// Whether the same files are there, unchanged.
    pub(super) fn is_current(&self, root: &Path) -> bool {
        competition_files(root).is_ok_and(|now| now == self.stamps)
    }

    /// The folder of a leaderboard, or the folder itself where `name` is one that a leaderboard has.
    ///
    /// Only what the files list is found, so a caller's text never becomes a path.
    pub(super) fn directory(&self, name: &str) -> Option<&str> {
        let named = self.directories.get(name);
        named.or_else(|| self.directories.values().find(|directory| *directory == name)).map(String::as_str)
    }

    /// Names close to `wanted`, nearest first, at most five.
    pub(super) fn nearest(&self, wanted: &str) -> Vec<String> {
        if wanted.len() > MAX_NAME_BYTES {
            return Vec::new();
        }
        let wanted = folded(wanted);
        let mut close: Vec<(Closeness, &String)> = self
            .directories
            .iter()
            .filter_map(|(name, directory)| {
                // People also type the folder, or its last part, which differ from the name.
                let last = directory.rsplit('/').next().unwrap_or(directory);
                let candidates = [name.as_str(), directory, last];
                let best = candidates.into_iter().filter_map(|candidate| closeness(&wanted, candidate)).min()?;
                Some((best, name))
            })
            .collect();
        close.sort();
        close.into_iter().take(5).map(|(_, name)| name.clone()).collect()
    }
}

/// The competition files, sorted by name so that the same one always comes first.
fn competition_files(root: &Path) -> Result<Stamps, String> {
    let list = || -> std::io::Result<Vec<_>> {
        std::fs::read_dir(root)?.map(|entry| entry.map(|entry| entry.path())).collect()
    };
    let mut paths = list().map_err(|error| format!("{}: {error}", root.display()))?;
    paths.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // Editors leave hidden copies behind.
        path.extension().is_some_and(|extension| extension == "yaml") && !name.starts_with('.')
    });
    paths.sort();
    let mut stamps = Stamps::default();
    for path in paths {
        stamps.add(path);
    }
    Ok(stamps)
}

fn add_entries(directories: &mut BTreeMap<String, String>, path: &Path, entries: &[Value]) {
    let file = path.display();
    for (position, entry) in entries.iter().enumerate() {
        match name_and_directory(entry) {
            Ok((name, directory)) => {
                if let Some(first) = directories.get(name) {
                    tracing::warn!(%file, name, directory, first, "a leaderboard stands twice, the first entry counts");
                } else {
                    directories.insert(name.to_owned(), directory);
                }
            }
            Err(reason) => tracing::warn!(%file, position, reason, "an entry of a competition file is left out"),
        }
    }
}

fn name_and_directory(entry: &Value) -> Result<(&str, String), &'static str> {
    let text = |key| entry.get(key).and_then(Value::as_str);
    let name = text("name").ok_or("it has no name that is text")?;
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(|c: char| c == '/' || c.is_control()) {
        return Err("its name is empty, too long, or holds a slash or a control character");
    }
    let directory = text("directory").ok_or("it has no directory that is text")?;
    let directory = normalise("", directory).ok_or("its directory is not inside the problems directory")?;
    Ok((name, directory))
}

/// The smaller, the closer: first how many words are shared, then in how many edits the texts differ.
type Closeness = (Reverse<usize>, usize);

/// How close a candidate is to what was typed; `None` where it cannot be meant.
fn closeness(wanted: &str, candidate: &str) -> Option<Closeness> {
    let candidate = folded(candidate);
    let distance = strsim::osa_distance(wanted, &candidate);
    let a_third = (wanted.chars().count().max(candidate.chars().count()) / 3).max(1);
    let shared = words(wanted).intersection(&words(&candidate)).count();
    (shared > 0 || distance <= a_third).then_some((Reverse(shared), distance))
}

fn words(text: &str) -> HashSet<&str> {
    text.split(['_', '/']).filter(|word| word.len() > 1 && !is_suffix(word)).collect()
}

/// Words that stand in many names and so say nothing.
fn is_suffix(word: &str) -> bool {
    matches!(word, "py" | "dev") || word.strip_prefix('v').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

fn folded(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' '], "_")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn index(files: &[(&str, &str)]) -> Index {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Index::read(dir.path()).unwrap()
    }

    fn names(index: &Index) -> Vec<&str> {
        index.directories.keys().map(String::as_str).collect()
    }

    fn of(pairs: &[(&str, &str)]) -> Index {
        let entries: Vec<String> = pairs.iter().map(|(n, d)| format!("{{name: {n}, directory: {d}}}")).collect();
        index(&[("a.yaml", &format!("problems: [{}]\n", entries.join(", ")))])
    }

    #[test]
    fn a_leaderboard_is_found_by_its_name_and_by_its_folder() {
        let index = of(&[("eigh", "linalg/eigh_py"), ("amd-fp8-mm-dev", "amd/fp8-mm/")]);
        assert_eq!(index.directory("eigh"), Some("linalg/eigh_py"));
        assert_eq!(index.directory("linalg/eigh_py"), Some("linalg/eigh_py"));
        assert_eq!(index.directory("amd-fp8-mm-dev"), Some("amd/fp8-mm"));
        for wrong in ["", "linalg", "linalg/eigh_py/", "../eigh_py", "/etc", "Eigh", "a.yaml"] {
            assert_eq!(index.directory(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_bad_file_leaves_the_others_alone() {
        let index = index(&[
            ("a.yaml", "problems: [{name: a"),
            ("b.yaml", "problems:\n- {name: b, directory: b}\n"),
            ("c.yaml", "- a list\n"),
            ("d.yaml", "problems: text\n"),
            ("e.yaml", ""),
            ("f.yml", "problems:\n- {name: f, directory: f}\n"),
            (".g.yaml", "problems:\n- {name: g, directory: g}\n"),
            ("h.yaml", "\u{feff}name: x\r\nproblems:\r\n  - directory: h\r\n    name: h\r\n"),
        ]);
        assert_eq!(names(&index), ["b", "h"]);
    }

    #[test]
    fn a_bad_entry_leaves_the_others_alone() {
        let index = index(&[(
            "a.yaml",
            "problems:\n- text\n- 7\n- [a]\n- null\n- {name: x}\n- {directory: x}\n- {name: [x], directory: x}\n\
             - {name: '', directory: x}\n- {name: a/b, directory: x}\n- {name: \"a\\nb\", directory: x}\n\
             - {name: out, directory: ../out}\n- {name: abs, directory: /etc}\n- {name: here, directory: .}\n\
             - {name: good, directory: good}\n",
        )]);
        assert_eq!(names(&index), ["good"]);
    }

    #[test]
    fn the_first_file_by_name_wins_a_leaderboard_that_stands_twice() {
        let index = index(&[
            ("b.yaml", "problems:\n- {name: x, directory: second}\n"),
            ("a.yaml", "problems:\n- {name: x, directory: first}\n- {name: x, directory: third}\n"),
        ]);
        assert_eq!(index.directory("x"), Some("first"));
    }

    #[test]
    fn near_names_come_nearest_first_and_strangers_do_not() {
        let index = of(&[
            ("qr", "linalg/qr_py"),
            ("qr_v2", "linalg/qr_v2"),
            ("eigh", "linalg/eigh_py"),
            ("amd-fp8-mm", "amd/fp8-mm"),
            ("conv2d", "pmpp/conv2d_py"),
            ("conv2d_v2", "pmpp_v2/conv2d_py"),
            ("sort", "pmpp/sort_py"),
            ("sort_v2", "pmpp_v2/sort_py"),
        ]);
        assert_eq!(index.nearest("qr_v3"), ["qr_v2", "qr"]);
        assert_eq!(index.nearest("QR-V2"), ["qr_v2", "qr"]);
        assert_eq!(index.nearest("eigh_py"), ["eigh"]);
        assert_eq!(index.nearest("amd_fp8_mm"), ["amd-fp8-mm"]);
        assert_eq!(index.nearest("fp8_mm")[0], "amd-fp8-mm");
        assert_eq!(index.nearest("conv2dd")[0], "conv2d");
        assert_eq!(index.nearest("linalg/qr_v3")[0], "qr_v2");
        for stranger in ["", "softmax_attention", "../../etc/passwd", "🦀🦀🦀🦀🦀🦀🦀🦀"] {
            assert_eq!(index.nearest(stranger), [""; 0], "{stranger:?}");
        }
        assert_eq!(index.nearest(&"q".repeat(100_000)), [""; 0]);
    }

    #[test]
    fn a_name_that_shares_more_words_comes_before_one_that_looks_alike() {
        let index = of(&[("amd-moe", "amd/moe"), ("amd-mla-decode", "amd/mla-decode")]);
        assert_eq!(index.nearest("amd-mla"), ["amd-mla-decode", "amd-moe"]);
    }

    #[test]
    fn at_most_five_names_are_offered() {
        let many: Vec<(String, String)> = (0..9).map(|i| (format!("matmul_{i}"), format!("m/{i}"))).collect();
        let pairs: Vec<(&str, &str)> = many.iter().map(|(n, d)| (n.as_str(), d.as_str())).collect();
        assert_eq!(of(&pairs).nearest("matmul_x").len(), 5);
    }
}
