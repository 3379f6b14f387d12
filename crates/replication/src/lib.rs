//! Replication decisions of a broker, without IO: fetch sessions today; partition state, ISR and high watermark
//! advance join them as clusters of more than one node arrive.
#![forbid(unsafe_code)]

pub mod fetch_session;
