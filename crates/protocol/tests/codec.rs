//! Golden vectors from Apache Kafka 4.4.0's classes, the primitives at their edges, and hostile input.

use bytes::Bytes;
use protocol::messages::*;
use protocol::records::{group, metadata};
use protocol::{
    ApiKey, Chunk, DecodeError, Decoder, EncodeError, Encoder, HeaderError, Message, Records, RequestHeader,
    Uuid, encode_request, encode_response,
};

fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter_map(|c| (c as char).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn bytes_of<M: Message>(message: &M, version: i16) -> Bytes {
    let mut w = Encoder::new();
    message.encode(&mut w, version).unwrap();
    w.finish_contiguous().unwrap()
}

#[track_caller]
fn golden<M: Message + PartialEq + std::fmt::Debug>(message: M, version: i16, expected: &str) {
    let expected = hex(expected);
    assert_eq!(bytes_of(&message, version), expected);
    let mut r = Decoder::new(expected.clone());
    assert_eq!(M::decode(&mut r, version).unwrap(), message);
    assert_eq!(r.expect_end(), Ok(()));
    for cut in 0..expected.len() {
        assert!(M::decode(&mut Decoder::new(expected.slice(..cut)), version).is_err(), "cut at {cut}");
    }
}

fn records() -> Option<Records> {
    Some(Records::Bytes(Bytes::from_static(&[1, 2, 3])))
}

#[test]
fn produce_requests_are_the_references_bytes() {
    let topic = |name: &str, topic_id| produce_request::TopicProduceData {
        name: name.into(),
        topic_id,
        partition_data: vec![produce_request::PartitionProduceData { index: 2, records: records() }],
    };
    golden(
        ProduceRequest {
            transactional_id: None,
            acks: -1,
            timeout_ms: 1500,
            topic_data: vec![topic("t", Uuid::ZERO)],
        },
        8,
        "ffff ffff 000005dc 00000001 000174 00000001 00000002 00000003010203",
    );
    golden(
        ProduceRequest {
            transactional_id: Some("x".into()),
            acks: 1,
            timeout_ms: 1500,
            topic_data: vec![topic("", Uuid::METADATA_TOPIC_ID)],
        },
        13,
        "0278 0001 000005dc 02 00000000000000000000000000000001 02 00000002 04010203 00 00 00",
    );
}

fn fetch_response(records: Option<Records>) -> FetchResponse {
    let partition = fetch_response::PartitionData {
        partition_index: 1,
        error_code: 6,
        high_watermark: 10,
        last_stable_offset: 10,
        log_start_offset: 0,
        current_leader: fetch_response::LeaderIdAndEpoch { leader_id: 3, leader_epoch: 4 },
        aborted_transactions: None,
        preferred_read_replica: -1,
        records,
        ..Default::default()
    };
    let topic = fetch_response::FetchableTopicResponse {
        topic_id: Uuid::METADATA_TOPIC_ID,
        partitions: vec![partition],
        ..Default::default()
    };
    let node = fetch_response::NodeEndpoint { node_id: 3, host: "h".into(), port: 9092, rack: None };
    FetchResponse { session_id: 9, responses: vec![topic], node_endpoints: vec![node], ..Default::default() }
}

const FETCH_RESPONSE: &str = "00000000 0000 00000009 02 00000000000000000000000000000001 02 00000001 0006 \
    000000000000000a 000000000000000a 0000000000000000 00 ffffffff 04010203 01 01 09 00000003 00000004 00 00 \
    01 00 0d 02 00000003 0268 00002384 00 00";

#[test]
fn a_fetch_response_with_tagged_fields_is_the_references_bytes() {
    golden(fetch_response(records()), 16, FETCH_RESPONSE);
}

#[test]
fn external_records_are_spliced_where_their_bytes_would_stand() {
    let response = fetch_response(Some(Records::External { token: 77, len: 3 }));
    let encoded = encode_response(ApiKey::Fetch, 16, 5, &response).unwrap();
    let [Chunk::Bytes(head), Chunk::External { token: 77, len: 3 }, Chunk::Bytes(tail)] = &encoded.chunks[..]
    else {
        panic!("{encoded:?}");
    };
    let joined: Bytes = [&head[..], &[1, 2, 3], &tail[..]].concat().into();
    assert_eq!(joined, [&[0, 0, 0, 5, 0], &hex(FETCH_RESPONSE)[..]].concat());
    assert_eq!(encoded.total_len, joined.len());
    let mut w = Encoder::new();
    response.encode(&mut w, 16).unwrap();
    assert_eq!(w.finish_contiguous(), Err(EncodeError::ExternalRecords));
}

#[test]
fn large_bytes_are_spliced_without_copying() {
    let data = Bytes::from(vec![7; 100_000]);
    let response = SyncGroupResponse { assignment: data.clone(), ..Default::default() };
    let encoded = encode_response(ApiKey::SyncGroup, 5, 1, &response).unwrap();
    let spliced =
        encoded.chunks.iter().any(|chunk| matches!(chunk, Chunk::Bytes(b) if b.as_ptr() == data.as_ptr()));
    assert!(spliced);
    let contiguous = bytes_of(&response, 5);
    assert_eq!(contiguous.len() + 5, encoded.total_len);
    let again = SyncGroupResponse::decode(&mut Decoder::new(contiguous.clone()), 5).unwrap();
    assert_eq!(again, response);
    // Decoding slices the input.
    assert!(contiguous.as_ptr_range().contains(&again.assignment.as_ptr()));
}

#[test]
fn a_frame_has_header_and_body() {
    let header = RequestHeader {
        api_key: ApiKey::ApiVersions,
        api_version: 3,
        correlation_id: 7,
        client_id: Some("cli".into()),
    };
    let request = ApiVersionsRequest {
        client_software_name: "bitacora".into(),
        client_software_version: "1".into(),
        ..Default::default()
    };
    let frame = encode_request(&header, &request).unwrap();
    assert_eq!(frame, hex("0012 0003 00000007 0003 636c69 00 09 6269 7461 636f 7261 02 31 00"));
    let mut r = Decoder::new(frame);
    assert_eq!(RequestHeader::decode(&mut r), Ok(header));
    assert_eq!(ApiVersionsRequest::decode(&mut r, 3), Ok(request));
}

#[test]
fn bad_headers_are_refused() {
    for (frame, expected) in [
        ("", "malformed request header: need 2 bytes at position 0, only 0 remain"),
        ("00ff 0000 00000001 ffff", "unknown api key 255"),
        ("8000 0000 00000001 ffff", "unknown api key -32768"),
        ("4745 5420 2f20 4854", "unknown api key 18245"),
        ("0004 0001 00000001 ffff", "unsupported api with key 4 (LeaderAndIsr) and version 1"),
        ("0003 0000 0000", "malformed request header: need 4 bytes at position 4, only 2 remain"),
    ] {
        assert_eq!(RequestHeader::decode(&mut Decoder::new(hex(frame))).unwrap_err().to_string(), expected);
    }
    // An unsupported version of a known api has a readable header: ApiVersions must answer it.
    let header = RequestHeader::decode(&mut Decoder::new(hex("0012 7fff 00000001 ffff 00"))).unwrap();
    assert_eq!((header.api_version, header.client_id), (i16::MAX, None));
    assert_eq!(
        RequestHeader::decode(&mut Decoder::new(hex("0012 0003 00000001 0001"))),
        Err(HeaderError::Decode(DecodeError::Underflow { position: 10, needed: 1, remaining: 0 }))
    );
}

#[test]
fn metadata_records_carry_their_frame() {
    let record = metadata::MetadataRecord::from(metadata::TopicRecord {
        name: "foo".into(),
        topic_id: Uuid::METADATA_TOPIC_ID,
    });
    let bytes = record.to_bytes(0).unwrap();
    assert_eq!(bytes, hex("01 02 00 04 666f6f 00000000000000000000000000000001 00"));
    assert_eq!(metadata::MetadataRecord::decode(bytes.clone()), Ok((record, 0)));
    for (bad, expected) in [
        ("02 02 00", "metadata record frame has no version 2"),
        ("01 7f 00", "unknown key 127"),
        ("01 02 01 00", "TopicRecord has no version 1"),
        ("01 02 ffffffff0f 00", "TopicRecord has no version 32767"),
        ("01 02 00 04 666f6f 00000000000000000000000000000001 00 00", "1 bytes remain after the message"),
    ] {
        assert_eq!(metadata::MetadataRecord::decode(hex(bad)).unwrap_err().to_string(), expected);
    }
}

#[test]
fn coordinator_records_carry_type_and_version() {
    let key = group::OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 5 };
    let key = group::RecordKey::from(key);
    let bytes = key.to_bytes().unwrap();
    assert_eq!(bytes, hex("0001 0001 67 0001 74 00000005"));
    assert_eq!(group::RecordKey::decode(bytes), Ok(key.clone()));
    let value = group::OffsetCommitValue {
        offset: 42,
        leader_epoch: 7,
        metadata: "m".into(),
        commit_timestamp: 1,
        ..Default::default()
    };
    let value = group::RecordValue::from(value);
    let bytes = value.to_bytes(3).unwrap();
    assert_eq!(bytes, hex("0003 000000000000002a 00000007 0001 6d 0000000000000001"));
    assert_eq!(group::RecordValue::decode(key.record_type(), bytes), Ok((value, 3)));
    assert_eq!(group::RecordKey::decode(hex("7000 00")), Err(DecodeError::UnknownKey { key: 0x7000 }));
}

