//! The secret that a browser keeps in a cookie, and what is derived from it. Only digests of it are stored or compared.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Digits of a secret; 244 of its bits come from the system's generator.
const DIGITS: usize = 64;

/// A random secret. It cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct BrowserSecret(String);

impl BrowserSecret {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{}{}", Uuid::new_v4().as_simple(), Uuid::new_v4().as_simple()))
    }

    /// The secret that a cookie holds; `None` where that can be none of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
    }

    /// The text for the cookie, and for nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What the database knows of it.
    #[must_use]
    pub fn session_key(&self) -> SessionKey {
        SessionKey(self.digest(b"ncu-service session\0"))
    }

    /// What the forms of a page for this browser carry. A page of somebody else's can neither read nor guess it.
    #[must_use]
    pub fn form_token(&self) -> String {
        hex::encode(self.digest(b"ncu-service form\0"))
    }

    /// Whether a form carried that token. How long this takes tells nothing of it.
    #[must_use]
    pub fn is_form_token(&self, sent: &str) -> bool {
        let expected = self.form_token();
        let differences = expected.bytes().zip(sent.bytes()).fold(0, |sum, (ours, theirs)| sum | (ours ^ theirs));
        expected.len() == sent.len() && differences == 0
    }

    fn digest(&self, purpose: &[u8]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(purpose);
        hash.update(self.0.as_bytes());
        hash.finalize().into()
    }
}

impl fmt::Debug for BrowserSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrowserSecret(***)")
    }
}

/// The digest under which a session is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// As the database holds it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_one_spelling_and_shows_in_nothing_that_is_derived_from_it() {
        let secret = BrowserSecret::random();
        assert_eq!(BrowserSecret::parse(secret.expose()), Some(secret.clone()));
        for wrong in ["", "0", &secret.expose()[1..], &secret.expose().replace(|_| true, "A"), &"é".repeat(32)] {
            assert_eq!(BrowserSecret::parse(wrong), None, "{wrong}");
        }
        let derived = format!("{secret:?} {} {}", secret.form_token(), hex::encode(secret.session_key().as_bytes()));
        assert!(!derived.contains(secret.expose()));
        assert_ne!(secret.form_token(), hex::encode(secret.session_key().as_bytes()));
    }

    #[test]
    fn a_form_token_is_of_one_secret_and_counts_as_a_whole() {
        let secret = BrowserSecret::random();
        let token = secret.form_token();
        assert!(secret.is_form_token(&token));
        for wrong in ["", &token[1..], &format!("{token}0"), &BrowserSecret::random().form_token()] {
            assert!(!secret.is_form_token(wrong), "{wrong}");
        }
    }
}
