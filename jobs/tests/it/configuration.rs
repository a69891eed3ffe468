//! `docs/configuration.md` says what the code reads, and an env file of the older service can still be given.

use jobs::config::{REQUIRED, Reader, Setting};
use jobs::telemetry::TelemetryConfig;
use jobs::usage::settings_of;
use jobs::worker::WorkerConfig;
use tokio::process::Command;

#[test]
fn every_setting_of_the_worker_is_in_the_document_word_for_word() {
    let document = include_str!("../../../docs/configuration.md");
    let rows = settings().iter().map(Setting::markdown_row).collect::<Vec<String>>();
    let missing: Vec<&String> = rows.iter().filter(|row| !document.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/configuration.md lacks these rows:\n{missing:#?}");
}

fn settings() -> Vec<Setting> {
    let read = settings_of(|reader| {
        TelemetryConfig::read(reader)?;
        WorkerConfig::read(reader)
    });
    read.unwrap()
}

#[test]
fn an_env_file_of_the_older_service_works_as_it_is() {
    let older = [
        ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", "/home/ubuntu/reference-kernels/problems"),
        ("NCU_SERVICE_WORKER_IMAGE", "ncu-worker:latest"),
        ("NCU_SERVICE_JOBS_DIR", "/home/ubuntu/ncu-jobs"),
        ("NCU_SERVICE_NCU_HOST_PATH", "/opt/nvidia/nsight-compute/2025.3.1/ncu"),
        ("NCU_SERVICE_LANDLOCK", "0"),
        ("NCU_SERVICE_NCU_LAUNCH_COUNT", "20"),
        ("NCU_SERVICE_NCU_LAUNCH_SKIP", "1"),
        ("NCU_SERVICE_NCU_LAUNCH_SKIP_BEFORE_MATCH", "2"),
        ("NCU_SERVICE_NCU_KERNEL_NAME", "regex:gemm"),
        ("NCU_SERVICE_NCU_KERNEL_NAME_BASE", "demangled"),
        ("NCU_SERVICE_NCU_KERNEL_ID", "::gemm:2"),
        ("NCU_SERVICE_REQUIRE_CLI_ID", "1"),
        ("NCU_SERVICE_ADMIN_TOKEN", ""),
        ("SOMETHING_OF_THE_OLDER_SERVICE", "that nobody reads"),
    ];
    let config = WorkerConfig::read(&mut Reader::from_pairs(older.into_iter().chain([REQUIRED[0]]))).unwrap();
    assert_eq!(config.sandbox.image, "ncu-worker:latest");
    assert_eq!(config.jobs_dir.to_str(), Some("/home/ubuntu/ncu-jobs"));
    let read = format!("{config:?}");
    for value in ["/opt/nvidia/nsight-compute/2025.3.1/ncu", "regex:gemm", "::gemm:2"] {
        assert!(read.contains(value), "{value}: {read}");
    }
}

#[tokio::test]
async fn the_help_of_a_command_lists_what_it_reads() {
    let help = printed(&["run", "--help"]).await;
    for setting in settings() {
        assert!(
            help.contains(&format!("\n  {}", setting.name)) && help.contains(setting.help),
            "{}\n{help}",
            setting.name
        );
    }
    for command in ["migrate", "doctor", "unquarantine", "admin"] {
        let help = printed(&[command, "--help"]).await;
        assert!(help.contains("Environment:\n  NCU_SERVICE_"), "{command}\n{help}");
    }
    let help = printed(&["--help"]).await;
    assert!(help.contains("Exit status:") && help.contains("admin pause"), "{help}");
    assert_eq!(printed(&["--version"]).await.trim(), format!("ncu-worker {}", jobs::usage::version()));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]).await;
        assert!(script.contains("ncu-worker") && script.contains("unquarantine"), "{shell}: {script}");
    }
}

/// What the program prints without any setting.
async fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ncu-worker")).args(arguments).env_clear().output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
