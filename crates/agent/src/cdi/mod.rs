//! The CDI specs of this node, kept up to date.
