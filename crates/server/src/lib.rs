//! Crate `server`.
