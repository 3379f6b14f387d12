//! A record of the metadata log together with the version in which it is written.
//!
//! The record types and their framing are `protocol`'s; here they only meet their version.

use bytes::Bytes;
pub use protocol::records::metadata::MetadataRecord;
use protocol::{DecodeError, EncodeError};

/// A record and the version in which it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedRecord {
    /// The record.
    pub record: MetadataRecord,
    /// The version of its message.
    pub version: i16,
}

impl VersionedRecord {
    /// A record in a version.
    pub fn new(record: impl Into<MetadataRecord>, version: i16) -> Self {
        Self { record: record.into(), version }
    }

    /// The value of a Kafka record that carries this metadata record.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        self.record.to_bytes(self.version)
    }

    /// The metadata record that a Kafka record's value carries.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let (record, version) = MetadataRecord::decode(value)?;
        Ok(Self { record, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::records::metadata::FeatureLevelRecord;

    #[test]
    fn a_record_is_framed_by_version_type_and_message_version() {
        let record = FeatureLevelRecord { name: "metadata.version".into(), feature_level: 33 };
        let framed = VersionedRecord::new(record, 0);
        let bytes = framed.encode().unwrap();
        assert_eq!(bytes.get(..3), Some(&[1, 12, 0][..]));
        assert_eq!(VersionedRecord::decode(bytes).unwrap(), framed);
    }
}
