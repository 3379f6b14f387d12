//! Ids for idempotent producers, handed out from blocks that the controller allocates (KIP-730).
//!
//! Invariant: an id is given once; a block is asked for when less than a tenth of the last one is left, and requests
//! that find no id wait for it in order.

use crate::reply::ReplyTo;
use std::collections::VecDeque;

/// Part of a block below which the next one is asked for: one tenth.
const PREFETCH_DIVISOR: i64 = 10;

/// What asking for an id comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextId {
    Now(i64),
    /// The request waits for a block.
    Parked,
}

/// See the file's header.
#[derive(Debug, Default)]
pub(crate) struct ProducerIds {
    next: i64,
    end: i64,
    block_len: i64,
    following: Option<(i64, i64)>,
    asked: bool,
    waiting: VecDeque<ReplyTo>,
}

impl ProducerIds {
    /// Takes an id for the request, or parks it.
    pub(crate) fn take(&mut self, to: ReplyTo) -> NextId {
        match self.pop() {
            Some(id) => NextId::Now(id),
            None => {
                self.waiting.push_back(to);
                NextId::Parked
            }
        }
    }

    /// Whether a block has to be asked for now; true once until it arrives or fails.
    pub(crate) fn must_ask(&mut self) -> bool {
        let low = self.following.is_none() && self.end - self.next <= self.block_len / PREFETCH_DIVISOR;
        low && !std::mem::replace(&mut self.asked, true)
    }

    /// A block arrived; returns the parked requests that have ids now.
    pub(crate) fn handle_block(&mut self, start: i64, len: i64) -> Vec<(ReplyTo, i64)> {
        self.asked = false;
        self.following = Some((start, start + len));
        self.block_len = len;
        let mut served = Vec::new();
        while !self.waiting.is_empty() {
            let Some(id) = self.pop() else { break };
            if let Some(to) = self.waiting.pop_front() {
                served.push((to, id));
            }
        }
        served
    }

    /// No block could be had; returns the parked requests, which have to try again.
    pub(crate) fn handle_failure(&mut self) -> Vec<ReplyTo> {
        self.asked = false;
        self.waiting.drain(..).collect()
    }

    fn pop(&mut self) -> Option<i64> {
        if self.next >= self.end {
            (self.next, self.end) = self.following.take()?;
        }
        let id = self.next;
        self.next += 1;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::RequestToken;
    use protocol::ApiKey;

    fn to(sequence: u64) -> ReplyTo {
        ReplyTo {
            token: RequestToken { connection: 1, sequence },
            api_key: ApiKey::InitProducerId,
            api_version: 5,
            correlation_id: 0,
        }
    }

    #[test]
    fn ids_come_once_each_and_a_block_is_asked_for_ahead() {
        let mut ids = ProducerIds::default();
        assert_eq!(ids.take(to(1)), NextId::Parked);
        assert!(ids.must_ask());
        assert!(!ids.must_ask(), "asked once");
        let served = ids.handle_block(1000, 10);
        assert_eq!(served.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), vec![1000]);
        for expected in 1001..1009 {
            assert_eq!(ids.take(to(2)), NextId::Now(expected));
        }
        assert!(ids.must_ask(), "one id is left");
        assert_eq!(ids.take(to(3)), NextId::Now(1009));
        assert_eq!(ids.take(to(4)), NextId::Parked);
        assert_eq!(ids.handle_block(5000, 10).len(), 1);
        assert_eq!(ids.take(to(5)), NextId::Now(5001));
    }

    #[test]
    fn a_failure_gives_the_parked_requests_back() {
        let mut ids = ProducerIds::default();
        ids.take(to(1));
        assert!(ids.must_ask());
        assert_eq!(ids.handle_failure().len(), 1);
        assert!(ids.must_ask());
    }
}
