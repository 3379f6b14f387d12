//! The cleaner's settings.
//!
//! Owns: [`CleanerConfig`] with Apache Kafka 4.4.0's defaults. Values come from outside, already validated.
//! Invariants, concurrency, crash: a value.

/// Named as in Kafka; all of them but `enable` may change while the node runs.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanerConfig {
    /// `log.cleaner.enable`
    pub enable: bool,
    /// `log.cleaner.threads`
    pub threads: usize,
    /// `log.cleaner.dedupe.buffer.size`: bytes, of all threads together
    pub dedupe_buffer_size: u64,
    /// `log.cleaner.io.buffer.load.factor`
    pub dedupe_buffer_load_factor: f64,
    /// `log.cleaner.io.buffer.size`: bytes, of all threads together
    pub io_buffer_size: usize,
    /// `log.cleaner.io.max.bytes.per.second`: reads and writes, of all threads together
    pub max_io_bytes_per_second: f64,
    /// `log.cleaner.backoff.ms`
    pub backoff_ms: i64,
}

impl Default for CleanerConfig {
    fn default() -> Self {
        CleanerConfig {
            enable: true,
            threads: 1,
            dedupe_buffer_size: 128 << 20,
            dedupe_buffer_load_factor: 0.9,
            io_buffer_size: 512 << 10,
            max_io_bytes_per_second: f64::MAX,
            backoff_ms: 15_000,
        }
    }
}

impl CleanerConfig {
    /// Bytes of one thread's offset map.
    pub(super) fn map_memory(&self) -> usize {
        let share = self.dedupe_buffer_size / self.threads.max(1) as u64;
        usize::try_from(share).unwrap_or(usize::MAX).min(i32::MAX as usize)
    }

    /// Bytes of one thread's read buffer, and of its write buffer.
    pub(super) fn buffer_size(&self) -> usize {
        /// Below this every batch would take several reads.
        const LEAST: usize = 4096;
        (self.io_buffer_size / self.threads.max(1) / 2).max(LEAST)
    }
}
