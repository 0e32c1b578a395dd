//! The four patch types, server-side apply and managed fields. Pure functions: no I/O, no clock.

pub mod managed;
pub mod patch;
