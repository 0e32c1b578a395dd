//! Labels that say what a node has.
