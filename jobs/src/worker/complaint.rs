//! Finds, in what a program printed, the few words that tell its author what went wrong.

use crate::text::is_shown;

/// Longest quotation, in characters: a sentence, not a log. The whole log is in the archive or in the operator's hands.
const MAX_CHARS: usize = 600;
/// The same for a line beside the sentence of a time limit.
const MAX_LAST_WORDS_CHARS: usize = 200;
/// Compiler lines quoted at most.
const MAX_COMPILER_LINES: usize = 4;
/// Exceptions of a group that are quoted at most.
const MAX_MEMBERS: usize = 3;
/// Begins a frame of a traceback, of Python's own and of its fault handler.
const FRAME: &str = "File \"";
/// Begins what the C++ runtime says of an exception that nobody caught.
const TERMINATE: &str = "terminate called";

/// The evaluator's message, from its log.
#[must_use]
pub fn evaluator_error(popcorn_log: &str) -> String {
    let message = popcorn_log.lines().find_map(|line| line.strip_prefix("benchmark.0.error:"));
    quoted(message.map_or("it gave no reason", str::trim))
}

/// The submission's own error: the compiler's lines of a failed build, or else the last exception or crash, or else the
/// last line. `None` where nothing was printed.
#[must_use]
pub fn submission_error(output: &str) -> Option<String> {
    let lines = printed(output);
    let mut compiler: Vec<&str> = lines.iter().copied().filter(|line| is_compiler_error(line)).collect();
    compiler.dedup();
    if !compiler.is_empty() {
        return Some(quoted(&compiler[..compiler.len().min(MAX_COMPILER_LINES)].join("; ")));
    }
    match lines.iter().rposition(|line| is_exception(line) || is_crash(line)) {
        Some(at) => Some(quoted(&explained(&lines, at))),
        None => lines.last().map(|line| quoted(line)),
    }
}

/// The last that a program printed which was ended at its limit: its crash if it had one, else its last line, in short.
#[must_use]
pub fn last_words(output: &str) -> Option<String> {
    let lines = printed(output);
    let words = match lines.iter().rposition(|line| is_crash(line)) {
        Some(at) => explained(&lines, at),
        None => (*lines.last()?).to_owned(),
    };
    Some(cut(&words, MAX_LAST_WORDS_CHARS))
}

/// The lines of an output that say something, without the margin that the members of an exception group have.
fn printed(output: &str) -> Vec<&str> {
    let bare = |line: &'_ str| line.trim().trim_start_matches(['|', ' ']).len();
    let lines = output.lines().map(str::trim_end).map(|line| &line[line.len() - bare(line)..]);
    lines.filter(|line| !line.is_empty() && !is_our_tools(line)).collect()
}

/// The line at `at`, an exception or a crash, with what is needed to understand it from the lines around it.
fn explained(lines: &[&str], at: usize) -> String {
    let line = lines[at];
    if is_crash(line) {
        // A C++ exception that nobody caught is the reason of the abort, and stands before it.
        let thrown = lines[..=at].iter().rposition(|line| line.starts_with(TERMINATE));
        return match thrown {
            Some(thrown) if line.starts_with(TERMINATE) || line.ends_with("Aborted") => uncaught(lines, thrown),
            _ => line.to_owned() + &place(&lines[at..]).map(|place| format!(" ({place})")).unwrap_or_default(),
        };
    }
    let group = lines[..at].iter().rposition(|line| is_exception(line) && name(line).ends_with("Group"));
    if let Some(group) = group
        && lines[group..at].iter().any(|line| line.starts_with("+-"))
        && !lines[group..at].iter().any(|line| ends_group(line))
    {
        let members: Vec<&str> = lines[group + 1..=at].iter().copied().filter(|line| is_exception(line)).collect();
        return format!("{}: {}", lines[group], members[..members.len().min(MAX_MEMBERS)].join("; "));
    }
    if line.ends_with(':') && at + 1 < lines.len() {
        // A compiler's message (Triton's, say) shows the source first and says in its last line what is wrong.
        return format!("{line} {}", lines[lines.len() - 1]);
    }
    if !line.contains(':') {
        return located(lines, at);
    }
    line.to_owned()
}