#[test]
fn varints_are_zigzag_and_bounded() {
    for (value, expected) in [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001")] {
        let mut w = Encoder::new();
        w.varint(value);
        w.varlong(value.into());
        let bytes = w.finish_contiguous().unwrap();
        assert_eq!(bytes, [hex(expected), hex(expected)].concat());
        let mut r = Decoder::new(bytes);
        assert_eq!((r.varint(), r.varlong()), (Ok(value), Ok(value.into())));
    }
    for value in [i64::MIN, i64::MAX, i64::from(i32::MIN), i64::from(i32::MAX)] {
        let mut w = Encoder::new();
        w.varlong(value);
        w.varint(value as i32);
        let mut r = Decoder::new(w.finish_contiguous().unwrap());
        assert_eq!((r.varlong(), r.varint(), r.remaining()), (Ok(value), Ok(value as i32), 0));
    }
    assert_eq!(
        Decoder::new(hex("ffffffffff01")).unsigned_varint(),
        Err(DecodeError::InvalidVarint { position: 0 })
    );
    assert!(Decoder::new(hex("ffffffffffffffffffff01")).unsigned_varlong().is_err());
    assert!(Decoder::new(hex("ffff")).unsigned_varint().is_err());
}

#[test]
fn malformed_text_is_replaced_as_java_does() {
    for (bytes, expected) in [("0003 61ff62", "a\u{fffd}b"), ("0002 e697", "\u{fffd}"), ("0000", "")] {
        assert_eq!(Decoder::new(hex(bytes)).string(false).unwrap(), expected);
    }
}

