//! How records say what they are: the frame of metadata records and the type prefix of the coordinators' records.
//!
//! Both macros turn a generated list of records with their numbers into an enum that reads and writes them.

/// Metadata records stand in a frame: frame version 1, api key, version, all as varints, then the record (KIP-631).
macro_rules! framed_records {
    ($name:ident { $($record:ident = $key:literal,)* }) => {
        /// One record of this log.
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $($record($record),)*
        }

        $(impl From<$record> for $name {
            fn from(record: $record) -> $name {
                $name::$record(record)
            }
        })*

        impl crate::ToJson for $name {
            fn write_json(&self, json: &mut crate::JsonWriter, version: i16) {
                match self {
                    $($name::$record(record) => record.write_json(json, version),)*
                }
            }
        }

        impl $name {
            const FRAME_VERSION: u32 = 1;

            pub fn api_key(&self) -> i16 {
                match self {
                    $($name::$record(_) => $key,)*
                }
            }

            pub fn name(&self) -> &'static str {
                match self {
                    $($name::$record(_) => <$record as crate::Message>::NAME,)*
                }
            }

            /// The newest version of this kind of record.
            pub fn max_version(&self) -> i16 {
                match self {
                    $($name::$record(_) => <$record as crate::Message>::MAX_VERSION,)*
                }
            }

            /// Writes frame and record.
            pub fn encode(&self, w: &mut crate::Encoder, version: i16) -> Result<(), crate::EncodeError> {
                w.unsigned_varint(Self::FRAME_VERSION);
                w.unsigned_varint(self.api_key() as u32);
                w.unsigned_varint(version as u32);
                match self {
                    $($name::$record(record) => crate::Message::encode(record, w, version),)*
                }
            }

            pub fn to_bytes(&self, version: i16) -> Result<bytes::Bytes, crate::EncodeError> {
                let mut w = crate::Encoder::new();
                self.encode(&mut w, version)?;
                w.finish_contiguous()
            }

            /// Reads frame and record, which must fill the value of the log record; the second is its version.
            pub fn decode(value: bytes::Bytes) -> Result<($name, i16), crate::DecodeError> {
                let mut r = crate::Decoder::new(value);
                let frame_version = r.unsigned_varint()?;
                if frame_version != Self::FRAME_VERSION {
                    return Err(crate::DecodeError::UnsupportedVersion {
                        message: "metadata record frame",
                        version: i16::try_from(frame_version).unwrap_or(i16::MAX),
                    });
                }
                let key = r.unsigned_varint()?;
                let raw_version = r.unsigned_varint()?;
                let version = i16::try_from(raw_version).unwrap_or(i16::MAX);
                let record = match key {
                    $($key => $name::$record(<$record as crate::Message>::decode(&mut r, version)?),)*
                    _ => return Err(crate::DecodeError::UnknownKey { key: i32::try_from(key).unwrap_or(i32::MAX) }),
                };
                r.expect_end()?;
                Ok((record, version))
            }
        }
    };
}

/// A coordinator's record has a key with its type before it, and a value with its version before it. Types that are
/// unknown give [`crate::DecodeError::UnknownKey`]: a newer version wrote them, and a reader passes over them.
macro_rules! coordinator_records {
    ($key:ident { $($key_record:ident = $key_type:literal,)* } $value:ident { $($value_record:ident = $value_type:literal,)* }) => {
        /// The key of a record; its type number says what the value is.
        #[derive(Clone, Debug, PartialEq)]
        pub enum $key {
            $($key_record($key_record),)*
        }

        $(impl From<$key_record> for $key {
            fn from(key: $key_record) -> $key {
                $key::$key_record(key)
            }
        })*

        impl crate::ToJson for $key {
            fn write_json(&self, json: &mut crate::JsonWriter, version: i16) {
                match self {
                    $($key::$key_record(key) => key.write_json(json, version),)*
                }
            }
        }

        impl $key {
            pub fn record_type(&self) -> i16 {
                match self {
                    $($key::$key_record(_) => $key_type,)*
                }
            }

            pub fn to_bytes(&self) -> Result<bytes::Bytes, crate::EncodeError> {
                let mut w = crate::Encoder::new();
                w.i16(self.record_type());
                match self {
                    $($key::$key_record(key) => {
                        crate::Message::encode(key, &mut w, <$key_record as crate::Message>::MAX_VERSION)?;
                    })*
                }
                w.finish_contiguous()
            }

            pub fn decode(bytes: bytes::Bytes) -> Result<$key, crate::DecodeError> {
                let mut r = crate::Decoder::new(bytes);
                match r.i16()? {
                    $($key_type => {
                        let version = <$key_record as crate::Message>::MAX_VERSION;
                        Ok($key::$key_record(crate::Message::decode(&mut r, version)?))
                    })*
                    other => Err(crate::DecodeError::UnknownKey { key: i32::from(other) }),
                }
            }
        }

        /// The value of a record. A record without a value is a tombstone and has none of these.
        #[derive(Clone, Debug, PartialEq)]
        pub enum $value {
            $($value_record($value_record),)*
        }

        $(impl From<$value_record> for $value {
            fn from(value: $value_record) -> $value {
                $value::$value_record(value)
            }
        })*

        impl crate::ToJson for $value {
            fn write_json(&self, json: &mut crate::JsonWriter, version: i16) {
                match self {
                    $($value::$value_record(value) => value.write_json(json, version),)*
                }
            }
        }

        impl $value {
            /// The type number that the key of such a value has.
            pub fn record_type(&self) -> i16 {
                match self {
                    $($value::$value_record(_) => $value_type,)*
                }
            }

            pub fn to_bytes(&self, version: i16) -> Result<bytes::Bytes, crate::EncodeError> {
                let mut w = crate::Encoder::new();
                w.i16(version);
                match self {
                    $($value::$value_record(value) => crate::Message::encode(value, &mut w, version)?,)*
                }
                w.finish_contiguous()
            }

            /// Reads the value that belongs to a key of this type; the second is its version.
            pub fn decode(record_type: i16, bytes: bytes::Bytes) -> Result<($value, i16), crate::DecodeError> {
                let mut r = crate::Decoder::new(bytes);
                let version = r.i16()?;
                let value = match record_type {
                    $($value_type => $value::$value_record(crate::Message::decode(&mut r, version)?),)*
                    other => return Err(crate::DecodeError::UnknownKey { key: i32::from(other) }),
                };
                Ok((value, version))
            }
        }
    };
}

pub(crate) use coordinator_records;
pub(crate) use framed_records;
