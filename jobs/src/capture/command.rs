//! The `ncu` command lines, built from typed values and from nothing else.

use std::fmt;

use ncu_runner::protocol::{self, CaptureMode, ClockControl, Selection};

use super::options::{KernelNameBase, OperatorOptions, RequestOptions};

/// Name of the push/pop range in which every evaluator calls the submission.
pub const NVTX_RANGE: &str = "custom_kernel";

/// The capture of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureCommand {
    /// Path of `ncu` in the container, or its name on the path.
    pub ncu: String,
    /// How the runner chooses launches once it knows them.
    pub selection: Selection,
    /// Calls of the submission before the one that is captured; the runner makes them.
    pub warm_calls: u32,
    /// `--clock-control`.
    pub clock_control: ClockControl,
    /// `--launch-skip`.
    pub launch_skip: Option<u32>,
    /// `--launch-skip-before-match`.
    pub launch_skip_before_match: Option<u32>,
    /// `--kernel-name-base`.
    pub kernel_name_base: Option<KernelNameBase>,
    /// `--kernel-name`.
    pub kernel_name: Option<String>,
    /// `--kernel-id`.
    pub kernel_id: Option<String>,
}

impl CaptureCommand {
    /// What an operator's and a request's options come to for one problem; a request's own choice goes first, and a mode
    /// that it names looks at every launch, whatever the operator filters.
    #[must_use]
    pub fn new(ncu: &str, problem_dir: &str, operator: &OperatorOptions, request: &RequestOptions) -> Self {
        let mode = request.ncu_capture.unwrap_or(operator.capture);
        let max_launches = request.ncu_launch_count.unwrap_or_else(|| operator.launch_count_of(problem_dir, mode));
        let operators = request.ncu_capture.is_none_or(|mode| mode == CaptureMode::Window).then_some(operator);
        Self {
            ncu: ncu.to_owned(),
            selection: Selection { mode, max_launches },
            warm_calls: request.ncu_warm_calls.unwrap_or(operator.warm_calls),
            clock_control: request.ncu_clock_control.unwrap_or(operator.clock_control),
            launch_skip: operators.and_then(|operator| operator.launch_skip),
            launch_skip_before_match: operators.and_then(|operator| operator.launch_skip_before_match),
            kernel_name_base: request.ncu_kernel_name_base.or(operators.and_then(|operator| operator.kernel_name_base)),
            kernel_name: (request.ncu_kernel_name.as_ref())
                .or(operators.and_then(|operator| operator.kernel_name.as_ref()))
                .cloned(),
            // ncu takes --kernel-name and --kernel-id as a union, so an operator's id would widen a request's name filter.
            kernel_id: (operators.filter(|_| request.ncu_kernel_name.is_none()))
                .and_then(|operator| operator.kernel_id.clone()),
        }
    }

    /// `ncu` with every option but those by which the runner chooses launches.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        let mut argv: Vec<String> = vec![self.ncu.clone()];
        // The two `off`s: a submission can write config.ncu-cfg and kernel renames into its folder.
        argv.extend(
            ["--config-file", "off", "--rename-kernels", "off", "--set", "full", "--nvtx", "--nvtx-include"]
                .map(str::to_owned),
        );
        // The trailing slash selects push/pop ranges.
        argv.push(format!("{NVTX_RANGE}/"));
        // The evaluator calls the submission in a child process.
        argv.extend(
            ["--target-processes", "all", "--import-source", "1", "--check-exit-code", "yes"].map(str::to_owned),
        );
        // Stated even where they are ncu's defaults: what a report means hangs on them. Each node of a CUDA graph is a launch.
        argv.extend(["--graph-profiling", "node", "--clock-control", self.clock_control.as_str()].map(str::to_owned));
        let mut option = |name: &str, value: Option<&dyn fmt::Display>| {
            if let Some(value) = value {
                argv.push(name.to_owned());
                argv.push(value.to_string());
            }
        };
        option("--kernel-name-base", self.kernel_name_base.map(KernelNameBase::as_str).as_ref().map(|v| v as _));
        option("--kernel-name", self.kernel_name.as_ref().map(|v| v as _));
        option("--kernel-id", self.kernel_id.as_ref().map(|v| v as _));
        option("--launch-skip-before-match", self.launch_skip_before_match.as_ref().map(|v| v as _));
        option("--launch-skip", self.launch_skip.as_ref().map(|v| v as _));
        argv.extend(["-f", "-o"].map(str::to_owned));
        argv.push(format!("{}/{}", protocol::OUT_DIR, protocol::REPORT_FILE));
        argv
    }
}

/// The command lines of a report's exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportCommands {
    /// The details page as text.
    pub text: Vec<String>,
    /// The details page as CSV.
    pub csv: Vec<String>,
    /// The raw page as CSV: every metric, of which the details page shows some.
    pub raw: Vec<String>,
}

