//! Which GPUs of this host a worker uses, as the driver's files tell it.
//!
//! A GPU is known by its PCI address: unlike the uuid it is there before the GPU was first used, so every worker comes to
//! the same name.

use std::fs;
use std::path::Path;

use crate::sandbox::GpuAccess;

/// What stands for the GPU where there is none: captures by the stand-in take turns as well.
const PRETENDED: &str = "none";
/// What stands for all GPUs where the driver names none.
const UNKNOWN: &str = "unknown";

/// One GPU of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// PCI address, `0000:19:00.0`; or a name for what cannot be addressed.
    pub address: String,
    uuid: Option<String>,
    minor: Option<String>,
}

impl Gpu {
    #[cfg(test)]
    pub(super) fn at(address: &str) -> Self {
        Self::nameless(address)
    }

    fn nameless(name: &str) -> Self {
        Self { address: name.to_owned(), uuid: None, minor: None }
    }

    /// Whether it is real, and its address is one.
    #[must_use]
    pub fn is_addressed(&self) -> bool {
        self.address.contains(':')
    }
}

/// The GPUs that a capture of this worker gets, sorted, so that everybody locks them in the same order. Never empty.
///
/// A name that is not understood (a MIG instance, say) means all of them: to wait too often does no harm.
#[must_use]
pub fn in_use(access: &GpuAccess, driver: &Path) -> Vec<Gpu> {
    if *access == GpuAccess::None {
        return vec![Gpu::nameless(PRETENDED)];
    }
    let mut gpus = of_host(driver);
    if gpus.is_empty() {
        return vec![Gpu::nameless(UNKNOWN)];
    }
    if let Some(chosen) = named(access, &gpus) {
        gpus.retain(|gpu| chosen.contains(&gpu.address));
    }
    gpus
}

/// Every GPU that the driver lists, in the order of their addresses, which is the order of their indices.
fn of_host(driver: &Path) -> Vec<Gpu> {
    let Ok(entries) = fs::read_dir(driver.join("gpus")) else { return Vec::new() };
    let mut gpus: Vec<Gpu> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let address = address(entry.file_name().to_str()?)?;
            let information = fs::read_to_string(entry.path().join("information")).unwrap_or_default();
            Some(Gpu { address, uuid: field(&information, "GPU UUID"), minor: field(&information, "Device Minor") })
        })
        .collect();
    gpus.sort_by(|a, b| a.address.cmp(&b.address));
    gpus
}

fn field(information: &str, name: &str) -> Option<String> {
    information
        .lines()
        .find_map(|line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_owned()))
}

/// The addresses that a setting names; `None` for all of them.
fn named(access: &GpuAccess, gpus: &[Gpu]) -> Option<Vec<String>> {
    let by_name = |name: &str| match name.parse::<usize>() {
        Ok(index) => gpus.get(index),
        Err(_) => gpus.iter().find(|gpu| gpu.uuid.as_deref() == Some(name)),
    };
    let found: Option<Vec<&Gpu>> = match access {
        GpuAccess::All | GpuAccess::None => None,
        GpuAccess::Devices(ids) => ids.iter().map(|id| by_name(id)).collect(),
        GpuAccess::Cdi(names) => names.iter().map(|name| by_name(name.rsplit('=').next()?)).collect(),
        GpuAccess::Nodes { devices, .. } => {
            let minors = devices.iter().filter_map(|path| path.to_str()?.strip_prefix("/dev/nvidia"));
            let numbers = minors.filter(|minor| minor.bytes().all(|byte| byte.is_ascii_digit()));
            let found: Option<Vec<&Gpu>> =
                numbers.map(|minor| gpus.iter().find(|gpu| gpu.minor.as_deref() == Some(minor))).collect();
            found.filter(|found| !found.is_empty())
        }
    };
    found.map(|found| found.into_iter().map(|gpu| gpu.address.clone()).collect())
}

/// A PCI address as this room writes it, from any of the spellings of the driver, `nvidia-smi` and the kernel:
/// `0000:19:00.0`, `00000000:19:00.0`, `0000:19:00`.
#[must_use]
pub fn address(text: &str) -> Option<String> {
    let mut parts = text.trim().split(':');
    let (domain, bus, slot) = (parts.next()?, parts.next()?, parts.next()?);
    let (device, function) = slot.split_once('.').unwrap_or((slot, "0"));
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let whole = parts.next().is_none();
    whole.then_some(())?;
    Some(format!("{:04x}:{:02x}:{:02x}.{:x}", number(domain)?, number(bus)?, number(device)?, number(function)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "0000:19:00.0";
    const SECOND: &str = "0000:ab:00.0";

    /// A driver's folder with two GPUs, whose device nodes are not in the order of their addresses.
    fn driver() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (address, uuid, minor) in [(SECOND, "GPU-bb", 0), (FIRST, "GPU-aa", 1)] {
            let gpu = folder.path().join("gpus").join(address);
            fs::create_dir_all(&gpu).unwrap();
            let text =
                format!("Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n");
            fs::write(gpu.join("information"), text).unwrap();
        }
        folder
    }

    fn chosen(setting: &str) -> Vec<String> {
        let driver = driver();
        in_use(&GpuAccess::parse(setting).unwrap(), driver.path()).into_iter().map(|gpu| gpu.address).collect()
    }

    #[test]
    fn a_gpu_is_found_by_index_uuid_and_device_node() {
        assert_eq!(chosen("device=0"), [FIRST]);
        assert_eq!(chosen("device=GPU-bb"), [SECOND]);
        assert_eq!(chosen("cdi:nvidia.com/gpu=1"), [SECOND]);
        assert_eq!(chosen("cdi:nvidia.com/gpu=GPU-aa"), [FIRST]);
        assert_eq!(chosen("nodes:/dev/nvidia0,/dev/nvidiactl,/dev/nvidia-uvm"), [SECOND]);
    }

    #[test]
    fn several_gpus_come_in_one_order_whoever_names_them() {
        for all in ["all", "device=1,0", "device=GPU-bb,0", "cdi:nvidia.com/gpu=all"] {
            assert_eq!(chosen(all), [FIRST, SECOND], "{all}");
        }
    }

    #[test]
    fn what_is_not_understood_means_every_gpu() {
        for odd in ["device=MIG-aa", "device=7", "cdi:nvidia.com/gpu=0:1", "nodes:/dev/nvidiactl", "nodes:/dev/nvidia9"]
        {
            assert_eq!(chosen(odd), [FIRST, SECOND], "{odd}");
        }
    }

    #[test]
    fn without_a_gpu_or_a_driver_there_is_still_something_to_lock() {
        let nowhere = Path::new("/nowhere");
        let one = |setting| in_use(&GpuAccess::parse(setting).unwrap(), nowhere);
        assert_eq!(one("none"), [Gpu::nameless("none")]);
        assert_eq!(one("all"), [Gpu::nameless("unknown")]);
        assert!(!one("all")[0].is_addressed());
    }

    #[test]
    fn every_spelling_of_an_address_is_one_address() {
        for spelling in ["0000:19:00.0", "00000000:19:00.0", "0000:19:00", " 00000000:19:00.0"] {
            assert_eq!(address(spelling).as_deref(), Some(FIRST), "{spelling}");
        }
        for wrong in ["", "19:00.0", "GPU-aa", "0000:19:00.0:1", "../x:y:z"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
