//! Where a step's output goes. Both sinks hold a bounded amount, however much is written.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};

use ncu_runner::protocol::StreamStats;

/// A line longer than this is no preamble, and is not waited for.
const MAX_PREAMBLE_LINE_BYTES: usize = 64 * 1024;

/// Keeps the first three quarters of its limit and the last quarter.
#[derive(Debug)]
pub struct CappedStream {
    head: Vec<u8>,
    head_max: usize,
    tail: VecDeque<u8>,
    tail_max: usize,
    seen: u64,
    /// How much had been seen when the capture began.
    before_capture: Option<u64>,
}

impl CappedStream {
    /// A stream that keeps `max_bytes`.
    pub fn new(max_bytes: u64) -> Self {
        let max = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let tail_max = max / 4;
        Self {
            head: Vec::new(),
            head_max: max - tail_max,
            tail: VecDeque::new(),
            tail_max,
            seen: 0,
            before_capture: None,
        }
    }

    /// Adds a line of the runner's own, which starts a step's output.
    pub fn mark(&mut self, text: &str) {
        let last = self.tail.back().or(self.head.last());
        let line_break = if last.is_some_and(|&byte| byte != b'\n') { "\n" } else { "" };
        self.push(format!("{line_break}---- ncu-runner: {text} ----\n").as_bytes());
    }

    /// Notes that what comes now is the capture's.
    pub fn begin_capture(&mut self) {
        self.before_capture = Some(self.seen);
    }

    /// How much was written, how much is kept, and where in it the capture begins.
    pub fn stats(&self) -> StreamStats {
        StreamStats { bytes_seen: self.seen, bytes_kept: self.kept(), capture_offset: self.capture_offset() }
    }

    fn kept(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64
    }

    /// The line where something is left out.
    fn cut(&self) -> Option<String> {
        let left_out = self.seen - self.kept();
        (left_out > 0).then(|| format!("\n---- ncu-runner: {left_out} bytes are left out here ----\n"))
    }

    fn capture_offset(&self) -> Option<u64> {
        let before = self.before_capture?;
        let head = self.head.len() as u64;
        Some(match self.cut() {
            Some(cut) if before >= head => {
                let before_tail = self.seen - self.tail.len() as u64;
                head + cut.len() as u64 + before.saturating_sub(before_tail)
            }
            _ => before,
        })
    }

    /// What is kept, as UTF-8 or not.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(&[&self.head, &*self.tail.make_contiguous()].concat()).into_owned()
    }

    /// Writes what is kept, with one line where something is left out.
    pub fn write_to(&self, file: &mut impl Write) -> io::Result<()> {
        file.write_all(&self.head)?;
        file.write_all(self.cut().unwrap_or_default().as_bytes())?;
        let (first, second) = self.tail.as_slices();
        file.write_all(first)?;
        file.write_all(second)
    }

    fn push(&mut self, bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let (for_head, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(for_head);
        let kept = &rest[rest.len().saturating_sub(self.tail_max)..];
        let excess = (self.tail.len() + kept.len()).saturating_sub(self.tail_max);
        self.tail.drain(..excess);
        self.tail.extend(kept);
    }
}

impl Write for CappedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes an export to its file from its first real line on, without control characters, and fails beyond a limit.
#[derive(Debug)]
pub struct ExportFile {
    file: File,
    max_bytes: u64,
    stats: StreamStats,
    /// The line that is not yet complete, while no real line has come.
    pending: Option<Vec<u8>>,
    /// The last byte that was written.
    last: u8,
}

impl ExportFile {
    /// An export into an empty file.
    pub fn new(file: File, max_bytes: u64) -> Self {
        Self { file, max_bytes, stats: StreamStats::default(), pending: Some(Vec::new()), last: 0 }
    }

    /// Writes what is left of a last line without an end, or empties a file that is over its limit; tells how much was written and kept.
    pub fn finish(&mut self) -> io::Result<StreamStats> {
        if self.is_over_limit() {
            self.file.set_len(0)?;
            self.stats.bytes_kept = 0;
        } else if let Some(line) = self.pending.take()
            && !is_preamble(&line)
        {
            self.keep(&line)?;
        }
        Ok(self.stats)
    }

    fn is_over_limit(&self) -> bool {
        self.stats.bytes_seen > self.max_bytes
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut printable = bytes.to_vec();
        for byte in &mut printable {
            *byte = self.printable(*byte);
        }
        self.file.write_all(&printable)?;
        self.stats.bytes_kept += bytes.len() as u64;
        Ok(())
    }

    /// A space for a control character, which a terminal obeys: names of kernels and ranges are the submission's.
    fn printable(&mut self, byte: u8) -> u8 {
        let last = std::mem::replace(&mut self.last, byte);
        match byte {
            b'\n' | b'\t' => byte,
            // In UTF-8 they have two bytes; this makes a space of both.
            0x80..=0x9F if last == 0xC2 => 0xA0,
            _ if byte.is_ascii_control() => b' ',
            _ => byte,
        }
    }
}

