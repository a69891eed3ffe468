//! What the programs say of themselves on a terminal: their version, the settings in `--help`, and completions for shells.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::LazyLock;

use crate::config::{ConfigError, REQUIRED, Reader, Setting};

/// The version, with the commit where the build was told it.
///
/// The build takes `NCU_SERVICE_COMMIT` and does not ask git, so that the same sources make the same program without their
/// history.
#[must_use]
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let commit = option_env!("NCU_SERVICE_COMMIT").filter(|commit| !commit.is_empty());
        let version = env!("CARGO_PKG_VERSION");
        commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
    });
    &VERSION
}

/// Every setting that some code reads, in its order.
pub fn settings_of<T>(read: fn(&mut Reader) -> Result<T, ConfigError>) -> Result<Vec<Setting>, ConfigError> {
    let mut reader = Reader::from_pairs(REQUIRED);
    read(&mut reader)?;
    Ok(reader.settings().to_vec())
}

/// The settings as `--help` lists them.
#[must_use]
pub fn environment(settings: &[Setting]) -> String {
    let mut text = "Environment:\n".to_owned();
    for Setting { name, default, help } in settings {
        let example = REQUIRED.iter().find(|(required, _)| required == name);
        let value = match (default, example) {
            (Some(default), _) => format!(" [default: {default}]"),
            (None, Some((_, example))) => format!(" [for example: {example}]"),
            (None, None) => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "  {name}{value}\n          {help}\n");
    }
    text
}

/// Prints what a shell needs to complete a command line.
pub fn print_completions(shell: clap_complete::Shell, mut command: clap::Command) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    io::stdout().write_all(&script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::WorkerConfig;

    #[test]
    fn the_help_names_each_setting_with_its_default_and_its_meaning() {
        let text = environment(&settings_of(WorkerConfig::read).unwrap());
        assert!(text.contains("  NCU_SERVICE_LEASE_SECS [default: 30]\n          how long a claim lasts"), "{text}");
        assert!(text.contains("  NCU_SERVICE_DATABASE_URL [for example: postgres://"), "{text}");
        assert!(text.contains("  NCU_SERVICE_NCU_HOST_PATH\n"), "{text}");
    }

    #[test]
    fn a_version_begins_with_that_of_the_package() {
        assert!(version().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
