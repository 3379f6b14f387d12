//! How kafka-console-consumer prints a record: the reference's formatters by class name.

use std::collections::BTreeMap;

use client::consumer::ConsumerRecord;
use record::TimestampType;

use super::coordinator_json::{CoordinatorLog, format_record};
use super::deserializer::Deserializer;
use crate::failure::Failure;
use crate::io::Io;

const PACKAGE: &str = "org.apache.kafka.tools.consumer.";
const DEFAULT_LOGGER: &str = "org.apache.kafka.tools.consumer.DefaultMessageFormatter";

pub(super) enum Formatter {
    Default(Box<DefaultFormatter>),
    NoOp,
    Coordinator(CoordinatorLog),
}

fn coordinator(name: &str) -> Option<CoordinatorLog> {
    match name {
        "OffsetsMessageFormatter" => Some(CoordinatorLog::Offsets),
        "GroupMetadataMessageFormatter" => Some(CoordinatorLog::GroupMetadata),
        "TransactionLogMessageFormatter" => Some(CoordinatorLog::Transactions),
        "ShareGroupStateMessageFormatter" | "group.share.ShareGroupStateMessageFormatter" => {
            Some(CoordinatorLog::ShareState)
        }
        _ => None,
    }
}

impl Formatter {
    pub(super) fn exists(class: &str) -> bool {
        let Some(name) = class.strip_prefix(PACKAGE) else { return false };
        matches!(name, "DefaultMessageFormatter" | "LoggingMessageFormatter" | "NoOpMessageFormatter")
            || coordinator(name).is_some()
    }

    pub(super) fn new(class: &str, properties: &BTreeMap<String, String>, io: &mut Io) -> Self {
        let name = class.strip_prefix(PACKAGE).unwrap_or(class);
        match (name, coordinator(name)) {
            (_, Some(log)) => Formatter::Coordinator(log),
            ("NoOpMessageFormatter", _) => Formatter::NoOp,
            // The logging formatter adds a line to the log at level INFO, which the tools' log does not show.
            _ => Formatter::Default(Box::new(DefaultFormatter::new(properties, io))),
        }
    }

    pub(super) fn write(&self, record: &ConsumerRecord, io: &mut Io) -> Result<(), Failure> {
        match self {
            Formatter::NoOp => Ok(()),
            Formatter::Default(formatter) => formatter.write(record, io),
            Formatter::Coordinator(log) => {
                let written = format_record(*log, record.key.as_ref(), record.value.as_ref());
                match written {
                    Ok(Some(json)) => io.print(json),
                    Ok(None) => {}
                    Err(cause) => {
                        let message =
                            format!("Could not read record at offset {} due to: {cause}", record.offset);
                        return Err(Failure::text("java.lang.RuntimeException", message));
                    }
                }
                Ok(())
            }
        }
    }
}

pub(super) struct DefaultFormatter {
    timestamp: bool,
    key: bool,
    value: bool,
    partition: bool,
    offset: bool,
    delivery: bool,
    epoch: bool,
    headers: bool,
    key_separator: String,
    line_separator: String,
    headers_separator: String,
    null_literal: String,
    key_deserializer: Option<Deserializer>,
    value_deserializer: Option<Deserializer>,
    headers_deserializer: Option<Deserializer>,
}

impl DefaultFormatter {
    fn new(properties: &BTreeMap<String, String>, io: &mut Io) -> Self {
        let flag = |name: &str, default: bool| {
            properties.get(name).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"))
        };
        let text =
            |name: &str, default: &str| properties.get(name).map_or(default, String::as_str).to_owned();
        let mut deserializer = |name: &str| {
            let class = properties.get(name)?;
            let found = Deserializer::by_class(class);
            if found.is_none() {
                io.log(
                    "ERROR",
                    &format!("Unable to instantiate a deserializer from {class}"),
                    DEFAULT_LOGGER,
                );
            }
            found
        };
        DefaultFormatter {
            key_deserializer: deserializer("key.deserializer"),
            value_deserializer: deserializer("value.deserializer"),
            headers_deserializer: deserializer("headers.deserializer"),
            timestamp: flag("print.timestamp", false),
            key: flag("print.key", false),
            value: flag("print.value", true),
            partition: flag("print.partition", false),
            offset: flag("print.offset", false),
            delivery: flag("print.delivery", false),
            epoch: flag("print.epoch", false),
            headers: flag("print.headers", false),
            key_separator: text("key.separator", "\t"),
            line_separator: text("line.separator", "\n"),
            headers_separator: text("headers.separator", ","),
            null_literal: text("null.literal", "null"),
        }
    }

