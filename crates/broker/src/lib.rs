//! Crate `broker`.
pub mod raft_driver;
