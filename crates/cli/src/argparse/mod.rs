//! Command lines of the tools that have sub-commands (`kafka-storage format …`), as the reference's argparse4j reads
//! them.
//!
//! Owns: declaring such a command line, parsing it (abbreviated flags and commands, clusters of short flags, exclusive
//! groups, values checked by type), and the usage, help and error texts. Usage and error lines are the reference's to
//! the byte; the descriptions are our own. Pure but for `@file` arguments and file checks.
//! The options of our own (`-o`, `--timeout`) are accepted everywhere by tools that talk to a cluster, and shown only by
//! `--help`.

mod parse;
mod text;

use std::collections::BTreeMap;

/// What happens when a flag is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Takes one value; the last one counts.
    Store,
    /// Takes one value; all count.
    Append,
    /// Takes one value or more up to the next flag.
    StoreMany,
    StoreTrue,
    Help,
}

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Long,
    Double,
    OneOf(&'static [&'static str]),
}

/// One flag.
#[derive(Clone, Debug)]
pub struct Argument {
    pub flags: Vec<&'static str>,
    pub dest: &'static str,
    pub action: Action,
    pub kind: Kind,
    pub metavar: Option<&'static str>,
    pub required: bool,
    pub help: String,
    pub default: Option<&'static str>,
    group: Option<usize>,
    /// Not part of the reference's command line.
    own: bool,
}

/// `--flag`, `-f`: takes a value that `Namespace` keeps under `dest`.
pub fn option(dest: &'static str, flags: &[&'static str], help: impl Into<String>) -> Argument {
    Argument {
        flags: flags.to_vec(),
        dest,
        action: Action::Store,
        kind: Kind::String,
        metavar: None,
        required: false,
        help: help.into(),
        default: None,
        group: None,
        own: false,
    }
}

impl Argument {
    pub fn action(self, action: Action) -> Self {
        Argument { action, ..self }
    }

    pub fn kind(self, kind: Kind) -> Self {
        Argument { kind, ..self }
    }

    pub fn metavar(self, metavar: &'static str) -> Self {
        Argument { metavar: Some(metavar), ..self }
    }

    pub fn required(self) -> Self {
        Argument { required: true, ..self }
    }

    pub fn default_value(self, default: &'static str) -> Self {
        Argument { default: Some(default), ..self }
    }

    fn takes_value(&self) -> bool {
        !matches!(self.action, Action::StoreTrue | Action::Help)
    }

    /// How messages name it: all flags, `/` between them.
    fn textual_name(&self) -> String {
        self.flags.join("/")
    }
}

#[derive(Clone, Debug)]
struct Group {
    title: &'static str,
    required: bool,
    exclusive: bool,
}

/// A command line: flags and perhaps sub-commands.
#[derive(Clone, Debug)]
pub struct Parser {
    prog: &'static str,
    command: Option<&'static str>,
    description: &'static str,
    arguments: Vec<Argument>,
    groups: Vec<Group>,
    commands: Vec<Parser>,
    /// Whether `--help` shows defaults.
    shows_defaults: bool,
    /// An argument `@file` stands for the lines of that file.
    from_files: bool,
}

impl Parser {
    pub fn new(prog: &'static str, description: &'static str) -> Parser {
        let help = option("help", &["-h", "--help"], "Show this text and leave.").action(Action::Help);
        Parser {
            prog,
            command: None,
            description,
            arguments: vec![help],
            groups: Vec::new(),
            commands: Vec::new(),
            shows_defaults: false,
            from_files: false,
        }
    }

    /// A sub-command; `description` is shown in the list of commands.
    pub fn sub(command: &'static str, description: &'static str) -> Parser {
        Parser { command: Some(command), ..Parser::new("", description) }
    }

    /// Adds the options of every tool that talks to a cluster, to this parser and its commands.
    pub fn online(mut self) -> Self {
        let output = option("output", &["-o", "--output"], "The form of the output.");
        let output = output.kind(Kind::OneOf(&["table", "json", "yaml"])).default_value("table");
        let text = "How long to wait for the cluster before giving up, in milliseconds.";
        let timeout = option("timeout", &["--timeout"], text).kind(Kind::Long).default_value("10000");
        self.arguments.extend([Argument { own: true, ..output }, Argument { own: true, ..timeout }]);
        self.commands = self.commands.into_iter().map(Parser::online).collect();
        self
    }

    pub fn showing_defaults(self) -> Self {
        Parser { shows_defaults: true, ..self }
    }

    pub fn reading_files(self) -> Self {
        Parser { from_files: true, ..self }
    }

    pub fn with(mut self, argument: Argument) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Flags of which at most one may be given, or exactly one when `required`.
    pub fn exclusive(self, required: bool, arguments: Vec<Argument>) -> Self {
        self.group(Group { title: "", required, exclusive: true }, arguments)
    }

    /// Flags that `--help` shows under a title of their own.
    pub fn titled(self, title: &'static str, arguments: Vec<Argument>) -> Self {
        self.group(Group { title, required: false, exclusive: false }, arguments)
    }

    fn group(mut self, group: Group, arguments: Vec<Argument>) -> Self {
        let index = self.groups.len();
        self.groups.push(group);
        self.arguments.extend(arguments.into_iter().map(|it| Argument { group: Some(index), ..it }));
        self
    }

    pub fn command(mut self, mut command: Parser) -> Self {
        command.prog = self.prog;
        self.commands.push(command);
        self
    }

