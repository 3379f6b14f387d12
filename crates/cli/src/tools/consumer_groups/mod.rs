//! kafka-consumer-groups: list, describe and delete groups, reset and delete their offsets.
//!
//! Failures of an operation are printed on stdout and the exit code stays 0, as the reference does; only wrong
//! arguments end with code 1.

mod describe;
mod groups;
mod reset;

use crate::admin::Admin;
use crate::failure::Failure;
use crate::io::{End, Io};
use crate::options::{CommandOptions, Kind, Spec, flag, value};
use crate::output::Format;
use crate::tools::common::timeout;

const ILLEGAL_ARGUMENT: &str = "java.lang.IllegalArgumentException";

fn specs() -> Vec<Spec> {
    vec![
        value("bootstrap-server", "Brokers to start from; required but for --validate-regex.")
            .described("server to connect to"),
        value("group", "The consumer group; may be repeated.").described("group id"),
        value("topic", "Topics of --reset-offsets and --delete-offsets, `topic:0,1` for single partitions.")
            .described("topic"),
        flag("all-topics", "Reset all topics of the group."),
        flag("list", "List all consumer groups."),
        flag("describe", "Describe groups: their offsets and lag, --members or --state."),
        flag("all-groups", "Apply to all consumer groups."),
        flag("delete", "Delete groups and all their offsets."),
        value("timeout", "How long to wait for the cluster.")
            .kind(Kind::Long)
            .described("timeout (ms)")
            .default_value("30000"),
        value("command-config", "A file of client properties.").described("command config property file"),
        flag(
            "reset-offsets",
            "Set the offsets of a group without members; --execute does it, --dry-run shows it.",
        ),
        flag("delete-offsets", "Delete the offsets of topics of one group."),
        flag("dry-run", "Only show what --reset-offsets would do."),
        flag("execute", "Do what --reset-offsets says."),
        flag("export", "Print the offsets of --reset-offsets as CSV."),
        value("to-offset", "Reset to this offset.").kind(Kind::Long).described("offset"),
        value("from-file", "Reset to the offsets of a CSV file.").described("path to CSV file"),
        value("to-datetime", "Reset to the first record from then on: YYYY-MM-DDThh:mm:ss.sss.")
            .described("datetime"),
        value("by-duration", "Reset to the first record so far back: PnDTnHnMnS.").described("duration"),
        flag("to-earliest", "Reset to the oldest record."),
        flag("to-latest", "Reset to the end."),
        flag("to-current", "Reset to the committed offsets."),
        value("shift-by", "Reset by so many records, forward or back.")
            .kind(Kind::Long)
            .described("number-of-offsets"),
        flag("members", "With --describe: the members.").available_if(&["describe"]),
        flag("verbose", "With --describe: more columns.").available_if(&["describe"]),
        flag("offsets", "With --describe: offsets and lag, which is the default.")
            .available_if(&["describe"]),
        value("state", "With --describe: the state; with --list: states, or only groups in these states.")
            .optional_argument()
            .available_if(&["describe", "list"]),
        value("type", "With --list: types, or only groups of these types.")
            .optional_argument()
            .available_if(&["list"]),
        value("validate-regex", "Check a regular expression as brokers read it (RE2).").described("regex"),
    ]
}

const ACTIONS: [&str; 6] =
    ["list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex"];
const SCENARIOS: [&str; 8] = [
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
];

pub async fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let options = CommandOptions::parse(CommandOptions::declare(specs()), arguments).map_err(|error| {
        io.error_line(format!("Exception in thread \"main\" joptsimple.OptionException: {error}"));
        End::code(1)
    })?;
    check(&options, io)?;
    if ACTIONS.iter().filter(|action| options.has(action)).count() != 1 {
        let listed: Vec<String> = ACTIONS.iter().map(|action| format!("--{action}")).collect();
        let message = format!("Command must include exactly one action: {}", listed.join(", "));
        return Err(options.usage_and_exit(&message, io));
    }
    match act(&options, io).await {
        Ok(()) => Ok(()),
        Err(Failure::End(end)) => Err(end),
        Err(Failure::Text { exception: ILLEGAL_ARGUMENT | "joptsimple.OptionException", message }) => {
            Err(options.usage_and_exit(&message, io))
        }
        Err(failure) => {
            print_error(&format!("Executing consumer group command failed due to {failure}"), io);
            io.error_line(failure.as_exception());
            Ok(())
        }
    }
}

fn print_error(message: &str, io: &mut Io) {
    io.line(format!("\nError: {message}"));
}

