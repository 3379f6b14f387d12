//! Crate `timeline`.