impl Write for ExportFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stats.bytes_seen += bytes.len() as u64;
        if self.is_over_limit() {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the export is over its limit"));
        }
        let Some(mut pending) = self.pending.take() else {
            self.keep(bytes)?;
            return Ok(bytes.len());
        };
        pending.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = pending[start..].iter().position(|&byte| byte == b'\n') {
            if !is_preamble(&pending[start..start + length]) {
                self.keep(&pending[start..])?;
                return Ok(bytes.len());
            }
            start += length + 1;
        }
        let rest = pending.split_off(start);
        if rest.len() > MAX_PREAMBLE_LINE_BYTES {
            self.keep(&rest)?;
        } else {
            self.pending = Some(rest);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Lines that ncu may print ahead of an export, and that readers of the files do not expect.
fn is_preamble(line: &[u8]) -> bool {
    line.trim_ascii().is_empty() || line.starts_with(b"==WARNING==") || line.starts_with(b"==PROF==")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    fn written(stream: &CappedStream) -> String {
        let mut out = Vec::new();
        stream.write_to(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_stream_within_its_limit_is_whole() {
        let mut stream = CappedStream::new(8);
        stream.write_all(b"abcde").unwrap();
        stream.write_all(b"fgh").unwrap();
        assert_eq!(written(&stream), "abcdefgh");
        assert_eq!(stream.stats(), StreamStats { bytes_seen: 8, bytes_kept: 8, capture_offset: None });
    }

    #[test]
    fn a_longer_stream_keeps_its_start_and_its_end_and_counts_what_is_left_out() {
        for pieces in [1, 3, 7, 26] {
            let mut stream = CappedStream::new(8);
            for piece in b"abcdefghijklmnopqrstuvwxyz".chunks(pieces) {
                stream.write_all(piece).unwrap();
            }
            assert_eq!(written(&stream), "abcdef\n---- ncu-runner: 18 bytes are left out here ----\nyz", "{pieces}");
            assert_eq!(stream.stats(), StreamStats { bytes_seen: 26, bytes_kept: 8, capture_offset: None });
        }
    }

    #[test]
    fn memory_stays_bounded_however_much_is_written() {
        let mut stream = CappedStream::new(4096);
        for _ in 0..8192 {
            stream.write_all(&[b'x'; 8192]).unwrap();
        }
        assert_eq!(stream.stats(), StreamStats { bytes_seen: 64 << 20, bytes_kept: 4096, capture_offset: None });
        assert!(stream.head.capacity() + stream.tail.capacity() <= 4 * 4096);
    }

    #[test]
    fn a_mark_starts_on_a_line_of_its_own() {
        let mut stream = CappedStream::new(1000);
        stream.mark("warm-up");
        stream.write_all(b"no end of line").unwrap();
        stream.mark("capture");
        assert_eq!(written(&stream), "---- ncu-runner: warm-up ----\nno end of line\n---- ncu-runner: capture ----\n");
    }

    #[test]
    fn the_captures_part_is_found_in_what_is_kept() {
        // Of a limit of 8 bytes, 6 are the head's and 2 the tail's.
        for (before, capture, expected) in [
            ("", "CD", "CD"),
            ("abc", "", ""),
            ("abc", "CD", "CD"),
            ("abcdefg", "C", "C"),
            ("abc", "CDEFGHIJ", "CDE\n---- ncu-runner: 3 bytes are left out here ----\nIJ"),
            ("abcdef", "CDEFGH", "GH"),
            ("abcdefghijkl", "CDEF", "EF"),
            ("abcdefghijkl", "C", "C"),
            ("abcdefghijkl", "", ""),
        ] {
            let mut stream = CappedStream::new(8);
            stream.write_all(before.as_bytes()).unwrap();
            stream.begin_capture();
            stream.write_all(capture.as_bytes()).unwrap();
            let offset = usize::try_from(stream.stats().capture_offset.unwrap()).unwrap();
            assert_eq!(&written(&stream)[offset..], expected, "{before} {capture}");
        }
    }

    fn exported(pieces: &[&str], max_bytes: u64) -> (String, io::Result<()>) {
        let mut file = tempfile::tempfile().unwrap();
        let mut export = ExportFile::new(file.try_clone().unwrap(), max_bytes);
        let result = pieces.iter().try_for_each(|piece| export.write_all(piece.as_bytes()));
        export.finish().unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        (text, result)
    }

    #[test]
    fn an_export_starts_at_its_first_real_line() {
        let preamble = "==WARNING== Could not deploy\n\n==PROF== Connected\n  \n";
        let body = "[1] python3@127.0.0.1\n\n==WARNING== in the body\n";
        let whole = format!("{preamble}{body}");
        assert_eq!(exported(&[&whole], 1000).0, body);
        let bytes: Vec<&str> = whole.split_inclusive(|_| true).collect();
        assert_eq!(exported(&bytes, 1000).0, body);
        assert_eq!(exported(&[preamble, "one line without an end"], 1000).0, "one line without an end");
        assert_eq!(exported(&[preamble], 1000).0, "");
    }

    #[test]
    fn an_export_holds_no_control_characters() {
        let (whole, expected) = (
            "[1] a\u{1b}[2J\0b\rc\td\n\u{9b}31m caf\u{e9} \u{80}\u{a9}\n",
            "[1] a [2J b c\td\n\u{a0}31m caf\u{e9} \u{a0}\u{a9}\n",
        );
        assert_eq!(exported(&[whole], 1000).0, expected);
        let pieces: Vec<&str> = whole.split_inclusive(|_| true).collect();
        assert_eq!(exported(&pieces, 1000).0, expected);
    }

    #[test]
    fn an_export_over_its_limit_fails_and_leaves_nothing() {
        assert!(exported(&["0123456789\n"], 11).1.is_ok());
        let (text, result) = exported(&["0123456789\n", "x"], 11);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(text, "");
    }
}
