//! Small things several tools need.

use std::time::Duration;

use crate::failure::Failure;
use crate::options::OptionSet;

/// The time limit of `--timeout`.
pub fn timeout(set: &OptionSet) -> Result<Duration, Failure> {
    let millis = set.long("timeout")?.unwrap_or(10_000);
    let negative = || Failure::illegal_argument(format!("--timeout must not be negative: {millis}"));
    Ok(Duration::from_millis(u64::try_from(millis).map_err(|_| negative())?))
}
