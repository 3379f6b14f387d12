//! Crate `protocol`.
