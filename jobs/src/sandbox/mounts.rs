//! Folders of this host inside a container, all read-only but one.

use std::path::{Component, Path, PathBuf};

use bollard::models::{Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountType};
use ncu_runner::protocol;

/// A folder of this host that the operator lends to every container, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMount {
    /// Path on the engine's host.
    pub host: PathBuf,
    /// Path in the container.
    pub container: PathBuf,
}

/// Host folders whose mount would hand over the host itself, the engine's socket included.
const REFUSED_ON_HOST: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/var/run"];
/// Container folders that are already something else.
const TAKEN_IN_CONTAINER: [&str; 8] = [
    protocol::IN_DIR,
    protocol::OUT_DIR,
    protocol::PROBLEMS_DIR,
    protocol::REPORT_DIR,
    "/tmp",
    "/proc",
    "/sys",
    "/dev",
];

impl HostMount {
    /// A path that is mounted where it is.
    #[must_use]
    pub fn in_place(path: PathBuf) -> Self {
        Self { host: path.clone(), container: path }
    }

    /// Reads `/folder` or `/host:/container`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, container) = text.split_once(':').unwrap_or((text, text));
        let (host, container) = (plain_path(host)?, plain_path(container)?);
        if REFUSED_ON_HOST.iter().any(|refused| host.starts_with(refused)) {
            return Err(format!("{} is not for containers", host.display()));
        }
        if TAKEN_IN_CONTAINER.iter().any(|taken| container.starts_with(taken)) {
            return Err(format!("{} is taken in every container", container.display()));
        }
        Ok(Self { host, container })
    }

    /// Reads mounts that are separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(Self::parse).collect()
    }

    /// With the folders that are mounted below it: a host's `/usr` can carry its driver on a file system of its own.
    pub(super) fn to_mount(&self) -> Mount {
        bind(&self.host, &self.container, Access::Tree)
    }
}

/// An absolute path below `/` without `..`: what it names can be read off it.
fn plain_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let mut components = path.components();
    let plain = components.next() == Some(Component::RootDir)
        && components.clone().next().is_some()
        && components.all(|component| matches!(component, Component::Normal(_)));
    if plain { Ok(path) } else { Err(format!("{text:?} is no absolute path below /")) }
}

/// What a container may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Read this folder, without what is mounted below it.
    Folder,
    /// Read this folder and what is mounted below it.
    Tree,
    /// Write this folder, without what is mounted below it.
    Output,
}

/// A bind mount as `mounts` has it: unlike `binds`, a source that is missing is an error and is never created.
pub(super) fn bind(source: &Path, target: &Path, access: Access) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_string_lossy().into_owned()),
        read_only: Some(access != Access::Output),
        bind_options: Some(MountBindOptions {
            // No mount that is made later, on either side, shows on the other.
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            // A file system below the folder would stay writable on engines before 25.
            non_recursive: Some(access != Access::Tree),
            create_mountpoint: Some(false),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_a_folder_or_a_pair_of_folders() {
        let mounts = HostMount::parse_list("/opt,/srv/torch:/opt/torch").unwrap();
        assert_eq!(mounts[0], HostMount::in_place("/opt".into()));
        assert_eq!(mounts[1], HostMount { host: "/srv/torch".into(), container: "/opt/torch".into() });
    }

    #[test]
    fn mounts_that_hand_over_the_host_or_hide_our_folders_are_refused() {
        for wrong in ["", "opt", "/", "/:/host", "/opt:", "/opt/../etc", "/var/run/docker.sock", "/run", "/proc/1"] {
            assert!(HostMount::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["/opt:/", "/opt:/out", "/opt:/in/x", "/opt:/tmp", "/opt:/dev/shm", "/opt:/a:/b/../c"] {
            assert!(HostMount::parse(wrong).is_err(), "{wrong}");
        }
    }
}
