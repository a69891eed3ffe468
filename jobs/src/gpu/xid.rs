//! Xids: what the NVIDIA driver tells the kernel's log when something goes wrong on a GPU.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::devices::address;

/// Longest record of the kernel's log, in bytes.
const MAX_RECORD_BYTES: usize = 8 << 10;

/// The GPU or its link is broken, or waits for a reset: 46 and 79 it is gone, 48 and 95 memory errors, 64 no spare rows,
/// 62 and 119 to 120 its own controllers, 74 `NVLink`, 140 memory errors without correction, 143 and 154 a reset is needed.
///
/// A submission causes others at will (13 and 31 are an illegal address), so they say nothing of the GPU.
const ILL: [u32; 11] = [46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143];
/// The driver names what it takes to recover.
const RECOVERY_ACTION: u32 = 154;

/// One report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xid {
    /// PCI address of the GPU.
    pub address: String,
    /// Its number.
    pub number: u32,
    /// What the driver wrote.
    pub text: String,
}

impl Xid {
    /// Whether the GPU cannot be trusted after it.
    #[must_use]
    pub fn is_illness(&self) -> bool {
        // An action that changes back to "None" is a recovery.
        ILL.contains(&self.number) || (self.number == RECOVERY_ACTION && !self.text.contains("to 0x0"))
    }

    /// Reads `NVRM: Xid (PCI:0000:19:00): 79, pid=…, GPU has fallen off the bus.` out of a line.
    fn parse(line: &str) -> Option<Self> {
        let (place, rest) = line.split_once("NVRM: Xid (PCI:")?.1.split_once("): ")?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        Some(Self {
            address: address(place)?,
            number: rest[..digits].parse().ok()?,
            text: format!("Xid {}", rest.trim()),
        })
    }
}

/// The kernel's log, read on from where the last look ended.
#[derive(Debug)]
pub struct KernelLog {
    file: Option<File>,
}

impl KernelLog {
    /// Starts at the end: what happened before is not news. A log that may not be read has none.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).and_then(|mut file| {
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        });
        if let Err(error) = &opened {
            tracing::warn!(%error, log = %path.display(), "the kernel's log cannot be read; Xids go unnoticed");
        }
        Self { file: opened.ok() }
    }

    /// What is new since the last look.
    pub fn new_xids(&mut self) -> Vec<Xid> {
        let Some(file) = &mut self.file else { return Vec::new() };
        let (mut text, mut record) = (Vec::new(), [0; MAX_RECORD_BYTES]);
        loop {
            match file.read(&mut record) {
                Ok(0) => break,
                // The device gives one record a read.
                Ok(count) => text.extend_from_slice(&record[..count]),
                // Records were overwritten before they were read.
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&text).lines().filter_map(Xid::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_report_of_the_driver_is_read_with_its_gpu() {
        let line = "3,5012,987654,-;NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', GPU has fallen off the bus.";
        let xid = Xid::parse(line).unwrap();
        assert_eq!((xid.address.as_str(), xid.number), ("0000:19:00.0", 79));
        assert_eq!(xid.text, "Xid 79, pid='<unknown>', GPU has fallen off the bus.");
        for other in ["NVRM: loading", "NVRM: Xid (PCI:x): 79", "NVRM: Xid (PCI:0000:19:00): ?", ""] {
            assert_eq!(Xid::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_a_submission_can_cause_is_no_illness_of_the_gpu() {
        let xid = |rest: &str| Xid::parse(&format!("NVRM: Xid (PCI:0000:19:00): {rest}")).unwrap();
        for harmless in ["13, Graphics Exception", "31, MMU Fault", "43, Ch 8", "45, Ch 8", "154, to 0x0 (None)"] {
            assert!(!xid(harmless).is_illness(), "{harmless}");
        }
        for ill in ["48, DBE", "79, fallen off", "154, GPU recovery action changed from 0x0 (None) to 0x1 (Reset)"] {
            assert!(xid(ill).is_illness(), "{ill}");
        }
    }

    #[test]
    fn only_what_is_new_since_the_last_look_is_told() {
        let mut written = tempfile::NamedTempFile::new().unwrap();
        writeln!(written, "NVRM: Xid (PCI:0000:19:00): 79, before the start").unwrap();
        let mut log = KernelLog::open(written.path());
        assert_eq!(log.new_xids(), []);
        writeln!(written, "usb 1-1: new device\nNVRM: Xid (PCI:0000:19:00): 48, new").unwrap();
        assert_eq!(log.new_xids().iter().map(|xid| xid.number).collect::<Vec<_>>(), [48]);
        assert_eq!(log.new_xids(), []);
    }

    #[test]
    fn a_log_that_may_not_be_read_has_no_news() {
        assert_eq!(KernelLog::open(Path::new("/nowhere/kmsg")).new_xids(), []);
    }
}
