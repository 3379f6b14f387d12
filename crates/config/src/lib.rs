//! Crate `config`.
