//! Tells the kubelet about GPUs and hands them to containers.
