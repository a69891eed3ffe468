//! The README's table of settings says what the code reads.

use jobs::config::{Reader, Setting};
use ncu_api::config::Config;

#[test]
fn every_setting_of_the_api_is_in_the_readme_word_for_word() {
    let mut reader = Reader::from_pairs([
        ("NCU_SERVICE_DATABASE_URL", "postgres://localhost/ncu"),
        ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", "/srv/problems"),
        ("KERNELBOT_API_URL", "https://kernelbot.example"),
    ]);
    Config::read(&mut reader).unwrap();
    let readme = include_str!("../../../README.md");
    let missing: Vec<String> =
        reader.settings().iter().map(Setting::markdown_row).filter(|row| !readme.contains(row)).collect();
    assert!(missing.is_empty(), "the README lacks these rows:\n{}", missing.join("\n"));
}

#[test]
fn every_setting_of_the_readme_can_be_given_to_compose() {
    let (readme, compose) = (include_str!("../../../README.md"), include_str!("../../../docker-compose.yml"));
    let named = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")).map(|(name, _)| name);
    let is_setting = |name: &&str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let is_given = |name: &str| compose.lines().any(|line| line.trim_start().starts_with(&format!("{name}:")));
    let settings: Vec<&str> = named.filter(is_setting).collect();
    assert!(settings.len() > 50, "{settings:?}");
    let missing: Vec<&&str> = settings.iter().filter(|name| !is_given(name)).collect();
    assert!(missing.is_empty(), "docker-compose.yml lacks {missing:?}");
}
