//! The engine against a real API in the same process, in virtual time.

#![allow(clippy::unwrap_used, reason = "helpers of tests are no tests to clippy")]

mod cache;
mod controller;
mod events;
mod leader;
mod storms;
mod support;
mod webhook;
mod writer;
