//! Crate `cli`.
