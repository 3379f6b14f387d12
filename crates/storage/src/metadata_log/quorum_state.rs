//! The `quorum-state` file: whom this replica follows or voted for, in which epoch.
//!
//! One line of JSON with `data_version` 0 (static voters, `kraft.version` 0) or 1 (KIP-853).
//! Invariant: it is replaced as a whole and durably before any promise in it is made. Concurrency: one writer.
//! Crash: leaves the old or the new content, perhaps with a `quorum-state.tmp` beside it, which is overwritten later.

use std::io;
use std::path::Path;

use env::FileSystem;
use protocol::Uuid;
use serde_json::Value;

use crate::checkpoint;
use crate::metadata_log::invalid_data;

/// Name of the file in the metadata partition's directory.
pub const QUORUM_STATE_FILE: &str = "quorum-state";

/// No voter set is so large that its file needs more.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumStateData {
    pub leader_id: Option<i32>,
    pub leader_epoch: i32,
    pub voted_id: Option<i32>,
    /// Zero when unknown; not kept by version 0.
    pub voted_directory_id: Uuid,
    /// Only kept by version 0.
    pub current_voters: Vec<i32>,
}

/// The content of the file in `dir`; `None` when there is none.
pub fn read_quorum_state(fs: &dyn FileSystem, dir: &Path) -> io::Result<Option<QuorumStateData>> {
    let path = dir.join(QUORUM_STATE_FILE);
    let bytes = match env::read_file(fs, &path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let wrong = |cause: &str| {
        invalid_data(format!(
            "Error while reading the Quorum status from the file {}: {cause}",
            path.display()
        ))
    };
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.is_empty() {
        return Err(wrong("File ended prematurely."));
    }
    let value: Value = serde_json::from_slice(line).map_err(|e| wrong(&e.to_string()))?;
    decode(&value).map(Some).map_err(|cause| wrong(&cause))
}

fn decode(value: &Value) -> Result<QuorumStateData, String> {
    if !value.is_object() {
        return Err(format!("Deserialized node {value} is not an object node"));
    }
    let Some(version) = value.get("data_version") else {
        return Err(format!("Deserialized node {value} does not have data_version field"));
    };
    let version = version.as_i64().unwrap_or(-1);
    if !(0..=1).contains(&version) {
        return Err(format!(
            "data_version ({version}) is not within the min (0) and max (1) supported version"
        ));
    }
    let int = |field: &str| {
        let number = value.get(field).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
        number.ok_or_else(|| {
            format!(
                "QuorumStateData: unable to locate field '{field}', which is mandatory in version {version}"
            )
        })
    };
    let id = |number: i32| (number >= 0).then_some(number);
    let mut voted_directory_id = Uuid::ZERO;
    let mut current_voters = Vec::new();
    if version >= 1 {
        let text = value.get("votedDirectoryId").and_then(Value::as_str);
        let parsed = text.and_then(|text| text.parse().ok());
        voted_directory_id = parsed.ok_or_else(|| {
            format!("QuorumStateData: field 'votedDirectoryId' is missing or no uuid in version {version}")
        })?;
    } else if let Some(voters) = value.get("currentVoters").and_then(Value::as_array) {
        let ids = voters.iter().map(|voter| voter.get("voterId").and_then(Value::as_i64));
        let ids = ids.map(|n| n.and_then(|n| i32::try_from(n).ok())).collect::<Option<Vec<_>>>();
        current_voters =
            ids.ok_or("Voter: unable to locate field 'voterId', which is mandatory in version 0")?;
    }
    Ok(QuorumStateData {
        leader_id: id(int("leaderId")?),
        leader_epoch: int("leaderEpoch")?,
        voted_id: id(int("votedId")?),
        voted_directory_id,
        current_voters,
    })
}

fn encode(state: &QuorumStateData, version: i16) -> String {
    let leader = state.leader_id.unwrap_or(-1);
    let epoch = state.leader_epoch;
    let voted = state.voted_id.unwrap_or(-1);
    if version >= 1 {
        let directory = state.voted_directory_id;
        return format!(
            r#"{{"leaderId":{leader},"leaderEpoch":{epoch},"votedId":{voted},"votedDirectoryId":"{directory}","data_version":{version}}}"#
        );
    }
    let voters: Vec<_> = state.current_voters.iter().map(|id| format!(r#"{{"voterId":{id}}}"#)).collect();
    let voters = voters.join(",");
    format!(
        r#"{{"clusterId":"","leaderId":{leader},"leaderEpoch":{epoch},"votedId":{voted},"appliedOffset":0,"currentVoters":[{voters}],"data_version":{version}}}"#
    )
}

/// Replaces the file durably, in the format of `version` (0 or 1).
pub fn write_quorum_state(
    fs: &dyn FileSystem,
    dir: &Path,
    state: &QuorumStateData,
    version: i16,
) -> io::Result<()> {
    checkpoint::replace(fs, &dir.join(QUORUM_STATE_FILE), &encode(state, version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Sim;

    #[test]
    fn both_versions_are_written_as_the_reference_writes_them_and_read_back() {
        let sim = Sim::new(1);
        let (env, dir) = (sim.env(), Path::new("/d"));
        env.fs.create_dir_all(dir).unwrap();
        assert_eq!(read_quorum_state(&*env.fs, dir).unwrap(), None);
        let mut state = QuorumStateData {
            leader_id: Some(1),
            leader_epoch: 1,
            voted_id: None,
            voted_directory_id: Uuid::ZERO,
            current_voters: Vec::new(),
        };
        write_quorum_state(&*env.fs, dir, &state, 1).unwrap();
        let text = env::read_file(&*env.fs, &dir.join("quorum-state"), 1000).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}"#
        );
        assert_eq!(read_quorum_state(&*env.fs, dir).unwrap().as_ref(), Some(&state));
        state.current_voters = vec![1, 2];
        write_quorum_state(&*env.fs, dir, &state, 0).unwrap();
        let text = env::read_file(&*env.fs, &dir.join("quorum-state"), 1000).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}"#
        );
        assert_eq!(read_quorum_state(&*env.fs, dir).unwrap(), Some(state));
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for (text, cause) in [
            ("", "File ended prematurely."),
            ("[]", "is not an object node"),
            ("{}", "does not have data_version field"),
            (r#"{"data_version":2}"#, "data_version (2) is not within"),
            (r#"{"leaderId":1,"data_version":1}"#, "votedDirectoryId"),
        ] {
            let sim = Sim::new(1);
            let (env, dir) = (sim.env(), Path::new("/d"));
            env.fs.create_dir_all(dir).unwrap();
            env::write_atomic(&*env.fs, &dir.join("quorum-state"), text.as_bytes(), true).unwrap();
            let error = read_quorum_state(&*env.fs, dir).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }
}
