//! `cargo xtask goldens`: our command line tools against our broker, compared with recorded outputs of the reference.
//!
//! `compat/goldens/run.py` runs the invocations of `invocations.txt` in order against one fresh broker. Each has to end
//! as `reference.txt` says (exit code, stdout, stderr), except for the lines that `allowed.txt` names with a reason; an
//! allowance whose difference is gone fails too. No JVM takes part: `reference.txt` was recorded with the reference's
//! tools against the reference's broker. Data and outputs of the last run stay in `target/goldens`.

use std::fs;
use std::path::Path;

use crate::ci;
use crate::compat::broker::Broker;

/// An empty run must not be a success.
const MINIMUM_EQUAL: &str = "60";

pub fn run(root: &Path, binary: &Path) -> Result<(), String> {
    let absolute =
        |path: &Path| fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()));
    let (root, binary) = (absolute(root)?, absolute(binary)?);
    let work = root.join("target/goldens");
    let mut broker = Broker::start(&binary, &work.join("broker"), &[])?;
    let text = |path: &Path| path.display().to_string();
    let goldens = root.join("compat/goldens");
    let (script, ours) = (text(&goldens.join("run.py")), text(&work.join("ours.txt")));
    let (tools, data) = (text(&binary), text(&work.join("broker/data")));
    let address = broker.address();
    let record = ["--tools", &tools, "--bootstrap", &address, "--logdir", &data, "--out", &ours];
    ci::command(&root, "python3", &[&[script.as_str(), "record"], record.as_slice()].concat())?;
    broker.check_alive()?;
    let (reference, allowed) = (text(&goldens.join("reference.txt")), text(&goldens.join("allowed.txt")));
    let compare = [&reference, &ours, "--allowed", &allowed, "--at-least", MINIMUM_EQUAL];
    ci::command(&root, "python3", &[&[script.as_str(), "compare"], compare.as_slice()].concat())
}
