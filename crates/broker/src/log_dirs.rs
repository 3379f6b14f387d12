//! Log directories at run time: replicas on the move between them, and directories that fail (KIP-112, KIP-113, KIP-858).
//!
//! A move copies into a future log while the partition is written, tells the controller the new directory when it has
//! caught up, and replaces the log once the controller has it. A failed directory takes its partitions out of service;
//! the next heartbeat tells the controller, which takes their leadership away.
//!
//! Invariants
//! * A move is worked on by one thread at a time.
//! * A log is replaced only after the metadata log names its directory: what a crash leaves is told apart by it.
//! * The directory of the metadata log, or the last one, ends the node.
//!
//! Concurrency: [`Node::move_replicas`] runs on its own threads, [`Node::run_log_dir_events`] on one. Locks here are not
//! held across IO. Crash: `storage` settles what it finds; a future log is followed again.

use crate::assignments::TopicIdPartition;
use crate::auto_topics::OFFSETS_TOPIC;
use crate::node::Node;
use crate::partition::Partition;
use crate::reply::{NodeEvent, ReplyTo};
use parking_lot::Mutex;
use protocol::Uuid;
use protocol::messages::AlterReplicaLogDirsRequest;
use record::{Time, TopicPartition};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::{FollowError, LogDir, Promotion, UnifiedLog};

/// Between looks at a replica that has caught up while the controller is asked.
const CAUGHT_UP_WAIT: Duration = Duration::from_millis(50);
/// Bytes that may be copied while appends wait for the replacement.
const MAX_TAIL_BYTES: u32 = 1 << 20;
/// The throttle looks at this long a past, as the reference's eleven samples of a second do.
const THROTTLE_WINDOW: Duration = Duration::from_secs(10);
/// Bytes per second of all moves together; a broker's own value counts before the cluster's.
const MOVE_LIMIT: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

/// Where a move stands with the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reassignment {
    /// It was not told yet.
    None,
    /// It is being told this directory.
    Queued(Uuid),
    /// It has this directory.
    Accepted(Uuid),
}

#[derive(Debug)]
struct Move {
    topic_id: Uuid,
    reassignment: Reassignment,
    /// When to look again.
    ready_at: Duration,
    /// A thread works on it.
    busy: bool,
    /// Tells a move from an earlier one of the same partition that a thread may still work on.
    id: u64,
}

/// What may be copied: bytes gather with time, up to a window's worth.
#[derive(Debug, Default)]
struct Throttle {
    /// `None`: no limit was in force at the last look.
    allowance: Option<(i64, Duration)>,
}

impl Throttle {
    /// How long to wait before anything more may be copied.
    fn wait(&mut self, limit: i64, now: Duration) -> Option<Duration> {
        if limit == i64::MAX {
            self.allowance = None;
            return None;
        }
        let window = i64::try_from(THROTTLE_WINDOW.as_secs()).unwrap_or(1);
        let most = limit.saturating_mul(window);
        let (bytes, at) = self.allowance.unwrap_or((most, now));
        let passed = i64::try_from(now.saturating_sub(at).as_millis()).unwrap_or(i64::MAX);
        let gained = limit.saturating_mul(passed) / 1000;
        let bytes = bytes.saturating_add(gained).min(most);
        self.allowance = Some((bytes, if gained > 0 { now } else { at }));
        if bytes > 0 {
            return None;
        }
        let missing = u64::try_from(1 - bytes).unwrap_or(1);
        let rate = u64::try_from(limit).unwrap_or(0).max(1);
        Some(Duration::from_millis(missing.saturating_mul(1000) / rate + 1).min(THROTTLE_WINDOW))
    }

    fn record(&mut self, copied: u32) {
        if let Some((bytes, _)) = &mut self.allowance {
            *bytes -= i64::from(copied);
        }
    }
}

/// What waits for the threads of this file.
#[derive(Debug, Default)]
pub(crate) struct LogDirMoves {
    moves: Mutex<BTreeMap<TopicPartition, Move>>,
    next_id: AtomicU64,
    throttle: Mutex<Throttle>,
    requests: Mutex<VecDeque<(ReplyTo, AlterReplicaLogDirsRequest)>>,
}