#[test]
fn lengths_beyond_the_input_fail_before_anything_is_allocated() {
    // A count of 2^31 - 1 topics, in both encodings, and one as large as the bytes that follow.
    for (version, body) in [(1, "7fffffff"), (9, "ffffffff07"), (1, "0000000a 00 00 00 00 00 00 00 00 00 00")]
    {
        let error = MetadataRequest::decode(&mut Decoder::new(hex(body)), version).unwrap_err();
        assert!(matches!(error, DecodeError::InvalidLength { .. }), "{error}");
    }
    for (count, accepted) in [(1_000_000, true), (1_000_001, false)] {
        let mut w = Encoder::new();
        w.array(false, &vec![0_i8; count], |w, value| w.i8(*value));
        let mut r = Decoder::new(w.finish_contiguous().unwrap());
        assert_eq!(r.array(false, 1, Decoder::i8).is_ok(), accepted, "{count} elements");
    }
    for body in ["7fff 61", "ffff", "8000"] {
        assert!(Decoder::new(hex(body)).string(false).is_err());
    }
    for body in ["00", "80808080 0f", "ffffffff 0f", "8180 04 61"] {
        assert!(Decoder::new(hex(body)).string(true).is_err());
    }
    assert_eq!(Decoder::new(hex("ffff")).opt_string(false, true), Ok(None));
    assert_eq!(Decoder::new(hex("00")).opt_bytes(true, true), Ok(None));
    assert_eq!(Decoder::new(hex("ffffffff")).bytes(false), Err(DecodeError::UnexpectedNull { position: 4 }));
}

#[test]
fn unknown_tags_are_skipped_and_bad_ones_refused() {
    let plain = HeartbeatRequest { group_id: "g".into(), member_id: "m".into(), ..Default::default() };
    let body = "0267 00000000 026d 00";
    assert_eq!(bytes_of(&plain, 4), hex(&format!("{body} 00")));
    let with_tags = hex(&format!("{body} 02 05 03 010203 ffffffff0f 00"));
    assert_eq!(HeartbeatRequest::decode(&mut Decoder::new(with_tags), 4), Ok(plain));
    for bad in ["01", "01 05", "01 05 03 0102", "ffffffff0f", "05 00 00 00 00", "01 05 ffffffff0f"] {
        let bytes = hex(&format!("{body} {bad}"));
        assert!(HeartbeatRequest::decode(&mut Decoder::new(bytes), 4).is_err(), "{bad}");
    }
    // ReplicaState (tag 1) came with version 15.
    let mut fetch = bytes_of(&FetchRequest::default(), 12).to_vec();
    fetch.pop();
    fetch.extend(hex("01 01 00"));
    assert_eq!(
        FetchRequest::decode(&mut Decoder::new(fetch.into()), 12),
        Err(DecodeError::InvalidTag { tag: 1, version: 12 })
    );
}

#[test]
fn values_that_a_version_cannot_carry_are_refused() {
    let request = MetadataRequest { allow_auto_topic_creation: false, ..Default::default() };
    let mut w = Encoder::new();
    let expected = EncodeError::UnsupportedField { field: "allow_auto_topic_creation", version: 1 };
    assert_eq!(request.encode(&mut w, 1), Err(expected));
    // Null topics mean all topics from version 1 on.
    let request = MetadataRequest { topics: None, ..Default::default() };
    assert_eq!(request.encode(&mut Encoder::new(), 0), Err(EncodeError::UnexpectedNull));
    assert_eq!(request.encode(&mut Encoder::new(), 1), Ok(()));
    let too_long = HeartbeatRequest { group_id: "x".repeat(32_768), ..Default::default() };
    assert_eq!(too_long.encode(&mut Encoder::new(), 0), Err(EncodeError::TooLong { length: 32_768 }));
    let unsupported = EncodeError::UnsupportedVersion { message: "HeartbeatRequest", version: 5 };
    assert_eq!(HeartbeatRequest::default().encode(&mut Encoder::new(), 5), Err(unsupported));
}
