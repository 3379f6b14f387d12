//! Answers on their way out, and which requests still lack theirs.
//!
//! Invariant: a request is answered at most once, whoever tries; what is still open when a shard stops is answered then.

use std::collections::{BTreeMap, VecDeque};

use coordinator::RequestToken;
use protocol::ErrorCode;
use protocol::messages::{JoinGroupResponse, SyncGroupResponse};

use crate::events::Events;
use crate::message::{GroupResponse, shape_join_group};

/// An answer for the request that came with `token`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub token: RequestToken,
    pub response: GroupResponse,
}

/// The requests whose answer may have to wait for other members.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Join,
    Sync,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    open: BTreeMap<RequestToken, (Waiting, i16)>,
    ready: VecDeque<Reply>,
    pub(crate) events: Events,
}

impl Outbox {
    /// Expects an answer for the request, which came in a version of its API.
    pub(crate) fn open(&mut self, token: RequestToken, waiting: Waiting, api_version: i16) {
        self.open.insert(token, (waiting, api_version));
    }

    /// Answers a request that never waits for others.
    pub(crate) fn reply(&mut self, token: RequestToken, response: GroupResponse) {
        self.ready.push_back(Reply { token, response });
    }

    /// Answers a JoinGroup unless that has been done.
    pub(crate) fn join(&mut self, token: RequestToken, mut response: JoinGroupResponse) {
        if let Some((_, api_version)) = self.open.remove(&token) {
            shape_join_group(&mut response, api_version);
            self.reply(token, GroupResponse::JoinGroup(response));
        }
    }

    /// Answers a SyncGroup unless that has been done.
    pub(crate) fn sync(&mut self, token: RequestToken, response: SyncGroupResponse) {
        if self.open.remove(&token).is_some() {
            self.reply(token, GroupResponse::SyncGroup(response));
        }
    }

    /// Answers a JoinGroup or SyncGroup with nothing but an error, unless that has been done.
    pub(crate) fn fail(&mut self, token: RequestToken, error: ErrorCode) {
        match self.open.get(&token).map(|(waiting, _)| *waiting) {
            Some(Waiting::Join) => self.join(token, join_error("", error)),
            Some(Waiting::Sync) => self.sync(token, sync_error(error)),
            None => {}
        }
    }

    pub(crate) fn fail_all_open(&mut self, error: ErrorCode) {
        while let Some((&token, _)) = self.open.first_key_value() {
            self.fail(token, error);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Reply> {
        self.ready.pop_front()
    }

    pub(crate) fn open_len(&self) -> usize {
        self.open.len()
    }
}

/// A JoinGroup answer with an error.
pub(crate) fn join_error(member_id: &str, error: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse { member_id: member_id.to_owned(), error_code: error.code(), ..Default::default() }
}

/// A SyncGroup answer with an error.
pub(crate) fn sync_error(error: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse { error_code: error.code(), ..Default::default() }
}
