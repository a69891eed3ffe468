//! Tells from an evaluator's source, before a GPU is used, whether a capture can hold anything.
//!
//! A capture is limited to the NVTX range `custom_kernel`, so the evaluator needs a `profile` mode and must open that
//! range. The source is only looked at, never run, so this cannot be certain: it errs towards letting a job through,
//! because an empty capture fails anyway.

/// The argument that starts an evaluator's profile mode.
const MODE: &str = "profile";
/// The NVTX range around the one call of the submission.
const RANGE: &str = "custom_kernel";
/// Calls that take that word without opening an NVTX range: the framework's own profiler, and look-ups by name.
const OTHER_CALLS: [&str; 5] = ["record_function", "getattr", "hasattr", "__import__", "import_module"];

/// Why an evaluator cannot be profiled with Nsight Compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// `eval.py profile` would end with exit code 2.
    NoProfileMode,
    /// There is such a mode, but the range that a capture needs is not opened.
    NoRange,
}

/// Looks at the task's Python files together: an evaluator may be split over several.
pub(super) fn obstacle<'a>(sources: impl IntoIterator<Item = &'a str>) -> Option<Obstacle> {
    let scans: Vec<Scan> = sources.into_iter().map(Scan::new).collect();
    if !scans.iter().any(|scan| scan.literals.iter().any(|literal| literal.text == MODE)) {
        Some(Obstacle::NoProfileMode)
    } else if !scans.iter().any(Scan::opens_the_range) {
        Some(Obstacle::NoRange)
    } else {
        None
    }
}

/// A Python source taken apart into code and string literals; comments are dropped.
#[derive(Debug, Default)]
struct Scan {
    code: String,
    literals: Vec<Literal>,
}

#[derive(Debug)]
struct Literal {
    /// Where it stood, as an offset into the code.
    offset: usize,
    text: String,
}

impl Scan {
    fn new(source: &str) -> Self {
        let mut scan = Self::default();
        let mut rest = source;
        while let Some(next) = rest.find(['#', '"', '\'']) {
            scan.code.push_str(&rest[..next]);
            rest = &rest[next..];
            if rest.starts_with('#') {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
            } else {
                let (text, after) = literal(rest);
                scan.literals.push(Literal { offset: scan.code.len(), text: text.to_owned() });
                rest = after;
            }
        }
        scan.code.push_str(rest);
        scan
    }

    fn opens_the_range(&self) -> bool {
        self.code.contains("nvtx")
            && self
                .literals
                .iter()
                .filter(|literal| literal.text == RANGE)
                .any(|literal| !OTHER_CALLS.contains(&self.callee(literal.offset)))
    }

    /// Last name of the function in whose argument list the literal stands; empty where there is none.
    fn callee(&self, offset: usize) -> &str {
        let Some((before, arguments)) = self.code[..offset].rsplit_once('(') else { return "" };
        if arguments.contains(')') {
            return "";
        }
        let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        before.get(start..).unwrap_or_default()
    }
}

/// Splits off the literal at the start of `source`: its text, quotes removed, and what follows it.
fn literal(source: &str) -> (&str, &str) {
    let quote = if source.starts_with("\"\"\"") || source.starts_with("'''") { &source[..3] } else { &source[..1] };
    let body = &source[quote.len()..];
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        if body[at..].starts_with(quote) {
            return (&body[..at], &body[at + quote.len()..]);
        }
        // An unfinished line ends a literal of one line: broken source must not hide what follows.
        if c == '\n' && quote.len() == 1 {
            return (&body[..at], &body[at..]);
        }
        if c == '\\' {
            chars.next();
        }
    }
    (body, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISPATCH: &str = "if mode == \"profile\":\n    return run_profiling(tests)\n";

    fn verdict(body: &str) -> Option<Obstacle> {
        obstacle([format!("{body}\n{DISPATCH}").as_str()])
    }

    #[test]
    fn the_usual_ways_to_open_the_range_are_seen() {
        for body in [
            "from torch.cuda.nvtx import range as nvtx_range\nwith nvtx_range(\"custom_kernel\"):\n    f()",
            "import torch\ntorch.cuda.nvtx.range_push('custom_kernel')",
            "import nvtx\nwith nvtx.annotate(message=\"custom_kernel\", color=\"blue\"):\n    f()",
            "from torch.cuda.nvtx import (\n    range as r,\n)\nwith r(\n    \"custom_kernel\"\n):\n    f()",
            "from torch.cuda import nvtx\nok = hasattr(nvtx, \"range\")\nRANGE = \"custom_kernel\"\nwith nvtx.range(RANGE):\n    f()",
        ] {
            assert_eq!(verdict(body), None, "{body}");
        }
    }

    #[test]
    fn other_profilers_and_other_ranges_do_not_count() {
        for body in [
            "from submission import custom_kernel\nwith torch.profiler.profile() as prof:\n    custom_kernel(data)",
            "with torch.autograd.profiler.emit_nvtx(), record_function(\"custom_kernel\"):\n    f()",
            "with nvtx_range(\"generate input\"):\n    f()\nkernel = getattr(module, \"custom_kernel\")",
            "log(\"custom_kernel\")",
        ] {
            assert_eq!(verdict(body), Some(Obstacle::NoRange), "{body}");
        }
    }

    #[test]
    fn comments_and_documentation_do_not_count() {
        for body in [
            "import nvtx\n# with nvtx.range(\"custom_kernel\"):",
            "import nvtx\n\"\"\"\nwith nvtx.range(\"custom_kernel\"):\n\"\"\"",
            "import nvtx\ndef f():\n    '''It's \"custom_kernel\" # here'''",
            "# nvtx\nwith open_range(\"custom_kernel\"):\n    f()",
            "import nvtx\nx = \"a \\\" custom_kernel\"",
        ] {
            assert_eq!(verdict(body), Some(Obstacle::NoRange), "{body}");
        }
        let body = "import nvtx\nnote = \"it is # no comment\"; nvtx.range_push(\"custom_kernel\")";
        assert_eq!(verdict(body), None);
    }

    #[test]
    fn an_evaluator_without_a_profile_mode_is_told_apart() {
        let body = "import nvtx\nwith nvtx.range(\"custom_kernel\"):\n    f()\n";
        for rest in ["", "# TODO: profile mode", "\"\"\"the \"profile\" mode\"\"\"", "from torch import profile"] {
            assert_eq!(obstacle([format!("{body}{rest}").as_str()]), Some(Obstacle::NoProfileMode), "{rest}");
        }
    }

    #[test]
    fn an_evaluator_may_be_split_over_several_files() {
        let helper = "from torch.cuda import nvtx\nnvtx.range_push(\"custom_kernel\")";
        assert_eq!(obstacle([DISPATCH, helper]), None);
        assert_eq!(obstacle([DISPATCH]), Some(Obstacle::NoRange));
        assert_eq!(obstacle([]), Some(Obstacle::NoProfileMode));
    }

    #[test]
    fn broken_source_is_survived() {
        for source in ["\"", "'''", "\"\\", "'\u{e9}\\\u{e9}", "#", "\"abc\n'profile'", "é\"é\"", "(\"custom_kernel\""]
        {
            let _ = obstacle([source]);
        }
        let unfinished = "x = \"open\nimport nvtx\nnvtx.range_push(\"custom_kernel\")\nmode == 'profile'";
        assert_eq!(obstacle([unfinished]), None);
    }
}
