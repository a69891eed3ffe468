//! The end of what a submission printed, for an author whose shape left no archive to look into.

use crate::text::is_shown;

use super::complaint::is_our_tools;

/// Longest tail, in bytes. The runs table refuses a longer one.
pub const MAX_BYTES: usize = 4096;

/// The last lines of both streams, standard output first; `None` where nothing was printed. Whatever the streams hold, the
/// tail is bounded and safe to print. Standard output keeps up to half of it, however long the errors are.
#[must_use]
pub fn output_tail(stdout: &[u8], stderr: &[u8]) -> Option<String> {
    let (output, errors) = (printed(stdout), printed(stderr));
    let errors = last_lines(&errors, MAX_BYTES - output.len().min(MAX_BYTES / 2));
    let mut tail = last_lines(&output, MAX_BYTES - errors.len());
    tail.push_str(&errors);
    tail.truncate(tail.trim_end().len());
    (!tail.is_empty()).then_some(tail)
}

/// The submission's own lines, each with its end, without control characters.
fn printed(stream: &[u8]) -> String {
    let text = String::from_utf8_lossy(stream);
    let mut printed = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !is_our_tools(line)) {
        printed.extend(line.chars().filter(|&c| c == '\t' || is_shown(c)));
        printed.push('\n');
    }
    printed
}

/// The last whole lines within a limit, or the end of the last one where that alone is longer.
fn last_lines(text: &str, max_bytes: usize) -> String {
    const CUT: &str = "…";
    let Some(excess) = text.len().checked_sub(max_bytes).filter(|&excess| excess > 0) else { return text.to_owned() };
    // The line that the limit falls into is not whole, unless it begins there.
    let next_line = text.as_bytes()[excess - 1..].iter().position(|&byte| byte == b'\n').map(|at| excess + at);
    match next_line {
        Some(start) if start < text.len() => text[start..].to_owned(),
        _ => CUT.to_owned() + &text[text.ceil_char_boundary(excess + CUT.len())..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_output_is_whole_and_only_the_submissions() {
        let stdout = b"---- ncu-runner: capture: ncu ----\n==PROF== Connected to process 7\nstep 1\nstep 2\n";
        assert_eq!(output_tail(stdout, b"warning\n").unwrap(), "step 1\nstep 2\nwarning");
        assert_eq!(output_tail(b"==PROF== Connected\n\n", b""), None);
        assert_eq!(output_tail(b"", b""), None);
    }

    #[test]
    fn a_long_output_keeps_its_last_whole_lines_and_some_of_each_stream() {
        let lines = (0..2000).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat();
        let tail = output_tail(lines.as_bytes(), b"the error\n").unwrap();
        assert!(tail.len() <= MAX_BYTES && tail.len() > MAX_BYTES - 20, "{}", tail.len());
        assert!(tail.starts_with("line ") && tail.ends_with("line 1999\nthe error"), "{tail}");

        let errors = lines.replace("line", "fault");
        let tail = output_tail(lines.as_bytes(), errors.as_bytes()).unwrap();
        assert!(
            tail.len() <= MAX_BYTES && tail.contains("line 1999\nfault ") && tail.ends_with("fault 1999"),
            "{tail}"
        );
        for line in tail.lines() {
            assert!(line.starts_with("line ") || line.starts_with("fault "), "{line}");
        }
    }

    #[test]
    fn a_limit_between_two_lines_loses_neither() {
        assert_eq!(last_lines("ab\ncd\n", 3), "cd\n");
        assert_eq!(last_lines("ab\ncd\n", 4), "cd\n");
        assert_eq!(last_lines("ab\ncd\n", 6), "ab\ncd\n");
    }

    #[test]
    fn a_line_without_an_end_is_cut_and_nothing_hostile_gets_through() {
        let tail = output_tail("é".repeat(1 << 16).as_bytes(), b"").unwrap();
        assert!(tail.len() <= MAX_BYTES && tail.starts_with("…é"), "{}", tail.len());
        // Each byte that is no UTF-8 becomes three.
        assert!(output_tail(&vec![0xff; 1 << 16], &vec![0xff; 1 << 16]).unwrap().len() <= MAX_BYTES);
        assert_eq!(output_tail(b"a\0b\x1b[31m\tc\r\n\x07d", b"").unwrap(), "ab[31m\tc\nd");
    }
}
