//! Crate `metadata`.
