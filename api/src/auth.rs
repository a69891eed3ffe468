//! Who is calling: the CLI id of a request, and the owner that it stands for. A browser that has signed in may read what is its
//! owner's, with a cookie instead.
//!
//! The id is a credential. It leaves this crate in one direction only, as the header of the question to `KernelBot`;
//! everything else works with the [`Owner`], its digest. Only digests are compared, here and in the database: how long that
//! takes tells of a digest at most, and no id is found from one.

use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use jobs::ids::Owner;

use crate::app::App;
use crate::error::ApiError;
use crate::kernelbot::Verdict;
use crate::page::Visitor;

/// The header that carries the CLI id, here and at `KernelBot`.
pub const CLI_ID_HEADER: &str = "x-popcorn-cli-id";

/// Longest CLI id, in bytes; `KernelBot` hands out far shorter ones.
const MAX_CLI_ID_BYTES: usize = 256;

/// A CLI id in clear. It cannot be printed.
#[derive(Clone)]
pub struct Credential(HeaderValue);

impl Credential {
    /// Takes the CLI id out of a request's headers.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut values = headers.get_all(CLI_ID_HEADER).iter();
        let value = values.next().filter(|value| !value.is_empty()).ok_or(ApiError::NoCredential)?;
        let plain = value.len() <= MAX_CLI_ID_BYTES && value.as_bytes().iter().all(u8::is_ascii_graphic);
        if !plain || values.next().is_some() {
            return Err(ApiError::MalformedCredential);
        }
        let mut value = value.clone();
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Takes a CLI id that somebody has typed.
    pub fn typed(text: &str) -> Result<Self, ApiError> {
        let value = HeaderValue::from_str(text.trim()).map_err(|_| ApiError::MalformedCredential)?;
        Self::from_headers(&HeaderMap::from_iter([(HeaderName::from_static(CLI_ID_HEADER), value)]))
    }

    /// The header value to send to `KernelBot`, marked so that no library prints it.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// The owner that it stands for.
    #[must_use]
    pub fn owner(&self) -> Owner {
        // Only visible ASCII was let in, so the text is always there.
        Owner::from_credential(self.0.to_str().unwrap_or_default())
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(***)")
    }
}

/// Who sent a request.
#[derive(Debug)]
pub struct Caller {
    /// Whose jobs the caller may see.
    pub owner: Owner,
    standing: Standing,
}

/// How a caller has shown who it is.
#[derive(Debug)]
enum Standing {
    /// By a CLI id.
    Credential(Credential),
    /// By a session, which began with a CLI id that `KernelBot` accepted, and ends. It only reads.
    Session,
    /// Not at all, where nobody needs to.
    Anonymous,
}

impl Caller {
    /// Lets in only those whom `KernelBot` knows: new work is accepted from nobody else.
    pub async fn must_be_known(&self, app: &App) -> Result<(), ApiError> {
        match self.verdict(app).await {
            Verdict::Valid => Ok(()),
            Verdict::Invalid => Err(ApiError::RefusedCredential),
            Verdict::Unknown => Err(ApiError::KernelBotAway),
        }
    }

    /// Keeps out those whom `KernelBot` refuses. Its silence does not count: the caller holds the id that owns the job,
    /// and a client gives up at the first answer that is no success.
    pub async fn must_not_be_refused(&self, app: &App) -> Result<(), ApiError> {
        match self.verdict(app).await {
            Verdict::Valid | Verdict::Unknown => Ok(()),
            Verdict::Invalid => Err(ApiError::RefusedCredential),
        }
    }

    /// Keeps out a web page, where nothing but reaching this service is asked for: its reader's browser reaches it too, and
    /// posts a form for any page. Where a CLI id is asked for it cannot add that header without being let.
    pub fn must_not_be_a_web_page(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        match &self.standing {
            Standing::Anonymous if headers.contains_key(header::ORIGIN) => Err(ApiError::FromAWebPage),
            _ => Ok(()),
        }
    }

    fn without_credential(app: &App) -> Result<Self, ApiError> {
        match app.kernelbot {
            None => Ok(Self { owner: Owner::from_credential(""), standing: Standing::Anonymous }),
            Some(_) => Err(ApiError::NoCredential),
        }
    }

    async fn verdict(&self, app: &App) -> Verdict {
        match (&app.kernelbot, &self.standing) {
            (Some(kernelbot), Standing::Credential(credential)) => kernelbot.verdict(credential).await,
            // The operator has switched the check off.
            (None, _) | (Some(_), Standing::Session) => Verdict::Valid,
            // Cannot be made; refusing is the safe answer.
            (Some(_), Standing::Anonymous) => Verdict::Invalid,
        }
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        match Credential::from_headers(&parts.headers) {
            Ok(credential) => Ok(Self { owner: credential.owner(), standing: Standing::Credential(credential) }),
            // A cookie is sent by itself, so it stands for its owner only where nothing is changed.
            Err(ApiError::NoCredential) if parts.method.is_safe() && Visitor::has_session(&parts.headers) => {
                match Visitor::of(app, &parts.headers).await?.owner {
                    Some(owner) => Ok(Self { owner, standing: Standing::Session }),
                    None => Self::without_credential(app),
                }
            }
            Err(ApiError::NoCredential) => Self::without_credential(app),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(values: &[&'static [u8]]) -> Result<Credential, ApiError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CLI_ID_HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        Credential::from_headers(&headers)
    }

    #[test]
    fn a_credential_cannot_be_printed() {
        let credential = credential(&[b"secret-cli-id"]).unwrap();
        assert!(!format!("{credential:?} {:?}", credential.header()).contains("secret"));
    }

    #[test]
    fn a_credential_is_one_header_of_visible_ascii() {
        assert!(matches!(credential(&[]), Err(ApiError::NoCredential)));
        assert!(matches!(credential(&[b""]), Err(ApiError::NoCredential)));
        for wrong in [&[b"a b".as_slice()][..], &["é".as_bytes()], &[b"one", b"two"], &[&[b'a'; MAX_CLI_ID_BYTES + 1]]]
        {
            assert!(matches!(credential(wrong), Err(ApiError::MalformedCredential)), "{wrong:?}");
        }
    }
}
