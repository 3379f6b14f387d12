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

/// What the reference requires of `--bootstrap-server` before it uses it.
pub fn validate_bootstrap(bootstrap: Option<&str>) -> Result<(), &'static str> {
    match bootstrap.map(str::trim) {
        None | Some("") => Err("Error while validating the bootstrap address\n"),
        Some(list) if list.split(',').all(|one| client::config::host_and_port(one.trim()).is_some()) => {
            Ok(())
        }
        Some(_) => Err("Please provide valid host:port like host1:9091,host2:9092\n"),
    }
}

/// Waits for SIGINT or SIGTERM; gives the exit code a shell shows for it.
pub async fn interrupted() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => 130,
        _ = terminate.recv() => 143,
    }
}

/// A number nobody relies on to be secret: names of groups and the like.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