/// A move in work.
#[derive(Debug)]
struct Taken {
    name: TopicPartition,
    topic_id: Uuid,
    reassignment: Reassignment,
    id: u64,
}

/// What became of a step of a move.
enum Step {
    /// There is more to do now.
    More,
    /// Look again later.
    Wait(Duration),
    /// The replica is where it was to be.
    Moved,
    /// There is nothing to move.
    Done,
}

impl LogDirMoves {
    /// Begins, or goes on with, a move whose future log exists.
    pub(crate) fn add(&self, partition: TopicPartition, topic_id: Uuid, now: Time) {
        let fresh = Move {
            topic_id,
            reassignment: Reassignment::None,
            ready_at: now.monotonic,
            busy: false,
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
        };
        self.moves.lock().entry(partition).or_insert(fresh);
    }

    /// Ends a move without its effect; false when there was none.
    pub(crate) fn forget(&self, partition: &TopicPartition) -> bool {
        self.moves.lock().remove(partition).is_some()
    }

    /// The controller has the directory.
    fn accept(&self, (topic_id, index): TopicIdPartition, directory: Uuid, now: Time) -> bool {
        let mut moves = self.moves.lock();
        let found = moves.iter_mut().find(|(name, m)| m.topic_id == topic_id && name.partition == index);
        match found {
            Some((_, m)) if m.reassignment == Reassignment::Queued(directory) => {
                m.reassignment = Reassignment::Accepted(directory);
                m.ready_at = now.monotonic;
                true
            }
            _ => false,
        }
    }

    /// A move to work on, or how long none is ready.
    fn take(&self, now: Time) -> Result<Taken, Option<Duration>> {
        let mut moves = self.moves.lock();
        let next = moves.iter_mut().filter(|(_, m)| !m.busy).min_by_key(|(_, m)| m.ready_at);
        match next {
            Some((partition, m)) if m.ready_at <= now.monotonic => {
                m.busy = true;
                Ok(Taken {
                    name: partition.clone(),
                    topic_id: m.topic_id,
                    reassignment: m.reassignment,
                    id: m.id,
                })
            }
            Some((_, m)) => Err(Some(m.ready_at.saturating_sub(now.monotonic))),
            None => Err(None),
        }
    }

    fn put_back(&self, taken: &Taken, step: &Step, now: Time) {
        let mut moves = self.moves.lock();
        let Some(m) = moves.get_mut(&taken.name).filter(|m| m.id == taken.id) else { return };
        m.busy = false;
        // Behind all others that are ready.
        m.ready_at = match step {
            Step::More => now.monotonic,
            Step::Wait(wait) => now.monotonic + *wait,
            Step::Moved | Step::Done => {
                moves.remove(&taken.name);
                return;
            }
        };
    }

    /// False when the move was given up meanwhile.
    fn set_reassignment(&self, taken: &Taken, reassignment: Reassignment) -> bool {
        let mut moves = self.moves.lock();
        let Some(m) = moves.get_mut(&taken.name).filter(|m| m.id == taken.id) else { return false };
        m.reassignment = reassignment;
        true
    }
}

impl Node {
    /// How many threads move replicas: `num.replica.alter.log.dirs.threads`, or one per directory.
    pub fn replica_mover_threads(&self) -> usize {
        let dirs = self.logs.log_dirs().len();
        if dirs < 2 {
            return 0;
        }
        self.settings()
            .num_replica_alter_log_dirs_threads
            .map_or(dirs, |threads| usize::try_from(threads).unwrap_or(dirs))
    }

    /// Does one step of one move; returns how long there is nothing to do, `None` until woken. To be called from
    /// [`Node::replica_mover_threads`] threads that may wait for disks, again when [`crate::Outbox::wake_movers`] was.
    pub fn move_replicas(&self) -> Option<Duration> {
        let now = self.now();
        if let Some(wait) = self.moves.throttle.lock().wait(self.move_bytes_per_second(), now.monotonic) {
            return Some(wait);
        }
        let taken = match self.moves.take(now) {
            Ok(taken) => taken,
            Err(wait) => return wait,
        };
        let step = match self.move_step(now, &taken) {
            Ok(step) => step,
            Err(error) => {
                tracing::error!(target: "kafka.server.ReplicaAlterLogDirsThread", "[ReplicaAlterLogDirsThread broker={}] Moving {} failed: {error}", self.node_id(), taken.name);
                let backoff = u64::try_from(self.settings().replica_fetch_backoff_ms).unwrap_or(1000);
                Step::Wait(Duration::from_millis(backoff))
            }
        };
        self.moves.put_back(&taken, &step, self.now());
        if matches!(step, Step::Moved) && self.logs.get_future_log(&taken.name).is_some() {
            // A further move was asked for while this one was being put away.
            self.resume_move(self.now(), &taken.name, taken.topic_id);
        }
        Some(Duration::ZERO)
    }

