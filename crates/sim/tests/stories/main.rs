//! Stories in virtual time, from a user's first write until the cluster has settled.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod autoscalers;
mod churn;
mod cost;
mod daemon_sets;
mod deployments;
mod disk;
mod endpoints;
mod jobs;
mod log;
mod nodes;
mod others;
mod stateful_sets;
mod volumes;
mod world;
