//! The producer: batching, partitioning, retries, idempotence.
//!
//! [`Producer::send`] adds to the accumulator under a short lock; one sender task takes ready batches out, runs one
//! request per node and batch set, and reports every batch to the delivery handler, in order per partition. The handler
//! runs on the sender's task and must not wait. Dropping the handle without [`Producer::close`] loses what has not
//! been sent.

mod accumulator;
mod config;
mod partitioner;
mod sender;

pub use accumulator::{Delivery, ProducerRecord};
pub use config::ProducerConfig;
pub use partitioner::{murmur2, partition_of_key};

use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::error::{ApiError, ClientError};
use accumulator::{Accumulator, Refusal};

/// Told of every batch that is in or has failed for good.
pub type DeliveryHandler = Arc<dyn Fn(&Delivery<'_>) + Send + Sync>;

pub struct Producer {
    shared: Arc<Shared>,
    sender: tokio::task::JoinHandle<()>,
}

struct Shared {
    cluster: Cluster,
    config: ProducerConfig,
    accumulator: Mutex<Accumulator>,
    /// There is something for the sender to look at.
    work: Notify,
    /// A batch has completed: memory is free, a flush may be over.
    progress: Notify,
    waiting_for_memory: std::sync::atomic::AtomicUsize,
    handler: DeliveryHandler,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Accumulator> {
        self.accumulator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Producer {
    pub fn new(cluster: Cluster, config: ProducerConfig, handler: DeliveryHandler) -> Self {
        // Only spreads records without keys; the process's own hash seed is random enough.
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let shared = Arc::new(Shared {
            cluster,
            accumulator: Mutex::new(Accumulator::new(config.clone(), seed)),
            config,
            work: Notify::new(),
            progress: Notify::new(),
            waiting_for_memory: Default::default(),
            handler,
        });
        let sender = tokio::spawn(sender::run(Arc::clone(&shared)));
        Producer { shared, sender }
    }

    /// Takes a record; waits for metadata of its topic and for memory, at most `max.block.ms`.
    pub async fn send(&self, record: &ProducerRecord<'_>, token: u64) -> Result<(), ClientError> {
        let now = Instant::now();
        let first = self.shared.lock().append(record, token, now);
        match first {
            Ok(work) => {
                if work {
                    self.shared.work.notify_one();
                }
                Ok(())
            }
            Err(refusal) => self.send_later(record, token, refusal, now).await,
        }
    }

    async fn send_later(
        &self,
        record: &ProducerRecord<'_>,
        token: u64,
        mut refusal: Refusal,
        since: Instant,
    ) -> Result<(), ClientError> {
        let deadline = since + self.shared.config.max_block;
        loop {
            match refusal {
                Refusal::UnknownTopic => self.learn_topic(record.topic, deadline).await?,
                Refusal::NoMemory => self.wait_for_memory(deadline).await?,
                other => return Err(other.into_error(&self.shared.config)),
            }
            let again = self.shared.lock().append(record, token, Instant::now());
            match again {
                Ok(_) => {
                    self.shared.work.notify_one();
                    return Ok(());
                }
                Err(again) => refusal = again,
            }
        }
    }

    async fn learn_topic(&self, topic: &str, deadline: Instant) -> Result<(), ClientError> {
        let topics = [topic.to_owned()];
        let attempt = || async {
            let metadata = self.shared.cluster.metadata_creating(&topics).await?;
            for topic in &metadata.topics {
                ApiError::check(topic.error_code, None)?;
            }
            self.shared.lock().update_metadata(&metadata);
            Ok(())
        };
        match tokio::time::timeout_at(deadline, self.shared.cluster.retry(deadline, attempt)).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::TimedOut {
                what: format!("find topic {topic} in the cluster's metadata"),
                after: self.shared.config.max_block,
            }),
        }
    }

    async fn wait_for_memory(&self, deadline: Instant) -> Result<(), ClientError> {
        use std::sync::atomic::Ordering;
        self.shared.waiting_for_memory.fetch_add(1, Ordering::Relaxed);
        let progress = self.shared.progress.notified();
        self.shared.work.notify_one();
        let waited = tokio::time::timeout_at(deadline, progress).await;
        self.shared.waiting_for_memory.fetch_sub(1, Ordering::Relaxed);
        waited.map_err(|_| Refusal::NoMemory.into_error(&self.shared.config))
    }

    /// Returns when everything sent so far has completed.
    pub async fn flush(&self) {
        self.shared.lock().flush_started();
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if self.shared.lock().incomplete() == 0 {
                break;
            }
            self.shared.work.notify_one();
            progress.await;
        }
        self.shared.lock().flush_ended();
    }

    /// Sends what is left and ends.
    pub async fn close(self) {
        self.shared.lock().close();
        self.shared.work.notify_one();
        let _ = self.sender.await;
    }
}
