//! What exactly the evaluator was: a digest of each of its files.

use std::{fs, io};

use ncu_runner::protocol::TaskFile;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Catalog, Revision};

/// A file of the evaluator's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// Its name in that folder.
    pub name: String,
    /// Its path relative to the problems directory.
    pub source: String,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// What of a problem a profile depends on, in one word: the revision of the checkout, and its files.
#[must_use]
pub fn version(revision: &Revision, files: &[FileDigest]) -> String {
    let mut hash = Sha256::new();
    // Debug tells each field apart, whatever stands in it.
    hash.update(format!("{revision:?} {files:?}"));
    hex::encode(hash.finalize())
}

impl Catalog {
    /// The digests of these files, without the submission's.
    pub fn digests(&self, files: &[TaskFile]) -> io::Result<Vec<FileDigest>> {
        let of_problem = files.iter().filter_map(|file| Some((&file.name, file.source.as_ref()?)));
        of_problem
            .map(|(name, source)| {
                let content = fs::read(self.root().join(source))?;
                let sha256 = hex::encode(Sha256::digest(content));
                Ok(FileDigest { name: name.clone(), source: source.clone(), sha256 })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_the_problem_has_a_digest_and_the_submission_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("common")).unwrap();
        std::fs::write(folder.path().join("common/utils.py"), "abc").unwrap();
        let catalog = Catalog::new(folder.path().to_owned());
        let file = |name: &str, source: Option<&str>| TaskFile { name: name.into(), source: source.map(Into::into) };
        let files = [file("submission.py", None), file("utils.py", Some("common/utils.py"))];
        let expected = FileDigest {
            name: "utils.py".to_owned(),
            source: "common/utils.py".to_owned(),
            sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned(),
        };
        assert_eq!(catalog.digests(&files).unwrap(), [expected]);
        assert!(catalog.digests(&[file("gone.py", Some("gone.py"))]).is_err());
    }
}
