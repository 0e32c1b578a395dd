//! Runs the daemon that lets processes share a GPU.
