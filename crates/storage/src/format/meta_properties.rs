//! `meta.properties`: which cluster, node and directory a log directory belongs to (versions 0 and 1, KIP-858).
//!
//! Owns the file's format and the checks over all directories of a node ([`MetaPropertiesEnsemble`]).
//! Invariants: a file is replaced as a whole and durably; directories of one node name one cluster and one node, and no
//! two of them have one directory id. Concurrency: one process per directory (`.lock`). Crash: the old or the new file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;

use config::Properties;
use env::{Env, FileSystem};
use protocol::Uuid;

use crate::names::META_PROPERTIES_FILE;

/// More than any such file needs.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The content of one file. Version 0 was written by ZooKeeper-based brokers and may name neither cluster nor node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub version: i16,
    pub cluster_id: Option<String>,
    pub node_id: Option<i32>,
    pub directory_id: Option<Uuid>,
}

impl MetaProperties {
    /// The content of a directory's file. The error is the reference's message.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let properties = Properties::parse(text).map_err(|e| e.to_string())?;
        let version = match properties.get("version").unwrap_or("0") {
            "0" => 0,
            "1" => 1,
            other => {
                return Err(other.parse::<i32>().map_or_else(
                    |_| format!("Invalid meta.properties version string '{other}'"),
                    |_| format!("Unknown meta.properties version number {other}"),
                ));
            }
        };
        let node_key = if version == 0 { "broker.id" } else { "node.id" };
        let node_id = match properties.get(node_key) {
            None if version == 0 => None,
            None => return Err(format!("Failed to find {node_key}")),
            Some(text) => {
                Some(text.parse().map_err(|_| format!("Unable to read {node_key} as a base-10 number."))?)
            }
        };
        let cluster_id = properties.get("cluster.id").map(str::to_owned);
        if version > 0 && cluster_id.is_none() {
            return Err("cluster.id was not found.".to_owned());
        }
        let directory_id = match properties.get("directory.id") {
            None => None,
            Some(text) => {
                Some(text.parse().map_err(|e| format!("Unable to read directory.id as a Uuid: {e}"))?)
            }
        };
        Ok(Self { version, cluster_id, node_id, directory_id })
    }

    /// Keys and values in the order of the reference's files.
    fn entries(&self) -> Vec<(&'static str, String)> {
        let node_key = if self.version == 0 { "broker.id" } else { "node.id" };
        let mut entries = Vec::new();
        entries.extend(self.node_id.map(|id| (node_key, id.to_string())));
        entries.extend(self.directory_id.map(|id| ("directory.id", id.to_string())));
        entries.push(("version", self.version.to_string()));
        entries.extend(self.cluster_id.clone().map(|id| ("cluster.id", id)));
        entries
    }

    fn to_text(&self, wall_ms: i64) -> String {
        let mut text = format!("#\n#{}\n", java_date(wall_ms));
        for (key, value) in self.entries() {
            text += &Properties::from_iter([(key, value)]).to_text();
        }
        text
    }

    /// Reads `dir/meta.properties`; `Ok(None)` when there is none, `Err(InvalidData)` when it is no such file.
    pub fn read(fs: &dyn FileSystem, dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(META_PROPERTIES_FILE);
        match env::read_file(fs, &path, MAX_FILE_BYTES) {
            Ok(bytes) => {
                Self::parse(&bytes).map(Some).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Replaces `dir/meta.properties` durably.
    pub fn write(&self, env: &Env, dir: &Path) -> io::Result<()> {
        let text = self.to_text(env.now().wall_ms);
        env::write_atomic(&*env.fs, &dir.join(META_PROPERTIES_FILE), text.as_bytes(), true)
    }
}

/// `{cluster.id=…, directory.id=…, node.id=…, version=…}`, as `kafka-storage info` prints it.
impl fmt::Display for MetaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut entries = self.entries();
        entries.sort_unstable();
        let entries: Vec<_> = entries.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        write!(f, "{{{}}}", entries.join(", "))
    }
}

