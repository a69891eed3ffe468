//! What `ncu` prints of its passes, and what the submission printed last, for a user who waits: a small file that the worker reads
//! while the container runs. It shares its folder with the submission, so it proves nothing, and trouble with it is none.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ncu_runner::protocol::{self, Progress};
use rustix::fs::OFlags;

/// The file is written no more often.
const PAUSE: Duration = Duration::from_millis(500);
/// How much of a line is looked at, in bytes.
const MAX_LINE_BYTES: usize = 1024;
/// How much of a line of the output is kept, in bytes.
const MAX_OUTPUT_LINE_BYTES: usize = 200;
/// What `ncu` begins the line of a kernel with.
const PROFILING: &str = "==PROF== Profiling \"";

/// Keeps the file.
#[derive(Debug)]
pub struct Reporter {
    folder: PathBuf,
    progress: Progress,
    output: VecDeque<String>,
    written_at: Option<Instant>,
}

impl Reporter {
    /// Nothing is told yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), progress: Progress::default(), output: VecDeque::new(), written_at: None }
    }

    /// A step begins, of which at most so many launches are profiled.
    pub fn begin(&mut self, step: &str, launches_at_most: Option<u32>) {
        self.output.clear();
        self.progress = Progress { step: step.to_owned(), launches_at_most, ..Progress::default() };
        self.written_at = None;
        self.tell();
    }

    /// A line of the output, whole or as far as it has come.
    fn line(&mut self, line: &str, is_whole: bool) {
        if let Some((name, passes)) = line.strip_prefix(PROFILING).and_then(|rest| rest.rsplit_once('"')) {
            self.progress.kernel = Some(name.to_owned());
            self.progress.percent = if is_whole { Some(100) } else { last_percent(passes) };
            if is_whole {
                self.progress.launches_done += 1;
            }
        } else if is_whole && !line.starts_with("==PROF==") && !line.trim().is_empty() {
            let end = line.floor_char_boundary(MAX_OUTPUT_LINE_BYTES);
            self.output.push_back(line[..end].to_owned());
            if self.output.len() > Progress::MAX_OUTPUT_LINES {
                self.output.pop_front();
            }
        } else {
            return;
        }
        self.tell();
    }

    /// Writes the file, unless that was done a moment ago.
    fn tell(&mut self) {
        if self.written_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.written_at = Some(Instant::now());
        self.progress.output = self.output.iter().cloned().collect();
        // Whatever the submission has put in its place: nobody is worse off without it.
        let _ = self.write();
    }

    fn write(&self) -> io::Result<()> {
        let new = self.folder.join(format!("{}.new", protocol::PROGRESS_FILE));
        // Neither through a link nor into a pipe that nobody reads.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .custom_flags(flags.bits().cast_signed())
            .open(&new)?;
        file.write_all(&serde_json::to_vec(&self.progress)?)?;
        std::fs::rename(&new, self.folder.join(protocol::PROGRESS_FILE))
    }
}

/// A stream on its way to its sink, looked at by the line.
#[derive(Debug)]
pub struct Watched<'a, W> {
    sink: &'a mut W,
    reporter: &'a mut Reporter,
    line: Vec<u8>,
}

impl<'a, W: Write> Watched<'a, W> {
    /// Looks at what goes to that sink.
    pub fn new(sink: &'a mut W, reporter: &'a mut Reporter) -> Self {
        Self { sink, reporter, line: Vec::new() }
    }

    fn look(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let is_whole = part.ends_with(b"\n");
            let text = String::from_utf8_lossy(&self.line).trim_end().to_owned();
            self.reporter.line(&text, is_whole);
            if is_whole {
                self.line.clear();
            }
        }
    }
}

impl<W: Write> Write for Watched<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.look(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// The last number before a percent sign.
fn last_percent(text: &str) -> Option<u8> {
    let (before, _) = text.rsplit_once('%')?;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|&percent| percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(folder: &Path) -> Progress {
        serde_json::from_slice(&std::fs::read(folder.join(protocol::PROGRESS_FILE)).unwrap()).unwrap()
    }

    /// What is told after each of these pieces of output.
    fn after(pieces: &[&[u8]]) -> Vec<Progress> {
        let folder = tempfile::tempdir().unwrap();
        let (mut reporter, mut sink) = (Reporter::new(folder.path()), Vec::new());
        reporter.begin("capture", Some(10));
        let mut all = Vec::new();
        let mut watched = Watched::new(&mut sink, &mut reporter);
        for piece in pieces {
            watched.reporter.written_at = None;
            watched.write_all(piece).unwrap();
            all.push(told(folder.path()));
        }
        assert_eq!(sink, pieces.concat(), "what goes to the sink is what came");
        all
    }

    #[test]
    fn passes_are_told_as_ncu_prints_them() {
        let told = after(&[
            b"==PROF== Connected to process 7\n==PROF== Profiling \"geqr2\" - 0: 0%",
            b"....50%",
            b"....100%",
            b" - 38 passes\n",
            b"==PROF== Profiling \"say \"a\" 7%\" - 1 (2/10): 0%....5",
        ]);
        let seen: Vec<_> = told.iter().map(|told| (told.launches_done, told.percent)).collect();
        assert_eq!(seen, [(0, Some(0)), (0, Some(50)), (0, Some(100)), (1, Some(100)), (1, Some(0))]);
        assert_eq!((told[0].kernel.as_deref(), told[4].kernel.as_deref()), (Some("geqr2"), Some("say \"a\" 7%")));
        assert_eq!((told[0].step.as_str(), told[0].launches_at_most), ("capture", Some(10)));
    }

    #[test]
    fn only_the_last_lines_of_the_output_are_told_and_only_their_beginnings() {
        let long = format!("{}\n", "ü".repeat(5000));
        let lines: Vec<String> = (0..20).map(|n| format!("line {n}\n")).chain([long]).collect();
        let pieces: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let output = after(&pieces).pop().unwrap().output;
        assert_eq!(output.len(), Progress::MAX_OUTPUT_LINES);
        assert_eq!(output.last().unwrap(), &"ü".repeat(MAX_OUTPUT_LINE_BYTES / 2));
        assert!(output.iter().map(String::len).sum::<usize>() < 2000);
    }

    #[test]
    fn what_a_submission_puts_in_its_place_is_neither_followed_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "theirs").unwrap();
        let new = folder.path().join(format!("{}.new", protocol::PROGRESS_FILE));
        std::os::unix::fs::symlink(&secret, &new).unwrap();
        let mut reporter = Reporter::new(folder.path());
        reporter.begin("capture", None);
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "theirs");
        std::fs::remove_file(&new).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &new, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        reporter.begin("capture", None);
        std::fs::remove_file(&new).unwrap();
        std::fs::create_dir(folder.path().join(protocol::PROGRESS_FILE)).unwrap();
        reporter.begin("capture", None);
    }
}
