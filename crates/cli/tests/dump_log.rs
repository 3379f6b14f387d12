//! kafka-dump-log against recorded output of Apache Kafka 4.4.0's DumpLogSegments, byte for byte: logs of all codecs and
//! formats, indexes, snapshots, Kafka's own topics, and damaged files. `compat/dump-log/record.sh` records it anew.

use std::io::Write;
use std::sync::{Arc, Mutex};

use cli::Invocation;
use cli::io::{End, Io};

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Captured {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn dump(arguments: &str) -> String {
    let (out, err) = (Captured::default(), Captured::default());
    let mut io = Io::new(Box::new(out.clone()), Box::new(err.clone()));
    let arguments = arguments.split(' ').map(str::to_owned).collect();
    let invocation = Invocation { tool: "kafka-dump-log", arguments };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    match runtime.block_on(cli::tools::run(&invocation, &mut io)) {
        Ok(()) | Err(End::Code(_)) => {}
        Err(End::Message(message)) => io.error_line(message),
    }
    io.flush();
    let here = std::env::current_dir().unwrap().display().to_string();
    format!("{}--- stderr\n{}", out.text(), err.text()).replace(&here, "$DIR")
}

#[test]
fn output_is_the_references_to_the_byte() {
    let expected = std::fs::read_to_string("tests/dump_log/expected.txt").unwrap();
    let sections = expected.strip_prefix(">>> ").unwrap().split("\n>>> ");
    let mut count = 0;
    for section in sections {
        let (arguments, expected) = section.split_once('\n').unwrap();
        let actual = dump(arguments);
        assert_eq!(actual.trim_end_matches('\n'), expected.trim_end_matches('\n'), "{arguments}");
        count += 1;
    }
    assert!(count > 120, "{count}");
}
