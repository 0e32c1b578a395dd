//! Objects in memory.
