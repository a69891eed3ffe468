//! Finds, in what a program printed, the few words that tell its author what went wrong.

/// Longest quotation, in characters: a sentence, not a log. The whole log is in the archive or in the operator's hands.
const MAX_CHARS: usize = 600;
/// Compiler lines quoted at most.
const MAX_COMPILER_LINES: usize = 4;

/// The evaluator's message, from its log.
#[must_use]
pub fn evaluator_error(popcorn_log: &str) -> String {
    let message = popcorn_log.lines().find_map(|line| line.strip_prefix("benchmark.0.error:"));
    quoted(message.map_or("it gave no reason", str::trim))
}

/// The submission's own error: the compiler's lines of a failed build, or else the last exception of a traceback, or else
/// the last line. `None` where nothing was printed.
#[must_use]
pub fn submission_error(output: &str) -> Option<String> {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty() && !is_our_tools(line));
    let mut compiler: Vec<&str> = lines().filter(|line| is_compiler_error(line)).collect();
    compiler.dedup();
    if !compiler.is_empty() {
        return Some(quoted(&compiler[..compiler.len().min(MAX_COMPILER_LINES)].join("; ")));
    }
    let exception = lines().rfind(|line| is_exception(line));
    exception.or_else(|| lines().next_back()).map(quoted)
}

/// The profiler's own last error. A kernel that faults under `ncu` can end the program without a word of its own.
#[must_use]
pub fn profiler_error(output: &str) -> Option<String> {
    output.lines().filter_map(|line| line.strip_prefix("==ERROR== ")).next_back().map(quoted)
}

/// `file.cu(12): error: …` of nvcc, `file.cpp:3:7: error: …` of gcc, `error:`-lines of ptxas and ld.
fn is_compiler_error(line: &str) -> bool {
    let located = line.split_once("error").is_some_and(|(before, after)| {
        (before.ends_with("): ") || before.ends_with(": "))
            && before.contains(['(', ':'])
            && after.starts_with([':', ' '])
    });
    located && [".cu", ".cpp", ".cc", ".h", ".cuh", ".c(", ".c:", "ptxas"].iter().any(|mark| line.contains(mark))
        || line.starts_with("ptxas fatal")
        || line.contains("undefined reference to")
}

/// `package.SomeError: …`, the line that ends a Python traceback.
fn is_exception(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or_default();
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'))
        && ["Error", "Exception", "Interrupt", "Exit", "NotFound"].iter().any(|end| last.ends_with(end))
}

/// Lines of the profiler and the runner say that something failed, not what.
fn is_our_tools(line: &str) -> bool {
    line.starts_with("==") || line.starts_with("---- ncu-runner:")
}

/// Control characters out (a terminal would obey them), length capped.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_CHARS).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_lines_are_quoted_rather_than_the_traceback_around_them() {
        let output = "Traceback (most recent call last):\n  File \"a.py\", line 3\n\
            /tmp/ext/main.cu(7): error: identifier \"foo\" is undefined\n\
            /tmp/ext/main.cpp:3:7: error: expected ';'\n\
            ninja: build stopped: subcommand failed.\nRuntimeError: Error building extension 'ext'\n";
        assert_eq!(
            submission_error(output).unwrap(),
            "/tmp/ext/main.cu(7): error: identifier \"foo\" is undefined; /tmp/ext/main.cpp:3:7: error: expected ';'"
        );
    }

    #[test]
    fn the_last_exception_is_quoted_rather_than_the_profilers_lines() {
        let output = "Traceback:\nValueError: first\n\nTraceback:\n  x\ntorch.AcceleratorError: CUDA error: an illegal memory access\n\
            Search for it\n==ERROR== The application returned an error code (1).\n";
        assert_eq!(submission_error(output).unwrap(), "torch.AcceleratorError: CUDA error: an illegal memory access");
    }

    #[test]
    fn without_an_exception_the_last_line_has_to_do() {
        assert_eq!(submission_error("a\nb\n==PROF== Disconnected\n").unwrap(), "b");
        assert_eq!(submission_error(""), None);
        let silent = "==PROF== Connected\n==ERROR== LaunchFailed\n";
        assert_eq!((submission_error(silent), profiler_error(silent).as_deref()), (None, Some("LaunchFailed")));
        assert_eq!(submission_error("SystemExit").unwrap(), "SystemExit");
    }

    #[test]
    fn a_quotation_is_short_and_safe_to_print() {
        let quoted = submission_error(&format!("ValueError: \x1b[31m{}", "é".repeat(2000))).unwrap();
        assert!(!quoted.contains('\x1b') && quoted.chars().count() == MAX_CHARS + 1, "{quoted}");
    }

    #[test]
    fn the_evaluators_reason_is_found_in_its_log() {
        assert_eq!(evaluator_error("benchmark-count: 1\nbenchmark.0.error: mismatch\ncheck: fail"), "mismatch");
        assert_eq!(evaluator_error(""), "it gave no reason");
    }
}
