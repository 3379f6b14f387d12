//! Crate `broker`.
