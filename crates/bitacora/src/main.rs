//! The one binary: broker, controller and every Kafka tool, chosen by `argv[0]` or the first argument.
fn main() {}
