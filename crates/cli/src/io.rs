//! What a tool writes to, and how it ends.
//!
//! Output is buffered and flushed when the tool ends or waits for input, so that a listing of many lines is one write.
//! A closed pipe ends the tool quietly, as it would end any program of a shell pipeline.

use std::io::Write;

/// A tool's standard output and error.
pub struct Io {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    broken: bool,
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io").field("broken", &self.broken).finish_non_exhaustive()
    }
}

/// How a tool ended before its normal end.
#[derive(Debug)]
pub enum End {
    /// Everything to say has been said.
    Code(u8),
    /// One line for stderr, then code 1.
    Message(String),
}

impl End {
    pub fn code(code: u8) -> Self {
        End::Code(code)
    }

    pub fn message(text: impl Into<String>) -> Self {
        End::Message(text.into())
    }
}

impl Io {
    pub fn standard() -> Self {
        let out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout());
        Io { out: Box::new(out), err: Box::new(std::io::stderr()), broken: false }
    }

    pub fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>) -> Self {
        Io { out, err, broken: false }
    }

    /// Writes `text` and a newline to stdout.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.print(text);
        self.bytes(b"\n");
    }

    pub fn print(&mut self, text: impl AsRef<str>) {
        self.bytes(text.as_ref().as_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.out.write_all(bytes).is_err() {
            self.broken = true;
        }
    }

    /// Whether stdout has gone away.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    pub fn error_line(&mut self, text: impl AsRef<str>) {
        self.error(&format!("{}\n", text.as_ref()));
    }

    /// Writes to stderr after everything that went to stdout so far.
    pub fn error(&mut self, text: &str) {
        self.flush();
        let _ = self.err.write_all(text.as_bytes());
    }

    pub fn flush(&mut self) {
        if self.out.flush().is_err() {
            self.broken = true;
        }
    }

    /// A line in the reference's log format on stderr, which is where its tools log warnings and errors.
    pub fn log(&mut self, level: &str, message: &str, logger: &str) {
        let at = crate::text::log_date(crate::now_ms());
        self.error(&format!("[{at}] {level} {message} ({logger})\n"));
    }
}
