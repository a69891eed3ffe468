//! `docs/configuration.md` says what the code reads, and an env file of the older service can still be given.

use jobs::config::{REQUIRED, Reader};
use jobs::telemetry::TelemetryConfig;
use jobs::usage::settings_of;
use ncu_api::config::Config;
use tokio::process::Command;

const DOCUMENT: &str = include_str!("../../../docs/configuration.md");

#[test]
fn every_setting_of_the_api_is_in_the_document_word_for_word() {
    let settings = settings_of(Config::read).unwrap();
    let rows = settings.iter().map(jobs::config::Setting::markdown_row);
    let missing: Vec<String> = rows.filter(|row| !DOCUMENT.contains(row)).collect();
    assert!(missing.is_empty(), "docs/configuration.md lacks these rows:\n{}", missing.join("\n"));
}

#[test]
fn every_setting_of_the_document_can_be_given_to_compose() {
    let compose = include_str!("../../../docker-compose.yml");
    let is_given = |name: &str| compose.lines().any(|line| line.trim_start().starts_with(&format!("{name}:")));
    let settings = documented();
    assert!(settings.len() > 50, "{settings:?}");
    let missing: Vec<&&str> = settings.iter().filter(|name| !is_given(name)).collect();
    assert!(missing.is_empty(), "docker-compose.yml lacks {missing:?}");
}

/// The variables of the tables of settings, which have a column for a default.
fn documented() -> Vec<&'static str> {
    let tables = DOCUMENT.split("\n## From the service").next().unwrap();
    tables.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")).map(|(name, _)| name).collect()
}

/// What a host of the older service may have; the database is new.
const OLDER: [(&str, &str); 8] = [
    ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", "/home/ubuntu/reference-kernels/problems"),
    ("NCU_SERVICE_WORKER_IMAGE", "ncu-worker:latest"),
    ("NCU_SERVICE_JOBS_DIR", "/home/ubuntu/ncu-jobs"),
    ("NCU_SERVICE_REQUIRE_CLI_ID", "1"),
    ("KERNELBOT_API_URL", "https://kernelbot.example"),
    ("NCU_SERVICE_ADMIN_TOKEN", "0123456789abcdef0123456789abcdef"),
    ("NCU_SERVICE_NCU_LAUNCH_COUNT", "10"),
    ("SOMETHING_OF_THE_OLDER_SERVICE", "that nobody reads"),
];

#[test]
fn an_env_file_of_the_older_service_works_as_it_is() {
    let mut reader = Reader::from_pairs(OLDER.into_iter().chain([REQUIRED[0]]));
    let config = Config::read(&mut reader).unwrap();
    assert_eq!(config.problems_dir.to_str(), Some("/home/ubuntu/reference-kernels/problems"));
    assert_eq!(config.kernelbot.unwrap().url.as_str(), "https://kernelbot.example/");
    assert!(config.admin_token.unwrap().is(b"0123456789abcdef0123456789abcdef"));
}

#[tokio::test]
async fn the_help_lists_every_setting_and_needs_none() {
    let (status, help) = printed(&["serve", "--help"]).await;
    assert_eq!(status, Some(0));
    let read = settings_of(|reader| {
        TelemetryConfig::read(reader)?;
        Config::read(reader)
    });
    for setting in read.unwrap() {
        assert!(
            help.contains(&format!("\n  {}", setting.name)) && help.contains(setting.help),
            "{}\n{help}",
            setting.name
        );
    }
    let (_, help) = printed(&["--help"]).await;
    assert!(help.contains("Exit status:") && help.contains("completions"), "{help}");
    let (_, version) = printed(&["--version"]).await;
    assert_eq!(version.trim(), format!("ncu-api {}", jobs::usage::version()));
}

#[tokio::test]
async fn completions_are_printed_for_each_shell_and_another_one_is_refused() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (status, script) = printed(&["completions", shell]).await;
        assert!(status == Some(0) && script.contains("ncu-api") && script.contains("serve"), "{shell}: {script}");
    }
    assert_eq!(printed(&["completions", "cmd"]).await.0, Some(2));
}

/// What the program prints without any setting, and its exit status.
async fn printed(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ncu-api")).args(arguments).env_clear().output().await.unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}