    fn group_of(&self, argument: &Argument) -> Option<&Group> {
        argument.group.and_then(|index| self.groups.get(index))
    }
}

/// What a command line said. Asking for a name that no flag of the parsed commands declares gives nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    pub command: Option<&'static str>,
    values: BTreeMap<&'static str, Vec<String>>,
    flags: std::collections::BTreeSet<&'static str>,
}

impl Namespace {
    /// Whether a flag without value was given.
    pub fn has(&self, dest: &str) -> bool {
        self.flags.contains(dest)
    }

    /// The value given last, or the default.
    pub fn get(&self, dest: &str) -> Option<&str> {
        self.values.get(dest)?.last().map(String::as_str)
    }

    /// All values; `None` when the flag was not given.
    pub fn list(&self, dest: &str) -> Option<&[String]> {
        self.values.get(dest).map(Vec::as_slice)
    }

    /// The value as a number; its form was checked when it was parsed.
    pub fn number<T: std::str::FromStr>(&self, dest: &str) -> Option<T> {
        self.get(dest)?.parse().ok()
    }
}

/// Why there is no [`Namespace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Help was asked for: its text for stdout.
    Help(String),
    Error {
        message: String,
        /// Usage and message as argparse4j writes them to stderr, newline included.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage() -> Parser {
        let config = || option("config", &["--config", "-c"], "").required();
        let switch = |dest, flags: &[&'static str]| option(dest, flags, "").action(Action::StoreTrue);
        Parser::new("kafka-storage", "Formats.")
            .reading_files()
            .command(Parser::sub("info", "Shows.").with(config()))
            .command(
                Parser::sub("format", "Formats.")
                    .with(config())
                    .with(option("cluster_id", &["--cluster-id", "-t"], "").required())
                    .with(option("add_scram", &["--add-scram", "-S"], "").action(Action::Append))
                    .with(switch("ignore_formatted", &["--ignore-formatted", "-g"]))
                    .with(option("release_version", &["--release-version", "-r"], ""))
                    .with(option("feature", &["--feature", "-f"], "").action(Action::Append))
                    .exclusive(
                        false,
                        vec![
                            switch("standalone", &["--standalone", "-s"]),
                            switch("no_initial_controllers", &["--no-initial-controllers", "-N"]),
                            option("initial_controllers", &["--initial-controllers", "-I"], ""),
                        ],
                    ),
            )
            .command(Parser::sub("version-mapping", ""))
            .command(Parser::sub("feature-dependencies", ""))
            .command(Parser::sub("random-uuid", ""))
            .online()
    }

    fn parse(line: &str) -> Result<Namespace, Refusal> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        storage().parse(&arguments)
    }

    const FORMAT_USAGE: &str = "\
usage: kafka-storage format [-h] --config CONFIG --cluster-id CLUSTER_ID
                     [--add-scram ADD_SCRAM] [--ignore-formatted]
                     [--release-version RELEASE_VERSION]
                     [--feature FEATURE] [--standalone |
                     --no-initial-controllers |
                     --initial-controllers INITIAL_CONTROLLERS]
";
    const USAGE: &str = "\
usage: kafka-storage [-h]
                     {info,format,version-mapping,feature-dependencies,random-uuid}
                     ...
";

    /// Recorded from 4.4.0.
    #[test]
    fn refusals_are_the_references_to_the_byte() {
        let table = [
            ("", USAGE, "kafka-storage: error: too few arguments\n"),
            (
                "nosuch",
                USAGE,
                "kafka-storage:  error:  invalid  choice:   'nosuch'  (choose  from  'info',\n\
                 'format', 'version-mapping', 'feature-dependencies', 'random-uuid')\n",
            ),
            ("format", FORMAT_USAGE, "kafka-storage: error: argument --cluster-id/-t is required\n"),
            (
                "info",
                "usage: kafka-storage info [-h] --config CONFIG\n",
                "kafka-storage: error: argument --config/-c is required\n",
            ),
            (
                "format -c x -t y -s -N",
                FORMAT_USAGE,
                "kafka-storage: error:  argument  --no-initial-controllers/-N:  not  allowed\n\
                 with argument --standalone/-s\n",
            ),
            (
                "format -c x -t y --nosuch",
                FORMAT_USAGE,
                "kafka-storage: error: unrecognized arguments: '--nosuch'\n",
            ),
            (
                "format -c",
                FORMAT_USAGE,
                "kafka-storage: error: argument --config/-c: expected one argument\n",
            ),
        ];
        for (line, usage, message) in table {
            match parse(line) {
                Err(Refusal::Error { text, .. }) => assert_eq!(text, format!("{usage}{message}"), "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn flags_and_commands_may_be_abbreviated_and_values_attached() {
        let wanted = parse("format --config x --cluster-id y --feature a=1 --feature b=2 -g").unwrap();
        for line in [
            "form --conf x --cl=y --feature a=1 -fb=2 --ignore",
            "format -cx -ty -f a=1 -gf b=2",
            "format -g -c x -t y --feature=a=1 --feature=b=2",
        ] {
            assert_eq!(parse(line).unwrap(), wanted, "{line}");
        }
        assert_eq!(wanted.list("feature").unwrap(), ["a=1", "b=2"]);
        assert!(wanted.has("ignore_formatted") && !wanted.has("standalone"));
        assert_eq!(parse("info -c x -ojson --timeout 5").unwrap().get("output"), Some("json"));
    }
}