/// The rule below the last member of an exception group; those above the members have a number in them.
fn ends_group(line: &str) -> bool {
    line.starts_with("+-") && line.bytes().all(|byte| matches!(byte, b'+' | b'-'))
}

/// An exception without a message: the line of code that raised it says more than its name.
fn located(lines: &[&str], at: usize) -> String {
    let line = lines[at];
    let Some(frame) = lines[..at].iter().rposition(|line| line.starts_with(FRAME)) else { return line.to_owned() };
    let code = if frame + 1 < at { format!(": {}", lines[frame + 1]) } else { String::new() };
    let place = place(&lines[frame..=frame]).map(|place| format!(" ({place})")).unwrap_or_default();
    format!("{line}{code}{place}")
}

/// `submission.py, line 12`, of the first frame that is the submission's, or else of the first.
fn place(lines: &[&str]) -> Option<String> {
    let mut frames = lines.iter().filter_map(|line| {
        let (path, rest) = line.strip_prefix(FRAME)?.split_once("\", line ")?;
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(format!("{}, line {number}", path.rsplit('/').next()?))
    });
    let first = frames.next()?;
    let submissions = |place: &String| place.starts_with("submission.py,");
    if submissions(&first) { Some(first) } else { Some(frames.find(submissions).unwrap_or(first)) }
}

/// The C++ exception behind the line at `at`, with its message.
fn uncaught(lines: &[&str], at: usize) -> String {
    let kind = lines[at].split('\'').nth(1);
    let what = lines.get(at + 1).and_then(|line| line.strip_prefix("what():"));
    match (kind, what) {
        (Some(kind), Some(what)) => format!("{kind}: {}", what.trim()),
        _ => lines[at].to_owned(),
    }
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
        || (line.starts_with("ptxas") && (line.contains("fatal") || line.contains("; error ")))
        || line.contains("undefined reference to")
}

/// `package.SomeError: …`, the line that ends a Python traceback.
fn is_exception(line: &str) -> bool {
    let name = name(line);
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_known =
        ["Error", "Exception", "Interrupt", "Exit", "NotFound", "Group"].iter().any(|end| last.ends_with(end));
    // Those of packages have names of every kind (triton.runtime.errors.OutOfResources).
    let is_qualified = name.len() > last.len() && last.starts_with(|c: char| c.is_ascii_uppercase());
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_')) && (is_known || is_qualified)
}

/// What stands before the message of an exception.
fn name(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

/// The end of a process by a signal, in the words of Python's fault handler or of the C++ runtime.
fn is_crash(line: &str) -> bool {
    line.starts_with("Fatal Python error: ") || line.starts_with(TERMINATE)
}

/// Lines of the profiler (`==PROF== …`) and the runner say that something failed, not what.
pub(super) fn is_our_tools(line: &str) -> bool {
    let word = line.strip_prefix("==").and_then(|rest| Some(rest.split_once("==")?.0));
    word.is_some_and(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase()))
        || line.starts_with("---- ncu-runner:")
}

/// Control characters out (a terminal would obey them), length capped.
#[must_use]
pub fn quoted(text: &str) -> String {
    cut(text, MAX_CHARS)
}

