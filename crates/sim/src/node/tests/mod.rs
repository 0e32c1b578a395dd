//! Tests of nodes: the life of a pod as a table of times, and stories with a server.

mod bodies;
mod lifecycle;
mod stories;