impl ExportCommands {
    /// The exports by this `ncu`.
    #[must_use]
    pub fn new(ncu: &str) -> Self {
        let import = format!("{}/profile.ncu-rep", protocol::REPORT_DIR);
        let page = |page: &[&str]| {
            let head = [ncu, "--config-file", "off", "--rename-kernels", "off", "--import", &import, "--page"];
            head.iter().chain(page).map(|&word| word.to_owned()).collect()
        };
        Self {
            text: page(&["details"]),
            csv: page(&["details", "--csv"]),
            // One unit a column: the rows of a report share the row of units.
            raw: page(&["raw", "--csv", "--print-units", "base"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Reader;

    fn command(operator: &[(&str, &str)], request: &RequestOptions) -> String {
        let operator = OperatorOptions::read(&mut Reader::from_pairs(operator.iter().copied())).unwrap();
        let command = CaptureCommand::new("ncu", "linalg/qr_v2", &operator, request);
        let Selection { mode, max_launches } = command.selection;
        let warm_calls = match command.warm_calls {
            0 => String::new(),
            calls => format!(" after {calls}"),
        };
        format!("{} + {mode:?} {max_launches}{warm_calls}", command.argv().join(" "))
    }

    const HEAD: &str = "ncu --config-file off --rename-kernels off --set full --nvtx --nvtx-include custom_kernel/ \
                        --target-processes all --import-source 1 --check-exit-code yes --graph-profiling node \
                        --clock-control base";
    const TAIL: &str = "-f -o /out/profile/profile.ncu-rep";

    #[test]
    fn the_default_capture_takes_ten_launches_of_the_kernels_that_hold_most_of_the_time() {
        assert_eq!(command(&[], &RequestOptions::default()), format!("{HEAD} {TAIL} + Hot 10"));
    }

    #[test]
    fn every_operator_option_maps_to_the_option_of_its_name() {
        let operator = [
            ("NCU_SERVICE_NCU_LAUNCH_COUNT", "5"),
            ("NCU_SERVICE_NCU_LAUNCH_SKIP", "2"),
            ("NCU_SERVICE_NCU_LAUNCH_SKIP_BEFORE_MATCH", "0"),
            ("NCU_SERVICE_NCU_KERNEL_NAME_BASE", "demangled"),
            ("NCU_SERVICE_NCU_KERNEL_NAME", "regex:qr"),
            ("NCU_SERVICE_NCU_KERNEL_ID", ":::1"),
        ];
        assert_eq!(
            command(&operator, &RequestOptions::default()),
            format!(
                "{HEAD} --kernel-name-base demangled --kernel-name regex:qr --kernel-id :::1 --launch-skip-before-match 0 --launch-skip 2 {TAIL} + Hot 5"
            )
        );
    }

    #[test]
    fn a_request_overrides_the_operator_and_its_name_filter_is_not_widened() {
        let request = RequestOptions {
            ncu_kernel_name: Some("qr kernel".to_owned()),
            ncu_kernel_name_base: Some(KernelNameBase::Mangled),
            ncu_launch_count: Some(3),
            ..RequestOptions::default()
        };
        assert_eq!(
            command(&[("NCU_SERVICE_NCU_KERNEL_ID", ":::1"), ("NCU_SERVICE_NCU_KERNEL_NAME", "x")], &request),
            format!("{HEAD} --kernel-name-base mangled --kernel-name qr kernel {TAIL} + Hot 3")
        );
    }

    #[test]
    fn clocks_and_warm_calls_are_the_operators_or_the_requests() {
        let unlocked = HEAD.replace("--clock-control base", "--clock-control none");
        let operator = [("NCU_SERVICE_NCU_CLOCK_CONTROL", "none"), ("NCU_SERVICE_NCU_WARM_CALLS", "2")];
        assert_eq!(command(&operator, &RequestOptions::default()), format!("{unlocked} {TAIL} + Hot 10 after 2"));
        let request = RequestOptions {
            ncu_clock_control: Some(ClockControl::Base),
            ncu_warm_calls: Some(0),
            ..RequestOptions::default()
        };
        assert_eq!(command(&operator, &request), format!("{HEAD} {TAIL} + Hot 10"));
    }

    #[test]
    fn a_mode_is_the_operators_or_the_requests_and_a_requests_mode_sees_every_launch() {
        let operator = [("NCU_SERVICE_NCU_CAPTURE", "hot"), ("NCU_SERVICE_NCU_KERNEL_NAME", "x")];
        // The runner takes a window over what a filter matches, whatever the mode.
        assert_eq!(command(&operator, &RequestOptions::default()), format!("{HEAD} --kernel-name x {TAIL} + Hot 10"));
        let distinct = RequestOptions { ncu_capture: Some(CaptureMode::Distinct), ..RequestOptions::default() };
        assert_eq!(command(&operator, &distinct), format!("{HEAD} {TAIL} + Distinct 10"));
        let window = RequestOptions { ncu_capture: Some(CaptureMode::Window), ..RequestOptions::default() };
        assert_eq!(command(&operator, &window), format!("{HEAD} --kernel-name x {TAIL} + Window 10"));
    }

    #[test]
    fn exports_read_the_report_and_differ_only_in_page_and_format() {
        let ExportCommands { text, csv, raw } = ExportCommands::new("/opt/ncu/ncu");
        let head = "/opt/ncu/ncu --config-file off --rename-kernels off --import /report/profile.ncu-rep --page";
        assert_eq!(text.join(" "), format!("{head} details"));
        assert_eq!(csv.join(" "), format!("{head} details --csv"));
        assert_eq!(raw.join(" "), format!("{head} raw --csv --print-units base"));
    }
}
