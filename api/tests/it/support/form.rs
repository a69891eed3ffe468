//! The form of a submission, byte by byte, so that a test can send what no client library would.

use reqwest::RequestBuilder;

pub const BOUNDARY: &str = "a-boundary-of-the-tests";

#[derive(Debug, Clone, Default)]
pub struct Form(Vec<u8>);

impl Form {
    pub fn new() -> Self {
        Self::default()
    }

    /// What popcorn-cli sends for one benchmark.
    pub fn usual() -> Self {
        Self::new().file("submission.py", b"def custom_kernel(data): return data\n").text("leaderboard", "qr_v2")
    }

    /// A part with any headers.
    pub fn part(mut self, headers: &str, content: &[u8]) -> Self {
        self.0.extend_from_slice(format!("--{BOUNDARY}\r\n{headers}\r\n\r\n").as_bytes());
        self.0.extend_from_slice(content);
        self.0.extend_from_slice(b"\r\n");
        self
    }

    pub fn file(self, name: &str, content: &[u8]) -> Self {
        self.part(&format!("Content-Disposition: form-data; name=\"file\"; filename=\"{name}\""), content)
    }

    pub fn text(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.part(&format!("Content-Disposition: form-data; name=\"{name}\""), value.as_ref())
    }

    pub fn bytes(mut self) -> Vec<u8> {
        self.0.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.0
    }

    pub fn onto(self, request: RequestBuilder) -> RequestBuilder {
        request.header("Content-Type", format!("multipart/form-data; boundary={BOUNDARY}")).body(self.bytes())
    }
}
