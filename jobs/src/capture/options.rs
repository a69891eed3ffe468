//! Which kernels a capture holds: the operator's named options and the few that a request may set.

use ncu_runner::protocol::{CaptureMode, ClockControl};
use serde::{Deserialize, Serialize};

use crate::config::{self, ConfigError, Reader};

/// Longest kernel name filter, in characters.
pub const MAX_KERNEL_NAME_CHARS: usize = 1024;

/// The form fields of a request that change a capture, as `/health` advertises them.
pub const REQUEST_FIELDS: [&str; 6] = [
    "ncu_capture",
    "ncu_clock_control",
    "ncu_kernel_name",
    "ncu_kernel_name_base",
    "ncu_launch_count",
    "ncu_warm_calls",
];

/// Most calls of a submission before the one that is captured.
pub const MAX_WARM_CALLS: u32 = 10;

/// What a kernel name filter is compared with (`ncu --kernel-name-base`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelNameBase {
    /// The function's name alone.
    Function,
    /// The full signature.
    Demangled,
    /// The name as the compiler wrote it.
    Mangled,
}

impl KernelNameBase {
    /// As `ncu` and clients spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Demangled => "demangled",
            Self::Mangled => "mangled",
        }
    }

    /// The base of that spelling.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "function" => Ok(Self::Function),
            "demangled" => Ok(Self::Demangled),
            "mangled" => Ok(Self::Mangled),
            _ => Err("function, demangled or mangled is expected".to_owned()),
        }
    }
}

/// The mode of that spelling.
fn capture_mode(text: &str) -> Result<CaptureMode, String> {
    match text {
        "window" => Ok(CaptureMode::Window),
        "distinct" => Ok(CaptureMode::Distinct),
        "hot" => Ok(CaptureMode::Hot),
        _ => Err("window, distinct or hot is expected".to_owned()),
    }
}

/// The clock control of that spelling.
fn clock_control(text: &str) -> Result<ClockControl, String> {
    match text {
        "base" => Ok(ClockControl::Base),
        "none" => Ok(ClockControl::None),
        _ => Err("base or none is expected".to_owned()),
    }
}

fn warm_calls(text: &str) -> Result<u32, String> {
    let calls = config::whole(text).ok().filter(|&calls| calls <= MAX_WARM_CALLS);
    calls.ok_or_else(|| format!("a whole number from 0 to {MAX_WARM_CALLS} is expected"))
}

/// What one request asks for; everything absent is the operator's choice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestOptions {
    /// How the launches of the report are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ncu_capture: Option<CaptureMode>,
    /// `ncu --clock-control`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ncu_clock_control: Option<ClockControl>,
    /// `ncu --kernel-name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ncu_kernel_name: Option<String>,
    /// `ncu --kernel-name-base`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ncu_kernel_name_base: Option<KernelNameBase>,
    /// `ncu --launch-count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ncu_launch_count: Option<u32>,
    /// Calls of the submission before the one that is captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ncu_warm_calls: Option<u32>,
}

