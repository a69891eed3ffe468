//! One file of a stored zip, without the whole: the zip's table and the file are read by ranges of the object, and unpacked as
//! they come.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use zip::ZipArchive;

use super::ArtifactStore;
use crate::{Error, Result};

/// What is read of an object at a time, and held of it, in bytes.
const BLOCK_BYTES: u64 = 256 << 10;
/// What is unpacked at a time, in bytes; two of these may wait for the client.
const CHUNK_BYTES: usize = 64 << 10;
const WAITING_CHUNKS: usize = 2;

/// A file of a zip.
#[derive(Debug)]
pub struct ZipEntry {
    /// Its size, unpacked, in bytes.
    pub bytes: u64,
    content: mpsc::Receiver<Result<Bytes>>,
}

impl ZipEntry {
    /// Its content.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        stream::unfold(self.content, async |mut content| Some((content.recv().await?, content)))
    }
}

impl ArtifactStore {
    /// Opens a file of the zip at that path, of that size. `None` where the zip's table names no such file; the name is compared,
    /// and no path is made of it.
    pub async fn entry(&self, path: &str, bytes: u64, name: &str) -> Result<Option<ZipEntry>> {
        let location = Path::parse(path).map_err(object_store::Error::from)?;
        let object = Object {
            store: Arc::clone(&self.store),
            location,
            bytes,
            position: 0,
            block: None,
            runtime: Handle::current(),
        };
        let (found, opened) = oneshot::channel();
        let name = name.to_owned();
        tokio::task::spawn_blocking(move || unpack(object, &name, found));
        opened.await.map_err(|_| Error::Internal("reading a zip panicked".to_owned()))?
    }
}

/// Says what is found, then unpacks it until nobody takes it any more.
fn unpack(object: Object, name: &str, found: oneshot::Sender<Result<Option<ZipEntry>>>) {
    let mut archive = match ZipArchive::new(object) {
        Ok(archive) => archive,
        Err(error) => return drop(found.send(Err(error.into()))),
    };
    let Some(index) = archive.index_for_name(name) else { return drop(found.send(Ok(None))) };
    let mut file = match archive.by_index(index) {
        Ok(file) if file.is_file() => file,
        Ok(_) => return drop(found.send(Ok(None))),
        Err(error) => return drop(found.send(Err(error.into()))),
    };
    let (sender, content) = mpsc::channel(WAITING_CHUNKS);
    if found.send(Ok(Some(ZipEntry { bytes: file.size(), content }))).is_err() {
        return;
    }
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let read = (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
        let chunk = match read {
            Ok(0) => return,
            Ok(_) => Ok(Bytes::from(chunk)),
            Err(error) => Err(Error::io("unpacking a file of a zip")(error)),
        };
        let is_over = chunk.is_err();
        if sender.blocking_send(chunk).is_err() || is_over {
            return;
        }
    }
}

/// A stored object as a file, read a block at a time.
struct Object {
    store: Arc<dyn ObjectStore>,
    location: Path,
    bytes: u64,
    position: u64,
    block: Option<(Range<u64>, Bytes)>,
    runtime: Handle,
}

impl Object {
    /// What there is of the object from the position on, as far as one block goes.
    fn here(&mut self) -> io::Result<&[u8]> {
        let has_it = self.block.as_ref().is_some_and(|(range, _)| range.contains(&self.position));
        if !has_it && self.position < self.bytes {
            let start = self.position / BLOCK_BYTES * BLOCK_BYTES;
            let range = start..self.bytes.min(start + BLOCK_BYTES);
            let asked = self.store.get_range(&self.location, range.clone());
            let content = self.runtime.block_on(asked).map_err(io::Error::other)?;
            self.block = Some((range, content));
        }
        let Some((range, content)) = self.block.as_ref().filter(|_| self.position < self.bytes) else { return Ok(&[]) };
        let offset = usize::try_from(self.position - range.start).map_err(io::Error::other)?;
        Ok(content.get(offset..).unwrap_or_default())
    }
}

impl Read for Object {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.here()?.read(buffer)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Object {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.bytes.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use futures_util::TryStreamExt as _;
    use url::Url;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// A store with one zip that holds a large file that does not pack, and small ones; the zip's size.
    async fn stored(folder: &std::path::Path) -> (ArtifactStore, u64, Vec<u8>) {
        let next = |&n: &u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let large: Vec<u8> = std::iter::successors(Some(1), next).map(|n| (n >> 56) as u8).take(3_000_000).collect();
        let path = folder.join("a.zip");
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        let options = SimpleFileOptions::default();
        for (name, content) in [("empty.txt", &b""[..]), ("deep/er/large.bin", &large), ("../../up.txt", b"up")] {
            zip.start_file(name, options).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.add_directory("folder", options).unwrap();
        zip.finish().unwrap();
        let store = ArtifactStore::open(&Url::from_directory_path(folder.join("store")).unwrap()).unwrap();
        let stored = store.put_file("jobs/1/a.zip", &path).await.unwrap();
        (store, stored.bytes, large)
    }

    #[tokio::test]
    async fn one_file_comes_whole_whatever_else_the_zip_holds() {
        let folder = tempfile::tempdir().unwrap();
        let (store, bytes, large) = stored(folder.path()).await;
        for (name, expected) in [("empty.txt", &b""[..]), ("deep/er/large.bin", &large), ("../../up.txt", b"up")] {
            let entry = store.entry("jobs/1/a.zip", bytes, name).await.unwrap().unwrap();
            assert_eq!(entry.bytes, expected.len() as u64);
            let chunks: Vec<Bytes> = entry.into_stream().try_collect().await.unwrap();
            assert!(chunks.concat() == expected, "{name}");
        }
        for name in ["", "large.bin", "deep", "deep/er/large.bin/", "folder", "folder/", "/etc/passwd", "up.txt"] {
            assert!(store.entry("jobs/1/a.zip", bytes, name).await.unwrap().is_none(), "{name}");
        }
    }

    #[tokio::test]
    async fn what_nobody_takes_is_not_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let (store, bytes, _) = stored(folder.path()).await;
        let entry = store.entry("jobs/1/a.zip", bytes, "deep/er/large.bin").await.unwrap().unwrap();
        let waiting = entry.content.max_capacity() * CHUNK_BYTES;
        assert!(waiting < 1 << 20, "{waiting} bytes wait for a client");
        drop(entry);
        assert!(store.entry("jobs/1/missing.zip", bytes, "empty.txt").await.is_err());
    }
}
