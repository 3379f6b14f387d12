//! Crate `timeline`: state that can be read and reverted at earlier offsets.
//!
//! Owns: [`TimelineMap`] and [`TimelineSet`], persistent ordered collections that share structure between
//! copies, and [`SnapshotRegistry`], which keeps a copy of a whole state per offset.
//!
//! Invariants: a copy costs one reference count, so a snapshot of a state built from these collections costs
//! nothing per entry; only what changes afterwards is copied, one path of the tree at a time. Iteration is in
//! key order, hence deterministic.
//! Concurrency: values are `Send + Sync` when their entries are; a copy taken by one thread is never changed by another.
//! A crash leaves nothing: everything here is in memory and rebuilt by replaying the metadata log.
#![forbid(unsafe_code)]

mod map;
mod registry;
mod set;

pub use map::{Iter, TimelineMap};
pub use registry::{NoSuchSnapshot, SnapshotRegistry};
pub use set::TimelineSet;
