//! Crate `raft`.