/// `Sun Nov 29 15:21:21 UTC 2026`: the comment line of a stored properties file. Always in UTC.
fn java_date(wall_ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = wall_ms.div_euclid(1000);
    let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01 in the proleptic Gregorian calendar, counted in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(month < 2);
    let name = |names: &[&'static str], index: i64| {
        usize::try_from(index).ok().and_then(|index| names.get(index).copied()).unwrap_or_default()
    };
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        name(&DAYS, days.rem_euclid(7)),
        name(&MONTHS, month),
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

/// The files of all log directories of a node.
#[derive(Clone, Debug, Default)]
pub struct MetaPropertiesEnsemble {
    /// Directories without a file (or that do not exist).
    pub empty_log_dirs: BTreeSet<String>,
    /// Directories whose file cannot be read, with the cause.
    pub error_log_dirs: BTreeMap<String, String>,
    pub log_dir_props: BTreeMap<String, MetaProperties>,
}

impl MetaPropertiesEnsemble {
    pub fn load<'a>(fs: &dyn FileSystem, dirs: impl IntoIterator<Item = &'a str>) -> Self {
        let mut ensemble = Self::default();
        for dir in dirs {
            match MetaProperties::read(fs, Path::new(dir)) {
                Ok(Some(props)) => {
                    ensemble.log_dir_props.insert(dir.to_owned(), props);
                }
                Ok(None) => {
                    ensemble.empty_log_dirs.insert(dir.to_owned());
                }
                Err(e) => {
                    ensemble.error_log_dirs.insert(dir.to_owned(), e.to_string());
                }
            }
        }
        ensemble
    }

    /// Checks that the directories belong together and, where given, to this cluster and node. The error is the
    /// reference's message.
    pub fn verify(&self, cluster_id: Option<&str>, node_id: Option<i32>) -> Result<(), String> {
        let (mut cluster_id, mut node_id) = (cluster_id.map(str::to_owned), node_id);
        let mut seen: BTreeMap<Uuid, &str> = BTreeMap::new();
        for (dir, props) in &self.log_dir_props {
            let path = Path::new(dir).join(META_PROPERTIES_FILE);
            let path = path.display();
            match (&props.cluster_id, &cluster_id) {
                (Some(read), Some(expected)) if read != expected => {
                    return Err(format!(
                        "Invalid cluster.id in: {path}. Expected {expected}, but read {read}"
                    ));
                }
                (Some(read), None) => cluster_id = Some(read.clone()),
                _ => {}
            }
            match (props.node_id, node_id) {
                (Some(read), Some(expected)) if read != expected => {
                    return Err(format!(
                        "Stored node id {read} doesn't match previous node id {expected} in {path}. If you moved your \
                         data, make sure your configured node id matches. If you intend to create a new node, you \
                         should remove all data in your data directories."
                    ));
                }
                (Some(read), None) => node_id = Some(read),
                _ => {}
            }
            let Some(directory_id) = props.directory_id else { continue };
            if metadata::directory_id::is_reserved(&directory_id) {
                return Err(format!("Invalid reserved directory ID {directory_id} found in {dir}"));
            }
            if let Some(other) = seen.insert(directory_id, dir) {
                return Err(format!(
                    "Duplicate directory ID Optional[{directory_id}] found. It was the ID of {other}, but also of {dir}"
                ));
            }
        }
        Ok(())
    }

    pub fn cluster_id(&self) -> Option<&str> {
        self.log_dir_props.values().find_map(|props| props.cluster_id.as_deref())
    }

    pub fn node_id(&self) -> Option<i32> {
        self.log_dir_props.values().find_map(|props| props.node_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_reference_text() {
        let props = MetaProperties {
            version: 1,
            cluster_id: Some("5L6g3nShT-eMCtK--X86sw".into()),
            node_id: Some(1),
            directory_id: Some("rNVeGf0nNau9mNqa3WiCMQ".parse().unwrap()),
        };
        let text = props.to_text(1_795_965_681_000);
        assert_eq!(
            text,
            "#\n#Sun Nov 29 15:21:21 UTC 2026\nnode.id=1\ndirectory.id=rNVeGf0nNau9mNqa3WiCMQ\nversion=1\n\
             cluster.id=5L6g3nShT-eMCtK--X86sw\n"
        );
        assert_eq!(MetaProperties::parse(text.as_bytes()), Ok(props.clone()));
        assert_eq!(
            props.to_string(),
            "{cluster.id=5L6g3nShT-eMCtK--X86sw, directory.id=rNVeGf0nNau9mNqa3WiCMQ, node.id=1, version=1}"
        );
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        for (ms, expected) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_709_251_199_999, "Thu Feb 29 23:59:59 UTC 2024"),
            (4_107_542_400_000, "Mon Mar 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(java_date(ms), expected);
        }
    }

    #[test]
    fn a_wrong_file_says_what_is_wrong() {
        for (text, expected) in [
            ("version=1\nnode.id=1", "cluster.id was not found."),
            ("version=1\ncluster.id=x", "Failed to find node.id"),
            ("version=1\ncluster.id=x\nnode.id=a", "Unable to read node.id as a base-10 number."),
            ("version=7", "Unknown meta.properties version number 7"),
            ("version=x", "Invalid meta.properties version string 'x'"),
        ] {
            assert_eq!(MetaProperties::parse(text.as_bytes()).unwrap_err(), expected);
        }
        assert_eq!(MetaProperties::parse(b"broker.id=3").unwrap().node_id, Some(3));
    }
}
