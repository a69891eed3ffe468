//! Which GPU it was that measured.

use serde::Serialize;

use super::devices::{Gpu, address};

/// What is asked of `nvidia-smi`, in the order of the answer.
pub(super) const QUERY: &str = "--query-gpu=pci.bus_id,name,uuid,driver_version,vbios_version,clocks.max.sm,\
                                clocks.max.memory,power.limit,ecc.mode.current,mig.mode.current";

/// A GPU by everything that numbers measured on it depend on. What it does not tell is null.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuIdentity {
    /// PCI address.
    pub address: String,
    /// Product name.
    pub name: Option<String>,
    /// NVIDIA's id of this one device.
    pub uuid: Option<String>,
    /// Version of the driver.
    pub driver_version: Option<String>,
    /// Version of the device's firmware.
    pub vbios_version: Option<String>,
    /// Highest clock of the multiprocessors, in MHz.
    pub max_sm_clock_mhz: Option<u32>,
    /// Highest clock of the memory, in MHz.
    pub max_memory_clock_mhz: Option<u32>,
    /// Power limit, in watts.
    pub power_limit_watts: Option<f64>,
    /// Whether memory errors are corrected.
    pub ecc: Option<bool>,
    /// Whether it is divided into instances.
    pub mig: Option<bool>,
}

/// Those of an answer that are `gpus`; all of them where no address is known.
pub(super) fn parse(text: &str, gpus: &[Gpu]) -> Vec<GpuIdentity> {
    let all = !gpus.iter().any(Gpu::is_addressed);
    let identities = text.lines().filter_map(identity);
    identities.filter(|identity| all || gpus.iter().any(|gpu| gpu.address == identity.address)).collect()
}

fn identity(line: &str) -> Option<GpuIdentity> {
    let mut fields = line.split(", ").map(str::trim);
    let address = address(fields.next()?)?;
    let mut known = || fields.next().filter(|field| !field.is_empty() && !field.starts_with('['));
    let is_enabled = |field: &str| field == "Enabled";
    Some(GpuIdentity {
        address,
        name: known().map(str::to_owned),
        uuid: known().map(str::to_owned),
        driver_version: known().map(str::to_owned),
        vbios_version: known().map(str::to_owned),
        max_sm_clock_mhz: known().and_then(|field| field.parse().ok()),
        max_memory_clock_mhz: known().and_then(|field| field.parse().ok()),
        power_limit_watts: known().and_then(|field| field.parse().ok()),
        ecc: known().map(is_enabled),
        mig: known().map(is_enabled),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "00000000:00:06.0, NVIDIA H200, GPU-6ee49133-e52b-7260-87a2-e5e965beda9f, 580.159.04, \
                          96.00.A5.00.1A, 1980, 3201, 700.00, Enabled, Disabled\n\
                          00000000:00:07.0, NVIDIA H200, GPU-2, 580.159.04, [N/A], [N/A], 3201, [N/A], [N/A], Enabled\n";

    fn gpu(address: &str) -> Gpu {
        Gpu::at(address)
    }

    #[test]
    fn a_gpu_is_named_with_what_its_numbers_depend_on() {
        let found = parse(ANSWER, &[gpu("0000:00:06.0")]);
        let expected = GpuIdentity {
            address: "0000:00:06.0".to_owned(),
            name: Some("NVIDIA H200".to_owned()),
            uuid: Some("GPU-6ee49133-e52b-7260-87a2-e5e965beda9f".to_owned()),
            driver_version: Some("580.159.04".to_owned()),
            vbios_version: Some("96.00.A5.00.1A".to_owned()),
            max_sm_clock_mhz: Some(1980),
            max_memory_clock_mhz: Some(3201),
            power_limit_watts: Some(700.0),
            ecc: Some(true),
            mig: Some(false),
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn what_a_gpu_does_not_tell_is_null_and_shifts_nothing() {
        let found = parse(ANSWER, &[gpu("0000:00:07.0")]);
        let [second] = &found[..] else { panic!("{found:?}") };
        assert_eq!((second.vbios_version.as_deref(), second.max_sm_clock_mhz), (None, None));
        assert_eq!((second.max_memory_clock_mhz, second.power_limit_watts), (Some(3201), None));
        assert_eq!((second.ecc, second.mig), (None, Some(true)));
    }

    #[test]
    fn where_no_address_is_known_every_gpu_may_be_the_one() {
        assert_eq!(parse(ANSWER, &[gpu("unknown")]).len(), 2);
        assert_eq!(parse("No devices were found\n", &[gpu("unknown")]), []);
    }
}
