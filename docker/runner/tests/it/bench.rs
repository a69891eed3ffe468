//! A container's root in a temporary folder, and a request to put into it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ncu_runner::protocol::{
    CaptureMode, CaptureRequest, ExportRequest, Outcome, Request, Selection, StreamStats, TaskFile,
};
use tempfile::TempDir;

/// The starter submission of the sample problem.
pub const STARTER: &str = include_str!("../../../dev/problems/sample/vectoradd_py/submission.py");

/// One run's folders.
pub struct Bench {
    root: TempDir,
    /// The capture to ask for; a test changes what it is about.
    pub capture: CaptureRequest,
}

/// What a run left.
#[derive(Debug)]
pub struct Ran {
    /// The runner's own output and exit code.
    pub output: Output,
    pub outcome: Outcome,
}

impl Bench {
    /// A bench whose request asks for the sample problem's first shape.
    pub fn new(submission: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["in", "out", "tmp", "report", "problems"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let dev = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev");
        let sources = [
            ("standin_gpu.py", dev.join("standin_gpu.py")),
            ("torch.py", dev.join("torch.py")),
            ("utils.py", dev.join("problems/sample/utils.py")),
            ("eval.py", dev.join("problems/sample/eval.py")),
            ("task.py", dev.join("problems/sample/vectoradd_py/task.py")),
            ("reference.py", dev.join("problems/sample/vectoradd_py/reference.py")),
        ];
        let mut files = vec![TaskFile { name: "submission.py".to_owned(), source: None }];
        for (name, source) in sources {
            fs::copy(source, root.path().join("problems").join(name)).unwrap();
            files.push(TaskFile { name: name.to_owned(), source: Some(name.to_owned()) });
        }
        fs::write(root.path().join("in/submission.py"), submission).unwrap();
        let ncu = dev.join("ncu").to_str().unwrap().to_owned();
        let report = root.path().join("out/profile/profile.ncu-rep");
        let options = "--nvtx --nvtx-include custom_kernel/ --target-processes all --check-exit-code yes -f -o";
        let capture = CaptureRequest {
            files,
            main: "eval.py".to_owned(),
            spec: "size: 1024; seed: 31232".to_owned(),
            ncu: [ncu.as_str()]
                .into_iter()
                .chain(options.split(' '))
                .chain([report.to_str().unwrap()])
                .map(str::to_owned)
                .collect(),
            selection: Selection { mode: CaptureMode::Window, max_launches: 10 },
            warm_calls: 0,
            landlock: true,
            warmup_timeout_secs: 30,
            capture_timeout_secs: 60,
            max_stream_bytes: 64 * 1024,
        };
        Self { root, capture }
    }

    /// A path in the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// An output file's content.
    pub fn out(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path("out").join(name)).unwrap()).into_owned()
    }

    /// Runs the capture.
    pub fn run(&self) -> Ran {
        self.run_with(&mut self.command(&[]))
    }

    /// The command line that runs the runner as PID 1 of a namespace of its own, as a user without privileges.
    pub fn as_init(&self) -> Command {
        self.command(&["unshare", "--user", "--map-user=65534", "--pid", "--fork", "--kill-child", "--mount-proc"])
    }

    /// Runs the capture by this command.
    pub fn run_with(&self, command: &mut Command) -> Ran {
        self.write_request(&Request::Capture(self.capture.clone()));
        self.finish(command)
    }

    /// Moves the capture's report to where an export reads it, and exports it.
    pub fn export(&self, max_bytes: u64) -> Ran {
        fs::copy(self.path("out/profile/profile.ncu-rep"), self.path("report/profile.ncu-rep")).unwrap();
        let report = self.path("report/profile.ncu-rep");
        let text: Vec<String> =
            [self.capture.ncu[0].as_str(), "--import", report.to_str().unwrap(), "--page", "details"]
                .map(str::to_owned)
                .into();
        let csv = [text.as_slice(), &["--csv".to_owned()]].concat();
        let page = text.len() - 1;
        let raw = [&text[..page], &["raw", "--csv"].map(str::to_owned)].concat();
        let request = ExportRequest { text, csv, raw, landlock: true, timeout_secs: 30, max_bytes };
        self.write_request(&Request::Export(request));
        self.finish(&mut self.command(&[]))
    }

    /// Function names in the capture's report, in order.
    pub fn kernels(&self) -> Vec<String> {
        self.export(1 << 24);
        let text = self.out("ncu-details.txt");
        let heads = text.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(", Context 1, "));
        heads.map(|(head, _)| head.split(['<', '(']).next().unwrap().trim_start_matches("void ").to_owned()).collect()
    }

    /// The runner's command line, behind a wrapper's.
    pub fn command(&self, wrapper: &[&str]) -> Command {
        let runner = env!("CARGO_BIN_EXE_ncu-runner");
        let mut words = wrapper.iter().copied().chain([runner, "--root"]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(self.root.path());
        // The system's own Python: a developer's wrapper around it would add variables and time.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }

    /// Writes anything where the request belongs.
    pub fn write_request_text(&self, text: &str) {
        fs::write(self.path("in/request.json"), text).unwrap();
    }

    /// Runs what has been written, and reads the outcome.
    pub fn finish(&self, command: &mut Command) -> Ran {
        let output = command.output().unwrap();
        let json = fs::read(self.path("out/outcome.json")).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        Ran { output, outcome: serde_json::from_slice(&json).unwrap() }
    }

    fn write_request(&self, request: &Request) {
        self.write_request_text(&serde_json::to_string(request).unwrap());
    }
}

impl Ran {
    /// Exit codes of the steps, by their names.
    pub fn exits(&self) -> Vec<(&str, Option<i32>)> {
        self.outcome.steps.iter().map(|step| (step.name.as_str(), step.exit_code)).collect()
    }

    pub fn stream(&self, name: &str) -> StreamStats {
        self.outcome.streams[name]
    }
}
