//! The controller driven through an in-memory log: what it decides, writes, reverts and answers.

mod cluster;
mod configs;
mod driver;
mod properties;
mod quotas;
mod reference;
mod reference_cluster;
mod topics;
