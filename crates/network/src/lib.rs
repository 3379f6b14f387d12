//! Crate `network`.
