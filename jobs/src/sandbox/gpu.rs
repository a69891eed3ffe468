//! How a capture gets at the GPU. One way is set for the whole worker; an export gets none.

use std::path::{Path, PathBuf};

use bollard::models::{DeviceMapping, DeviceRequest};

use super::mounts::HostMount;

/// What `NCU_SERVICE_GPUS` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuAccess {
    /// `all`: every GPU, through the NVIDIA runtime.
    All,
    /// `device=0`, `device=0,1`, `device=GPU-…`: some of them, through the NVIDIA runtime.
    Devices(Vec<String>),
    /// `cdi:nvidia.com/gpu=0`: devices of the Container Device Interface.
    Cdi(Vec<String>),
    /// `nodes:/dev/nvidia0,…[;driver=/usr/local/nvidia]`: device nodes, and the folder with the driver's libraries.
    Nodes {
        /// Device nodes of this host.
        devices: Vec<PathBuf>,
        /// Folder with the driver's libraries, mounted read-only where it is.
        driver: Option<PathBuf>,
    },
    /// `none`.
    None,
}

/// What the driver must bring along; the runtime leaves out what is not named.
const CAPABILITIES: [&str; 3] = ["gpu", "compute", "utility"];

impl GpuAccess {
    /// Reads `NCU_SERVICE_GPUS`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            "all, device=N, device=GPU-uuid, cdi:nvidia.com/gpu=N, nodes:/dev/nvidia0,…[;driver=/folder] or none is \
             expected"
                .to_owned()
        };
        if let Some(ids) = text.strip_prefix("device=") {
            return list(ids, is_device_id).map(Self::Devices).ok_or_else(expected);
        }
        if let Some(names) = text.strip_prefix("cdi:") {
            return list(names, is_cdi_name).map(Self::Cdi).ok_or_else(expected);
        }
        if let Some(nodes) = text.strip_prefix("nodes:") {
            let (devices, driver) = match nodes.split_once(";driver=") {
                Some((devices, driver)) => (devices, Some(HostMount::parse(driver)?.host)),
                None => (nodes, None),
            };
            let devices = list(devices, is_device_node).ok_or_else(expected)?;
            return Ok(Self::Nodes { devices: devices.into_iter().map(PathBuf::from).collect(), driver });
        }
        match text {
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            _ => Err(expected()),
        }
    }

    /// What the engine is asked for through one of its device drivers.
    pub(super) fn device_requests(&self) -> Vec<DeviceRequest> {
        let nvidia = |count, device_ids| DeviceRequest {
            driver: Some("nvidia".to_owned()),
            count,
            device_ids,
            capabilities: Some(vec![CAPABILITIES.map(str::to_owned).to_vec()]),
            ..DeviceRequest::default()
        };
        match self {
            // The engine's word for all of them.
            Self::All => vec![nvidia(Some(-1), None)],
            Self::Devices(ids) => vec![nvidia(None, Some(ids.clone()))],
            Self::Cdi(names) => vec![DeviceRequest {
                driver: Some("cdi".to_owned()),
                device_ids: Some(names.clone()),
                ..DeviceRequest::default()
            }],
            Self::Nodes { .. } | Self::None => Vec::new(),
        }
    }

    /// Device nodes. A container may read and write them, and make none of its own.
    pub(super) fn devices(&self) -> Vec<DeviceMapping> {
        let Self::Nodes { devices, .. } = self else { return Vec::new() };
        devices
            .iter()
            .map(|path| path.to_string_lossy().into_owned())
            .map(|path| DeviceMapping {
                path_on_host: Some(path.clone()),
                path_in_container: Some(path),
                cgroup_permissions: Some("rw".to_owned()),
            })
            .collect()
    }

    /// What keeps the NVIDIA runtime, where it is the engine's default, from giving a container the GPUs that a variable
    /// of its image asks for.
    pub(super) fn withheld(&self) -> Option<&'static str> {
        match self {
            // The engine sets the variable itself.
            Self::All | Self::Devices(_) => None,
            Self::Cdi(_) | Self::Nodes { .. } | Self::None => Some("NVIDIA_VISIBLE_DEVICES=void"),
        }
    }

    /// The driver's folder, where a plain mount brings it.
    pub(super) fn driver(&self) -> Option<&Path> {
        match self {
            Self::Nodes { driver, .. } => driver.as_deref(),
            _ => None,
        }
    }
}

/// Items separated by commas, if there is one and all are well formed.
fn list(text: &str, is_item: fn(&str) -> bool) -> Option<Vec<String>> {
    text.split(',').map(|item| is_item(item).then(|| item.to_owned())).collect()
}

fn is_device_id(id: &str) -> bool {
    let uuid = id.strip_prefix("GPU-").or_else(|| id.strip_prefix("MIG-"));
    match uuid {
        Some(uuid) => !uuid.is_empty() && uuid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'),
        None => !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// `vendor/class=name`
fn is_cdi_name(name: &str) -> bool {
    name.split_once('=')
        .and_then(|(kind, name)| Some((kind.split_once('/')?, name)))
        .is_some_and(|((vendor, class), name)| !vendor.is_empty() && !class.is_empty() && !name.is_empty())
}

fn is_device_node(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|rest| !rest.is_empty() && rest.split('/').all(|part| part != ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_a_gpu_is_understood() {
        let words = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
        assert_eq!(GpuAccess::parse("all"), Ok(GpuAccess::All));
        assert_eq!(GpuAccess::parse("none"), Ok(GpuAccess::None));
        assert_eq!(GpuAccess::parse("device=0,1"), Ok(GpuAccess::Devices(words(&["0", "1"]))));
        assert_eq!(GpuAccess::parse("device=GPU-8a-1f"), Ok(GpuAccess::Devices(words(&["GPU-8a-1f"]))));
        assert_eq!(GpuAccess::parse("cdi:nvidia.com/gpu=0"), Ok(GpuAccess::Cdi(words(&["nvidia.com/gpu=0"]))));
        assert_eq!(
            GpuAccess::parse("nodes:/dev/nvidia0,/dev/nvidiactl;driver=/usr/local/nvidia"),
            Ok(GpuAccess::Nodes {
                devices: vec!["/dev/nvidia0".into(), "/dev/nvidiactl".into()],
                driver: Some("/usr/local/nvidia".into()),
            })
        );
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            "",
            "0",
            "ALL",
            "device=",
            "device=0,",
            "device=one",
            "device=GPU-",
            "cdi:",
            "cdi:gpu=0",
            "cdi:nvidia.com/gpu",
            "nodes:",
            "nodes:/etc/shadow",
            "nodes:/dev/../etc",
            "nodes:/dev/nvidia0;driver=nvidia",
        ] {
            assert!(GpuAccess::parse(wrong).is_err(), "{wrong}");
        }
    }
}
