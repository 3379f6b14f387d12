//! Crate `record`.
