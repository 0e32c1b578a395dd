//! Proves that a node works, step by step.
