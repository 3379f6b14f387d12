//! Every command line tool of Apache Kafka in one crate: `kafka-topics`, `kafka-console-consumer` and so on.
//!
//! A tool is chosen by the name the program was started under (`kafka-topics.sh`, `kafka-topics`) or by its first
//! argument. Options, output and exit codes are the reference's; every tool adds `-o json|yaml|table` and a time limit
//! with one line that says what is wrong and what to do. Nothing here links the broker; the offline tools read a data
//! directory through `storage` and `metadata`.

pub mod admin;
pub mod argparse;
pub mod failure;
pub mod filter;
pub mod io;
pub mod java;
pub mod options;
pub mod output;
pub mod schema_json;
pub mod text;
pub mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::io::{End, Io};

/// The release of Apache Kafka whose tools these are.
pub const KAFKA_VERSION: &str = "4.4.0";

/// A tool and its arguments, found in an `argv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub tool: &'static str,
    pub arguments: Vec<String>,
}

/// Finds the tool by the program's name, else by the first argument.
pub fn find(argv: &[OsString]) -> Option<Invocation> {
    let text: Vec<String> = argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let program = text.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    if let Some(tool) = tools::by_name(program) {
        return Some(Invocation { tool, arguments: text.get(1..).unwrap_or_default().to_vec() });
    }
    let tool = tools::by_word(text.get(1)?)?;
    Some(Invocation { tool, arguments: text.get(2..).unwrap_or_default().to_vec() })
}

/// Runs the tool of `argv` to its end.
pub fn run(argv: Vec<OsString>) -> ExitCode {
    let mut io = Io::standard();
    let Some(invocation) = find(&argv) else {
        io.error_line(format!(
            "No such tool. The tools are: {}",
            tools::names().collect::<Vec<_>>().join(", ")
        ));
        return ExitCode::from(1);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(tools::run(&invocation, &mut io));
            // What still runs then (an open connection, a blocked read of stdin) is of no more interest.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(End::message(format!("cannot start threads: {error}"))),
    };
    let code = match ended {
        Ok(()) => 0,
        Err(End::Code(code)) => code,
        Err(End::Message(message)) => {
            io.error_line(message);
            1
        }
    };
    io.flush();
    ExitCode::from(code)
}

/// Milliseconds since the epoch; tools print times and compute "how long ago".
#[allow(clippy::disallowed_methods, reason = "a tool is the outermost shell; the clock enters here")]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_chosen_by_program_name_or_first_argument() {
        let invocation = |line: &str| find(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["/usr/bin/kafka-topics.sh --list", "kafka-topics --list", "bitacora kafka-topics --list"]
        {
            let found = invocation(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                (found.tool, found.arguments.as_slice()),
                ("kafka-topics", &["--list".to_owned()][..])
            );
        }
        let found = invocation("bitacora storage info").unwrap();
        assert_eq!((found.tool, found.arguments.len()), ("kafka-storage", 1));
        assert_eq!(invocation("bitacora tools link x").unwrap().tool, "tools");
        assert_eq!(invocation("bitacora server x"), None);
        assert_eq!(invocation("bitacora"), None);
    }
}
