//! Answers on their way out of the node: bytes with file ranges in between, tagged with the request they belong to.

use protocol::{ApiKey, Encoded, Message};
use storage::FileSlice;

/// Names one request of one connection; made by the shell, returned with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestToken {
    pub connection: u64,
    pub sequence: u64,
}

/// All that is needed to answer a request later.
#[derive(Debug, Clone, Copy)]
pub struct ReplyTo {
    pub token: RequestToken,
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
}

/// An encoded answer. `Chunk::External { token, .. }` in `encoded` is `files[token]`.
pub struct Reply {
    pub encoded: Encoded,
    pub files: Vec<FileSlice>,
}

/// Where answers that are not given at once go. Called from any thread, possibly while the node holds its own locks:
/// an implementation only hands over.
pub trait Outbox: Send + Sync {
    /// `None`: the request is done and gets no answer.
    fn deliver(&self, to: RequestToken, reply: Option<Reply>);

    /// A timer earlier than the last deadline that was announced exists now.
    fn wake_timers(&self);

    /// The controller has work.
    fn wake_controller(&self);

    /// A group shard has to be loaded from its log: call [`crate::Node::run_loader`].
    fn wake_loader(&self);

    /// A request for, or a failure of, a log directory waits: call [`crate::Node::run_log_dir_events`].
    fn wake_log_dirs(&self);

    /// A replica is to be moved: call [`crate::Node::move_replicas`].
    fn wake_movers(&self);

    /// Something that the shell acts on.
    fn event(&self, event: NodeEvent);
}

/// Turns in a node's life that the shell acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent {
    /// The metadata are known and the logs are loaded: clients may connect, then [`crate::Node::set_ready`].
    CaughtUp,
    /// The controller has unfenced the broker.
    Running,
    /// The controlled shutdown is over: [`crate::Node::close`].
    ShutDown,
    /// The node cannot go on.
    Failed(String),
}

impl ReplyTo {
    /// Encodes an answer without file ranges. An answer that cannot be encoded is our own bug and ends the connection.
    pub fn encode<M: Message>(&self, response: &M) -> Result<Reply, protocol::EncodeError> {
        self.encode_with_files(response, Vec::new())
    }

    /// Encodes an answer whose external records are the given file ranges.
    pub fn encode_with_files<M: Message>(
        &self,
        response: &M,
        files: Vec<FileSlice>,
    ) -> Result<Reply, protocol::EncodeError> {
        let encoded =
            protocol::encode_response(self.api_key, self.api_version, self.correlation_id, response)?;
        Ok(Reply { encoded, files })
    }
}
