//! Crate `storage`.
