//! Crate `coordinator-group`.
