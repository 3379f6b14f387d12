//! `--initial-controllers id@host:port:directory,…` (KIP-853).

use std::collections::BTreeMap;

use protocol::Uuid;
use protocol::records::raft::VotersRecord;
use protocol::records::raft::voters_record::{Endpoint, KRaftVersionFeature, Voter};

/// One voter of a quorum that is being founded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicVoter {
    pub node_id: i32,
    pub host: String,
    pub port: u16,
    pub directory_id: Uuid,
}

impl DynamicVoter {
    /// The error is the reference's message.
    pub fn parse(input: &str) -> Result<Self, String> {
        let input = input.trim();
        let Some((id, rest)) = input.split_once('@') else {
            return Err("No @ found in dynamic voter string.".to_owned());
        };
        if id.is_empty() {
            return Err("Invalid @ at beginning of dynamic voter string.".to_owned());
        }
        let node_id: i32 = id.parse().map_err(|_| "Failed to parse node id in dynamic voter string.")?;
        if node_id < 0 {
            return Err(format!("Invalid negative node id {node_id} in dynamic voter string."));
        }
        if rest.is_empty() {
            return Err("No hostname found after node id.".to_owned());
        }
        let (host, rest) = if let Some(bracketed) = rest.strip_prefix('[') {
            bracketed
                .split_once(']')
                .ok_or("Hostname began with left bracket, but no right bracket was found.")?
        } else {
            let colon = rest.find(':').ok_or("No colon following hostname could be found.")?;
            rest.split_at(colon)
        };
        let rest = rest.strip_prefix(':').ok_or("Port section must start with a colon.")?;
        let (port, directory) = rest.split_once(':').ok_or("No colon following port could be found.")?;
        let port: i32 = port.parse().map_err(|_| "Failed to parse port in dynamic voter string.")?;
        let port =
            u16::try_from(port).map_err(|_| format!("Invalid port {port} in dynamic voter string."))?;
        let directory_id =
            directory.parse().map_err(|_| "Failed to parse directory ID in dynamic voter string.")?;
        Ok(Self { node_id, host: host.to_owned(), port, directory_id })
    }
}

/// The voters of a quorum that is being founded, by node id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicVoters(BTreeMap<i32, DynamicVoter>);

impl DynamicVoters {
    pub fn new(voters: impl IntoIterator<Item = DynamicVoter>) -> Result<Self, String> {
        let mut by_id = BTreeMap::new();
        for voter in voters {
            let id = voter.node_id;
            if by_id.insert(id, voter).is_some() {
                return Err(format!("Node id {id} was specified more than once."));
            }
        }
        if by_id.is_empty() {
            return Err("No voters given.".to_owned());
        }
        Ok(Self(by_id))
    }

    pub fn parse(input: &str) -> Result<Self, String> {
        let voters = input.trim().split(',').filter(|voter| !voter.is_empty()).map(DynamicVoter::parse);
        Self::new(voters.collect::<Result<Vec<_>, _>>()?)
    }

    pub fn get(&self, node_id: i32) -> Option<&DynamicVoter> {
        self.0.get(&node_id)
    }

    /// The control record of this voter set; every voter is reached over `controller_listener_name`.
    pub fn to_record(&self, controller_listener_name: &str) -> VotersRecord {
        let voters = self.0.values().map(|voter| Voter {
            voter_id: voter.node_id,
            voter_directory_id: voter.directory_id,
            endpoints: vec![Endpoint {
                name: controller_listener_name.to_uppercase(),
                host: voter.host.clone(),
                port: voter.port,
            }],
            k_raft_version_feature: KRaftVersionFeature {
                min_supported_version: 0,
                max_supported_version: 1,
            },
        });
        VotersRecord { version: 0, voters: voters.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_are_read_as_the_reference_reads_them() {
        let voters =
            DynamicVoters::parse("2@[::1]:9094:JEXY6aqzQY-32P5TStzaFg, 1@h:9093:MvDxzVmcRsaTz33bUuRU6A")
                .unwrap();
        let record = voters.to_record("controller");
        let seen: Vec<_> = record.voters.iter().map(|v| (v.voter_id, v.endpoints[0].host.as_str())).collect();
        assert_eq!(seen, [(1, "h"), (2, "::1")]);
        for (input, expected) in [
            ("", "No voters given."),
            ("1", "No @ found in dynamic voter string."),
            ("@h:1:x", "Invalid @ at beginning of dynamic voter string."),
            ("x@h:1:x", "Failed to parse node id in dynamic voter string."),
            ("-1@h:1:x", "Invalid negative node id -1 in dynamic voter string."),
            ("1@", "No hostname found after node id."),
            ("1@h", "No colon following hostname could be found."),
            ("1@[h", "Hostname began with left bracket, but no right bracket was found."),
            ("1@[h]1", "Port section must start with a colon."),
            ("1@h:1", "No colon following port could be found."),
            ("1@h:y:x", "Failed to parse port in dynamic voter string."),
            ("1@h:65536:x", "Invalid port 65536 in dynamic voter string."),
            ("1@h:1:x", "Failed to parse directory ID in dynamic voter string."),
        ] {
            assert_eq!(DynamicVoters::parse(input).unwrap_err(), expected, "{input}");
        }
        let twice = "1@h:1:JEXY6aqzQY-32P5TStzaFg,1@h:1:JEXY6aqzQY-32P5TStzaFg";
        assert_eq!(DynamicVoters::parse(twice).unwrap_err(), "Node id 1 was specified more than once.");
    }
}