    /// `replica.alter.log.dirs.io.max.bytes.per.second`, which is set while the broker runs only.
    fn move_bytes_per_second(&self) -> i64 {
        let configs = self.broker_configs();
        let limit = configs.broker().get(MOVE_LIMIT).or_else(|| configs.cluster_default().get(MOVE_LIMIT));
        limit.and_then(|limit| limit.parse().ok()).unwrap_or(i64::MAX)
    }

    fn move_step(&self, now: Time, taken: &Taken) -> Result<Step, FollowError> {
        let (name, topic_id) = (&taken.name, taken.topic_id);
        // Deleted, offline, or replaced meanwhile: whoever did that has removed the move.
        let Some(partition) = self.partition(topic_id, name.partition) else { return Ok(Step::Done) };
        let Some((current, future)) = self.logs.get_log(name).zip(self.logs.get_future_log(name)) else {
            return Ok(Step::Done);
        };
        let max_bytes = u32::try_from(self.settings().replica_fetch_max_bytes).unwrap_or(1 << 20);
        let copied = future.follow(&current, max_bytes, now)?;
        self.moves.throttle.lock().record(copied);
        let Some(target) = future.log_dir().id() else { return Ok(Step::Done) };
        let lag = current.log_end_offset() - future.log_end_offset();
        match taken.reassignment {
            Reassignment::Accepted(directory) if directory == target => self.promote(now, name, &partition),
            _ if lag > 0 => Ok(Step::More),
            Reassignment::Queued(directory) if directory == target => Ok(Step::Wait(CAUGHT_UP_WAIT)),
            _ => {
                if self.moves.set_reassignment(taken, Reassignment::Queued(target)) {
                    self.assign_directory(now, (topic_id, name.partition), target);
                }
                Ok(Step::Wait(CAUGHT_UP_WAIT))
            }
        }
    }

    fn promote(
        &self,
        now: Time,
        name: &TopicPartition,
        partition: &Arc<Partition>,
    ) -> Result<Step, FollowError> {
        match self.logs.replace_current_with_future_log(name, MAX_TAIL_BYTES, now)? {
            Promotion::Behind => Ok(Step::More),
            Promotion::Done(log) => {
                partition.replace_log(log);
                // Whoever waited on the old log sees the rest in the new one.
                self.complete_fetches(now, partition);
                Ok(Step::Moved)
            }
        }
    }

    /// Tells the controller which directory a replica is in.
    pub(crate) fn assign_directory(&self, now: Time, partition: TopicIdPartition, directory: Uuid) {
        self.assignments.lock().assign(now, partition, directory);
        self.outbox.wake_timers();
    }

    /// The controller has answered AssignReplicasToDirs.
    pub(crate) fn handle_assigned(&self, response: &protocol::messages::AssignReplicasToDirsResponse) {
        let now = self.now();
        let accepted = self.assignments.lock().handle_response(now, response);
        let mut wake = false;
        for (partition, directory) in accepted {
            wake |= self.moves.accept(partition, directory, now);
        }
        if wake {
            self.outbox.wake_movers();
        }
        self.outbox.wake_timers();
    }

    /// A replica that is elsewhere than the metadata log says: the controller is told where.
    pub(crate) fn check_directory(&self, now: Time, name: &TopicPartition, topic_id: Uuid, assigned: Uuid) {
        let Some(log) = self.logs.get_log(name) else { return };
        let is_on_its_way =
            self.logs.get_future_log(name).is_some_and(|future| future.log_dir().id() == Some(assigned));
        if is_on_its_way {
            return;
        }
        if let Some(actual) = log.log_dir().id().filter(|actual| *actual != assigned) {
            self.assign_directory(now, (topic_id, name.partition), actual);
        }
    }

