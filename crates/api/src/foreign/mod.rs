//! Kinds that we use but do not own.

pub mod monitoring;