fn check(options: &CommandOptions, io: &mut Io) -> Result<(), End> {
    options.maybe_help_or_version(
        "This tool helps to list, describe, delete and manage the offsets of consumer groups.",
        io,
    )?;
    if !options.has("validate-regex") {
        options.check_required(&["bootstrap-server"], io)?;
    }
    let has_scope = options.has("group") || options.has("all-groups");
    for action in ["describe", "delete"] {
        if options.has(action) && !has_scope {
            return Err(options.usage_and_exit(&takes_a_scope(action), io));
        }
    }
    if options.has("describe") {
        let views = ["members", "offsets", "state"];
        if views.iter().filter(|view| options.has(view)).count() > 1 {
            let message =
                "Option [describe] takes at most one of these options: [members], [offsets], [state]";
            return Err(options.usage_and_exit(message, io));
        }
        if options.options.has_argument("state") {
            let message = "Option [describe] does not take a value for [state]";
            return Err(options.usage_and_exit(message, io));
        }
    }
    if options.has("delete") && options.has("topic") {
        let message = "The consumer does not support topic-specific offset deletion from a consumer group.";
        return Err(options.usage_and_exit(message, io));
    }
    if options.has("delete-offsets") && !(options.has("group") && options.has("topic")) {
        let message = "Option [delete-offsets] takes the following options: [group], [topic]";
        return Err(options.usage_and_exit(message, io));
    }
    if options.has("reset-offsets") {
        check_reset(options, has_scope, io)?;
    }
    options.check_invalid("group", &["all-groups"], io)?;
    options.check_invalid("group", &["list"], io)?;
    options.check_invalid("topic", &["describe", "list"], io)
}

fn takes_a_scope(action: &str) -> String {
    format!("Option [{action}] takes one of these options: [all-groups], [group]")
}

fn check_reset(options: &CommandOptions, has_scope: bool, io: &mut Io) -> Result<(), End> {
    match (options.has("dry-run"), options.has("execute")) {
        (true, true) => {
            let message = "Option [reset-offsets] only accepts one of [execute] and [dry-run]";
            return Err(options.usage_and_exit(message, io));
        }
        (false, false) => io.error_line(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will \
             require either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if \
             you are scripting this command and want to keep the current default behavior without prompting.",
        ),
        _ => {}
    }
    if !has_scope {
        return Err(options.usage_and_exit(&takes_a_scope("reset-offsets"), io));
    }
    let order = [
        "to-offset",
        "to-datetime",
        "by-duration",
        "to-earliest",
        "to-latest",
        "to-current",
        "shift-by",
        "from-file",
    ];
    for scenario in order {
        let others: Vec<&str> = SCENARIOS.into_iter().filter(|other| *other != scenario).collect();
        options.check_invalid(scenario, &others, io)?;
    }
    Ok(())
}

/// What every action needs.
struct Tool<'a> {
    options: &'a CommandOptions,
    admin: Admin,
    format: Format,
}

async fn act(options: &CommandOptions, io: &mut Io) -> Result<(), Failure> {
    let set = &options.options;
    if let Some(regex) = set.given("validate-regex")? {
        match regex_syntax::Parser::new().parse(&regex) {
            Ok(_) => io.line(format!("The regular expression `{regex}` is valid.")),
            Err(error) => {
                io.line(format!("The regular expression `{regex}` is invalid: {}.", re2_complaint(&error)));
            }
        }
        return Ok(());
    }
    let (bootstrap, file) = (set.value_of("bootstrap-server")?, set.given("command-config")?);
    // A wait of 30 s for a broker that is not there helps nobody: without --timeout it is 10 s.
    let limit = if options.has("timeout") { timeout(set)? } else { std::time::Duration::from_secs(10) };
    let admin = Admin::connect(bootstrap.as_deref(), file.as_deref(), limit)?;
    let tool = Tool { options, admin, format: Format::of(set)? };
    match ACTIONS.into_iter().find(|action| options.has(action)) {
        Some("list") => tool.list(io).await,
        Some("describe") => tool.describe(io).await,
        Some("delete") => tool.delete(io).await,
        Some("reset-offsets") => tool.reset(io).await,
        _ => tool.delete_offsets(io).await,
    }
}

/// The complaint of RE2 about a pattern.
fn re2_complaint(error: &regex_syntax::Error) -> String {
    use regex_syntax::ast::ErrorKind;
    let regex_syntax::Error::Parse(error) = error else { return "invalid character class range".to_owned() };
    let start = error.span().start.offset;
    let operator: String = error.pattern().get(start..).unwrap_or_default().chars().take(1).collect();
    let span = error.pattern().get(error.span().start.offset..error.span().end.offset).unwrap_or_default();
    match error.kind() {
        ErrorKind::ClassUnclosed => "missing closing ]".to_owned(),
        ErrorKind::GroupUnclosed => "missing closing )".to_owned(),
        ErrorKind::GroupUnopened => "unexpected )".to_owned(),
        ErrorKind::RepetitionMissing => format!("missing argument to repetition operator: `{operator}`"),
        ErrorKind::ClassRangeInvalid => format!("invalid character class range: `{span}`"),
        ErrorKind::EscapeUnexpectedEof => "trailing backslash at end of expression".to_owned(),
        ErrorKind::EscapeUnrecognized => format!("invalid escape sequence: `{span}`"),
        ErrorKind::UnsupportedLookAround => format!("invalid or unsupported Perl syntax: `{span}`"),
        _ => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_pattern_is_described_in_re2s_words() {
        let table = [
            ("[a", "missing closing ]"),
            ("(a", "missing closing )"),
            ("a)", "unexpected )"),
            ("*", "missing argument to repetition operator: `*`"),
        ];
        for (pattern, complaint) in table {
            let error = regex_syntax::Parser::new().parse(pattern).unwrap_err();
            assert_eq!(re2_complaint(&error), complaint, "{pattern}");
        }
    }
}
