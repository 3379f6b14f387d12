//! Where late replies find their connection, and where connections are counted and swept.
//!
//! Concurrency: a sharded map from connection id to mailbox, locked only for a look-up; a mailbox holds at most one
//! reply because a connection has at most one request in work.

use crate::Outgoing;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Names one request of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// The connection.
    pub connection: u64,
    /// Counts the connection's requests from 1.
    pub sequence: u64,
}

#[derive(Default)]
pub(crate) struct Mailbox {
    slot: Mutex<Slot>,
    ready: Notify,
    /// Seconds since the listener's start at which bytes last moved.
    pub(crate) last_active_s: AtomicU64,
}

#[derive(Default)]
struct Slot {
    expected: u64,
    reply: Option<Option<Outgoing>>,
}

impl Mailbox {
    pub(crate) fn expect(&self, sequence: u64) {
        let mut slot = self.slot.lock();
        slot.expected = sequence;
        slot.reply = None;
    }

    /// Waits for the reply of the expected request; `None` inside means that none is to be sent.
    pub(crate) async fn take(&self) -> Option<Outgoing> {
        loop {
            let notified = self.ready.notified();
            if let Some(reply) = self.slot.lock().reply.take() {
                return reply;
            }
            notified.await;
        }
    }
}

const SHARDS: usize = 16;

struct Entry {
    mailbox: Arc<Mailbox>,
    abort: Option<AbortHandle>,
    ip: IpAddr,
}

/// All live connections of a node.
pub struct Connections {
    next_id: AtomicU64,
    shards: [Mutex<HashMap<u64, Entry>>; SHARDS],
    per_ip: Mutex<HashMap<IpAddr, usize>>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { next_id: AtomicU64::new(1), shards: Default::default(), per_ip: Mutex::default() }
    }
}

impl Connections {
    /// Hands a reply to its connection; dropped when the connection is gone. `None` = the request gets no answer.
    pub fn deliver(&self, request: RequestId, reply: Option<Outgoing>) {
        let mailbox = {
            let shard = self.shard(request.connection).lock();
            let Some(entry) = shard.get(&request.connection) else { return };
            entry.mailbox.clone()
        };
        {
            let mut slot = mailbox.slot.lock();
            if slot.expected != request.sequence {
                return;
            }
            slot.reply = Some(reply);
        }
        mailbox.ready.notify_one();
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Open connections from one address.
    pub(crate) fn count_of(&self, ip: IpAddr) -> usize {
        self.per_ip.lock().get(&ip).copied().unwrap_or(0)
    }

    pub(crate) fn register(&self, ip: IpAddr) -> (u64, Arc<Mailbox>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(Mailbox::default());
        self.shard(id).lock().insert(id, Entry { mailbox: mailbox.clone(), abort: None, ip });
        *self.per_ip.lock().entry(ip).or_default() += 1;
        (id, mailbox)
    }

    pub(crate) fn set_abort(&self, id: u64, abort: AbortHandle) {
        if let Some(entry) = self.shard(id).lock().get_mut(&id) {
            entry.abort = Some(abort);
        }
    }

    pub(crate) fn unregister(&self, id: u64) {
        let Some(entry) = self.shard(id).lock().remove(&id) else { return };
        let mut per_ip = self.per_ip.lock();
        if let Some(count) = per_ip.get_mut(&entry.ip) {
            *count -= 1;
            if *count == 0 {
                per_ip.remove(&entry.ip);
            }
        }
    }

    /// Ends connections that moved no byte for `idle_s` seconds; returns how many.
    pub(crate) fn sweep(&self, now_s: u64, idle_s: u64) -> usize {
        self.abort_where(|entry| {
            now_s.saturating_sub(entry.mailbox.last_active_s.load(Ordering::Relaxed)) > idle_s
        })
    }

    /// Ends every connection.
    pub fn close_all(&self) {
        self.abort_where(|_| true);
    }

    fn abort_where(&self, mut which: impl FnMut(&Entry) -> bool) -> usize {
        let mut ended = 0;
        for shard in &self.shards {
            for entry in shard.lock().values() {
                if let Some(abort) = entry.abort.as_ref().filter(|_| which(entry)) {
                    abort.abort();
                    ended += 1;
                }
            }
        }
        ended
    }

    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Entry>> {
        &self.shards[(id % SHARDS as u64) as usize]
    }
}
