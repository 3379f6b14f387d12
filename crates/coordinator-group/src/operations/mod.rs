//! The operations of a shard, a file per family.

mod admin;
mod expiration;
mod join;
mod membership;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod rebalance;
mod sync;

pub(crate) use rebalance::Steps;
