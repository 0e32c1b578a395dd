//! Tests of nodes: the pod lifecycle as a table of times, and stories with a server.

mod bodies;
mod lifecycle;
mod stories;
