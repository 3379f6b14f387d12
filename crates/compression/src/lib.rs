//! Crate `compression`.
