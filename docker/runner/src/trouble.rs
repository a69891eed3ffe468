//! The runner's own trouble: what kept it from doing its work, in one line for the operator.

use std::fmt;
use std::path::Path;

/// One line that says what went wrong.
#[derive(Debug)]
pub struct Trouble(String);

/// A result whose error is the runner's own trouble.
pub type Result<T> = std::result::Result<T, Trouble>;

impl Trouble {
    /// Trouble in these words.
    pub fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }

    /// `doing` is the gerund of what failed: "reading", "creating".
    pub fn at(doing: &str, path: &Path, error: impl fmt::Display) -> Self {
        Self(format!("{doing} {}: {error}", path.display()))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
