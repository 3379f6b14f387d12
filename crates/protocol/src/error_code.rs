//! The protocol's error codes: number, name, whether a client may retry, and the text that the reference's tools print.
//!
//! Owns one table. A code that is not in it is kept as a number and reported as unknown, as the reference does.

use std::fmt;

/// What a client does about an error (the reference's `RetriableException` and `InvalidMetadataException`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    Fail,
    Retry,
    /// Retry after the metadata was refreshed.
    Refresh,
}

/// An error code as it stands on the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

struct Entry {
    name: &'static str,
    exception: &'static str,
    message: &'static str,
    reaction: Reaction,
}

impl ErrorCode {
    /// All codes that 4.4.0 knows, in ascending order.
    pub fn all() -> impl Iterator<Item = ErrorCode> {
        (FIRST..FIRST + TABLE.len() as i16).map(ErrorCode)
    }

    fn entry(self) -> Option<&'static Entry> {
        TABLE.get(usize::try_from(i32::from(self.0) - i32::from(FIRST)).ok()?)
    }

    /// The code of this number, or `UNKNOWN_SERVER_ERROR` where 4.4.0 has none.
    pub fn from_code(code: i16) -> ErrorCode {
        if ErrorCode(code).is_known() { ErrorCode(code) } else { ErrorCode::UNKNOWN_SERVER_ERROR }
    }

    pub fn from_name(name: &str) -> Option<ErrorCode> {
        ErrorCode::all().find(|code| code.name() == name)
    }

    pub fn code(self) -> i16 {
        self.0
    }

    pub fn is_known(self) -> bool {
        self.entry().is_some()
    }

    pub fn is_error(self) -> bool {
        self != ErrorCode::NONE
    }

    /// The name of the constant, `UNKNOWN_SERVER_ERROR` for an unknown number.
    pub fn name(self) -> &'static str {
        self.entry().map_or("UNKNOWN_SERVER_ERROR", |entry| entry.name)
    }

    /// The text the reference's tools and responses show.
    pub fn message(self) -> &'static str {
        self.entry().map_or(UNKNOWN_MESSAGE, |entry| entry.message)
    }

    /// The simple name of the Java exception that the reference's tools show; empty for `NONE`.
    pub fn exception(self) -> &'static str {
        self.entry().map_or("UnknownServerException", |entry| entry.exception)
    }

    /// The full name of that exception, as Java prints it; empty for `NONE`.
    pub fn exception_class(self) -> String {
        match self.exception() {
            "" => String::new(),
            name @ "InvalidRecordException" => format!("org.apache.kafka.common.{name}"),
            name => format!("org.apache.kafka.common.errors.{name}"),
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_retriable(self) -> bool {
        self.entry().is_some_and(|entry| entry.reaction != Reaction::Fail)
    }

    /// Whether the client must refresh its metadata before it retries.
    pub fn is_invalid_metadata(self) -> bool {
        self.entry().is_some_and(|entry| entry.reaction == Reaction::Refresh)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry() {
            Some(entry) => f.write_str(entry.name),
            None => write!(f, "UNKNOWN_SERVER_ERROR({})", self.0),
        }
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code.0
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> ErrorCode {
        ErrorCode(code)
    }
}

const FIRST: i16 = -1;

const UNKNOWN_MESSAGE: &str = "The server experienced an unexpected error when processing the request.";

/// Declares the constants and the table from one list in ascending order without gaps.
macro_rules! errors {
    ($($code:literal $name:ident $reaction:ident $exception:literal $message:literal;)*) => {
        impl ErrorCode {
            $(pub const $name: ErrorCode = ErrorCode($code);)*
        }
        static TABLE: &[Entry] = &[$(Entry {
            name: stringify!($name),
            exception: $exception,
            message: $message,
            reaction: Reaction::$reaction,
        }),*];
        #[cfg(test)]
        const CODES: &[i16] = &[$($code),*];
    };
}

errors! {
    -1 UNKNOWN_SERVER_ERROR Fail "UnknownServerException"
        "The server experienced an unexpected error when processing the request.";
    0 NONE Fail ""
        "NONE";
    1 OFFSET_OUT_OF_RANGE Fail "OffsetOutOfRangeException"
        "The requested offset is not within the range of offsets maintained by the server.";
    2 CORRUPT_MESSAGE Retry "CorruptRecordException"
        "This message has failed its CRC checksum, exceeds the valid size, has a null key for a compacted topic, or is otherwise corrupt.";
    3 UNKNOWN_TOPIC_OR_PARTITION Refresh "UnknownTopicOrPartitionException"
        "This server does not host this topic-partition.";
    4 INVALID_FETCH_SIZE Fail "InvalidFetchSizeException"
        "The requested fetch size is invalid.";
    5 LEADER_NOT_AVAILABLE Refresh "LeaderNotAvailableException"
        "There is no leader for this topic-partition as we are in the middle of a leadership election.";
    6 NOT_LEADER_OR_FOLLOWER Refresh "NotLeaderOrFollowerException"
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. For requests intended for any replica, this error indicates that the broker is not a replica of the topic partition.";
    7 REQUEST_TIMED_OUT Retry "TimeoutException"
        "The request timed out.";
    8 BROKER_NOT_AVAILABLE Fail "BrokerNotAvailableException"
        "The broker is not available.";
    9 REPLICA_NOT_AVAILABLE Refresh "ReplicaNotAvailableException"
        "The replica is not available for the requested topic-partition. Produce/Fetch requests and other requests intended only for the leader or follower return NOT_LEADER_OR_FOLLOWER if the broker is not a replica of the topic-partition.";
    10 MESSAGE_TOO_LARGE Fail "RecordTooLargeException"
        "The request included a message larger than the max message size the server will accept.";
    11 STALE_CONTROLLER_EPOCH Fail "ControllerMovedException"
        "The controller moved to another broker.";
    12 OFFSET_METADATA_TOO_LARGE Fail "OffsetMetadataTooLarge"
        "The metadata field of the offset request was too large.";
    13 NETWORK_EXCEPTION Refresh "NetworkException"
        "The server disconnected before a response was received.";
    14 COORDINATOR_LOAD_IN_PROGRESS Retry "CoordinatorLoadInProgressException"
        "The coordinator is loading and hence can't process requests.";
    15 COORDINATOR_NOT_AVAILABLE Retry "CoordinatorNotAvailableException"
        "The coordinator is not available.";
    16 NOT_COORDINATOR Retry "NotCoordinatorException"
        "This is not the correct coordinator.";
    17 INVALID_TOPIC_EXCEPTION Fail "InvalidTopicException"
        "The request attempted to perform an operation on an invalid topic.";
    18 RECORD_LIST_TOO_LARGE Fail "RecordBatchTooLargeException"
        "The request included message batch larger than the configured segment size on the server.";
    19 NOT_ENOUGH_REPLICAS Retry "NotEnoughReplicasException"
        "Messages are rejected since there are fewer in-sync replicas than required.";
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND Retry "NotEnoughReplicasAfterAppendException"
        "Messages are written to the log, but to fewer in-sync replicas than required.";
    21 INVALID_REQUIRED_ACKS Fail "InvalidRequiredAcksException"
        "Produce request specified an invalid value for required acks.";
    22 ILLEGAL_GENERATION Fail "IllegalGenerationException"
        "Specified group generation id is not valid.";
    23 INCONSISTENT_GROUP_PROTOCOL Fail "InconsistentGroupProtocolException"
        "The group member's supported protocols are incompatible with those of existing members or first group member tried to join with empty protocol type or empty protocol list.";
    24 INVALID_GROUP_ID Fail "InvalidGroupIdException"
        "The group id is invalid.";
    25 UNKNOWN_MEMBER_ID Fail "UnknownMemberIdException"
        "The coordinator is not aware of this member.";
    26 INVALID_SESSION_TIMEOUT Fail "InvalidSessionTimeoutException"
        "The session timeout is not within the range allowed by the broker (as configured by group.min.session.timeout.ms and group.max.session.timeout.ms).";
    27 REBALANCE_IN_PROGRESS Fail "RebalanceInProgressException"
        "The group is rebalancing, so a rejoin is needed.";
    28 INVALID_COMMIT_OFFSET_SIZE Fail "InvalidCommitOffsetSizeException"
        "The committing offset data size is not valid.";
    29 TOPIC_AUTHORIZATION_FAILED Fail "TopicAuthorizationException"
        "Topic authorization failed.";
    30 GROUP_AUTHORIZATION_FAILED Fail "GroupAuthorizationException"
        "Group authorization failed.";
    31 CLUSTER_AUTHORIZATION_FAILED Fail "ClusterAuthorizationException"
        "Cluster authorization failed.";
    32 INVALID_TIMESTAMP Fail "InvalidTimestampException"
        "The timestamp of the message is out of acceptable range.";
    33 UNSUPPORTED_SASL_MECHANISM Fail "UnsupportedSaslMechanismException"
        "The broker does not support the requested SASL mechanism.";
    34 ILLEGAL_SASL_STATE Fail "IllegalSaslStateException"
        "Request is not valid given the current SASL state.";
    35 UNSUPPORTED_VERSION Fail "UnsupportedVersionException"
        "The version of API is not supported.";
    36 TOPIC_ALREADY_EXISTS Fail "TopicExistsException"
        "Topic with this name already exists.";
    37 INVALID_PARTITIONS Fail "InvalidPartitionsException"
        "Number of partitions is below 1.";
    38 INVALID_REPLICATION_FACTOR Fail "InvalidReplicationFactorException"
        "Replication factor is below 1 or larger than the number of available brokers.";
    39 INVALID_REPLICA_ASSIGNMENT Fail "InvalidReplicaAssignmentException"
        "Replica assignment is invalid.";
    40 INVALID_CONFIG Fail "InvalidConfigurationException"
        "Configuration is invalid.";
    41 NOT_CONTROLLER Retry "NotControllerException"
        "This is not the correct controller for this cluster.";
    42 INVALID_REQUEST Fail "InvalidRequestException"
        "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details.";
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT Fail "UnsupportedForMessageFormatException"
        "The message format version on the broker does not support the request.";
    44 POLICY_VIOLATION Fail "PolicyViolationException"
        "Request parameters do not satisfy the configured policy.";
    45 OUT_OF_ORDER_SEQUENCE_NUMBER Fail "OutOfOrderSequenceException"
        "The broker received an out of order sequence number.";
    46 DUPLICATE_SEQUENCE_NUMBER Fail "DuplicateSequenceException"
        "The broker received a duplicate sequence number.";
    47 INVALID_PRODUCER_EPOCH Fail "InvalidProducerEpochException"
        "Producer attempted to produce with an old epoch.";
    48 INVALID_TXN_STATE Fail "InvalidTxnStateException"
        "The producer attempted a transactional operation in an invalid state.";
    49 INVALID_PRODUCER_ID_MAPPING Fail "InvalidPidMappingException"
        "The producer attempted to use a producer id which is not currently assigned to its transactional id.";
    50 INVALID_TRANSACTION_TIMEOUT Fail "InvalidTxnTimeoutException"
        "The transaction timeout is larger than the maximum value allowed by the broker (as configured by transaction.max.timeout.ms).";
    51 CONCURRENT_TRANSACTIONS Retry "ConcurrentTransactionsException"
        "The producer attempted to update a transaction while another concurrent operation on the same transaction was ongoing.";
    52 TRANSACTION_COORDINATOR_FENCED Fail "TransactionCoordinatorFencedException"
        "Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current coordinator for a given producer.";
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED Fail "TransactionalIdAuthorizationException"
        "Transactional Id authorization failed.";
    54 SECURITY_DISABLED Fail "SecurityDisabledException"
        "Security features are disabled.";
    55 OPERATION_NOT_ATTEMPTED Fail "OperationNotAttemptedException"
        "The broker did not attempt to execute this operation. This may happen for batched RPCs where some operations in the batch failed, causing the broker to respond without trying the rest.";
    56 KAFKA_STORAGE_ERROR Refresh "KafkaStorageException"
        "Disk error when trying to access log file on the disk.";
    57 LOG_DIR_NOT_FOUND Fail "LogDirNotFoundException"
        "The user-specified log directory is not found in the broker config.";
    58 SASL_AUTHENTICATION_FAILED Fail "SaslAuthenticationException"
        "SASL Authentication failed.";
    59 UNKNOWN_PRODUCER_ID Fail "UnknownProducerIdException"
        "This exception is raised by the broker if it could not locate the producer metadata associated with the producerId in question. This could happen if, for instance, the producer's records were deleted because their retention time had elapsed. Once the last records of the producerId are removed, the producer's metadata is removed from the broker, and future appends by the producer will return this exception.";
    60 REASSIGNMENT_IN_PROGRESS Fail "ReassignmentInProgressException"
        "A partition reassignment is in progress.";
    61 DELEGATION_TOKEN_AUTH_DISABLED Fail "DelegationTokenDisabledException"
        "Delegation Token feature is not enabled.";
    62 DELEGATION_TOKEN_NOT_FOUND Fail "DelegationTokenNotFoundException"
        "Delegation Token is not found on server.";
    63 DELEGATION_TOKEN_OWNER_MISMATCH Fail "DelegationTokenOwnerMismatchException"
        "Specified Principal is not valid Owner/Renewer.";
    64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED Fail "UnsupportedByAuthenticationException"
        "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token authenticated channels.";
    65 DELEGATION_TOKEN_AUTHORIZATION_FAILED Fail "DelegationTokenAuthorizationException"
        "Delegation Token authorization failed.";
    66 DELEGATION_TOKEN_EXPIRED Fail "DelegationTokenExpiredException"
        "Delegation Token is expired.";
    67 INVALID_PRINCIPAL_TYPE Fail "InvalidPrincipalTypeException"
        "Supplied principalType is not supported.";
    68 NON_EMPTY_GROUP Fail "GroupNotEmptyException"
        "The group is not empty.";
    69 GROUP_ID_NOT_FOUND Fail "GroupIdNotFoundException"
        "The group id does not exist.";
    70 FETCH_SESSION_ID_NOT_FOUND Retry "FetchSessionIdNotFoundException"
        "The fetch session ID was not found.";
    71 INVALID_FETCH_SESSION_EPOCH Retry "InvalidFetchSessionEpochException"
        "The fetch session epoch is invalid.";
    72 LISTENER_NOT_FOUND Refresh "ListenerNotFoundException"
        "There is no listener on the leader broker that matches the listener on which metadata request was processed.";
    73 TOPIC_DELETION_DISABLED Fail "TopicDeletionDisabledException"
        "Topic deletion is disabled.";
    74 FENCED_LEADER_EPOCH Refresh "FencedLeaderEpochException"
        "The leader epoch in the request is older than the epoch on the broker.";
    75 UNKNOWN_LEADER_EPOCH Retry "UnknownLeaderEpochException"
        "The leader epoch in the request is newer than the epoch on the broker.";
    76 UNSUPPORTED_COMPRESSION_TYPE Fail "UnsupportedCompressionTypeException"
        "The requesting client does not support the compression type of given partition.";
    77 STALE_BROKER_EPOCH Fail "StaleBrokerEpochException"
        "Broker epoch has changed.";
    78 OFFSET_NOT_AVAILABLE Retry "OffsetNotAvailableException"
        "The leader high watermark has not caught up from a recent leader election so the offsets cannot be guaranteed to be monotonically increasing.";
    79 MEMBER_ID_REQUIRED Fail "MemberIdRequiredException"
        "The group member needs to have a valid member id before actually entering a consumer group.";
    80 PREFERRED_LEADER_NOT_AVAILABLE Refresh "PreferredLeaderNotAvailableException"
        "The preferred leader was not available.";
    81 GROUP_MAX_SIZE_REACHED Fail "GroupMaxSizeReachedException"
        "The group has reached its maximum size.";
    82 FENCED_INSTANCE_ID Fail "FencedInstanceIdException"
        "The broker rejected this static consumer since another consumer with the same group.instance.id has registered with a different member.id.";
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE Refresh "EligibleLeadersNotAvailableException"
        "Eligible topic partition leaders are not available.";
    84 ELECTION_NOT_NEEDED Refresh "ElectionNotNeededException"
        "Leader election not needed for topic partition.";
    85 NO_REASSIGNMENT_IN_PROGRESS Fail "NoReassignmentInProgressException"
        "No partition reassignment is in progress.";
    86 GROUP_SUBSCRIBED_TO_TOPIC Fail "GroupSubscribedToTopicException"
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.";
    87 INVALID_RECORD Fail "InvalidRecordException"
        "This record has failed the validation on broker and hence will be rejected.";
    88 UNSTABLE_OFFSET_COMMIT Retry "UnstableOffsetCommitException"
        "There are unstable offsets that need to be cleared.";
    89 THROTTLING_QUOTA_EXCEEDED Retry "ThrottlingQuotaExceededException"
        "The throttling quota has been exceeded.";
    90 PRODUCER_FENCED Fail "ProducerFencedException"
        "There is a newer producer with the same transactionalId which fences the current one.";
    91 RESOURCE_NOT_FOUND Fail "ResourceNotFoundException"
        "A request illegally referred to a resource that does not exist.";
    92 DUPLICATE_RESOURCE Fail "DuplicateResourceException"
        "A request illegally referred to the same resource twice.";
    93 UNACCEPTABLE_CREDENTIAL Fail "UnacceptableCredentialException"
        "Requested credential would not meet criteria for acceptability.";
    94 INCONSISTENT_VOTER_SET Fail "InconsistentVoterSetException"
        "Indicates that the either the sender or recipient of a voter-only request is not one of the expected voters.";
    95 INVALID_UPDATE_VERSION Fail "InvalidUpdateVersionException"
        "The given update version was invalid.";
    96 FEATURE_UPDATE_FAILED Fail "FeatureUpdateFailedException"
        "Unable to update finalized features due to an unexpected server error.";
    97 PRINCIPAL_DESERIALIZATION_FAILURE Fail "PrincipalDeserializationException"
        "Request principal deserialization failed during forwarding. This indicates an internal error on the broker cluster security setup.";
    98 SNAPSHOT_NOT_FOUND Fail "SnapshotNotFoundException"
        "Requested snapshot was not found.";
    99 POSITION_OUT_OF_RANGE Fail "PositionOutOfRangeException"
        "Requested position is not greater than or equal to zero, and less than the size of the snapshot.";
    100 UNKNOWN_TOPIC_ID Refresh "UnknownTopicIdException"
        "This server does not host this topic ID.";
    101 DUPLICATE_BROKER_REGISTRATION Fail "DuplicateBrokerRegistrationException"
        "This broker ID is already in use.";
    102 BROKER_ID_NOT_REGISTERED Fail "BrokerIdNotRegisteredException"
        "The given broker ID was not registered.";
    103 INCONSISTENT_TOPIC_ID Refresh "InconsistentTopicIdException"
        "The log's topic ID did not match the topic ID in the request.";
    104 INCONSISTENT_CLUSTER_ID Fail "InconsistentClusterIdException"
        "The clusterId in the request does not match that found on the server.";
    105 TRANSACTIONAL_ID_NOT_FOUND Fail "TransactionalIdNotFoundException"
        "The transactionalId could not be found.";
    106 FETCH_SESSION_TOPIC_ID_ERROR Retry "FetchSessionTopicIdException"
        "The fetch session encountered inconsistent topic ID usage.";
    107 INELIGIBLE_REPLICA Fail "IneligibleReplicaException"
        "The new ISR contains at least one ineligible replica.";
    108 NEW_LEADER_ELECTED Fail "NewLeaderElectedException"
        "The AlterPartition request successfully updated the partition state but the leader has changed.";
    109 OFFSET_MOVED_TO_TIERED_STORAGE Fail "OffsetMovedToTieredStorageException"
        "The requested offset is moved to tiered storage.";
    110 FENCED_MEMBER_EPOCH Fail "FencedMemberEpochException"
        "The member epoch is fenced by the group coordinator. The member must abandon all its partitions and rejoin.";
    111 UNRELEASED_INSTANCE_ID Fail "UnreleasedInstanceIdException"
        "The instance ID is still used by another member in the consumer group. That member must leave first.";
    112 UNSUPPORTED_ASSIGNOR Fail "UnsupportedAssignorException"
        "The assignor or its version range is not supported by the consumer group.";
    113 STALE_MEMBER_EPOCH Fail "StaleMemberEpochException"
        "The member epoch is stale. The member must retry after receiving its updated member epoch via the ConsumerGroupHeartbeat API.";
    114 MISMATCHED_ENDPOINT_TYPE Fail "MismatchedEndpointTypeException"
        "The request was sent to an endpoint of the wrong type.";
    115 UNSUPPORTED_ENDPOINT_TYPE Fail "UnsupportedEndpointTypeException"
        "This endpoint type is not supported yet.";
    116 UNKNOWN_CONTROLLER_ID Fail "UnknownControllerIdException"
        "This controller ID is not known.";
    117 UNKNOWN_SUBSCRIPTION_ID Fail "UnknownSubscriptionIdException"
        "Client sent a push telemetry request with an invalid or outdated subscription ID.";
    118 TELEMETRY_TOO_LARGE Fail "TelemetryTooLargeException"
        "Client sent a push telemetry request larger than the maximum size the broker will accept.";
    119 INVALID_REGISTRATION Fail "InvalidRegistrationException"
        "The controller has considered the broker registration to be invalid.";
    120 TRANSACTION_ABORTABLE Fail "TransactionAbortableException"
        "The server encountered an error with the transaction. The client can abort the transaction to continue using this transactional ID.";
    121 INVALID_RECORD_STATE Fail "InvalidRecordStateException"
        "The record state is invalid. The acknowledgement of delivery could not be completed.";
    122 SHARE_SESSION_NOT_FOUND Retry "ShareSessionNotFoundException"
        "The share session was not found.";
    123 INVALID_SHARE_SESSION_EPOCH Retry "InvalidShareSessionEpochException"
        "The share session epoch is invalid.";
    124 FENCED_STATE_EPOCH Fail "FencedStateEpochException"
        "The coordinator rejected the request because the state epoch did not match.";
    125 INVALID_VOTER_KEY Fail "InvalidVoterKeyException"
        "The voter key doesn't match the receiving replica's key.";
    126 DUPLICATE_VOTER Fail "DuplicateVoterException"
        "The voter is already part of the set of voters.";
    127 VOTER_NOT_FOUND Fail "VoterNotFoundException"
        "The voter is not part of the set of voters.";
    128 INVALID_REGULAR_EXPRESSION Fail "InvalidRegularExpression"
        "The regular expression is not valid.";
    129 REBOOTSTRAP_REQUIRED Fail "RebootstrapRequiredException"
        "Client metadata is stale. The client should rebootstrap to obtain new metadata.";
    130 STREAMS_INVALID_TOPOLOGY Fail "StreamsInvalidTopologyException"
        "The supplied topology is invalid.";
    131 STREAMS_INVALID_TOPOLOGY_EPOCH Fail "StreamsInvalidTopologyEpochException"
        "The supplied topology epoch is invalid.";
    132 STREAMS_TOPOLOGY_FENCED Fail "StreamsTopologyFencedException"
        "The supplied topology epoch is outdated.";
    133 SHARE_SESSION_LIMIT_REACHED Retry "ShareSessionLimitReachedException"
        "The limit of share sessions has been reached.";
    134 GROUP_DELETION_FAILED Fail "GroupDeletionFailedException"
        "DeleteGroups could not complete; see the error message on the per-group result for details.";
    135 STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED Fail "StreamsTopologyDescriptionUpdateFailedException"
        "The broker could not process the topology description update; see the error message for details.";
    136 CONTROLLER_ID_NOT_REGISTERED Fail "ControllerIdNotRegisteredException"
        "The given controller ID was not registered.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_no_gaps() {
        let expected: Vec<i16> = (FIRST..).take(TABLE.len()).collect();
        assert_eq!(CODES, expected);
    }

    #[test]
    fn codes_know_their_names_messages_and_kind() {
        assert_eq!(ErrorCode(3), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(ErrorCode(3).message(), "This server does not host this topic-partition.");
        assert!(ErrorCode(3).is_retriable() && ErrorCode(3).is_invalid_metadata());
        assert!(!ErrorCode::UNKNOWN_SERVER_ERROR.is_retriable());
        assert_eq!(ErrorCode(i16::MIN).name(), "UNKNOWN_SERVER_ERROR");
        assert_eq!(ErrorCode(i16::MAX).to_string(), "UNKNOWN_SERVER_ERROR(32767)");
        assert_eq!(ErrorCode::from_name("NONE"), Some(ErrorCode::NONE));
        assert_eq!(ErrorCode::from_code(137), ErrorCode::UNKNOWN_SERVER_ERROR);
    }
}
