//! Blocks of producer ids (KIP-730).

use metadata::VersionedRecord;
use protocol::ErrorCode;
use protocol::records::metadata::ProducerIdsRecord;

use super::Decider;
use crate::api::{ApiError, ControllerResult};

/// How many ids a broker is given at once.
pub(crate) const PRODUCER_ID_BLOCK_SIZE: i32 = 1000;

impl Decider<'_> {
    /// The next block; the response is its first id.
    pub(crate) fn next_producer_ids(
        &self,
        broker: i32,
        epoch: i64,
    ) -> Result<ControllerResult<i64>, ApiError> {
        self.check_broker_epoch(broker, epoch)?;
        let first = self.state.next_producer_id.unwrap_or(0);
        let Some(next_producer_id) = first.checked_add(i64::from(PRODUCER_ID_BLOCK_SIZE)) else {
            return Err(ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR));
        };
        let record = ProducerIdsRecord { broker_id: broker, broker_epoch: epoch, next_producer_id };
        Ok(ControllerResult::of(vec![VersionedRecord::new(record, 0)], first))
    }
}
