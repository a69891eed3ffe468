//! One zip a shape: exactly the files a reader needs, streamed from disk, each name once.

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::collect::CollectedFile;
use crate::{Error, Result};

/// Where an entry's bytes come from.
#[derive(Debug)]
pub enum Content {
    /// Written by us, small.
    Bytes(Vec<u8>),
    /// Made in a container, with a cap of its own.
    Collected(CollectedFile),
}

/// One file of an archive.
#[derive(Debug)]
pub struct Entry {
    /// Its name: ours, never one that a container chose.
    pub name: &'static str,
    /// Its bytes.
    pub content: Content,
}

impl Entry {
    /// An entry of JSON that a person can read.
    pub fn json(name: &'static str, value: &impl serde::Serialize) -> Result<Self> {
        Ok(Self { name, content: Content::Bytes(serde_json::to_vec_pretty(value)?) })
    }
}

/// Largest entry that the plain format of zips can hold, in bytes, less what deflate can add to what it cannot pack. A larger
/// one needs a longer header, which the oldest readers do not know.
const MAX_PLAIN_BYTES: u64 = (u32::MAX as u64) - (1 << 24);

/// Writes an archive; small text first, so that a reader who streams it sees that early.
pub fn write(path: &Path, entries: Vec<Entry>) -> Result<()> {
    let file = File::create_new(path).map_err(Error::io(format!("making the archive {}", path.display())))?;
    let mut zip = ZipWriter::new(BufWriter::new(file));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated).unix_permissions(0o644);
    for Entry { name, content } in entries {
        let is_large = matches!(&content, Content::Collected(file) if file.size_bytes() > MAX_PLAIN_BYTES);
        zip.start_file(name, options.large_file(is_large))?;
        let copied = match content {
            Content::Bytes(bytes) => io::copy(&mut bytes.as_slice(), &mut zip),
            Content::Collected(file) => io::copy(&mut BufReader::new(file), &mut zip),
        };
        copied.map_err(Error::io(format!("writing {name} into the archive")))?;
    }
    let file = zip.finish()?.into_inner().map_err(|error| Error::io("ending the archive")(error.into_error()))?;
    file.sync_all().map_err(Error::io("ending the archive"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::TakenDir;

    #[test]
    fn an_archive_holds_its_entries_in_order() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("report"), [7; 100]).unwrap();
        let report = TakenDir(folder.path()).open_file("report", 100).unwrap();
        let path = folder.path().join("a.zip");
        let entries = vec![
            Entry { name: "benchmark.json", content: Content::Bytes(b"{}".to_vec()) },
            Entry { name: "profile/profile.ncu-rep", content: Content::Collected(report) },
        ];
        write(&path, entries).unwrap();

        let mut archive = zip::ZipArchive::new(File::open(&path).unwrap()).unwrap();
        let names: Vec<_> =
            (0..archive.len()).map(|index| archive.by_index(index).unwrap().name().unwrap().into_owned()).collect();
        assert_eq!(names, ["benchmark.json", "profile/profile.ncu-rep"]);
        assert_eq!(archive.by_name("profile/profile.ncu-rep").unwrap().size(), 100);
        assert_eq!(archive.by_name("benchmark.json").unwrap().size(), 2);
    }

    #[test]
    fn the_same_name_twice_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let twice = || Entry { name: "benchmark.json", content: Content::Bytes(Vec::new()) };
        assert!(write(&folder.path().join("a.zip"), vec![twice(), twice()]).is_err());
    }
}
