//! Crate `replication`.