fn cut(text: &str, max_chars: usize) -> String {
    let mut out: String = text.chars().map(|c| if is_shown(c) { c } else { ' ' }).take(max_chars).collect();
    if text.chars().nth(max_chars).is_some() {
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

    /// What each of these prints, and the one line that is told of it.
    #[test]
    fn no_wall_of_traceback_is_told_whatever_the_kind_of_failure() {
        let traceback = "Traceback (most recent call last):\n  File \"/tmp/work/eval.py\", line 75, in run_once\n    \
            output = custom_kernel(given)\n  File \"/tmp/work/submission.py\", line 12, in custom_kernel\n";
        let cases = [
            (
                "  File \"/tmp/work/submission.py\", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n",
                "SyntaxError: invalid syntax",
            ),
            (
                "ValueError: the first line\nand a second\n\nand a third\n==ERROR== The application returned an error code (1).\n",
                "ValueError: the first line",
            ),
            (
                "    assert a.shape == b.shape\n           ^^^^^^^^^^^^^^^^^^\nAssertionError\n",
                "AssertionError: assert a.shape == b.shape (submission.py, line 12)",
            ),
            ("SystemExit: 3\n", "SystemExit: 3"),
            (
                "  + Exception Group Traceback (most recent call last):\n  |   File \"x.py\", line 1, in <module>\n  \
                 |     raise ExceptionGroup(\"several\", errors)\n  | ExceptionGroup: several (2 sub-exceptions)\n  \
                 +-+---------------- 1 ----------------\n    | ValueError: a\n    \
                 +---------------- 2 ----------------\n    | TypeError: b\n    +------------------------------------\n",
                "ExceptionGroup: several (2 sub-exceptions): ValueError: a; TypeError: b",
            ),
            (
                "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access\n\
                 Exception raised from c10_cuda_check at CUDAException.cpp:43 (most recent call first):\nframe #0: c10::Error\n\n\
                 Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n  File \"/tmp/work/x.py\", line 7 in f\n",
                "c10::Error: CUDA error: an illegal memory access",
            ),
            (
                "terminate called without an active exception\nframe #1: abort\n",
                "terminate called without an active exception",
            ),
            (
                "triton.compiler.errors.CompilationError: at 3:8:\n@triton.jit\ndef add(x):\n    y = undefined\n        ^\n\
                 NameError('undefined is not defined')\n",
                "triton.compiler.errors.CompilationError: at 3:8: NameError('undefined is not defined')",
            ),
            (
                "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262400, Hardware limit: 232448.\nbye\n",
                "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262400, Hardware limit: 232448.",
            ),
            (
                "RuntimeError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n\
                 ptxas /tmp/k.ptx, line 50; error   : Illegal modifier '.x' for instruction 'add'\n\
                 ptxas fatal   : Ptx assembly aborted due to errors\n",
                "ptxas /tmp/k.ptx, line 50; error   : Illegal modifier '.x' for instruction 'add'; \
                 ptxas fatal   : Ptx assembly aborted due to errors",
            ),
            (
                "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  \
                 File \"/usr/lib/python3/ctypes.py\", line 5 in string_at\n  File \"/tmp/work/submission.py\", line 9 in f\n\n\
                 Extension modules: numpy._core (total: 1)\n",
                "Fatal Python error: Segmentation fault (submission.py, line 9)",
            ),
            (
                "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\n\
                 CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n\
                 For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n",
                "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
            ),
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 400.00 GiB. GPU 0 has a total capacity of 139.80 GiB\n",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 400.00 GiB. GPU 0 has a total capacity of 139.80 GiB",
            ),
        ];
        // One that was caught and printed earlier has no part in what came later.
        let (group, later) = (cases[4].0, "Traceback (most recent call last):\nKeyError: 'later'\n");
        assert_eq!(submission_error(&format!("{group}{later}")).unwrap(), "KeyError: 'later'");
        for (end, expected) in cases {
            let told = submission_error(&format!("{traceback}{end}")).unwrap();
            assert_eq!(told, expected);
            assert!(!told.contains('\n') && told.chars().count() <= MAX_CHARS + 1);
        }
    }

    #[test]
    fn what_a_submission_printed_last_is_told_in_short() {
        assert_eq!(last_words("step 1\nstep 2\n==PROF== Connected to process 7\n").unwrap(), "step 2");
        assert_eq!(last_words("==WARNING== No kernels were profiled.\n"), None);
        let crash = "Fatal Python error: Segmentation fault\n\n  File \"/tmp/work/submission.py\", line 9 in f\nExtension modules: x\n";
        assert_eq!(last_words(crash).unwrap(), "Fatal Python error: Segmentation fault (submission.py, line 9)");
        assert_eq!(last_words(&"x".repeat(9999)).unwrap().chars().count(), MAX_LAST_WORDS_CHARS + 1);
    }

    #[test]
    fn a_line_of_equal_signs_is_the_submissions_own() {
        for (line, ours) in [("==PROF== x", true), ("==ERROR== x", true), ("== result ==", false), ("======", false)] {
            assert_eq!(is_our_tools(line), ours, "{line}");
        }
    }
}
