//! Crate `env`.
