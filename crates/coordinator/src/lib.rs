//! Crate `coordinator`.
