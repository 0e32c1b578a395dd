//! Serving models.

pub mod nim_service;
