//! The token that lets somebody order by HTTP. Only its digest is kept.

use std::fmt;

use sha2::{Digest, Sha256};

/// Fewest characters of a token: one of this length, chosen at random, is not guessed.
const LEAST_CHARS: usize = 32;

/// The digest of the token. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken([u8; 32]);

impl AdminToken {
    /// Takes a token that an operator has set, or says what is expected of one.
    pub fn parse(value: &str) -> Result<Self, String> {
        if value.len() < LEAST_CHARS || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("at least {LEAST_CHARS} letters, digits and signs without a space are expected"));
        }
        Ok(Self(digest(value.as_bytes())))
    }

    /// Whether somebody has sent this token. How long that takes tells nothing of it.
    #[must_use]
    pub fn is(&self, sent: &[u8]) -> bool {
        let differences =
            self.0.iter().zip(digest(sent)).fold(0, |differences, (ours, theirs)| differences | (ours ^ theirs));
        differences == 0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(***)")
    }
}

fn digest(token: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    // Apart from a plain hash that another system may hold of the same token.
    hash.update(b"ncu-service admin\0");
    hash.update(token);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_is_compared_as_a_whole() {
        let text = "0123456789abcdef0123456789abcdef";
        let token = AdminToken::parse(text).unwrap();
        assert!(token.is(text.as_bytes()));
        for wrong in ["", "0123456789abcdef0123456789abcdeF", "0123456789abcdef0123456789abcdef0", "0123456789abcdef"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{token:?}").contains("0123"));
        for unfit in ["", "0123456789abcdef0123456789abcde", "0123456789abcdef 0123456789abcdef", "ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ"]
        {
            assert!(AdminToken::parse(unfit).is_err(), "{unfit}");
        }
    }
}
