//! The command line tools alone, without the broker: `cargo run -p cli --example tools -- kafka-topics …`.

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os().collect())
}