    /// The controller may have been told of a directory that the replica never came to.
    fn tell_directory(&self, now: Time, name: &TopicPartition) {
        if let Some(log) = self.logs.get_log(name)
            && let (Some(topic_id), Some(directory)) = (log.topic_id(), log.log_dir().id())
        {
            self.assign_directory(now, (topic_id, name.partition), directory);
        }
    }

    /// Goes on with a move that a restart interrupted.
    pub(crate) fn resume_move(&self, now: Time, name: &TopicPartition, topic_id: Uuid) {
        if self.logs.get_future_log(name).is_some() && self.logs.get_log(name).is_some() {
            self.moves.add(name.clone(), topic_id, now);
            self.outbox.wake_movers();
        }
    }

    /// Ends a move without its effect. The future log goes too unless its directory has.
    pub(crate) fn cancel_move(&self, now: Time, name: &TopicPartition) -> Result<(), storage::StorageError> {
        self.moves.forget(name);
        if self.logs.delete_future_log(name, now)? {
            self.tell_directory(now, name);
        }
        Ok(())
    }

    /// Has AlterReplicaLogDirs done by the thread that may wait for disks.
    pub(crate) fn queue_alter_log_dirs(&self, to: ReplyTo, request: AlterReplicaLogDirsRequest) {
        self.moves.requests.lock().push_back((to, request));
        self.outbox.wake_log_dirs();
    }

    /// Does what waits: requests that make or drop future logs, and directories that failed. To be called when
    /// [`crate::Outbox::wake_log_dirs`] was, from a thread that may wait for disks.
    pub fn run_log_dir_events(&self) {
        self.handle_log_dir_failures();
        loop {
            let Some((to, request)) = self.moves.requests.lock().pop_front() else { return };
            let response = crate::apis::alter_replica_log_dirs::alter(self, self.now(), request);
            self.reply(to, &response);
        }
    }

    /// `cordoned.log.dirs`
    pub(crate) fn cordoned_log_dirs(&self) -> Vec<PathBuf> {
        self.settings().cordoned_log_dirs().iter().map(|dir| crate::open::absolute(dir)).collect()
    }

    /// Those of them that work, for the controller (KIP-1066).
    pub(crate) fn cordoned_directory_ids(&self) -> Vec<Uuid> {
        let cordoned = self.cordoned_log_dirs();
        let dirs = self.logs.live_log_dirs().into_iter();
        dirs.filter(|dir| cordoned.iter().any(|c| *c == dir.path())).filter_map(|dir| dir.id()).collect()
    }

    /// Has this node told of directories that go offline.
    pub(crate) fn watch_log_dirs(&self) {
        for dir in self.logs.log_dirs() {
            let outbox = self.outbox.clone();
            dir.on_failure(move || outbox.wake_log_dirs());
        }
    }

    pub(crate) fn handle_log_dir_failures(&self) {
        for (dir, cause, _) in self.logs.handle_failed_dirs() {
            self.stop_serving(&dir, &cause);
        }
    }

    /// Takes the partitions of a failed directory out of service.
    pub(crate) fn stop_serving(&self, dir: &Arc<LogDir>, cause: &str) {
        let (now, path) = (self.now(), dir.path().display());
        tracing::warn!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Stopping serving replicas in dir {path} with uuid {} because the log directory has failed: {cause}", self.node_id(), dir.id().unwrap_or(Uuid::ZERO));
        let is_in = |log: &UnifiedLog| Arc::ptr_eq(log.log_dir(), dir);
        let offline: Vec<Arc<Partition>> = {
            let mut partitions = self.partitions.write();
            partitions.extract_if(|_, partition| is_in(&partition.log())).map(|(_, p)| p).collect()
        };
        for partition in &offline {
            let name = partition.topic_partition();
            self.moves.forget(name);
            if *name.topic == *OFFSETS_TOPIC {
                self.groups.resign(self, now, name.partition);
            }
            // Waiting readers learn that the partition is offline.
            self.complete_fetches(now, partition);
        }
        self.drop_moves_without_future_log();
        let names: Vec<String> = offline.iter().map(|p| p.topic_partition().to_string()).collect();
        tracing::warn!(target: "kafka.server.ReplicaManager", "[ReplicaManager broker={}] Broker {} stopped serving partitions {} because they are in the failed log directory {path}.", self.node_id(), self.node_id(), names.join(","));
        if let Some(reason) = self.why_to_stop(dir) {
            self.outbox.event(NodeEvent::Failed(reason));
            return;
        }
        if let Some(id) = dir.id() {
            let timeout = u64::try_from(self.settings().log_dir_failure_timeout_ms).unwrap_or(30_000);
            self.lifecycle.lock().handle_offline_dir(now, id, Duration::from_millis(timeout));
            self.outbox.wake_timers();
        }
    }

