//! The one binary: broker, controller and every Kafka tool, chosen by `argv[0]` or the first argument.

use std::process::ExitCode;

/// Long-lived servers with many small buffers keep less memory with it than with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let argv: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if cli::find(&argv).is_some() {
        return cli::run(argv);
    }
    let words: Vec<String> = argv.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let name = argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let program = name.rsplit('/').next().unwrap_or_default();
    if matches!(program, "kafka-server-start" | "kafka-server-start.sh") {
        return server::commands::server(&words);
    }
    match words.split_first() {
        Some((word, rest))
            if matches!(word.as_str(), "server" | "kafka-server-start" | "kafka-server-start.sh") =>
        {
            server::commands::server(rest)
        }
        Some((word, rest)) if word == "container" => server::commands::container(rest),
        Some((word, _)) if word == "--version" => {
            println!("bitacora {} (Apache Kafka 4.4.0)", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some((word, _)) if !word.starts_with('-') => cli::run(argv),
        _ => server::commands::standalone(&words),
    }
}
