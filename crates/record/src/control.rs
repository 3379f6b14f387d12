//! Control records: their keys, and the one value this crate must read itself (the end of a transaction, KIP-98).
//! The values of the others are messages of crate `protocol`.

use crate::error::RecordError;
use crate::varint::Cursor;

/// Version of keys and of the end-of-transaction value. Higher ones are read as this one, as the reference does.
const CURRENT_VERSION: i16 = 0;

/// What a control record says. Numbers are on disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum ControlRecordType {
    Abort = 0,
    Commit = 1,
    LeaderChange = 2,
    SnapshotHeader = 3,
    SnapshotFooter = 4,
    KRaftVersion = 5,
    KRaftVoters = 6,
    /// Any other number: skipped by readers, never written.
    Unknown = -1,
}

impl ControlRecordType {
    pub fn from_type_id(id: i16) -> ControlRecordType {
        match id {
            0 => ControlRecordType::Abort,
            1 => ControlRecordType::Commit,
            2 => ControlRecordType::LeaderChange,
            3 => ControlRecordType::SnapshotHeader,
            4 => ControlRecordType::SnapshotFooter,
            5 => ControlRecordType::KRaftVersion,
            6 => ControlRecordType::KRaftVoters,
            _ => ControlRecordType::Unknown,
        }
    }

    pub fn type_id(self) -> i16 {
        self as i16
    }

    /// Name as the reference's tools print it.
    pub fn name(self) -> &'static str {
        match self {
            ControlRecordType::Abort => "ABORT",
            ControlRecordType::Commit => "COMMIT",
            ControlRecordType::LeaderChange => "LEADER_CHANGE",
            ControlRecordType::SnapshotHeader => "SNAPSHOT_HEADER",
            ControlRecordType::SnapshotFooter => "SNAPSHOT_FOOTER",
            ControlRecordType::KRaftVersion => "KRAFT_VERSION",
            ControlRecordType::KRaftVoters => "KRAFT_VOTERS",
            ControlRecordType::Unknown => "UNKNOWN",
        }
    }

    /// The record's key: version, then type, two bytes each.
    pub fn record_key(self) -> [u8; 4] {
        let [a, b] = CURRENT_VERSION.to_be_bytes();
        let [c, d] = self.type_id().to_be_bytes();
        [a, b, c, d]
    }

    /// The number in a control record's key.
    pub fn parse_type_id(key: &[u8]) -> Result<i16, RecordError> {
        let mut cursor = Cursor::new(key);
        let (Some(version), Some(id)) = (cursor.i16(), cursor.i16()) else {
            let message = format!("Key of a control record has {} bytes instead of 4", key.len());
            return Err(RecordError::Invalid(message.into()));
        };
        if version < 0 {
            let message = format!("Key of a control record has version {version}");
            return Err(RecordError::Invalid(message.into()));
        }
        Ok(id)
    }

    pub fn parse(key: &[u8]) -> Result<ControlRecordType, RecordError> {
        Self::parse_type_id(key).map(Self::from_type_id)
    }
}

/// The marker that ends a transaction in a partition.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EndTransactionMarker {
    pub committed: bool,
    /// Epoch of the transaction coordinator that wrote it; fences older coordinators.
    pub coordinator_epoch: i32,
}

impl EndTransactionMarker {
    pub fn control_type(self) -> ControlRecordType {
        if self.committed { ControlRecordType::Commit } else { ControlRecordType::Abort }
    }

    pub fn serialize_value(self) -> [u8; 6] {
        let [a, b] = CURRENT_VERSION.to_be_bytes();
        let [c, d, e, f] = self.coordinator_epoch.to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// Reads a COMMIT or ABORT record.
    pub fn deserialize(key: &[u8], value: &[u8]) -> Result<EndTransactionMarker, RecordError> {
        let committed = match ControlRecordType::parse(key)? {
            ControlRecordType::Commit => true,
            ControlRecordType::Abort => false,
            other => {
                let name = other.name();
                let message = format!("{name} is no end of a transaction");
                return Err(RecordError::Invalid(message.into()));
            }
        };
        let mut cursor = Cursor::new(value);
        let (Some(version), Some(coordinator_epoch)) = (cursor.i16(), cursor.i32()) else {
            return Err(RecordError::invalid("End transaction marker is cut off"));
        };
        if version < 0 {
            let message = format!("End transaction marker has version {version}");
            return Err(RecordError::Invalid(message.into()));
        }
        Ok(EndTransactionMarker { committed, coordinator_epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_unknown_numbers_are_unknown() {
        for id in 0..7 {
            let kind = ControlRecordType::from_type_id(id);
            assert_eq!(kind.type_id(), id);
            assert_eq!(ControlRecordType::parse(&kind.record_key()), Ok(kind));
        }
        assert_eq!(ControlRecordType::parse(&[0, 9, 0, 77]), Ok(ControlRecordType::Unknown));
        assert!(ControlRecordType::parse(&[0, 0, 0]).is_err());
        assert!(ControlRecordType::parse(&[0xff, 0, 0, 0]).is_err());
    }

    #[test]
    fn markers_round_trip() {
        let marker = EndTransactionMarker { committed: true, coordinator_epoch: 42 };
        let key = marker.control_type().record_key();
        assert_eq!(EndTransactionMarker::deserialize(&key, &marker.serialize_value()), Ok(marker));
        assert!(EndTransactionMarker::deserialize(&key, &[0, 0, 1]).is_err());
        let other = ControlRecordType::LeaderChange.record_key();
        assert!(EndTransactionMarker::deserialize(&other, &marker.serialize_value()).is_err());
    }
}
