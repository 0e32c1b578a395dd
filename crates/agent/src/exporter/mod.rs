//! Metrics of GPUs, under the names that dashboards know.
