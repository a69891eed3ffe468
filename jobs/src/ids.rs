//! Identifiers: a job, an attempt's token, and who owns a job.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A job's id: 32 hexadecimal digits on the wire, a UUID in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobId(pub Uuid);

impl JobId {
    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}

/// The text is not a job id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job id is 32 hexadecimal digits")]
pub struct InvalidJobId;

impl FromStr for JobId {
    type Err = InvalidJobId;

    fn from_str(text: &str) -> Result<Self, InvalidJobId> {
        // Uuid's own parser takes five spellings; a job has one.
        if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(InvalidJobId);
        }
        Uuid::try_parse(text).map(Self).map_err(|_| InvalidJobId)
    }
}

/// Who owns a job: a digest of the client's credential, which itself is never stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 32]);

impl Owner {
    /// The owner behind a credential.
    #[must_use]
    pub fn from_credential(credential: &str) -> Self {
        let mut hash = Sha256::new();
        // The prefix keeps the digest apart from a plain hash that another system may hold of the same credential.
        hash.update(b"ncu-service owner\0");
        hash.update(credential.as_bytes());
        Self(hash.finalize().into())
    }

    /// The owner of a digest from the database.
    pub(crate) fn decode(digest: &[u8]) -> Result<Self, sqlx::Error> {
        digest.try_into().map(Self).map_err(|error: std::array::TryFromSliceError| sqlx::Error::Decode(error.into()))
    }

    /// The digest as the database holds it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Six bytes tell owners apart in a log and are of no use to anyone else.
        write!(f, "Owner({})", hex::encode(&self.0[..6]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_has_one_spelling() {
        let id = JobId::random();
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "xyz", &id.0.hyphenated().to_string(), &id.to_string().to_uppercase()] {
            // A random id without any letter has no upper-case twin.
            if *wrong != id.to_string() {
                assert_eq!(wrong.parse::<JobId>(), Err(InvalidJobId), "{wrong}");
            }
        }
    }

    #[test]
    fn an_owner_never_shows_the_credential() {
        let owner = Owner::from_credential("secret-cli-id");
        assert!(!format!("{owner:?}").contains("secret"));
        assert_ne!(owner, Owner::from_credential("secret-cli-id2"));
    }
}