    /// The columns in their order; each is followed by the separator while another one comes.
    fn write(&self, record: &ConsumerRecord, io: &mut Io) -> Result<(), Failure> {
        let mut line: Vec<u8> = Vec::new();
        let columns = [
            self.timestamp,
            self.partition,
            self.offset,
            self.delivery,
            self.epoch,
            self.headers,
            self.key,
            self.value,
        ];
        for (index, shown) in columns.iter().enumerate() {
            if !shown {
                continue;
            }
            match index {
                0 => line.extend(timestamp(record).bytes()),
                1 => line.extend(format!("Partition:{}", record.partition).bytes()),
                2 => line.extend(format!("Offset:{}", record.offset).bytes()),
                3 => line.extend(b"Delivery:NOT_PRESENT"),
                4 => line.extend(b"Epoch:NOT_PRESENT"),
                5 => self.write_headers(record, &mut line)?,
                6 => line.extend(self.show(record.key.as_deref(), self.key_deserializer)?),
                _ => line.extend(self.show(record.value.as_deref(), self.value_deserializer)?),
            }
            let more = columns.iter().skip(index + 1).any(|shown| *shown);
            line.extend(if more { &self.key_separator } else { &self.line_separator }.bytes());
        }
        io.bytes(&line);
        Ok(())
    }

    fn write_headers(&self, record: &ConsumerRecord, line: &mut Vec<u8>) -> Result<(), Failure> {
        if record.headers.is_empty() {
            line.extend(b"NO_HEADERS");
        }
        for (index, header) in record.headers.iter().enumerate() {
            if index > 0 {
                line.extend(self.headers_separator.bytes());
            }
            line.extend(header.key.bytes());
            line.push(b':');
            line.extend(self.show(header.value.as_deref(), self.headers_deserializer)?);
        }
        Ok(())
    }

    fn show(&self, bytes: Option<&[u8]>, deserializer: Option<Deserializer>) -> Result<Vec<u8>, Failure> {
        let bytes = bytes.unwrap_or(self.null_literal.as_bytes());
        match deserializer {
            None => Ok(bytes.to_vec()),
            Some(deserializer) => {
                let error =
                    |message| Failure::text("org.apache.kafka.common.errors.SerializationException", message);
                Ok(deserializer.show(bytes).map_err(error)?.into_bytes())
            }
        }
    }
}

fn timestamp(record: &ConsumerRecord) -> String {
    match record.timestamp_type {
        TimestampType::CreateTime => format!("CreateTime:{}", record.timestamp),
        TimestampType::LogAppendTime => format!("LogAppendTime:{}", record.timestamp),
        _ => "NO_TIMESTAMP".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn format(properties: &[(&str, &str)]) -> String {
        let properties =
            properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let sink = Sink::default();
        let mut io = Io::new(Box::new(sink.clone()), Box::new(std::io::sink()));
        let record = ConsumerRecord {
            topic: "t".into(),
            partition: 1,
            offset: 7,
            timestamp: 99,
            timestamp_type: TimestampType::CreateTime,
            leader_epoch: 0,
            key: None,
            value: Some("v".into()),
            headers: Vec::new(),
        };
        DefaultFormatter::new(&properties, &mut io).write(&record, &mut io).unwrap();
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn columns_come_in_the_reference_order() {
        assert_eq!(format(&[]), "v\n");
        let all = ["timestamp", "key", "offset", "partition", "headers", "epoch", "delivery"];
        let all: Vec<String> = all.iter().map(|name| format!("print.{name}")).collect();
        let mut properties: Vec<(&str, &str)> = all.iter().map(|name| (name.as_str(), "true")).collect();
        properties.push(("key.separator", "|"));
        assert_eq!(
            format(&properties),
            "CreateTime:99|Partition:1|Offset:7|Delivery:NOT_PRESENT|Epoch:NOT_PRESENT|NO_HEADERS|null|v\n"
        );
        assert_eq!(format(&[("print.key", "true"), ("print.value", "false"), ("null.literal", "-")]), "-\n");
    }
}
