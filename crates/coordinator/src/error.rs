//! How errors of the log become errors of a coordinator's client.
//!
//! A client of a coordinator must not see the errors of the partition behind it: it would look for another leader of
//! a topic it has never heard of. The two tables are those of 4.4.0 (`CoordinatorOperationExceptionHelper` and the
//! one that the classic group manager uses for its own appends).

use protocol::ErrorCode;

/// The error that a client gets when its write or read operation failed with `error`.
pub fn map_operation_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NETWORK_EXCEPTION => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        other => map_group_metadata_append_error(other),
    }
}

/// The error that goes into a JoinGroup or SyncGroup answer when writing the group's metadata failed with `error`.
pub fn map_group_metadata_append_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::REQUEST_TIMED_OUT => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::KAFKA_STORAGE_ERROR => ErrorCode::NOT_COORDINATOR,
        ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE | ErrorCode::INVALID_FETCH_SIZE => {
            ErrorCode::UNKNOWN_SERVER_ERROR
        }
        other => other,
    }
}
