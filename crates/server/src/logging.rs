//! Log lines in Apache Kafka's format, on stdout: `[2026-01-31 12:00:00,123] INFO text (logger)`.
//!
//! Tools wait for some of these lines (Testcontainers reads `Kafka Server started` from stdout), so the format and
//! the stream are a contract. One event is one line: line breaks inside a message become spaces.

use std::fmt::Write as _;
use std::io::Write as _;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

struct KafkaLines {
    level: Level,
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let written = if field.name() == "message" {
            let start = self.0.len();
            let written = write!(self.0, "{value:?}");
            if start > 0 {
                self.0.insert(start, ' ');
            }
            written
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
        debug_assert!(written.is_ok(), "writing to a string does not fail");
    }
}

impl<S: Subscriber> Layer<S> for KafkaLines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.level
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::with_capacity(160));
        event.record(&mut message);
        let text = message.0.trim_start().replace(['\n', '\r'], " ");
        let metadata = event.metadata();
        let now = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S,%3f").to_string();
        let line =
            format!("[{now}] {} {text} ({})\n", metadata.level(), metadata.target().replace("::", "."));
        // A closed stdout must not stop the broker.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

/// Installs the log for this process. The level comes from `KAFKA_LOG4J_ROOT_LOGLEVEL` when it is given there.
pub fn init(level: Option<&str>) {
    let level = level.and_then(parse_level).unwrap_or(Level::INFO);
    let _ = tracing_subscriber::registry().with(KafkaLines { level }).try_init();
}

fn parse_level(name: &str) -> Option<Level> {
    match name.to_ascii_uppercase().as_str() {
        "TRACE" | "ALL" => Some(Level::TRACE),
        "DEBUG" => Some(Level::DEBUG),
        "INFO" => Some(Level::INFO),
        "WARN" => Some(Level::WARN),
        "ERROR" | "FATAL" | "OFF" => Some(Level::ERROR),
        _ => None,
    }
}
