//! Stories: what happens on a cluster, in virtual time, from a user's first write until nothing is written any more.

mod daemon_sets;
mod deployments;
mod jobs;
mod stateful_sets;
mod world;
