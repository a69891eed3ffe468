//! What is built in: the check against .deny.toml, and the list that goes with a release.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name))
}

/// What `cargo metadata` says of this workspace and one package more that it uses.
fn with_package(package: &Value) -> Value {
    let mut more = json!({"id": "x", "name": "x", "version": "1.0.0", "license": "MIT",
        "source": "registry+https://github.com/rust-lang/crates.io-index"});
    more.as_object_mut().unwrap().extend(package.as_object().unwrap().clone());
    let own = json!({"id": "own", "name": "own", "version": "0.1.0", "license": "MIT OR Apache-2.0", "source": null});
    json!({"workspace_members": ["own"], "packages": [own, more], "resolve": {"nodes": [
        {"id": "own", "deps": [{"pkg": "x", "dep_kinds": [{"kind": null}]}]}, {"id": "x", "deps": []}]}})
}

fn deny(folder: &Path, metadata: &Value, advisories: Option<PathBuf>) -> Output {
    let file = folder.join("metadata.json");
    std::fs::write(&file, metadata.to_string()).unwrap();
    let mut command = script("deny");
    command.arg("--metadata").arg(file).env_remove("NCU_SERVICE_ADVISORY_DB");
    if let Some(advisories) = advisories {
        command.arg("--advisories").arg(advisories);
    }
    command.output().unwrap()
}

#[test]
fn a_package_of_an_unknown_licence_or_source_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (package, expected) in [
        (json!({"license": "GPL-3.0-only"}), "the licence GPL-3.0-only is not allowed"),
        (json!({"license": "MIT AND GPL-3.0-only"}), "is not allowed"),
        (json!({"license": "MIT OR ("}), "is not allowed"),
        (json!({"license": null}), "it names no licence"),
        (json!({"source": "git+https://github.com/x/x#1"}), "the source git+https://github.com/x/x#1 is not allowed"),
        (json!({"source": "registry+https://elsewhere.example/index"}), "is not allowed"),
        (json!({"source": null}), "outside of this workspace"),
        (json!({"name": "openssl-sys"}), "this crate is refused"),
        (json!({"name": "own"}), "several versions, 0.1.0, 1.0.0"),
    ] {
        let output = deny(folder.path(), &with_package(&package), None);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(expected), "{package}: {said}");
    }
    for licence in
        ["MIT", "GPL-3.0-only OR MIT", "Unlicense/MIT", "(MIT OR X) AND ISC", "Apache-2.0 WITH LLVM-exception"]
    {
        let output = deny(folder.path(), &with_package(&json!({"license": licence})), None);
        assert!(output.status.success(), "{licence}: {output:?}");
    }
}

#[test]
fn a_package_with_an_advisory_is_refused_until_it_is_patched() {
    let folder = tempfile::tempdir().unwrap();
    let advisories = folder.path().join("db");
    std::fs::create_dir_all(advisories.join("crates/x")).unwrap();
    let advisory = "```toml\n[advisory]\nid = \"RUSTSEC-2026-0001\"\npackage = \"x\"\n[versions]\n\
                    patched = [\">= 1.2.3\", \"^0.9.4\"]\nunaffected = [\"< 0.5\"]\n```\n# x is broken\n";
    std::fs::write(advisories.join("crates/x/RUSTSEC-2026-0001.md"), advisory).unwrap();
    for (version, is_good) in [
        ("1.0.0", false),
        ("1.2.3", true),
        ("1.2.3-rc.1", false),
        ("2.0.0", true),
        ("0.9.4", true),
        ("0.9.3", false),
        ("0.10.0", false),
        ("0.4.9", true),
    ] {
        let output = deny(folder.path(), &with_package(&json!({"version": version})), Some(advisories.clone()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.success(), said.contains("x 1")),
            (is_good, !is_good && version.starts_with('1')),
            "{version}: {said}"
        );
        assert_eq!(said.contains("RUSTSEC-2026-0001 (vulnerability)"), !is_good, "{version}: {said}");
    }
}

#[test]
fn the_list_of_a_release_names_everything_that_is_built_in() {
    let output = script("sbom").arg("ncu-runner").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&list["bomFormat"], &list["specVersion"], &list["version"]),
        (&"CycloneDX".into(), &"1.5".into(), &1.into())
    );
    assert!(list["serialNumber"].as_str().unwrap().starts_with("urn:uuid:"));
    assert_eq!(list["metadata"]["component"]["name"], "ncu-runner");
    let components = list["components"].as_array().unwrap();
    let mut references = HashSet::from(["ncu-runner"]);
    for component in components {
        let text = |key: &str| component[key].as_str().unwrap();
        assert_eq!(text("type"), "library");
        assert_eq!(text("purl"), format!("pkg:cargo/{}@{}", text("name"), text("version")));
        assert!(references.insert(text("bom-ref")), "{component} stands twice");
        assert!(component["licenses"].is_array(), "{component}");
        let is_own = text("name") == "ncu-runner";
        let digest = component["hashes"][0]["content"].as_str().unwrap_or_default();
        assert!(is_own || digest.len() == 64, "{component}");
    }
    for entry in list["dependencies"].as_array().unwrap() {
        let needed = entry["dependsOn"].as_array().unwrap().iter().chain([&entry["ref"]]);
        assert!(needed.into_iter().all(|needed| references.contains(needed.as_str().unwrap())), "{entry}");
    }
    let named = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(named("landlock") && named("serde_json") && !named("axum"), "of this program and of no other");
    assert_eq!(
        script("sbom").arg("ncu-runner").output().unwrap().stdout,
        output.stdout,
        "the same sources, the same bytes"
    );
}

#[test]
fn a_release_takes_no_image_by_a_tag() {
    let digest = format!("debian@sha256:{}", "0".repeat(64));
    for wrong in ["", "debian:bookworm-slim", "debian@sha256:00", "@sha256:"] {
        let mut command = script("build-images");
        let output =
            command.arg("release").envs([("RUST", digest.as_str()), ("SERVICE_BASE", wrong), ("WORKER_BASE", &digest)]);
        let output = output.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("SERVICE_BASE"), "{wrong}: {said}");
    }
}

#[test]
fn the_changes_have_a_section_for_the_version_of_the_packages() {
    let changes = include_str!("../../../docs/CHANGELOG.md");
    let latest = changes.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert_eq!(latest.split(',').next(), Some(env!("CARGO_PKG_VERSION")));
}