impl RequestOptions {
    /// Takes one form field; the error is a sentence for the user. A field that is not ours is left to the caller.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), String> {
        match field {
            "ncu_capture" => {
                self.ncu_capture = Some(capture_mode(value).map_err(|why| format!("ncu_capture: {why}."))?);
            }
            "ncu_clock_control" => {
                self.ncu_clock_control =
                    Some(clock_control(value).map_err(|why| format!("ncu_clock_control: {why}."))?);
            }
            "ncu_kernel_name" => {
                self.ncu_kernel_name = Some(kernel_name(value).map_err(|why| format!("ncu_kernel_name: {why}."))?);
            }
            "ncu_kernel_name_base" => {
                self.ncu_kernel_name_base =
                    Some(KernelNameBase::parse(value).map_err(|why| format!("ncu_kernel_name_base: {why}."))?);
            }
            "ncu_launch_count" => {
                self.ncu_launch_count = Some(config::count(value).map_err(|why| format!("ncu_launch_count: {why}."))?);
            }
            "ncu_warm_calls" => {
                self.ncu_warm_calls = Some(warm_calls(value).map_err(|why| format!("ncu_warm_calls: {why}."))?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A kernel name filter, which becomes one argument of `ncu`: no argument can hold a NUL, one that starts with a dash could
/// be read as an option, and one that starts with an at sign names a file with further options.
fn kernel_name(value: &str) -> Result<String, String> {
    if !(1..=MAX_KERNEL_NAME_CHARS).contains(&value.chars().count()) || value.contains('\0') {
        Err(format!("1 to {MAX_KERNEL_NAME_CHARS} characters without NUL are expected"))
    } else if value.starts_with(['-', '@']) {
        Err("a kernel name starts with neither - nor @".to_owned())
    } else {
        Ok(value.to_owned())
    }
}

/// The operator's options, `NCU_SERVICE_NCU_*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorOptions {
    /// How the launches of a report are chosen.
    pub capture: CaptureMode,
    /// `ncu --clock-control`.
    pub clock_control: ClockControl,
    /// Calls of the submission before the one that is captured.
    pub warm_calls: u32,
    /// Launches in a report where nothing else says so.
    pub launch_count: u32,
    /// Launches in a window of particular problems, by the last part of their directory.
    pub launch_counts: Vec<(String, u32)>,
    /// `ncu --launch-skip`.
    pub launch_skip: Option<u32>,
    /// `ncu --launch-skip-before-match`.
    pub launch_skip_before_match: Option<u32>,
    /// `ncu --kernel-name-base`.
    pub kernel_name_base: Option<KernelNameBase>,
    /// `ncu --kernel-name`.
    pub kernel_name: Option<String>,
    /// `ncu --kernel-id`.
    pub kernel_id: Option<String>,
}

impl OperatorOptions {
    /// Reads `NCU_SERVICE_NCU_*`.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            capture: reader.or_default(
                "NCU_SERVICE_NCU_CAPTURE",
                "hot",
                "which launches a report holds: window (the first ones), distinct (each kernel's first one) or hot (the \
                 kernels that hold most of the time)",
                capture_mode,
            )?,
            clock_control: reader.or_default(
                "NCU_SERVICE_NCU_CLOCK_CONTROL",
                "base",
                "clocks of the GPU while a report is made: base (locked to the base clock, so that reports compare) or none (as \
                 the GPU sets them)",
                clock_control,
            )?,
            warm_calls: reader.or_default(
                "NCU_SERVICE_NCU_WARM_CALLS",
                "0",
                "calls of a submission before the one that is captured, 0 to 10; 0 captures its first call",
                warm_calls,
            )?,
            launch_count: reader.or_default("NCU_SERVICE_NCU_LAUNCH_COUNT", "10", "kernel launches in a report", config::count)?,
            launch_counts: reader.or_default(
                "NCU_SERVICE_NCU_LAUNCH_COUNTS",
                "eigh_py=64",
                "kernel launches in the window of particular problem folders, whose set-up fills a short one: folder=count,…",
                launch_counts,
            )?,
            launch_skip: reader.optional("NCU_SERVICE_NCU_LAUNCH_SKIP", "matching launches to skip first", config::whole)?,
            launch_skip_before_match: reader.optional(
                "NCU_SERVICE_NCU_LAUNCH_SKIP_BEFORE_MATCH",
                "launches to skip before any is matched",
                config::whole,
            )?,
            kernel_name_base: reader.optional(
                "NCU_SERVICE_NCU_KERNEL_NAME_BASE",
                "what a kernel name is compared with: function, demangled or mangled",
                KernelNameBase::parse,
            )?,
            kernel_name: reader.optional("NCU_SERVICE_NCU_KERNEL_NAME", "only kernels of this name, or regex:…", kernel_name)?,
            kernel_id: reader.optional("NCU_SERVICE_NCU_KERNEL_ID", "only these launches, as ncu's --kernel-id takes them", kernel_name)?,
        })
    }

    /// The launch count of a problem folder. Only a window needs to be deeper where set-up comes first.
    #[must_use]
    pub fn launch_count_of(&self, problem_dir: &str, mode: CaptureMode) -> u32 {
        if mode != CaptureMode::Window {
            return self.launch_count;
        }
        let folder = problem_dir.rsplit('/').next().unwrap_or(problem_dir);
        self.launch_counts.iter().find(|(name, _)| name == folder).map_or(self.launch_count, |&(_, count)| count)
    }
}

fn launch_counts(value: &str) -> Result<Vec<(String, u32)>, String> {
    value
        .split(',')
        .map(|pair| {
            let (folder, count) = pair.split_once('=').ok_or("folder=count is expected")?;
            Ok((folder.to_owned(), config::count(count)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_fields_are_checked_before_anything_is_queued() {
        let mut options = RequestOptions::default();
        for (field, value) in [
            ("ncu_capture", "hot"),
            ("ncu_kernel_name", "regex:^qr"),
            ("ncu_kernel_name_base", "mangled"),
            ("ncu_launch_count", "3"),
            ("ncu_clock_control", "none"),
            ("ncu_warm_calls", "10"),
        ] {
            options.set(field, value).unwrap();
        }
        assert_eq!(
            serde_json::to_string(&options).unwrap(),
            r#"{"ncu_capture":"hot","ncu_clock_control":"none","ncu_kernel_name":"regex:^qr","ncu_kernel_name_base":"mangled","ncu_launch_count":3,"ncu_warm_calls":10}"#
        );
        let long = "k".repeat(MAX_KERNEL_NAME_CHARS + 1);
        for (field, value) in [
            ("ncu_capture", "Hot"),
            ("ncu_capture", "--set"),
            ("ncu_kernel_name", ""),
            ("ncu_kernel_name", "a\0b"),
            ("ncu_kernel_name", "--help"),
            ("ncu_kernel_name", "@/in/submission.py"),
            ("ncu_kernel_name", &long),
            ("ncu_kernel_name_base", "Function"),
            ("ncu_launch_count", "0"),
            ("ncu_launch_count", "-1"),
            ("ncu_launch_count", "1e3"),
            ("ncu_clock_control", "boost"),
            ("ncu_clock_control", "Base"),
            ("ncu_warm_calls", "11"),
            ("ncu_warm_calls", "-1"),
            ("ncu_warm_calls", ""),
        ] {
            let sentence = options.set(field, value).unwrap_err();
            assert!(sentence.starts_with(field), "{sentence}");
        }
    }

    #[test]
    fn a_problem_whose_set_up_comes_first_gets_a_deeper_window() {
        let options = OperatorOptions::read(&mut Reader::from_pairs::<&str, &str>([])).unwrap();
        assert_eq!(options.launch_count_of("linalg/qr_v2", CaptureMode::Window), 10);
        assert_eq!(options.launch_count_of("linalg/eigh_py", CaptureMode::Window), 64);
        assert_eq!(options.launch_count_of("linalg/eigh_py", CaptureMode::Hot), 10);
    }
}
