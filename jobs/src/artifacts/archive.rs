//! One zip a shape: exactly the files a reader needs, streamed from disk, each name once.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Cursor, Write as _};
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

/// How much is read or written at once, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Deflate's effort: docs/performance.md has the measurement that chose it.
const LEVEL: i64 = 5;
/// What of a large file is deflated to see whether that pays: pieces of this size, in bytes, from its beginning, middle and end.
const SAMPLE_BYTES: usize = 64 << 10;

/// Writes an archive; small text first, so that a reader who streams it sees that early.
pub fn write(path: &Path, entries: Vec<Entry>) -> Result<()> {
    let file = File::create_new(path).map_err(Error::io(format!("making the archive {}", path.display())))?;
    let mut zip = ZipWriter::new(BufWriter::with_capacity(BUFFER_BYTES, file));
    for Entry { name, content } in entries {
        let action = || format!("writing {name} into the archive");
        match content {
            Content::Bytes(bytes) => {
                zip.start_file(name, deflated())?;
                zip.write_all(&bytes).map_err(Error::io(action()))?;
            }
            Content::Collected(file) => {
                let options = if shrinks(&file)? { deflated() } else { stored() };
                zip.start_file(name, options.large_file(file.size_bytes() > MAX_PLAIN_BYTES))?;
                // A reader of its own: what copies through the kernel would not count what is read.
                io::copy(&mut BufReader::with_capacity(BUFFER_BYTES, file), &mut zip).map_err(Error::io(action()))?;
            }
        }
    }
    let file = zip.finish()?.into_inner().map_err(|error| Error::io("ending the archive")(error.into_error()))?;
    file.sync_all().map_err(Error::io("ending the archive"))
}

fn deflated() -> SimpleFileOptions {
    stored().compression_method(CompressionMethod::Deflated).compression_level(Some(LEVEL))
}

fn stored() -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(CompressionMethod::Stored).unix_permissions(0o644)
}

/// Whether deflate takes at least a thirty-second off a file, going by samples of one that is large. What is packed already would
/// only cost its reader time.
fn shrinks(file: &CollectedFile) -> Result<bool> {
    let piece = SAMPLE_BYTES as u64;
    let Some(last) = file.size_bytes().checked_sub(3 * piece) else { return Ok(true) };
    let mut sample = vec![0; 3 * SAMPLE_BYTES];
    let mut filled = 0;
    for (place, buffer) in (0..).zip(sample.chunks_mut(SAMPLE_BYTES)) {
        filled +=
            file.sample(place * (last / 2 + piece), buffer).map_err(Error::io("sampling a file for the archive"))?;
    }
    let mut trial = ZipWriter::new(Cursor::new(Vec::new()));
    trial.start_file("", deflated())?;
    trial.write_all(&sample).map_err(Error::io("deflating a sample"))?;
    let deflated = trial.finish()?.into_inner().len();
    Ok(deflated < filled - filled / 32)
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
    fn what_deflate_cannot_shrink_is_stored_and_the_rest_is_deflated() {
        let folder = tempfile::tempdir().unwrap();
        // Of a multiplier that is no pattern to deflate.
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(1 << 20)
        .collect();
        let table = "sm__inst_executed.sum,1024\n".repeat(1 << 15).into_bytes();
        // As a report is whose middle is packed and whose ends are not.
        let mixed = [&table[..], &noise, &table].concat();
        let path = folder.path().join("a.zip");
        let names = ["noise", "table", "mixed"];
        let contents = [&noise, &table, &mixed];
        let entries = names.iter().zip(contents).map(|(name, content)| {
            std::fs::write(folder.path().join(name), content).unwrap();
            let file = TakenDir(folder.path()).open_file(name, 1 << 30).unwrap();
            Entry { name, content: Content::Collected(file) }
        });
        write(&path, entries.collect()).unwrap();

        let mut archive = zip::ZipArchive::new(File::open(&path).unwrap()).unwrap();
        for (name, method) in [
            ("noise", CompressionMethod::Stored),
            ("table", CompressionMethod::Deflated),
            ("mixed", CompressionMethod::Deflated),
        ] {
            let mut entry = archive.by_name(name).unwrap();
            assert_eq!(entry.compression(), method, "{name}");
            let mut content = Vec::new();
            io::Read::read_to_end(&mut entry, &mut content).unwrap();
            assert_eq!(content, std::fs::read(folder.path().join(name)).unwrap(), "{name}");
        }
    }

    #[test]
    fn the_same_name_twice_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let twice = || Entry { name: "benchmark.json", content: Content::Bytes(Vec::new()) };
        assert!(write(&folder.path().join("a.zip"), vec![twice(), twice()]).is_err());
    }
}
