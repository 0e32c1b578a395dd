//! Admission plugins that workloads rely on.