    fn why_to_stop(&self, dir: &LogDir) -> Option<String> {
        let dirs = self.logs.log_dirs();
        if dirs.iter().all(|dir| dir.is_offline()) {
            let all: Vec<String> = dirs.iter().map(|dir| dir.path().display().to_string()).collect();
            return Some(format!(
                "Shutdown broker because all log dirs in {} have failed. Repair or replace the disks, then start the node again.",
                all.join(", ")
            ));
        }
        (dir.path() == self.identity.metadata_log_dir).then(|| {
            format!(
                "Shutdown broker because the metadata log dir {} has failed. Repair or replace the disk, then start the node again.",
                dir.path().display()
            )
        })
    }

    /// A move whose target failed has nothing to copy to; the controller learns that the replica stays.
    fn drop_moves_without_future_log(&self) {
        let names: Vec<TopicPartition> = self.moves.moves.lock().keys().cloned().collect();
        let now = self.now();
        for name in names.iter().filter(|name| self.logs.get_future_log(name).is_none()) {
            self.moves.forget(name);
            self.tell_directory(now, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_lets_a_window_pass_and_then_its_rate() {
        let second = Duration::from_secs;
        let mut throttle = Throttle::default();
        assert_eq!(throttle.wait(i64::MAX, second(0)), None);
        throttle.record(u32::MAX);
        assert_eq!(throttle.wait(1000, second(1)), None, "what passed without a limit does not count");
        throttle.record(10_000);
        let wait = throttle.wait(1000, second(1)).unwrap();
        assert!(wait <= Duration::from_millis(2), "{wait:?}");
        assert_eq!(throttle.wait(1000, second(1) + wait), None);
        throttle.record(5_000);
        let wait = throttle.wait(1000, second(2)).unwrap();
        assert!(wait > second(3) && wait < second(5), "{wait:?}");
        assert_eq!(throttle.wait(1000, second(2) + wait), None);
        assert_eq!(throttle.wait(i64::MAX, second(3)), None);
    }

    #[test]
    fn moves_take_turns_and_wait_for_the_controller() {
        let (moves, topic) = (LogDirMoves::default(), Uuid([5; 16]));
        let at = |ms| Time { monotonic: Duration::from_millis(ms), wall_ms: 0 };
        let name = |partition| TopicPartition::new("t", partition);
        moves.add(name(0), topic, at(0));
        moves.add(name(1), topic, at(1));
        let (first, second) = (moves.take(at(1)).unwrap(), moves.take(at(1)).unwrap());
        assert_eq!((&first.name, &second.name), (&name(0), &name(1)));
        assert!(matches!(moves.take(at(1)), Err(None)), "both are in work");
        moves.put_back(&first, &Step::Wait(Duration::from_millis(50)), at(10));
        assert!(matches!(moves.take(at(20)), Err(Some(wait)) if wait == Duration::from_millis(40)));
        let dir = Uuid([6; 16]);
        assert!(!moves.accept((topic, 0), dir, at(20)), "nobody asked");
        moves.set_reassignment(&first, Reassignment::Queued(dir));
        assert!(!moves.accept((topic, 0), Uuid([7; 16]), at(20)), "another directory");
        assert!(moves.accept((topic, 0), dir, at(20)));
        let first = moves.take(at(20)).unwrap();
        assert_eq!(first.reassignment, Reassignment::Accepted(dir));
        moves.put_back(&first, &Step::Done, at(21));
        assert!(!moves.forget(&name(0)) && moves.forget(&name(1)));
        moves.add(name(1), topic, at(30));
        moves.put_back(&second, &Step::Done, at(30));
        assert!(moves.forget(&name(1)), "an earlier move's thread ends only that");
    }
}
