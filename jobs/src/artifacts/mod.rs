//! Where archives are kept: an object store behind a URL, a local folder by default.

pub mod archive;
mod entry;
mod local;
pub mod manifest;

pub use entry::ZipEntry;

use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{Stream, StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use url::Url;

use crate::queue::StoredArtifact;
use crate::{Error, Result};

/// How much of an archive is in memory at once, in bytes; also the size of a part of an S3 upload.
const CHUNK_BYTES: usize = 8 << 20;
/// Where probes are put. One is left there when its process dies in between.
pub const PROBES: &str = "probe/";

/// The artifact store.
#[derive(Debug, Clone)]
pub struct ArtifactStore {
    store: Arc<dyn ObjectStore>,
    /// Where it is a local folder.
    folder: Option<PathBuf>,
}

impl ArtifactStore {
    /// The store behind `file:///folder` (made if it is not there) or `s3://bucket/prefix` (with the usual `AWS_*`
    /// variables).
    pub fn open(url: &Url) -> Result<Self> {
        if url.scheme() == "s3" {
            let bucket = AmazonS3Builder::from_env().with_url(url.as_str()).build()?;
            let prefix = Path::parse(url.path()).map_err(object_store::Error::from)?;
            return Ok(Self { store: Arc::new(PrefixStore::new(bucket, prefix)), folder: None });
        }
        let folder = url.to_file_path().map_err(|()| Error::Io {
            action: "opening the artifact folder".to_owned(),
            source: std::io::Error::other("its URL is no local path"),
        })?;
        std::fs::create_dir_all(&folder)
            .map_err(Error::io(format!("making the artifact folder {}", folder.display())))?;
        // A job is `succeeded` only when its archive survives a power cut, hence the fsync.
        let store = LocalFileSystem::new_with_prefix(&folder)?.with_fsync(true).with_automatic_cleanup(true);
        Ok(Self { store: Arc::new(store), folder: Some(folder) })
    }

    /// Stores a local file, streamed, and reads back its size. The object appears whole or not at all.
    pub async fn put_file(&self, path: &str, file: &FilePath) -> Result<StoredArtifact> {
        let location = Path::parse(path).map_err(object_store::Error::from)?;
        let opening = || Error::io(format!("reading the archive {}", file.display()));
        let mut source = tokio::fs::File::open(file).await.map_err(opening())?;
        let mut writer = BufWriter::with_capacity(Arc::clone(&self.store), location.clone(), CHUNK_BYTES);
        let mut hash = Sha256::new();
        let mut bytes = 0_u64;
        let copied = async {
            loop {
                let mut chunk = Vec::with_capacity(1 << 20);
                if (&mut source).take(1 << 20).read_to_end(&mut chunk).await.map_err(opening())? == 0 {
                    return Ok(());
                }
                hash.update(&chunk);
                bytes += chunk.len() as u64;
                writer.put(Bytes::from(chunk)).await?;
            }
        };
        let copied: Result<()> = copied.await;
        if let Err(error) = copied {
            // The parts of an upload that will not be finished would stay; the first error is the one to report.
            let _ = writer.abort().await;
            return Err(error);
        }
        let finished = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
        finished.map_err(|source| object_store::Error::Generic { store: "artifacts", source: source.into() })?;
        let stored = self.store.head(&location).await?.size;
        if stored != bytes {
            return Err(Error::Io {
                action: format!("storing {path}"),
                source: std::io::Error::other(format!("{stored} of {bytes} bytes arrived")),
            });
        }
        Ok(StoredArtifact { path: path.to_owned(), bytes, sha256: hash.finalize().into() })
    }

    /// Puts a small object, looks at it, reads it back and deletes it: whether the store does all that it is needed for.
    pub async fn probe(&self) -> Result<()> {
        let location = Path::from(format!("{PROBES}{}", uuid::Uuid::new_v4().as_simple()));
        let content = Bytes::from_static(b"ncu-service");
        self.store.put(&location, content.clone().into()).await?;
        let size = self.store.head(&location).await?.size;
        let read = self.store.get(&location).await?.bytes().await?;
        self.store.delete(&location).await?;
        if size != content.len() as u64 || read != content {
            return Err(Error::Io {
                action: "probing the artifact store".to_owned(),
                source: std::io::Error::other("an object came back different"),
            });
        }
        Ok(())
    }

    /// Deletes an object. One that is not there is no error: an earlier try may have gone through.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let location = Path::parse(path).map_err(object_store::Error::from)?;
        match self.store.delete(&location).await {
            Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The objects that were stored before `time`.
    pub async fn older_than(&self, time: DateTime<Utc>) -> Result<Vec<String>> {
        let old = self.store.list(None).try_filter(|object| std::future::ready(object.last_modified < time));
        Ok(old.map_ok(|object| object.location.to_string()).try_collect().await?)
    }

    /// Deletes what uploads of before `time` left that were never finished: a killed process cannot abort its own. Says how
    /// many. In an object store they are the bucket's to expire.
    pub async fn delete_unfinished(&self, time: DateTime<Utc>) -> Result<u64> {
        let Some(folder) = self.folder.clone() else { return Ok(0) };
        tokio::task::spawn_blocking(move || local::delete_unfinished(&folder, time.into()))
            .await
            .map_err(|panic| Error::Internal(format!("deleting unfinished uploads: {panic}")))?
    }

    /// Streams the bytes of an object in that range.
    pub async fn get_range(
        &self,
        path: &str,
        range: Range<u64>,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + 'static> {
        let location = Path::parse(path).map_err(object_store::Error::from)?;
        let options = GetOptions::new().with_range(Some(range));
        Ok(self.store.get_opts(&location, options).await?.into_stream().map(|chunk| chunk.map_err(Error::from)))
    }

    /// Streams an object.
    pub async fn get(&self, path: &str) -> Result<impl Stream<Item = Result<Bytes>> + Send + 'static> {
        let location = Path::parse(path).map_err(object_store::Error::from)?;
        Ok(self.store.get(&location).await?.into_stream().map(|chunk| chunk.map_err(Error::from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(folder: &FilePath) -> ArtifactStore {
        ArtifactStore::open(&Url::from_file_path(folder).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_stored_file_comes_back_byte_for_byte_with_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let store = local(&folder.path().join("new/folder"));
        // More than one chunk, so that the multipart path is the one tested.
        let content: Vec<u8> = (0..=250).cycle().take(CHUNK_BYTES * 2 + 17).collect();
        let file = folder.path().join("source");
        std::fs::write(&file, &content).unwrap();

        let stored = store.put_file("jobs/1/a.zip", &file).await.unwrap();
        assert_eq!((stored.bytes, stored.sha256), (content.len() as u64, Sha256::digest(&content).into()));

        let chunks: Vec<Bytes> = store.get(&stored.path).await.unwrap().map(Result::unwrap).collect().await;
        assert_eq!(chunks.concat(), content);
    }

    #[tokio::test]
    async fn a_probe_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        local(folder.path()).probe().await.unwrap();
        let probes = std::fs::read_dir(folder.path().join("probe"));
        assert_eq!(probes.map_or(0, Iterator::count), 0);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_leaves_no_object() {
        let folder = tempfile::tempdir().unwrap();
        let store = local(folder.path());
        assert!(store.put_file("jobs/1/a.zip", &folder.path().join("missing")).await.is_err());
        assert!(matches!(
            store.get("jobs/1/a.zip").await.err(),
            Some(Error::ArtifactStore(object_store::Error::NotFound { .. }))
        ));
    }

    #[tokio::test]
    async fn a_path_cannot_leave_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = local(&folder.path().join("store"));
        std::fs::write(folder.path().join("secret"), "x").unwrap();
        assert!(store.get("../secret").await.is_err());
    }
}
