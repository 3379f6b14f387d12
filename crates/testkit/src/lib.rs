//! Crate `testkit`.
