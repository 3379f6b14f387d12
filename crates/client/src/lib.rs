//! Crate `client`.
